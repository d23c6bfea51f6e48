//! Finds rules of input and output chains that may drop packets of TCP, and those of prerouting chains that may drop them because
//! conntrack does not know them.
//!
//! The result for input and output decides whether packets skip such chains, which costs some time, and it errs on the safe side: a rule is
//! left out only where no packet of a gateway can ever match it.

use super::Chain;
use crate::netlink::Mark;
use std::collections::{BTreeSet, HashMap};

/// The chains and maps of a table, and their numbers by their names: kube-proxy has tens of thousands of both.
#[derive(Debug)]
pub(super) struct Chains<'a> {
    all: &'a [Chain<'a>],
    by_name: HashMap<&'a str, Vec<usize>>,
    /// The first rule of each that accepts all packets of gateways, or has them go to a chain that does.
    admitting: Vec<Option<usize>>,
}

/// A hook, and the conditions that no packet of a gateway meets there.
#[derive(Debug)]
struct Place {
    /// The hook, as nft calls it.
    hook: &'static str,
    /// States of conntrack that never occur. Conntrack knows only the connections that the gateway dials where
    /// addresses are translated; their first packet, in the output hook, is new.
    states: &'static [&'static str],
    /// What a rule asks for the name of an interface with that no packet has in this hook.
    interface: [&'static str; 2],
}

const INPUT: Place = Place {
    hook: "input",
    states: &["invalid", "new"],
    interface: ["oif", "oifname"],
};
const OUTPUT: Place = Place {
    hook: "output",
    states: &["invalid"],
    interface: ["iif", "iifname"],
};

/// Packets of split connections are not tracked there; all others have a state.
const PREROUTING: Place = Place {
    hook: "prerouting",
    states: &["invalid", "new", "established", "related"],
    interface: ["oif", "oifname"],
};

impl<'a> Chains<'a> {
    pub(super) fn new(all: &'a [Chain<'a>]) -> Self {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, chain) in all.iter().enumerate() {
            by_name.entry(chain.name).or_default().push(number);
        }
        let mut chains = Self {
            all,
            by_name,
            admitting: Vec::new(),
        };
        chains.admitting = chains.find_admitting();
        chains
    }

    fn named(&self, name: &str) -> &[usize] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The chains that accept marks themselves are found first, then those that lead to them, and so on.
    fn find_admitting(&self) -> Vec<Option<usize>> {
        let first =
            |rules: &[&str], is: &dyn Fn(&str) -> bool| rules.iter().position(|rule| is(rule));
        let mut found: Vec<_> = self
            .all
            .iter()
            .map(|chain| first(&chain.rules, &accepts_marks))
            .collect();
        let mut leads: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
        for (number, chain) in self.all.iter().enumerate() {
            for (place, rule) in chain.rules.iter().enumerate() {
                let next = goes_to(rule).and_then(|name| self.named(name).first());
                if let Some(next) = next {
                    leads.entry(*next).or_default().push((number, place));
                }
            }
        }
        let mut open: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_some()).collect();
        while let Some(number) = open.pop() {
            // Each is looked at once: what has led to it needs no second look.
            for (from, place) in leads.remove(&number).unwrap_or_default() {
                if found[from].is_none() {
                    open.push(from);
                }
                found[from] = Some(found[from].map_or(place, |before| before.min(place)));
            }
        }
        found
    }

    /// Whether all packets of gateways go on that come to the chain of that number and are not refused before.
    pub(super) fn lets_by(&self, number: usize) -> bool {
        self.admitting[number].is_some()
    }

    /// The rules of a chain that packets of gateways meet: up to one that lets their marks by.
    fn before_admission(&self, number: usize) -> &'a [&'a str] {
        let rules = &self.all[number].rules;
        &rules[..self.admitting[number].unwrap_or(rules.len())]
    }

    /// The chains that are hooked in at `place`, by their numbers.
    fn bases(&self, place: &Place) -> Vec<usize> {
        let all = 0..self.all.len();
        all.filter(|number| self.all[*number].is_at(place.hook))
            .collect()
    }

    /// The chains and maps that packets of gateways may come to from those that are `open` in the hook of `place`, by their numbers.
    fn reached(&self, mut open: Vec<usize>, place: &Place) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        while let Some(number) = open.pop() {
            if !reached.insert(number) {
                continue;
            }
            let met = self.before_admission(number).len() + 1;
            // The rule that accepts marks counts too, because it may lead to another chain.
            let rules = self.all[number].rules.iter().take(met);
            let rules = rules.filter(|rule| !asks_for_no_interface(rule, place));
            for word in rules.flat_map(|rule| words(rule)) {
                // A chain's name stands behind `jump` or `goto`, a map's behind `@`. Other words that are a name do no harm.
                let named = self.named(word.trim_start_matches('@')).iter().copied();
                open.extend(
                    named.filter(|other| {
                        self.all[*other].hook.is_none() && !reached.contains(other)
                    }),
                );
            }
        }
        reached
    }
}

/// The rules of a table that may do so in input and output chains, each with its chain's name: those of its input and output chains and of chains
/// that these lead to.
pub(super) fn refusing<'a>(chains: &Chains<'a>) -> Vec<(&'a str, &'a str)> {
    let found: BTreeSet<(usize, usize)> = [INPUT, OUTPUT]
        .iter()
        .flat_map(|place| {
            let reached = chains.reached(chains.bases(place), place).into_iter();
            reached.flat_map(move |chain| {
                let rules = chains.before_admission(chain).iter().enumerate();
                let refusing = rules.filter(|(_, rule)| may_refuse(rule, place));
                refusing.map(move |(number, _)| (chain, number))
            })
        })
        .collect();
    let all = chains.all;
    found
        .into_iter()
        .map(|(chain, number)| (all[chain].name, all[chain].rules[number]))
        .collect()
}

/// The rules of a table's prerouting chains that let packets by for their connection, in chains that may drop others, and those that
/// drop what has no connection; each with its chain's name.
pub(super) fn asking_for_tracking<'a>(chains: &Chains<'a>) -> Vec<(&'a str, &'a str)> {
    let place = &PREROUTING;
    let all = chains.bases(place).into_iter().flat_map(|base| {
        let reached = chains.reached(vec![base], place);
        let rules = reached.iter().flat_map(|number| {
            let chain = &chains.all[*number];
            chain.rules.iter().map(|rule| (chain.name, *rule))
        });
        let rules: Vec<_> = rules.collect();
        let closes = chains.all[base]
            .hook
            .unwrap_or_default()
            .contains("policy drop");
        let drops = closes || rules.iter().any(|(_, rule)| may_refuse(rule, place));
        rules.into_iter().filter(move |(_, rule)| {
            rule.contains("ct state ")
                && (may_refuse(rule, place) || drops && lets_by_tracked(rule))
        })
    });
    all.collect()
}

/// The rules of a table's output chains that give packets a zone of conntrack's, or another template of iptables' (`-j CT`), and that
/// packets with marks of gateways meet; each with its chain's name.
pub(super) fn giving_zones<'a>(chains: &Chains<'a>) -> Vec<(&'a str, &'a str)> {
    let reached = chains.reached(chains.bases(&OUTPUT), &OUTPUT);
    let rules = reached.into_iter().flat_map(|number| {
        let rules = chains.before_admission(number).iter();
        rules.map(move |rule| (chains.all[number].name, *rule))
    });
    rules
        .filter(|(_, rule)| rule.contains(" zone set ") || rule.contains("xt target \"CT\""))
        .collect()
}

/// Whether `rule` lets packets by where their connection is known, and not those that are not tracked.
fn lets_by_tracked(rule: &str) -> bool {
    let has = |wanted| words(rule).any(|word| word == wanted);
    has("established") && !has("untracked") && (has("accept") || has("return"))
}

/// Whether `rule` accepts every packet with a gateway's mark.
fn accepts_marks(rule: &str) -> bool {
    if !rule.contains("mark") {
        return false;
    }
    let Mark { value, mask } = Mark::GATEWAYS;
    // As newer and older ones of nft show it.
    let accept = [
        format!("meta mark & {mask:#010x} == {value:#010x} accept"),
        format!("meta mark {value:#010x}/{} accept", mask.leading_ones()),
    ];
    accept.contains(&uncounted(rule).join(" "))
}

/// The chain that `rule` has every packet go to.
fn goes_to(rule: &str) -> Option<&str> {
    match uncounted(rule)[..] {
        ["jump" | "goto", name] => Some(name),
        _ => None,
    }
}

/// The words of `rule` but those of its counter: `counter packets 1 bytes 2`.
fn uncounted(rule: &str) -> Vec<&str> {
    let mut rest: Vec<&str> = words(rule).collect();
    if let Some(at) = rest.iter().position(|word| *word == "counter") {
        rest.drain(at..(at + 5).min(rest.len()));
    }
    rest
}

fn words(rule: &str) -> impl Iterator<Item = &str> {
    let apart = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '{' | '}' | ';');
    rule.split(apart).filter(|word| !word.is_empty())
}

/// Protocols and messages that are neither TCP nor an error about it.
const OTHERS: [&str; 11] = [
    "udp",
    "udplite",
    "sctp",
    "dccp",
    "igmp",
    "esp",
    "ah",
    "gre",
    "vrrp",
    "echo-request",
    "arp",
];

/// Whether `rule` may drop or refuse a packet of TCP that a gateway's may be, at `place`.
fn may_refuse(rule: &str, place: &Place) -> bool {
    let rule = rule.split(" comment \"").next().unwrap_or_default();
    // What a refusal says names protocols, too.
    let asked = rule.split(" reject ").next().unwrap_or_default();
    let refusals = ["drop", "reject", "queue", "synproxy", "target"];
    let refuses = words(rule).any(|word| refusals.contains(&word));
    let plain = !asked.contains("!=") && !words(asked).any(|word| matches!(word, "tcp" | "th"));
    let other = plain && words(asked).any(|word| OTHERS.contains(&word));
    refuses && !other && !asks_for_state(rule, place.states) && !asks_for_no_interface(rule, place)
}

/// Whether `rule` asks for the name of an interface that no packet has at `place`. That of a set may be none.
fn asks_for_no_interface(rule: &str, place: &Place) -> bool {
    let mut asks = words(rule).zip(words(rule).skip(1));
    asks.any(|(key, name)| {
        let named = name.len() > 1 && name.starts_with('"');
        named && place.interface.contains(&key)
    })
}

/// Whether `rule` refuses only in states of conntrack that are among `never`.
fn asks_for_state(rule: &str, never: &[&str]) -> bool {
    let Some((_, rest)) = rule.split_once("ct state ") else {
        return false;
    };
    if let Some(map) = rest.strip_prefix("vmap {") {
        let (elements, behind) = map.split_once('}').unwrap_or((map, ""));
        let pairs = elements.split(',').filter_map(|one| one.split_once(':'));
        let refused = pairs.filter(|(_, verdict)| verdict.trim() == "drop");
        let mut states = refused.map(|(state, _)| state.trim());
        return behind.trim().is_empty() && states.all(|state| never.contains(&state));
    }
    let (states, _) = match rest.strip_prefix('{') {
        Some(set) => set.split_once('}').unwrap_or((set, "")),
        None => rest.split_once(' ').unwrap_or((rest, "")),
    };
    let mut states = words(states);
    states.all(|state| never.contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain<'a>(hook: Option<&'a str>, name: &'a str, rules: &[&'a str]) -> Chain<'a> {
        let rules = rules.to_vec();
        Chain { name, hook, rules }
    }

    #[test]
    fn what_lets_marks_of_gateways_by_spares_the_rules_behind_it() {
        const ACCEPT: &str = "meta mark 0x62000000/8 counter packets 1 bytes 2 accept";
        let input = Some("type filter hook input priority filter; policy drop;");
        let chains = [
            chain(input, "in", &["tcp dport 1 drop", "jump more", "drop"]),
            chain(
                None,
                "more",
                &["tcp dport 2 drop", ACCEPT, "tcp dport 3 drop"],
            ),
            chain(None, "other", &["drop"]),
        ];
        let found = refusing(&Chains::new(&chains));
        let expected = [("in", "tcp dport 1 drop"), ("more", "tcp dport 2 drop")];
        assert_eq!(found, expected);
        let chains = Chains::new(&chains);
        assert!(chains.lets_by(0) && !chains.lets_by(2));
        assert!(accepts_marks("meta mark & 0xff000000 == 0x62000000 accept"));
        // Of one port, it is no such rule.
        let one = format!("tcp dport 7 {ACCEPT}");
        let chains = [chain(input, "in", &[&one, "jump in", "drop"])];
        assert_eq!(refusing(&Chains::new(&chains)).len(), 1);
        assert!(!Chains::new(&chains).lets_by(0));
    }

    #[test]
    fn a_rule_that_may_meet_tcp_is_told_from_one_that_does_not() {
        let refused = [
            "iifname \"wan\" tcp dport 22 drop",
            "tcp dport { 22, 80 } counter packets 0 bytes 0 reject with tcp reset",
            "ip saddr @f2b tcp dport 22 reject with icmp port-unreachable",
            "tcp dport vmap { 22 : drop, 80 : accept }",
            "limit rate over 10/second drop",
            "meta l4proto { tcp, udp } th dport 53 drop",
            "ip protocol != udp drop",
            "ct state established drop",
            "ct state != new drop",
            "ct state { established, new } drop",
            "ct state vmap { invalid : drop, untracked : drop }",
            "ip protocol icmp drop",
            "xt match \"recent\" counter packets 0 bytes 0 drop",
            "counter packets 0 bytes 0 xt target \"REJECT\"",
            "queue num 7",
            "elements = { 22 : drop }",
        ];
        let passed = [
            "tcp dport 22 accept",
            "ct state invalid drop",
            "ct state { invalid, new } tcp dport 22 drop",
            "ct state new tcp dport 22 limit rate over 3/minute drop",
            "ct state vmap { invalid : drop, established : accept, related : accept }",
            "udp dport 53 drop",
            "meta l4proto udp udp dport 53 counter packets 0 bytes 0 reject with icmp port-unreachable",
            "icmp type echo-request limit rate over 1/second drop",
            "iifname \"drop0\" accept comment \"no drop here\"",
            "log prefix \"dropped\"",
        ];
        let wrong = |rules: &[&'static str], expected| -> Vec<&str> {
            let wrong = rules.iter().filter(|r| may_refuse(r, &INPUT) != expected);
            wrong.copied().collect()
        };
        assert_eq!(wrong(&refused, true), [""; 0]);
        assert_eq!(wrong(&passed, false), [""; 0]);
        assert!(may_refuse("ct state new tcp dport 22 drop", &OUTPUT));
    }

    #[test]
    fn rules_that_give_a_zone_are_found_unless_marks_of_gateways_are_let_by_first() {
        let gives = "oifname != \"lo\" ct zone set 5";
        let accepts = "meta mark & 0xff000000 == 0x62000000 accept";
        let found = |hook: &str, rules: &[&str]| {
            let hook = format!("type filter hook {hook} priority raw; policy accept;");
            let more = ["ct original zone set 7"];
            let chains = [chain(Some(&hook), "c", rules), chain(None, "more", &more)];
            giving_zones(&Chains::new(&chains)).len()
        };
        assert_eq!(found("output", &[gives]), 1);
        assert_eq!(found("output", &[gives, "jump more", accepts]), 2);
        assert_eq!(found("output", &[accepts, gives, "jump more"]), 0);
        assert_eq!(found("output", &["ct zone 5 accept"]), 0);
        assert_eq!(found("forward", &[gives]), 0);
    }

    #[test]
    fn rules_before_routing_that_ask_for_a_known_connection_are_found() {
        let hook =
            |policy: &str| format!("type filter hook prerouting priority mangle; policy {policy};");
        let (open, closed) = (hook("accept"), hook("drop"));
        let found = |policy, rules: &[&str]| {
            let chains = [
                chain(Some(policy), "pre", rules),
                chain(
                    None,
                    "more",
                    &["iifname \"wan\" ct state related,established accept"],
                ),
                chain(Some(&open), "other", &["tcp dport 9 drop"]),
            ];
            asking_for_tracking(&Chains::new(&chains)).len()
        };
        const ACCEPTS: &str =
            "iifname \"wan\" ct state { established, related } counter packets 0 bytes 0 accept";
        assert_eq!(
            found(&open, &[ACCEPTS, "iifname \"wan\" meta l4proto tcp drop"]),
            1
        );
        assert_eq!(found(&closed, &[ACCEPTS]), 1);
        assert_eq!(
            found(
                &closed,
                &["ct state vmap { established : accept, new : jump more }"]
            ),
            2
        );
        assert_eq!(found(&open, &["ct state untracked drop"]), 1);
        assert_eq!(found(&open, &["ct state != { established, new } drop"]), 1);
        // Nothing is dropped; what has no state is let by; what is dropped is not of ours.
        assert_eq!(found(&open, &[ACCEPTS, "jump more"]), 0);
        assert_eq!(
            found(&closed, &["ct state established,related,untracked accept"]),
            0
        );
        assert_eq!(
            found(&open, &["ct state invalid drop", "udp dport 7 drop"]),
            0
        );
        assert_eq!(
            found(
                &open,
                &[
                    "ct state established meta mark set ct mark",
                    "tcp dport 7 drop"
                ]
            ),
            0
        );
    }

    /// As kube-proxy makes them: a map that leads to a chain for each service, and chains that lead to one another.
    #[test]
    fn any_number_of_chains_is_read_in_bounded_time() {
        let hook = "type filter hook input priority filter; policy accept;";
        let names: Vec<String> = (0..20_000).map(|n| format!("service-{n}")).collect();
        let elements: Vec<String> = names
            .iter()
            .map(|name| format!("10.0.0.1 . 80 : goto {name},"))
            .collect();
        let next: Vec<String> = names
            .iter()
            .skip(1)
            .map(|name| format!("jump {name}"))
            .collect();
        let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
        let mut all = vec![
            chain(Some(hook), "in", &["ip daddr . th dport vmap @services"]),
            chain(None, "services", &elements),
        ];
        all.extend(
            names
                .iter()
                .zip(&next)
                .map(|(name, next)| chain(None, name, &["tcp dport 7 drop", next, next])),
        );
        all.push(chain(
            None,
            "service-19999",
            &["drop", "meta mark 0x62000000/8 accept"],
        ));
        let begun = std::time::Instant::now();
        let chains = Chains::new(&all);
        assert_eq!(refusing(&chains).len(), 20_000);
        assert_eq!(asking_for_tracking(&chains).len(), 0);
        assert!(chains.lets_by(2) && !chains.lets_by(0));
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn a_chain_that_two_hooks_share_is_read_for_each() {
        let hook = |hook| format!("type filter hook {hook} priority filter; policy accept;");
        let (input, output) = (hook("input"), hook("output"));
        let refused = |rules: &[&str]| {
            let chains = [
                chain(Some(&input), "in", &["jump both"]),
                chain(Some(&output), "out", &["jump both"]),
                chain(None, "both", rules),
                chain(None, "more", &["ct state new drop"]),
            ];
            let found = refusing(&Chains::new(&chains));
            let found = found.into_iter().map(|(_, rule)| rule.to_owned());
            found.collect::<Vec<_>>()
        };
        // No packet in the output hook has an interface that it came by, and what a gateway is sent is never new.
        for none in [
            "iifname \"wan\" ct state new tcp dport 22 drop",
            "iif \"wan\" ct state new drop",
            "iifname { \"wan\", \"lan\" } ct state { new, invalid } drop",
            "iifname \"wan\" jump more",
        ] {
            assert_eq!(refused(&[none]), [""; 0], "{none}");
        }
        for one in [
            "ct state new tcp dport 22 drop",
            "iifname \"wan\" tcp dport 22 drop",
            "iifname != \"lo\" ct state new drop",
            "iifname @inside ct state new drop",
            "oifname \"wan\" ct state new drop",
        ] {
            assert_eq!(refused(&[one]), [one]);
        }
        assert_eq!(refused(&["jump more"]), ["ct state new drop"]);
    }
}
