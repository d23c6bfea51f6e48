//! Finds rules of input and output chains that may drop packets of TCP, and those of prerouting chains that may drop them because
//! conntrack does not know them.
//!
//! The result for input and output decides whether packets skip such chains, which costs some time, and it errs on the safe side: a rule is
//! left out only where no packet of a gateway can ever match it.

use super::Chain;
use crate::netlink::Mark;
use std::collections::BTreeSet;

/// Chains that lead to chains are followed so far.
const DEPTH: usize = 16;

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

/// The rules of a table that may do so in input and output chains, each with its chain's name: those of its input and output chains and of chains
/// that these lead to.
pub(super) fn refusing<'a>(chains: &'a [Chain<'a>]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let found: BTreeSet<(usize, usize)> = [INPUT, OUTPUT]
        .iter()
        .flat_map(|place| {
            let reached = reached(chains, bases(chains, place), place).into_iter();
            reached.flat_map(move |chain| {
                let rules = before_admission(chains, chain).iter().enumerate();
                let refusing = rules.filter(|(_, rule)| may_refuse(rule, place));
                refusing.map(move |(number, _)| (chain, number))
            })
        })
        .collect();
    found
        .into_iter()
        .map(|(chain, number)| (chains[chain].name, chains[chain].rules[number]))
}

/// The rules of a table's prerouting chains that let packets by for their connection, in chains that may drop others, and those that
/// drop what has no connection; each with its chain's name.
pub(super) fn asking_for_tracking<'a>(chains: &'a [Chain<'a>]) -> Vec<(&'a str, &'a str)> {
    let place = &PREROUTING;
    let all = bases(chains, place).into_iter().flat_map(|base| {
        let reached = reached(chains, vec![base], place);
        let rules = reached.iter().flat_map(|number| {
            let chain = &chains[*number];
            chain.rules.iter().map(|rule| (chain.name, *rule))
        });
        let rules: Vec<_> = rules.collect();
        let closes = chains[base]
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

/// Whether `rule` lets packets by where their connection is known, and not those that are not tracked.
fn lets_by_tracked(rule: &str) -> bool {
    let has = |wanted| words(rule).any(|word| word == wanted);
    has("established") && !has("untracked") && (has("accept") || has("return"))
}

/// The chains of a table that are hooked in at `place`, by their numbers.
fn bases(chains: &[Chain<'_>], place: &Place) -> Vec<usize> {
    let all = 0..chains.len();
    all.filter(|number| chains[*number].is_at(place.hook))
        .collect()
}

/// The chains and maps that packets of gateways may come to from those that are `open` in the hook of `place`, by their numbers.
fn reached(chains: &[Chain<'_>], mut open: Vec<usize>, place: &Place) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    while let Some(number) = open.pop() {
        if !reached.insert(number) {
            continue;
        }
        let met = before_admission(chains, number).len() + 1;
        // The rule that accepts marks counts too, because it may lead to another chain.
        let rules = chains[number].rules.iter().take(met);
        let rules = rules.filter(|rule| !asks_for_no_interface(rule, place));
        for word in rules.flat_map(|rule| words(rule)) {
            // A chain's name stands behind `jump` or `goto`, a map's behind `@`. Other words that are a name do no harm.
            let name = word.trim_start_matches('@');
            let named = (0..chains.len()).filter(|other| chains[*other].name == name);
            open.extend(named.filter(|other| chains[*other].hook.is_none()));
        }
    }
    reached
}

/// The rules of a chain that packets of gateways meet: up to one that lets their marks by.
fn before_admission<'a, 'b>(chains: &'a [Chain<'b>], place: usize) -> &'a [&'b str] {
    let rules = &chains[place].rules;
    let end = rules.iter().position(|rule| admits(chains, rule, DEPTH));
    &rules[..end.unwrap_or(rules.len())]
}

/// Whether all packets of gateways go on that come to the chain at `place` and are not refused before.
pub(super) fn lets_by(chains: &[Chain<'_>], place: usize) -> bool {
    let mut rules = chains[place].rules.iter();
    rules.any(|rule| admits(chains, rule, DEPTH))
}

/// Whether `rule` accepts every packet with a gateway's mark, or has it go to a chain that does.
fn admits(chains: &[Chain<'_>], rule: &str, depth: usize) -> bool {
    let mut rest: Vec<&str> = words(rule).collect();
    if let Some(at) = rest.iter().position(|word| *word == "counter") {
        // `counter packets 1 bytes 2`.
        rest.drain(at..(at + 5).min(rest.len()));
    }
    let Mark { value, mask } = Mark::GATEWAYS;
    // As newer and older ones of nft show it.
    let accept = [
        format!("meta mark & {mask:#010x} == {value:#010x} accept"),
        format!("meta mark {value:#010x}/{} accept", mask.leading_ones()),
    ];
    match rest[..] {
        ["jump" | "goto", name] if depth > 0 => {
            let chain = chains.iter().find(|chain| chain.name == name);
            let mut rules = chain.iter().flat_map(|chain| &chain.rules);
            rules.any(|rule| admits(chains, rule, depth - 1))
        }
        _ => accept.contains(&rest.join(" ")),
    }
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
        let found: Vec<_> = refusing(&chains).collect();
        let expected = [("in", "tcp dport 1 drop"), ("more", "tcp dport 2 drop")];
        assert_eq!(found, expected);
        assert!(lets_by(&chains, 0) && !lets_by(&chains, 2));
        assert!(admits(
            &chains,
            "meta mark & 0xff000000 == 0x62000000 accept",
            0
        ));
        // Of one port, it is no such rule.
        let one = format!("tcp dport 7 {ACCEPT}");
        let chains = [chain(input, "in", &[&one, "jump in", "drop"])];
        assert_eq!(refusing(&chains).count(), 1);
        assert!(!lets_by(&chains, 0));
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
            asking_for_tracking(&chains).len()
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
            let found = refusing(&chains).map(|(_, rule)| rule.to_owned());
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
