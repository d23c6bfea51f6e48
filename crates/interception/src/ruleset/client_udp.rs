//! Leads clients' UDP that tunnels are to carry to the thread that has the tunnels.
//!
//! Behind the operator's forward chains, which so decide first, a datagram to one of the ports gets a priority, by which the next chain,
//! of another table ([`bentpipe_os::nft::HoldTable`]), has it wait for that thread. What that does not take goes on from there. No datagram
//! waits unless the thread holds its position of the [`super::Switch`], which it does while there are tunnels; while it hangs, or there are
//! none, datagrams pass end to end. So do those whose destination is translated ([`super::nat_table`]), since the answers would come from
//! another address than the client has asked, what comes by another way than its answers would go, and traceroutes.

use super::{FEW_HOPS, HOOK_PRIORITY, QueueReader, Ruleset};
use bentpipe_gateway_config::LegId;
use std::fmt::Write as _;

/// Where in the forward hook datagrams are tagged.
const TAG: i32 = HOOK_PRIORITY + 9;
/// Where in the forward hook they wait for the thread.
pub const WAIT: i32 = HOOK_PRIORITY + 10;
/// Where they lose the tag.
const UNTAG: i32 = HOOK_PRIORITY + 11;

impl Ruleset {
    /// Matches clients' datagrams to each of the ports.
    fn client_udp(&self) -> impl Iterator<Item = String> {
        let crosses = self.crosses(LegId::Lan);
        let ports = self.udp_ports.iter();
        ports.map(move |ports| format!("{crosses} udp dport {}-{}", ports.start(), ports.end()))
    }

    /// Chains that tag the datagrams that are to wait, and take the tag away behind the queue, where a client may be refused.
    pub(super) fn client_udp_chains(&self) -> String {
        if self.udp_ports.is_empty() {
            return String::new();
        }
        let [tag, translated] = self.marks.client_udp();
        let (refused, attended) = (self.marks.refused(), QueueReader::Tunnels.attends());
        let routed_back = format!("fib saddr oifname {}", self.set(LegId::Lan));
        let mut rules = String::new();
        for datagrams in self.client_udp() {
            for (family, hops) in [("ipv4", "ip ttl"), ("ipv6", "ip6 hoplimit")] {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    rules,
                    "  meta nfproto {family} {datagrams} {attended} {hops} >= {FEW_HOPS} {routed_back} meta priority set {tag:#x} accept"
                );
            }
        }
        format!(
            "\
chain client_udp {{
  type filter hook forward priority {TAG}; policy accept;
  meta priority {translated:#x} accept
{rules}}}
chain client_udp_end {{
  type filter hook forward priority {UNTAG}; policy accept;
  meta priority {{ {tag:#x}, {translated:#x} }} meta priority set 0
  meta mark {refused:#x} meta l4proto udp reject with icmpx port-unreachable
}}
"
        )
    }

    /// Rules of the table for where addresses are translated.
    pub(super) fn translated_udp(&self) -> String {
        let [_, translated] = self.marks.client_udp();
        { self.client_udp() }
            .map(|datagrams| {
                format!("  {datagrams} ct status dnat meta priority set {translated:#x}\n")
            })
            .collect()
    }
}
