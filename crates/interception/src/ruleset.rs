//! The nft table of a gateway, as text in nft(8)'s language.
//!
//! A client's SYN takes its ordinary path, as if there were no gateway: raw chains, conntrack, translation, routing with
//! rp_filter, the operator's forward chains. Only a SYN that the kernel is about to send out by the other leg may be
//! split, at the end of the forward hook. The chains that it meets, in this order:
//!
//! - `hold` (forward, [`HOOK_PRIORITY`]) drops packets for our own sockets that are forwarded by mistake, while our routes
//!   are missing and about to be made again: the other end has a connection of the same four numbers. What a
//!   bridge of this host carries from port to port is not: br_netfilter shows it here too. Then it jumps to `choose`.
//! - `choose` selects the SYNs that are for the gateway: those that come by one leg's interface and leave by the
//!   other's.
//! - `cross_0` and `cross_1`, one for each direction, hold the operator's policies, of which the first that matches
//!   decides, and then the default. What would be split passes where the routing table sends its answers back by another leg than
//!   it came by. A SYN that is to be split gets a priority of ours, which tells its entrance (leg and
//!   profile) and its worker. It is not a mark, because a SYN that passes in the end keeps the operator's mark. Chain
//!   `enter` remembers the priority ([`syn_entrance`]).
//! - `admission`, to which `cross_N` jumps with what would be split, decides whether that is done at present, by the
//!   position of the [`Switch`], which changes without nft; where nobody holds it, the gateway does not attend, and
//!   nothing is split. A connection that is not split passes end to end, counted by the reason; one that a policy refuses
//!   is refused all the same. Chain `deliver` serves
//!   established flows all the same.
//! - The next two chains are of another table ([`bentpipe_os::nft::HoldTable`]): SYNs with such a priority wait in the
//!   queue of their worker, and those to which the worker then gives a mark are looped over `lo`. Where the kernel has no
//!   queues, `cross_N` sets that mark itself.
//! - `note_passed` remembers a SYN that passes, which will pass too when it comes again ([`passed_syns`]).
//!   A host or a prefix of which many pass is not asked about for a second ([`crowded`]).
//! - `after` restores the priority of what passes, and answers with an ICMP error where the next hop does not answer.
//! - `clamp` bounds the MSS option of connections that are not split by a leg's `mss`.
//! - `passing` counts what is not split, and refuses QUIC where the operator wants that.
//! - `carrier_in_N` and `carrier_out` lead packets to our own TCP ([`carrier`]), before all of these and behind `notrack_out`.
//! - `snoop` and `snoop_end` lead packets of connections that are to be snooped by that agent ([`snoop`]), as `acks` and
//!   `acks_end` in the output hook lead acknowledgements of ours to the thread that thins them out ([`acks`]), and `client_udp` and
//!   `client_udp_end` in the forward hook clients' UDP to the tunnels that carry it ([`client_udp`]).
//!
//! The chains for packets of our own sockets are in [`own_sockets`].

mod acks;
mod carrier;
mod client_udp;
mod counters;
mod crowded;
mod dialled;
mod icmp_errors;
mod ipsec_table;
mod lost_resets;
mod mss;
mod nat_table;
mod own_sockets;
mod passed_syns;
mod passing;
mod snoop;
mod sources;
mod switch_position;
mod syn_entrance;
mod time_wait;

pub use acks::WAIT as ACKS_PRIORITY;
pub use carrier::CarrierPlace;
pub use client_udp::WAIT as CLIENT_UDP_PRIORITY;
pub use snoop::WAIT as SNOOP_PRIORITY;
pub(crate) use switch_position::SwitchPosition;
pub use switch_position::{Limit, PassReason, QueueReader};

use crate::listen_addresses::ListenAddresses;
use crate::mark::Marks;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::{Action, Interface, LegId, Policy, Quic};
use bentpipe_os::netlink::Mark;
use bentpipe_os::nft::Switch;
use counters::COUNTERS;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// A direction in which connections are intercepted: those that arrive by `leg` and leave by the other leg go to one of
/// `addresses`.
#[derive(Clone, Debug)]
pub struct Ingress {
    /// By which leg they arrive.
    pub leg: LegId,
    /// Where the listeners are: first those for connections without a profile, then those of each profile; never empty.
    pub addresses: Vec<ListenAddresses>,
}

/// Where in the forward hook SYNs are held, and where in the prerouting hook packets are delivered: behind every
/// chain of an operator.
pub(crate) const HOOK_PRIORITY: i32 = 10_000;

/// Hops that are enough for any path through the Internet. A packet with fewer is one of a traceroute, which begins at 1
/// and goes up to 30; hosts send with 64 or more.
const FEW_HOPS: u8 = 32;

/// A SYN.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// The rules of one gateway.
#[derive(Clone, Debug)]
pub struct Ruleset {
    /// The marks of this gateway.
    pub marks: Marks,
    /// How many workers share the SYNs.
    pub workers: usize,
    /// SYNs wait in queues for their worker's verdict. Otherwise they go to a listener at once.
    pub queued: bool,
    /// The secret seed of the hash that spreads SYNs over workers, so that nobody can send all of theirs to one.
    pub seed: u32,
    /// The addresses of the decoy listener: see [`crate::DecoyListener`].
    pub decoy: ListenAddresses,
    /// The interfaces of each leg, by [`LegId`].
    pub interfaces: [Vec<Interface>; 2],
    /// The directions in which it intercepts.
    pub ingresses: Vec<Ingress>,
    /// The operator's policies, the first that matches first.
    pub policies: Vec<Policy>,
    /// What becomes of QUIC.
    pub quic: Quic,
    /// The bound on the MSS option of each leg.
    pub mss: [Option<Bytes>; 2],
    /// Snooped connections of each family that are remembered at a time.
    pub snoop_flows: usize,
    /// Acknowledgements of the satellite leg's sockets are thinned out.
    pub thins_acks: bool,
    /// Where packets wait for our own TCP, where that carries a satellite leg.
    pub carrier: Option<CarrierPlace>,
    /// Clients are answered before the far side has answered.
    pub early: bool,
    /// The servers' ports of the UDP that tunnels carry.
    pub udp_ports: Vec<RangeInclusive<u16>>,
}

/// Matches what has a mark or priority (`key`).
fn is(key: &str, Mark { value, mask }: Mark) -> String {
    format!("meta {key} & {mask:#x} == {value:#x}")
}

impl Ruleset {
    /// Whether there are listeners of IPv6.
    pub(crate) fn has_v6(&self) -> bool {
        let mut addresses = self.ingresses.iter().flat_map(|ingress| &ingress.addresses);
        addresses.any(|addresses| addresses.v6.is_some())
    }

    /// Each ingress and profile, and where its listeners are: the order is that of the queues.
    pub fn entrances(&self) -> impl Iterator<Item = (LegId, usize, &ListenAddresses)> {
        self.ingresses.iter().flat_map(|ingress| {
            let addresses = ingress.addresses.iter().enumerate();
            addresses.map(|(profile, addresses)| (ingress.leg, profile, addresses))
        })
    }

    /// The number of an entrance.
    fn entrance(&self, leg: LegId, profile: usize) -> usize {
        let place = self
            .entrances()
            .position(|(other, of, _)| (other, of) == (leg, profile));
        place.expect("every ingress and each of its profiles is an entrance")
    }

    /// The interfaces of a leg as an nft set.
    fn set(&self, leg: LegId) -> String {
        format!("{{ {} }}", self.names(leg))
    }

    /// Their names, with commas.
    fn names(&self, leg: LegId) -> String {
        let names: Vec<_> = self.interfaces[leg as usize]
            .iter()
            .map(|one| format!("\"{}\"", one.name))
            .collect();
        names.join(", ")
    }

    /// Matches what goes from `leg` to the other.
    fn crosses(&self, leg: LegId) -> String {
        format!(
            "iifname {} oifname {}",
            self.set(leg),
            self.set(leg.other())
        )
    }

    /// The body of the table, with no rules of the operator's yet; `switch` is the switch's part of it.
    pub(crate) fn table(&self, switch: &str) -> String {
        let counters: String = COUNTERS
            .iter()
            .map(|name| format!("counter {name} {{\n}}\n"))
            .collect();
        let crosses: String = (0..self.ingresses.len())
            .map(|number| format!("chain cross_{number} {{\n}}\n"))
            .collect();
        let (own, passing) = (self.own(), self.passing());
        let (snoop, acks) = (
            self.snoop_chains(),
            self.ack_chains() + &self.carrier_chains() + &self.client_udp_chains(),
        );
        let admission = switch_position::chain();
        let crowded = crowded::sets();
        let (passed, entering) = (
            passed_syns::sets(self.seed),
            syn_entrance::sets(self.seed, self.queued),
        );
        let holders = is("priority", self.marks.holders());
        let (unreachable, refused) = (self.marks.unreachable(), self.marks.refused());
        let ours = format!("meta mark {:#x}", self.marks.intercepted());
        format!(
            "\
{counters}{switch}{passed}{entering}{crowded}{admission}chain choose {{
}}
{crosses}chain hold {{
  type filter hook forward priority {HOOK_PRIORITY}; policy accept;
  {ours} {} drop
  {ours} {} drop
  {ours} meta iifkind \"bridge\" meta oifkind \"bridge\" accept
  {ours} drop
  {SYN} jump choose
}}
chain after {{
  type filter hook forward priority {}; policy accept;
  meta mark {unreachable:#x} reject with icmpx host-unreachable
  meta mark {refused:#x} meta l4proto tcp reject with tcp reset
  meta priority {:#x} counter name translated
  {holders} jump note_crowd
  {holders} jump note_passed
  {holders} meta priority set 0
}}
{own}{passing}{snoop}{acks}",
            self.crosses(LegId::Lan),
            self.crosses(LegId::Sat),
            HOOK_PRIORITY + 3,
            self.marks.translated(),
        )
    }

    /// Commands that give the table that is written `table` the operator's rules in the place of those it
    /// has.
    pub(crate) fn commands(&self, table: &str) -> String {
        let mut commands = self.clear(table);
        for policy in &self.policies {
            // Writing to a String cannot fail.
            let _ = writeln!(commands, "add counter {table} {}", policy.counter());
        }
        if self.quic == Quic::Reject {
            let _ = writeln!(
                commands,
                "add rule {table} refuse_quic {} counter name rejected_quic reject with icmpx port-unreachable",
                Switch::matches(SwitchPosition::Split.number())
            );
        }
        // Another gateway of this namespace has taken the SYN already, or has decided that it passes.
        let _ = writeln!(
            commands,
            "add rule {table} choose meta priority & 0xff000000 == 0x62000000 accept"
        );
        for rule in passed_syns::rules(self.seed) {
            let _ = writeln!(commands, "add rule {table} choose {rule}");
        }
        for (number, ingress) in self.ingresses.iter().enumerate() {
            let crosses = self.crosses(ingress.leg);
            let _ = writeln!(
                commands,
                "add rule {table} choose {crosses} goto cross_{number}"
            );
            let families = ingress
                .addresses
                .first()
                .into_iter()
                .flat_map(ListenAddresses::listeners);
            for (family, ip, _) in families {
                for rule in self.rules(ingress.leg, family, ip) {
                    let _ = writeln!(
                        commands,
                        "add rule {table} cross_{number} meta nfproto {family} {rule}"
                    );
                }
            }
        }
        commands += &self.snoop_commands(table);
        commands
    }

    /// What lets SYNs whose header is `ip` (nft's word) in to the listeners of a profile, which have the same families as
    /// those of the others.
    fn enter(&self, leg: LegId, ip: &str, profile: usize) -> String {
        let tag = self.marks.held(self.entrance(leg, profile), 0);
        if self.queued {
            format!("{} goto enter", self.deal("priority", ip, tag))
        } else {
            let any = self.marks.for_any_worker();
            format!("meta priority set {tag:#x} meta mark set {any:#x} goto enter")
        }
    }

    /// What becomes of SYNs of one family, whose header is `ip`, that arrive by `leg`.
    fn rules(&self, leg: LegId, family: &str, ip: &str) -> Vec<String> {
        let interfaces = &self.interfaces[leg as usize];
        let mut rules = Vec::new();
        // The answers would come another way.
        let asymmetric = format!(
            "fib saddr oifname != {} counter name asymmetric goto note_passed",
            self.set(leg)
        );
        // A dial starts with a fresh hop count, so that a traceroute would see every server as the next hop.
        let hops = match family {
            "ipv4" => "ip ttl",
            _ => "ip6 hoplimit",
        };
        let few = format!("{hops} < {FEW_HOPS} counter name few_hops goto note_passed");
        let mut unsplit = vec![asymmetric.clone()];
        if !self.queued {
            // Where SYNs are queued, the worker itself reads all their options.
            let foreign = |option| {
                format!("tcp option {option} exists counter name foreign_options goto note_passed")
            };
            unsplit.extend(["mptcp", "19", "29"].map(foreign));
        }
        unsplit.push(few);
        for policy in &self.policies {
            let Some(matches) = policy.matches(family == "ipv4", leg, interfaces) else {
                continue;
            };
            if policy.action == Action::Snoop {
                rules.push(format!("{matches}{asymmetric}"));
            }
            if policy.action == Action::Split {
                rules.extend(unsplit.iter().map(|rule| format!("{matches}{rule}")));
                rules.push(format!("{matches}jump admission"));
                if self.queued {
                    let pass = crowded::pass(ip, self.seed);
                    rules.extend(pass.iter().map(|rule| matches.clone() + rule));
                }
            }
            let profile = policy.profile.map_or(0, |place| place + 1);
            let action = match policy.action {
                Action::Split => self.enter(leg, ip, profile),
                Action::Bypass => "goto note_passed".to_owned(),
                Action::Snoop => "goto remember_snooped".to_owned(),
                Action::Reject => "meta l4proto tcp reject with tcp reset".to_owned(),
            };
            rules.push(format!(
                "{matches}counter name {} {action}",
                policy.counter()
            ));
        }
        rules.extend(unsplit);
        rules.push("jump admission".to_owned());
        if self.queued {
            rules.extend(crowded::pass(ip, self.seed));
        }
        rules.push(self.enter(leg, ip, 0));
        rules
    }

    /// Commands that remove all such rules, and add those that are the same with any policies.
    fn clear(&self, table: &str) -> String {
        let crosses = (0..self.ingresses.len()).map(|number| format!("cross_{number}"));
        let chains = ["choose", "refuse_quic", "clamp", "snoop"].map(str::to_owned);
        let mut commands: String = chains
            .into_iter()
            .chain(crosses)
            .map(|chain| format!("flush chain {table} {chain}\n"))
            .collect();
        for leg in [LegId::Lan, LegId::Sat] {
            let Some(size) = self.mss[leg as usize] else {
                continue;
            };
            for way in ["iifname", "oifname"] {
                // Setting the option this way can only lower it.
                let _ = writeln!(
                    commands,
                    "add rule {table} clamp {way} {} tcp flags & (syn | rst) == syn tcp option maxseg size set {}",
                    self.set(leg),
                    size.0
                );
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForeignMarks;
    use bentpipe_os::owner::Owner;

    #[test]
    fn tproxy_comes_before_the_mark() {
        let ingress = Ingress {
            leg: LegId::Lan,
            addresses: vec![ListenAddresses {
                v4: "127.0.0.1:1000".parse().unwrap(),
                v6: "[::1]:1001".parse().ok(),
            }],
        };
        let interfaces = ["lan0", "sat0"].map(|name| {
            vec![Interface {
                name: name.to_owned(),
                vlan: None,
            }]
        });
        for (queued, workers) in [(true, 1), (true, 2), (false, 2)] {
            let rules = Ruleset {
                marks: Marks::new(Owner { pid: 1, start: 1 }, &ForeignMarks::default()),
                workers,
                queued,
                seed: 7,
                decoy: ingress.addresses[0],
                interfaces: interfaces.clone(),
                ingresses: vec![ingress.clone()],
                policies: Vec::new(),
                quic: Quic::Count,
                mss: [None; 2],
                snoop_flows: 10,
                thins_acks: false,
                carrier: None,
                early: false,
                udp_ports: Vec::new(),
            };
            let all = rules.table("") + &rules.commands("inet t");
            let then = |rule: &str| rule.find("meta mark set").or(rule.find("jump"));
            let tproxy = all.lines().filter(|line| line.contains("tproxy"));
            // Those of answers do nothing more.
            let tproxy: Vec<&str> = tproxy.filter(|line| then(line).is_some()).collect();
            assert_eq!(tproxy.len(), 4);
            for rule in tproxy {
                assert!(rule.find("tproxy") < then(rule), "{rule}");
            }
            assert!(
                rules
                    .commands("inet t")
                    .starts_with("flush chain inet t choose\n")
            );
        }
    }
}
