//! The nft table of a gateway, as text in nft(8)'s language.
//!
//! What each chain does, and why it stands where it stands:
//!
//! - `notrack_in`, `notrack_out` (raw priority, before conntrack): both legs of a split flow carry
//!   the same addresses and ports, one tuple to conntrack. Tracked, port reuse runs into
//!   drop-invalid rules and masquerading is silently skipped.
//! - `deliver` (one past mangle, so that an operator's own marks cannot overwrite ours): packets of
//!   connections that we hold, on either leg, and the ICMP errors about them (path MTU!) are
//!   delivered here. SYNs are left out: a TIME_WAIT socket would catch those of new connections.
//! - `split` and `split_untracked`: the SYNs to intercept. They go from one leg's interface out by
//!   the other's by the routing table; that leaves out what is for this machine itself, broadcast,
//!   multicast, and what never crosses the satellite. Emptied to suspend interception: then new
//!   flows pass end to end, and `deliver` still serves those that stand. In `split` the `tproxy`
//!   comes before the mark: with nobody listening the rule ends there and the SYN passes.

use crate::listen::Doors;
use crate::mark::Marks;
use std::fmt::Write as _;

/// New connections that arrive on `from` and leave by `to` go to `doors`.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) doors: Doors,
}

/// The body of the table, with interception suspended.
pub(crate) fn table(marks: Marks) -> String {
    let deliver = format!("meta mark set {:#x} accept", marks.intercepted());
    format!(
        "\
chain split {{
}}
chain split_untracked {{
}}
chain notrack_in {{
  type filter hook prerouting priority raw; policy accept;
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 notrack {deliver}
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 notrack {deliver}
  tcp flags & (fin | syn | rst | ack) == syn jump split_untracked
}}
chain notrack_out {{
  type filter hook output priority raw; policy accept;
  meta mark & {mask:#x} == {ours:#x} notrack
}}
chain deliver {{
  type filter hook prerouting priority mangle + 1; policy accept;
  meta mark {ours:#x} accept
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 {deliver}
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 {deliver}
  tcp flags & (fin | syn | rst | ack) == syn jump split
}}
",
        mask = Marks::mask(),
        ours = marks.intercepted(),
    )
}

/// Commands that intercept what crosses, in the table that is written `table`.
pub(crate) fn resume(table: &str, marks: Marks, crossings: &[Crossing]) -> String {
    let mut commands = suspend(table);
    for crossing in crossings {
        let Crossing { from, to, doors } = crossing;
        let crosses = format!("iifname \"{from}\" fib daddr oifname \"{to}\"");
        let mark = format!("meta mark set {:#x} accept", marks.intercepted());
        // Writing to a String cannot fail.
        let _ = writeln!(
            commands,
            "add rule {table} split_untracked {crosses} notrack"
        );
        let v6 = doors.v6.map(|door| ("ipv6", "ip6", door));
        for (family, ip, door) in [Some(("ipv4", "ip", doors.v4)), v6].into_iter().flatten() {
            let _ = writeln!(
                commands,
                "add rule {table} split meta nfproto {family} meta l4proto tcp {crosses} tproxy {ip} to {door} {mark}",
            );
        }
    }
    commands
}

/// Commands that let new connections pass end to end.
pub(crate) fn suspend(table: &str) -> String {
    format!("flush chain {table} split\nflush chain {table} split_untracked\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_os::owner::Owner;

    #[test]
    fn tproxy_comes_before_the_mark() {
        let marks = Marks::new(Owner { pid: 1, start: 1 });
        let crossing = Crossing {
            from: "lan0".to_owned(),
            to: "sat0".to_owned(),
            doors: Doors {
                v4: "127.0.0.1:1000".parse().unwrap(),
                v6: "[::1]:1001".parse().ok(),
            },
        };
        let commands = resume("inet t", marks, &[crossing]);
        let rules: Vec<&str> = commands
            .lines()
            .filter(|line| line.contains("tproxy"))
            .collect();
        assert_eq!(rules.len(), 2);
        for rule in rules {
            assert!(rule.find("tproxy") < rule.find("meta mark set"), "{rule}");
        }
        assert!(commands.starts_with("flush chain inet t split\n"));
    }
}
