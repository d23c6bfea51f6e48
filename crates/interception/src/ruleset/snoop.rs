//! Leads packets of snooped connections, which pass end to end, by the Snoop agent, in both directions.
//!
//! The policies decide at the SYN, whose addresses and ports are remembered. Behind all other chains of the forward hook
//! packets of these connections get a priority that tells where they go. By it the next chain, of another table
//! ([`bentpipe_os::nft::HoldTable`]), has them wait for the agent. When no agent has that queue, they go on; so they do when
//! the agent hangs, for they are tagged only while it holds its position of the [`super::Switch`].

use super::{HOOK_PRIORITY, QueueReader, Ruleset, passed_syns};
use bentpipe_gateway_config::{Action, LegId};
use std::fmt::Write as _;

/// Where in the forward hook packets of snooped connections are tagged.
const TAG: i32 = HOOK_PRIORITY + 6;
/// Where in the forward hook they wait for the agent.
pub const WAIT: i32 = HOOK_PRIORITY + 7;
/// Where they lose the tag.
const UNTAG: i32 = HOOK_PRIORITY + 8;
/// A connection without packets of its server for so long passes by itself from then on.
const IDLE: &str = "10m";
/// So it does after a SYN that nobody answers for so long.
const UNANSWERED: &str = "5s";
/// The same for one that has been answered and says nothing, and for one that has ended.
const SHORT: &str = "30s";

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
                "set snooped{family} {{\n  typeof {connection}; size {size}; flags dynamic, timeout; timeout {IDLE};\n}}\n\
                 set snoop_closing{family} {{\n  typeof {connection}; size {size}; flags dynamic, timeout; timeout {SHORT};\n}}\n"
            )
        });
        // Where the set is full, the connection passes as by `bypass`.
        let remember = CONNECTIONS.map(|(family, name, connection, _)| {
            format!("  meta nfproto {name} update @snooped{family} {{ {connection} timeout {UNANSWERED} }} return\n")
        });
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.marks.snooped(leg));
        format!(
            "\
{}chain remember_snooped {{
{}{}  counter name snoop_full
}}
chain snoop {{
  type filter hook forward priority {TAG}; policy accept;
}}
chain snoop_end {{
  type filter hook forward priority {UNTAG}; policy accept;
  meta priority {{ {lan:#x}, {sat:#x} }} meta priority set 0
}}
",
            sets.concat(),
            passed_syns::note_snooped(self.seed),
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
        let attended = QueueReader::Snoop.attends();
        for to in [LegId::Sat, LegId::Lan] {
            let (crosses, tag) = (self.crosses(to.other()), self.marks.snooped(to));
            for (family, name, client, server) in CONNECTIONS {
                let keep = |connection, time| {
                    format!("update @snooped{family} {{ {connection} timeout {time} }}")
                };
                let ends = "tcp flags & (fin | rst) != 0";
                let closing = format!("update @snoop_closing{family} {{ {client} }}");
                // Only a server's packets keep a connection, for anybody can say that he is its client. Where the client has closed,
                // the server's last acknowledgement does not keep it for long, nor its FIN.
                for (connection, which, does) in [
                    (client, ends, keep(client, SHORT) + " " + &closing),
                    (client, "", String::new()),
                    (
                        server,
                        "tcp flags & (fin | syn | rst) != 0",
                        keep(server, SHORT),
                    ),
                    (
                        server,
                        &format!("{server} @snoop_closing{family}"),
                        keep(server, SHORT),
                    ),
                    (server, "", keep(server, IDLE)),
                ] {
                    // Writing to a String cannot fail.
                    let _ = writeln!(
                        commands,
                        "add rule {table} snoop meta l4proto tcp meta nfproto {name} {crosses} {connection} @snooped{family} {which} {attended} {does} meta priority set {tag:#x} accept"
                    );
                }
            }
        }
        commands
    }
}
