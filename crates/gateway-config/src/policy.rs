//! Which of the connections that cross the gateway are split, which pass end to end, and which are
//! refused: a list of policies, of which the first that matches decides.
//!
//! The kernel decides, by rules that the gateway writes from these, when it sees a
//! connection's SYN: a connection is never picked up in mid-stream.

use crate::LegId;
use bentpipe_base::Prefix;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is split, as without any policy.
    Split,
    /// It passes end to end.
    Bypass,
    /// It passes end to end, and what the link loses of it is sent again from here (Snoop).
    Snoop,
    /// It is answered by a reset.
    Reject,
}

/// What becomes of new connections that match everything that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What it is called in counters and warnings.
    pub name: String,
    /// The client is in one of these; anywhere, if there are none.
    pub from: Vec<Prefix>,
    /// The server is in one of these; anywhere, if there are none.
    pub to: Vec<Prefix>,
    /// The server's port is in one of these; any, if there are none.
    pub ports: Vec<RangeInclusive<u16>>,
    /// The differentiated-services code point of the SYN (RFC 2474).
    pub dscp: Option<u8>,
    /// The leg by whose interface the SYN arrives.
    pub arrives: Option<LegId>,
    /// The SYN arrives by one of these interfaces; by any, if there are none.
    pub interfaces: Vec<String>,
    /// By an interface of one of these VLANs (IEEE 802.1Q); of any or none, if there are none.
    pub vlans: Vec<u16>,
    /// Of those that are split, the place among [`Config::profiles`](crate::Config::profiles) of the
    /// variant of a leg that they get.
    pub profile: Option<usize>,
    /// What becomes of them.
    pub action: Action,
}

/// An interface of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The VLAN that it is of.
    pub vlan: Option<u16>,
}

/// What becomes of UDP to port 443, which cannot be split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quic {
    /// It passes and is counted.
    #[default]
    Count,
    /// It is refused by "port unreachable", so that clients fall back to TCP.
    Reject,
}

impl Policy {
    /// Whether it matches every connection.
    pub(crate) fn takes_all(&self) -> bool {
        let Self {
            name: _,
            from,
            to,
            ports,
            dscp,
            arrives,
            interfaces,
            vlans,
            profile: _,
            action: _,
        } = self;
        from.is_empty()
            && to.is_empty()
            && ports.is_empty()
            && dscp.is_none()
            && arrives.is_none()
            && interfaces.is_empty()
            && vlans.is_empty()
    }

    /// The name of its counter.
    pub fn counter(&self) -> String {
        format!("policy_{}", self.name)
    }

    /// Whether it matches anything of IPv4 (`true`) or IPv6.
    pub fn is_for(&self, v4: bool) -> bool {
        let has = |list: &[Prefix]| {
            list.is_empty() || list.iter().any(|prefix| prefix.address().is_ipv4() == v4)
        };
        has(&self.from) && has(&self.to)
    }

    /// Whether it matches what arrives by that interface.
    pub fn includes(&self, interface: &Interface) -> bool {
        let vlan = interface.vlan;
        (self.interfaces.is_empty() || self.interfaces.contains(&interface.name))
            && (self.vlans.is_empty() || vlan.is_some_and(|vlan| self.vlans.contains(&vlan)))
    }

    /// Whether it matches a SYN from `client` to `server` with code point `dscp` that arrives by an interface of `leg`, as
    /// [`matches`](Self::matches) says it to the kernel, interfaces and VLANs left aside.
    pub fn takes(&self, client: IpAddr, server: SocketAddr, dscp: u8, leg: LegId) -> bool {
        let among = |list: &[Prefix], address| {
            list.is_empty()
                || list
                    .iter()
                    .any(|prefix| prefix.holds(&Prefix::host(address)))
        };
        let port = |ports: &RangeInclusive<u16>| ports.contains(&server.port());
        among(&self.from, client)
            && among(&self.to, server.ip())
            && (self.ports.is_empty() || self.ports.iter().any(port))
            && self.dscp.is_none_or(|own| own == dscp)
            && self.arrives.is_none_or(|arrives| arrives == leg)
    }

    /// Its match on a SYN of IPv4 (`true`) or IPv6 that arrives by `leg`, whose interfaces are
    /// `interfaces`, in nft(8)'s language; `None` where it cannot match.
    pub fn matches(&self, v4: bool, leg: LegId, interfaces: &[Interface]) -> Option<String> {
        if !self.is_for(v4) || self.arrives.is_some_and(|arrives| arrives != leg) {
            return None;
        }
        let ip = if v4 { "ip" } else { "ip6" };
        let mut rule = String::new();
        if !self.interfaces.is_empty() || !self.vlans.is_empty() {
            let by: Vec<String> = interfaces
                .iter()
                .filter(|by| self.includes(by))
                .map(|by| format!("\"{}\"", by.name))
                .collect();
            if by.is_empty() {
                return None;
            }
            put_set(&mut rule, "iifname", by.into_iter());
        }
        for (key, list) in [("saddr", &self.from), ("daddr", &self.to)] {
            let list = list
                .iter()
                .filter(|prefix| prefix.address().is_ipv4() == v4)
                .map(Prefix::to_string);
            put_set(&mut rule, &format!("{ip} {key}"), list);
        }
        let ports = self
            .ports
            .iter()
            .map(|ports| match (ports.start(), ports.end()) {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}-{last}"),
            });
        put_set(&mut rule, "tcp dport", ports);
        if let Some(dscp) = self.dscp {
            // Writing to a String cannot fail.
            let _ = write!(rule, "{ip} dscp {dscp} ");
        }
        Some(rule)
    }
}

fn put_set(rule: &mut String, key: &str, members: impl Iterator<Item = String>) {
    let members: Vec<String> = members.collect();
    if !members.is_empty() {
        let _ = write!(rule, "{key} {{ {} }} ", members.join(", "));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn any() -> Policy {
        Policy {
            name: "any".to_owned(),
            from: Vec::new(),
            to: Vec::new(),
            ports: Vec::new(),
            dscp: None,
            arrives: None,
            interfaces: Vec::new(),
            vlans: Vec::new(),
            profile: None,
            action: Action::Split,
        }
    }

    pub(crate) fn prefixes(list: &[&str]) -> Vec<Prefix> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_policy_takes_what_its_rule_says() {
        let policy = Policy {
            from: prefixes(&["10.0.0.0/8", "fd00::/8"]),
            to: prefixes(&["192.0.2.0/24", "2001:db8::/32"]),
            ports: vec![80..=80, 8000..=8099],
            dscp: Some(46),
            arrives: Some(LegId::Sat),
            ..any()
        };
        let takes = |client: &str, server: &str, dscp, leg| {
            policy.takes(client.parse().unwrap(), server.parse().unwrap(), dscp, leg)
        };
        assert!(takes("10.1.2.3", "192.0.2.7:80", 46, LegId::Sat));
        assert!(takes("fd00::1", "[2001:db8::1]:8099", 46, LegId::Sat));
        for (client, server, dscp, leg) in [
            ("11.1.2.3", "192.0.2.7:80", 46, LegId::Sat),
            ("10.1.2.3", "192.0.3.7:80", 46, LegId::Sat),
            ("10.1.2.3", "192.0.2.7:81", 46, LegId::Sat),
            ("10.1.2.3", "192.0.2.7:80", 0, LegId::Sat),
            ("10.1.2.3", "192.0.2.7:80", 46, LegId::Lan),
        ] {
            assert!(!takes(client, server, dscp, leg), "{client} {server}");
        }
        assert!(any().takes(
            [10, 0, 0, 1].into(),
            ([10, 0, 0, 2], 9).into(),
            0,
            LegId::Lan
        ));
    }

    #[test]
    fn a_rule_says_what_the_policy_matches() {
        let policy = Policy {
            from: prefixes(&["10.0.0.0/8", "fd00::/8"]),
            ports: vec![80..=80, 8000..=8099],
            dscp: Some(46),
            arrives: Some(LegId::Sat),
            ..any()
        };
        let rule = policy.matches(false, LegId::Sat, &[]).unwrap();
        let expected = "ip6 saddr { fd00::/8 } tcp dport { 80, 8000-8099 } ip6 dscp 46 ";
        assert_eq!(rule, expected);
        assert_eq!(policy.matches(true, LegId::Lan, &[]), None);
        let v4 = Policy {
            to: prefixes(&["192.0.2.1/32"]),
            ..any()
        };
        assert_eq!(v4.matches(false, LegId::Lan, &[]), None);
        let by = |name: &str, vlan| Interface {
            name: name.to_owned(),
            vlan,
        };
        let there = [
            by("eth0", None),
            by("eth0.20", Some(20)),
            by("eth1.20", Some(20)),
        ];
        for (interfaces, vlans, expected) in [
            (&["eth0"][..], &[][..], Some("iifname { \"eth0\" } ")),
            (&[], &[20], Some("iifname { \"eth0.20\", \"eth1.20\" } ")),
            (&["eth1.20"], &[20, 30], Some("iifname { \"eth1.20\" } ")),
            (&["eth0"], &[20], None),
            (&["eth7"], &[], None),
        ] {
            let policy = Policy {
                interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
                vlans: vlans.to_vec(),
                ..any()
            };
            let rule = policy.matches(true, LegId::Lan, &there);
            assert_eq!(rule.as_deref(), expected, "{interfaces:?} {vlans:?}");
        }
        assert_eq!(any().matches(true, LegId::Lan, &[]).unwrap(), "");
    }
}
