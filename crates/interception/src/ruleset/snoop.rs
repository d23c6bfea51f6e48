//! Leads packets of snooped connections, which pass end to end, by the Snoop agent, in both directions.
//!
//! The policies decide at the SYN, whose addresses and ports are remembered. Behind all other chains of the forward hook
//! packets of these connections get a priority that tells where they go. By it the next chain, of another table
//! ([`bentpipe_os::nft::HoldTable`]), has them wait for the agent. When no agent has that queue, they go on; so they do when
//! the agent hangs, for they are tagged only while it holds a position of the [`Switch`].

use super::{HOOK_PRIORITY, Ruleset, SNOOPED};
use bentpipe_gateway_config::{Action, LegId};
use bentpipe_os::nft::Switch;
use std::fmt::Write as _;

/// Where in the forward hook packets of snooped connections are tagged.
const TAG: i32 = HOOK_PRIORITY + 6;
/// Where in the forward hook they wait for the agent.
pub const WAIT: i32 = HOOK_PRIORITY + 7;
/// Where they lose the tag.
const UNTAG: i32 = HOOK_PRIORITY + 8;
/// A connection without packets for so long passes by itself from then on.
const IDLE: &str = "10m";

/// A family's number, its name to nft, and a connection as it is remembered: from its client, and from its server.
const CONNECTIONS: [(u8, &str, &str, &str); 2] = [
    (
        4,
        "ipv4",
        "ip saddr . tcp sport . ip daddr . tcp dport",
        "ip daddr . tcp dport . ip saddr . tcp sport",
    ),
    (
        6,
        "ipv6",
        "ip6 saddr . tcp sport . ip6 daddr . tcp dport",
        "ip6 daddr . tcp dport . ip6 saddr . tcp sport",
    ),
];

impl Ruleset {
    /// Sets of the connections, and chains; no packet has anything to do with them as long as no policy says `snoop`.
    pub(super) fn snoop_chains(&self) -> String {
        let size = self.snoop_flows;
        let sets = CONNECTIONS.map(|(family, _, connection, _)| {
            format!(
                "set snooped{family} {{\n  typeof {connection}; size {size}; flags dynamic, timeout; timeout {IDLE};\n}}\n"
            )
        });
        // Where the set is full, the connection passes as by `bypass`.
        let remember = CONNECTIONS.map(|(family, name, connection, _)| {
            format!("  meta nfproto {name} update @snooped{family} {{ {connection} }}\n")
        });
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.marks.snooped(leg));
        format!(
            "\
{}chain remember_snooped {{
{}}}
chain snoop {{
  type filter hook forward priority {TAG}; policy accept;
}}
chain snoop_end {{
  type filter hook forward priority {UNTAG}; policy accept;
  meta priority {{ {lan:#x}, {sat:#x} }} meta priority set 0
}}
",
            sets.concat(),
            remember.concat()
        )
    }

    /// Commands that give chain `snoop` its rules, where a policy asks for it.
    pub(super) fn snoop_commands(&self, table: &str) -> String {
        let mut commands = String::new();
        if !self
            .policies
            .iter()
            .any(|policy| policy.action == Action::Snoop)
        {
            return commands;
        }
        let attended = Switch::matches(SNOOPED);
        for to in [LegId::Sat, LegId::Lan] {
            let (crosses, tag) = (self.crosses(to.other()), self.marks.snooped(to));
            for (family, name, from_client, from_server) in CONNECTIONS {
                for connection in [from_client, from_server] {
                    // Writing to a String cannot fail.
                    let _ = writeln!(
                        commands,
                        "add rule {table} snoop meta l4proto tcp meta nfproto {name} {crosses} {connection} @snooped{family} {attended} update @snooped{family} {{ {connection} }} meta priority set {tag:#x} accept"
                    );
                }
            }
        }
        commands
    }
}
