//! Warnings about settings that are valid but probably not meant so: above all about policies that overlap.

use crate::policy::{Action, Policy};
use bentpipe_base::Prefix;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// What may be spent on comparing policies with each other: a pair costs one, and one for each network of the later one.
/// That is at most half a second, and enough for 4,000 policies of a network each.
const EFFORT: usize = 16_000_000;
/// So many overlaps are told one by one.
const TOLD: usize = 100;

/// A warning about a list of policies that is valid but probably not meant so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigWarning<'p> {
    /// The policy is never used, because an earlier one matches all that it matches.
    Shadowed(&'p Policy, &'p Policy),
    /// Some connections match both, neither is the narrower one, and what they do differs: their
    /// order decides.
    Crosses(&'p Policy, &'p Policy),
    /// It matches on an interface that is no leg's.
    Elsewhere(&'p Policy, &'p str),
    /// A leg of this name that no policy chooses.
    Unchosen(&'p str),
    /// So many more policies are never used, and so many more pairs cross.
    More(usize, usize),
    /// There are too many policies to compare each with all before it: so many of the last are not compared.
    Uncompared(usize),
}

impl std::fmt::Display for ConfigWarning<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shadowed(later, earlier) => write!(
                f,
                "policy `{}` is never used: policy `{}` before it takes all that it matches",
                later.name, earlier.name
            ),
            Self::Crosses(later, earlier) => write!(
                f,
                "policies `{}` and `{}` have connections in common and differ in what they do: the first decides",
                earlier.name, later.name
            ),
            Self::Elsewhere(policy, interface) => write!(
                f,
                "policy `{}` matches on interface `{interface}`, which is of neither leg",
                policy.name
            ),
            Self::Unchosen(leg) => write!(
                f,
                "[leg.{leg}] is never used: no policy has `leg = \"{leg}\"`"
            ),
            Self::More(shadowed, crosses) => write!(
                f,
                "{shadowed} more policies are never used, and {crosses} more pairs have connections in common and differ in what they do"
            ),
            Self::Uncompared(count) => write!(
                f,
                "the last {count} policies are not compared with those before them: there are too many; one policy may have lists of addresses and ports, which is faster for each new connection too"
            ),
        }
    }
}

/// What is doubtful about a list of policies.
pub(crate) fn overlaps(policies: &[Policy]) -> Vec<ConfigWarning<'_>> {
    let mut found = Vec::new();
    let [mut shadowed, mut crosses, mut effort] = [0; 3];
    let mut before: Vec<Matched<'_>> = Vec::with_capacity(policies.len());
    for policy in policies {
        let later = Matched::by(policy);
        effort += before.len() * (1 + later.from.0.len() + later.to.0.len());
        if effort > EFFORT {
            break;
        }
        if let Some(earlier) = before.iter().find(|earlier| earlier.covers(&later)) {
            shadowed += 1;
            if found.len() < TOLD {
                found.push(ConfigWarning::Shadowed(policy, earlier.policy));
            }
        } else {
            let crossing = before.iter().filter(|earlier| {
                earlier.does() != later.does() && earlier.meets(&later) && !later.covers(earlier)
            });
            for earlier in crossing {
                crosses += 1;
                if found.len() < TOLD {
                    found.push(ConfigWarning::Crosses(policy, earlier.policy));
                }
            }
        }
        before.push(later);
    }
    if shadowed + crosses > found.len() {
        let shadows = |warning: &&ConfigWarning<'_>| matches!(warning, ConfigWarning::Shadowed(..));
        let shadows_told = found.iter().filter(shadows).count();
        let (shadowed, crosses) = (
            shadowed - shadows_told,
            crosses - (found.len() - shadows_told),
        );
        found.push(ConfigWarning::More(shadowed, crosses));
    }
    if before.len() < policies.len() {
        found.push(ConfigWarning::Uncompared(policies.len() - before.len()));
    }
    found
}

/// A policy, and what its networks hold.
struct Matched<'p> {
    policy: &'p Policy,
    from: Addresses,
    to: Addresses,
}

impl<'p> Matched<'p> {
    fn by(policy: &'p Policy) -> Self {
        Self {
            policy,
            from: Addresses::of(&policy.from),
            to: Addresses::of(&policy.to),
        }
    }

    fn does(&self) -> (Action, Option<usize>) {
        (self.policy.action, self.policy.profile)
    }

    /// Whether everything that `other` matches matches this too.
    fn covers(&self, other: &Self) -> bool {
        let (own, others) = (self.policy, other.policy);
        (own.dscp.is_none() || own.dscp == others.dscp)
            && (own.arrives.is_none() || own.arrives == others.arrives)
            && within(&others.ports, &own.ports, |outer, inner| {
                outer.contains(inner.start()) && outer.contains(inner.end())
            })
            && within(&others.interfaces, &own.interfaces, String::eq)
            && within(&others.vlans, &own.vlans, u16::eq)
            && self.from.hold(&other.from)
            && self.to.hold(&other.to)
    }

    /// Whether some connections match both.
    fn meets(&self, other: &Self) -> bool {
        let (own, others) = (self.policy, other.policy);
        let same = |a: Option<u8>, b: Option<u8>| a.is_none() || b.is_none() || a == b;
        let ports = |a: &RangeInclusive<u16>, b: &RangeInclusive<u16>| {
            a.start() <= b.end() && b.start() <= a.end()
        };
        same(own.dscp, others.dscp)
            && (own.arrives.is_none() || others.arrives.is_none() || own.arrives == others.arrives)
            && touches(&own.ports, &others.ports, ports)
            && touches(&own.interfaces, &others.interfaces, String::eq)
            && touches(&own.vlans, &others.vlans, u16::eq)
            // Networks of different families have no address in common.
            && [true, false].iter().any(|v4| own.is_for(*v4) && others.is_for(*v4))
            && self.from.meet(&other.from)
            && self.to.meet(&other.to)
    }
}

/// An address, with its family before it.
type Address = (bool, u128);

/// Ranges of addresses in rising order, which do not touch; none for everywhere.
struct Addresses(Vec<(Address, Address)>);

impl Addresses {
    fn of(list: &[Prefix]) -> Self {
        let range = |prefix: &Prefix| {
            let (is_v4, first, width) = match prefix.network() {
                IpAddr::V4(address) => (true, u128::from(address.to_bits()), 32),
                IpAddr::V6(address) => (false, address.to_bits(), 128),
            };
            let hosts = u128::MAX.checked_shr(128 - (width - u32::from(prefix.bits())));
            ((is_v4, first), (is_v4, first | hosts.unwrap_or(0)))
        };
        let mut ranges: Vec<_> = list.iter().map(range).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = next.0 <= last.1 || next.0 == (last.1.0, last.1.1.saturating_add(1));
            if joins {
                last.1 = last.1.max(next.1);
            }
            joins
        });
        Self(ranges)
    }

    /// The first range that ends at `address` or behind it.
    fn at_or_behind(&self, address: Address) -> Option<&(Address, Address)> {
        self.0
            .get(self.0.partition_point(|(_, last)| *last < address))
    }

    /// Whether all of `inner` are among them.
    fn hold(&self, inner: &Self) -> bool {
        let holds = |(first, last): &(Address, Address)| {
            let range = self.at_or_behind(*first);
            range.is_some_and(|range| range.0 <= *first && *last <= range.1)
        };
        self.0.is_empty() || !inner.0.is_empty() && inner.0.iter().all(holds)
    }

    /// Whether both have an address in common.
    fn meet(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() <= other.0.len() {
            (self, other)
        } else {
            (other, self)
        };
        let meets = |(first, last): &(Address, Address)| {
            let range = many.at_or_behind(*first);
            range.is_some_and(|range| range.0 <= *last)
        };
        few.0.is_empty() || few.0.iter().any(meets)
    }
}

/// Whether each of `inner` is in one of `outer`; an empty list is everything.
fn within<T>(inner: &[T], outer: &[T], holds: impl Fn(&T, &T) -> bool) -> bool {
    outer.is_empty() || !inner.is_empty() && inner.iter().all(|i| outer.iter().any(|o| holds(o, i)))
}

fn touches<T>(a: &[T], b: &[T], meet: impl Fn(&T, &T) -> bool) -> bool {
    a.is_empty() || b.is_empty() || a.iter().any(|a| b.iter().any(|b| meet(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{any, prefixes};

    fn said(policies: &[Policy]) -> Vec<String> {
        overlaps(policies)
            .iter()
            .map(ConfigWarning::to_string)
            .collect()
    }

    #[test]
    fn a_policy_that_is_never_used_is_told() {
        let wide = Policy {
            name: "wide".to_owned(),
            to: prefixes(&["10.0.0.0/8", "fd00::/8"]),
            ..any()
        };
        let narrow = Policy {
            name: "narrow".to_owned(),
            to: prefixes(&["10.1.0.0/16"]),
            ports: vec![80..=80],
            action: Action::Bypass,
            ..any()
        };
        let warnings = said(&[wide.clone(), narrow.clone()]);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("`narrow` is never used: policy `wide`"));
        assert!(said(&[narrow, wide.clone()]).is_empty(), "an exception");
        assert_eq!(said(&[any(), wide]).len(), 1);
    }

    #[test]
    fn policies_that_cross_and_differ_are_told() {
        let web = Policy {
            name: "web".to_owned(),
            ports: vec![80..=80, 443..=443],
            action: Action::Bypass,
            ..any()
        };
        let lab = Policy {
            name: "lab".to_owned(),
            from: prefixes(&["10.0.0.0/8"]),
            ..any()
        };
        let warnings = said(&[web.clone(), lab.clone()]);
        assert!(warnings[0].contains("`web` and `lab` have connections in common"));
        let split = Policy {
            action: Action::Split,
            ..web.clone()
        };
        assert!(said(&[split, lab.clone()]).is_empty(), "they do the same");
        let v6 = Policy {
            to: prefixes(&["fd00::/8"]),
            ..web.clone()
        };
        assert!(said(&[v6, lab.clone()]).is_empty(), "of another family");
        let elsewhere = |vlan| Policy {
            vlans: vec![vlan],
            ..web.clone()
        };
        assert_eq!(said(&[elsewhere(20), lab.clone()]).len(), 1);
        let apart = [
            elsewhere(20),
            Policy {
                vlans: vec![30],
                ..lab.clone()
            },
        ];
        assert!(said(&apart).is_empty(), "of other VLANs");
        let slow = Policy {
            profile: Some(0),
            ..lab.clone()
        };
        let warnings = said(&[lab, slow]);
        assert!(warnings[0].contains("never used"), "{warnings:?}");
    }

    #[test]
    fn networks_of_a_list_are_taken_together() {
        let of = |list: &[&str]| Addresses::of(&prefixes(list));
        let all = of(&["0.0.0.0/0"]);
        let halves = of(&["128.0.0.0/1", "0.0.0.0/2", "64.0.0.0/2"]);
        assert!(halves.hold(&all) && all.hold(&halves));
        let v6 = of(&["::/0"]);
        assert!(!v6.hold(&all) && !v6.meet(&all) && !all.hold(&v6));
        let both = of(&["::/0", "0.0.0.0/0"]);
        assert!(both.hold(&all) && both.hold(&v6) && both.meet(&v6));
        let some = of(&["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]);
        for (list, held, met) in [
            (&["10.3.0.0/16"][..], true, true),
            (&["10.3.0.0/16", "192.0.2.1/32"], true, true),
            (&["10.3.0.0/16", "192.0.2.0/31"], false, true),
            (&["8.0.0.0/6"], false, true),
            (
                &["192.0.2.2/32", "2001:db9::/32", "11.0.0.0/8"],
                false,
                false,
            ),
        ] {
            let other = of(list);
            assert_eq!(
                (some.hold(&other), some.meet(&other)),
                (held, met),
                "{list:?}"
            );
            assert_eq!(other.meet(&some), met, "{list:?}");
        }
    }

    /// As many as an operator has by mistake, or an attacker of whoever checks files of others.
    #[test]
    fn any_number_of_policies_is_compared_in_bounded_time() {
        let one = |number: u32| Policy {
            name: number.to_string(),
            to: vec![Prefix::host(IpAddr::from(number.to_be_bytes()))],
            action: [Action::Split, Action::Bypass][number as usize % 2],
            ..any()
        };
        let apart: Vec<Policy> = (0..200_000).map(one).collect();
        let warnings = said(&apart);
        let [only] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        let count = only.split(' ').nth(2).unwrap().parse::<usize>().unwrap();
        assert!((190_000..198_000).contains(&count), "{only}");
        // Each crosses all those of the other sort.
        let from = |number: u32| match number % 2 {
            0 => one(number),
            _ => Policy {
                from: prefixes(&["10.0.0.0/8"]),
                to: Vec::new(),
                ports: vec![number as u16..=number as u16],
                ..one(number)
            },
        };
        let warnings = said(&(0..1000).map(from).collect::<Vec<_>>());
        assert_eq!(warnings.len(), TOLD + 1);
        let last = "0 more policies are never used, and 249900 more pairs have";
        assert!(warnings[TOLD].starts_with(last), "{}", warnings[TOLD]);
        // Long lists, all of the later in all of the earlier.
        let list = |bits| Policy {
            to: { 0..100_000u32 }
                .map(|number| Prefix::new(IpAddr::from((number << 12).to_be_bytes()), bits))
                .collect::<Option<_>>()
                .unwrap(),
            ..any()
        };
        let warnings = said(&[list(20), list(24)]);
        assert!(warnings[0].contains("is never used"), "{warnings:?}");
    }
}
