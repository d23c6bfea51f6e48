//! The nft table of a gateway, as text in nft(8)'s language.
//!
//! What each chain does, and why it stands where it stands:
//!
//! - `choose`: which new connections are for the gateway: SYNs that go from one leg's interface out
//!   by the other's by the routing table. That leaves out what is for this machine itself,
//!   broadcast, multicast, and what never crosses the satellite. Emptied to suspend interception:
//!   then new flows pass end to end, and `deliver` still serves those that stand.
//! - `hold` (where SYNs are held; two before raw, with the queue's rule between): asks `choose`,
//!   which gives what is to be held a priority of ours for the queue's rule to know it by. Not a
//!   mark: a SYN that passes in the end keeps the operator's.
//! - `take` (raw priority, before conntrack, so that a SYN that passes is tracked like any other):
//!   SYNs go to the listeners: at once where `choose` says so; where SYNs are held, those whose
//!   verdict has marked them. The `tproxy` comes before the mark: with nobody listening the rule
//!   ends there and the SYN passes. And packets of connections that we hold are not tracked: both
//!   legs of a split flow carry the same addresses and ports, one tuple to conntrack, on which
//!   drop-invalid rules and masquerading act strangely.
//! - `notrack_out`: what we send is not tracked either.
//! - `cross_0`, `cross_1`: for SYNs that cross from one leg to the other, that way or this, the
//!   operator's policies, of which the first that matches decides, and what is done without any.
//! - `passing` (forward): counts what is not split, and refuses QUIC where that is wanted.
//! - `deliver` (one past mangle, so that an operator's own marks cannot overwrite ours): packets of
//!   connections that we hold, on either leg, and the ICMP errors about them (path MTU!) are
//!   delivered here. SYNs only to sockets that have a mark: those in TIME_WAIT have none, and would
//!   catch those of new connections.

use crate::listen::Doors;
use crate::mark::Marks;
use crate::shared::Standing;
use bentpipe_policy::Handshake;
use bentpipe_policy::Which;
use bentpipe_policy::{Action, Policy, Quic};
use std::fmt::Write as _;

/// New connections that arrive on `from` and leave by `to` go to `doors`.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    /// The leg that `from` belongs to.
    pub(crate) leg: Which,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) doors: Doors,
}

/// The table's counters beside those of policies.
const COUNTERS: [&str; 9] = [
    // New connections that passed unsplit: at a limit, because the operator wanted it, while the
    // gateway drained, and for MPTCP, TCP-MD5 or TCP-AO, answered early.
    "at_limit",
    "bypassed",
    "draining",
    "foreign_options",
    // Packets that passed, by kind; to UDP port 443 also those that were refused.
    "unsplit_tcp",
    "unsplit_quic",
    "rejected_quic",
    "unsplit_ipsec",
    "unsplit_other",
];

impl Crossing {
    /// Matches what crosses.
    fn crosses(&self) -> String {
        format!(
            "iifname \"{}\" fib daddr oifname \"{}\"",
            self.from, self.to
        )
    }

    /// For each family nft's words for it, its own and in a rule on `tproxy`, and the listener.
    fn listeners(&self) -> impl Iterator<Item = (&str, &str, std::net::SocketAddr)> {
        let v6 = self.doors.v6.map(|door| ("ipv6", "ip6", door));
        [Some(("ipv4", "ip", self.doors.v4)), v6]
            .into_iter()
            .flatten()
    }
}

/// One before raw: where the rule of the queue stands, between `hold` and `take`.
pub(crate) const QUEUE_PLACE: i32 = -301;

/// The rules of one gateway.
#[derive(Clone, Debug)]
pub(crate) struct Ruleset {
    pub(crate) marks: Marks,
    /// [`Handshake::EndToEnd`] where the kernel can hold SYNs.
    pub(crate) handshake: Handshake,
    pub(crate) crossings: Vec<Crossing>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) quic: Quic,
}

impl Ruleset {
    /// The body of the table, with interception suspended.
    pub(crate) fn table(&self) -> String {
        let ours = self.marks.intercepted();
        let mask = Marks::mask();
        let syn = "tcp flags & (fin | syn | rst | ack) == syn";
        let stands = format!("socket mark & {mask:#x} == {ours:#x}");
        let deliver = format!("meta mark set {ours:#x} accept");
        let counters: String = COUNTERS
            .iter()
            .map(|name| format!("counter {name} {{\n}}\n"))
            .collect();
        let crosses: String = (0..self.crossings.len())
            .map(|number| format!("chain cross_{number} {{\n}}\n"))
            .collect();
        let passing = self.passing();
        let (hold, take) = match self.handshake {
            Handshake::EndToEnd => (
                format!(
                    "\
chain hold {{
  type filter hook prerouting priority {}; policy accept;
  {syn} {stands} accept
  {syn} jump choose
}}
",
                    QUEUE_PLACE - 1
                ),
                self.take_answered(),
            ),
            Handshake::Early => (String::new(), format!("  {syn} jump choose\n")),
        };
        format!(
            "\
{counters}chain choose {{
}}
{crosses}{hold}chain take {{
  type filter hook prerouting priority raw; policy accept;
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 notrack {deliver}
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 notrack {deliver}
  {syn} {stands} notrack {deliver}
{take}}}
chain notrack_out {{
  type filter hook output priority raw; policy accept;
  meta mark & {mask:#x} == {ours:#x} notrack
}}
chain deliver {{
  type filter hook prerouting priority mangle + 1; policy accept;
  meta mark {ours:#x} accept
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 {deliver}
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 {deliver}
  {syn} {stands} {deliver}
}}
{passing}"
        )
    }

    /// Rules for the SYNs that come out of the queue.
    fn take_answered(&self) -> String {
        let mut rules = String::new();
        let answered = self.marks.answered();
        for (number, crossing) in (0..).zip(&self.crossings) {
            let tag = self.marks.held(number);
            let to = self.to_listeners(
                crossing,
                &format!("meta mark {answered:#x} meta priority {tag:#x}"),
            );
            // Writing to a String cannot fail.
            let _ = writeln!(rules, "{to}  meta priority {tag:#x} meta priority set 0");
        }
        rules
    }

    fn to_listeners(&self, crossing: &Crossing, which: &str) -> String {
        let mark = self.marks.intercepted();
        let rule = |(family, ip, door)| {
            format!(
                "  meta nfproto {family} meta l4proto tcp {which} tproxy {ip} to {door} meta mark set {mark:#x} notrack accept\n"
            )
        };
        crossing.listeners().map(rule).collect()
    }

    /// Counts what is forwarded between the legs, and thus not split.
    fn passing(&self) -> String {
        let ways: Vec<String> = self
            .crossings
            .iter()
            .flat_map(|crossing| [&crossing.from, &crossing.to])
            .map(|interface| format!("\"{interface}\""))
            .collect();
        // A set without repetitions.
        let legs = ways.get(..2).unwrap_or_default().join(", ");
        format!(
            "\
chain refuse_quic {{
}}
chain passing {{
  type filter hook forward priority filter; policy accept;
  iifname {{ {legs} }} oifname {{ {legs} }} jump by_kind
}}
chain by_kind {{
  meta l4proto tcp counter name unsplit_tcp accept
  udp dport 443 jump refuse_quic
  udp dport 443 counter name unsplit_quic accept
  udp sport 443 counter name unsplit_quic accept
  meta l4proto {{ esp, ah }} counter name unsplit_ipsec accept
  udp dport {{ 500, 4500 }} counter name unsplit_ipsec accept
  udp sport {{ 500, 4500 }} counter name unsplit_ipsec accept
  counter name unsplit_other
}}
"
        )
    }

    /// Commands that intercept what crosses, in the table that is written `table`.
    pub(crate) fn resume(&self, table: &str) -> String {
        let mut commands = self.clear(table);
        for policy in &self.policies {
            // Writing to a String cannot fail.
            let _ = writeln!(commands, "add counter {table} {}", policy.counter());
        }
        if self.quic == Quic::Reject {
            let _ = writeln!(
                commands,
                "add rule {table} refuse_quic counter name rejected_quic reject with icmpx port-unreachable"
            );
        }
        for (number, crossing) in (0..).zip(&self.crossings) {
            let crosses = crossing.crosses();
            let _ = writeln!(
                commands,
                "add rule {table} choose {crosses} goto cross_{number}"
            );
            for (family, ip, door) in crossing.listeners() {
                for rule in self.rules(number, crossing.leg, (family, ip, door)) {
                    let _ = writeln!(
                        commands,
                        "add rule {table} cross_{number} meta nfproto {family} {rule}"
                    );
                }
            }
        }
        commands
    }

    /// What becomes of SYNs of one family that cross.
    fn rules(
        &self,
        number: u32,
        leg: Which,
        (family, ip, door): (&str, &str, std::net::SocketAddr),
    ) -> Vec<String> {
        let enter = match self.handshake {
            Handshake::EndToEnd => {
                format!("meta priority set {:#x} accept", self.marks.held(number))
            }
            Handshake::Early => {
                let mark = self.marks.intercepted();
                format!(
                    "meta l4proto tcp tproxy {ip} to {door} meta mark set {mark:#x} notrack accept"
                )
            }
        };
        let mut rules = Vec::new();
        if self.handshake == Handshake::Early {
            // Held, the SYN is read to its last option.
            let foreign =
                |option| format!("tcp option {option} exists counter name foreign_options return");
            rules.extend(["mptcp", "19", "29"].map(foreign));
        }
        for policy in &self.policies {
            let Some(matches) = policy.matches(family == "ipv4", leg) else {
                continue;
            };
            let action = match policy.action {
                Action::Split => enter.as_str(),
                Action::Bypass => "return",
                Action::Reject => "meta l4proto tcp reject with tcp reset",
            };
            rules.push(format!(
                "{matches}counter name {} {action}",
                policy.counter()
            ));
        }
        rules.push(enter);
        rules
    }

    /// Commands that let new connections pass end to end, and count them by the reason.
    pub(crate) fn suspend(&self, table: &str, reason: Standing) -> String {
        let counter = match reason {
            Standing::Suspended | Standing::Serving => "at_limit",
            Standing::Bypassed => "bypassed",
            Standing::Draining => "draining",
        };
        let mut commands = self.clear(table);
        for crossing in &self.crossings {
            let crosses = crossing.crosses();
            let _ = writeln!(
                commands,
                "add rule {table} choose {crosses} counter name {counter}"
            );
        }
        commands
    }

    fn clear(&self, table: &str) -> String {
        let crosses = (0..self.crossings.len()).map(|number| format!("cross_{number}"));
        let chains = ["choose".to_owned(), "refuse_quic".to_owned()]
            .into_iter()
            .chain(crosses);
        chains
            .map(|chain| format!("flush chain {table} {chain}\n"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_os::owner::Owner;

    #[test]
    fn tproxy_comes_before_the_mark() {
        let crossing = Crossing {
            leg: Which::Lan,
            from: "lan0".to_owned(),
            to: "sat0".to_owned(),
            doors: Doors {
                v4: "127.0.0.1:1000".parse().unwrap(),
                v6: "[::1]:1001".parse().ok(),
            },
        };
        for handshake in [Handshake::EndToEnd, Handshake::Early] {
            let rules = Ruleset {
                marks: Marks::new(Owner { pid: 1, start: 1 }),
                handshake,
                crossings: vec![crossing.clone()],
                policies: Vec::new(),
                quic: Quic::Count,
            };
            let all = rules.table() + &rules.resume("inet t");
            let tproxy: Vec<&str> = all.lines().filter(|line| line.contains("tproxy")).collect();
            assert_eq!(tproxy.len(), 2);
            for rule in tproxy {
                assert!(rule.find("tproxy") < rule.find("meta mark set"), "{rule}");
            }
            assert!(
                rules
                    .resume("inet t")
                    .starts_with("flush chain inet t choose\n")
            );
        }
    }
}
