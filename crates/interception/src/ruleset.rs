//! The nft table of a gateway, as text in nft(8)'s language.
//!
//! A client's SYN goes its ordinary way, as if there were no gateway: raw chains, conntrack, translation,
//! routing with rp_filter, the operator's forward chains. Only what the kernel would now send out by the other
//! leg is ours to split, at the end of the forward hook. What each chain does, in the order in which a SYN meets
//! them:
//!
//! - `hold` (forward, [`HOOK_PRIORITY`]): drops what is for our sockets and was led astray by routes that are about to be made
//!   again: the other end has a connection of the same four numbers. Asks `choose`, which new connections are for the gateway: SYNs that go from one
//!   leg's interface out by the other's, and whose answers the routing table sends back by the leg they came
//!   by. `cross_0`, `cross_1`: for those, that way or this, the operator's policies, of which the first that
//!   matches decides, and what is done without any. What is to be split gets a priority of ours, which tells
//!   entrance (leg and profile) and worker. Not a mark: a SYN that passes in the end keeps the operator's. `enter`
//!   remembers it ([`syn_entrance`]).
//! - `admission`: the first thing that these are asked: whether the gateway splits new flows at present.
//!   That is the [`Switch`]'s position, which needs no nft to change; where nobody holds it, the
//!   gateway does not attend. What is not split passes end to end, counted by the reason, and `deliver`
//!   still serves the flows that stand.
//! - The next two are of another table ([`bentpipe_os::nft::HoldTable`]): SYNs with such a priority wait in their
//!   worker's queue; those to which the worker then gives a mark for it are looped over `lo`. Where
//!   there are no queues `cross_N` gives that mark.
//! - `note_passed`: a SYN that passes passes when it comes again ([`passed_syns`]).
//! - `after`: what passes gets its priority back; answers in the name of a host that cannot be asked again.
//! - `clamp`: no larger segments than a leg's `mss` for what is not split either.
//! - `passing`: counts what is not split, and refuses QUIC where that is wanted.
//!
//! What is for our sockets:
//!
//! - `take` (prerouting, raw priority, before conntrack): packets of connections that we hold are not
//!   tracked: both legs of a split flow carry the same addresses and ports, one tuple to conntrack, on which
//!   drop-invalid rules and masquerading act strangely. Where addresses are translated the dialled one of the two
//!   is left to conntrack. Of connections that stand the socket's mark tells which they are, in one look-up for
//!   each packet; the sockets of a handshake and of TIME_WAIT show no mark, and are taken for ours where they are transparent
//!   and the packet comes by a leg. What is of another transparent proxy is left alone. Looped SYNs are not tracked either.
//!   So it is with other SYNs that find a socket of their four numbers: they come again, and meet the answer that was
//!   given. Those that end a TIME_WAIT, by whatever interface, go on: `tproxy` finds nobody who listens, and the rule ends.
//! - `notrack_out`: what we send is not tracked either. A dial that would leave by another interface than those of
//!   its leg, because the operator's routes ask for what it has not, or its destination is this machine, does not
//!   leave. Our answers to SYNs ask for no larger segments than those did (`answers`, see [`mss`]). Where our
//!   sockets ask for ECN, those whose
//!   clients did not are made not to: an answer without ECN settles it for both ends.
//! - `deliver` (at the end of prerouting, so that an operator's own marks cannot overwrite ours, and behind the
//!   translation of destinations, so that a dial whose own address was translated hears its answers): looped SYNs
//!   go to the listeners, no sooner, for newer kernels take a packet that has a socket already for one that
//!   came by a wire, and a rule on its way back (`fib saddr . iif`) then drops it. Packets of
//!   connections that we hold, on either leg, and the ICMP errors about them (path MTU!) are
//!   delivered here. SYNs only to sockets that have a mark: those in TIME_WAIT have none, and would
//!   catch those of new connections.

mod mss;
mod passed_syns;
mod switch_position;
mod syn_entrance;

pub(crate) use switch_position::SwitchPosition;
pub use switch_position::{Limit, PassReason};

use crate::listen_addresses::ListenAddresses;
use crate::mark::Marks;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::{Action, Interface, LegId, Policy, Quic};
use bentpipe_os::netlink::Mark;
use bentpipe_os::nft::Switch;
use std::fmt::Write as _;

/// New connections that arrive by `leg` and leave by the other go to one of `addresses`.
#[derive(Clone, Debug)]
pub struct Ingress {
    /// By which leg they arrive.
    pub leg: LegId,
    /// Without a profile, then by profile; never empty.
    pub addresses: Vec<ListenAddresses>,
}

/// The table's counters beside those of policies.
const COUNTERS: [&str; 15] = [
    // New connections that passed unsplit: at a limit, because the operator wanted it, while the
    // gateway drained, while it did not attend, and for MPTCP, TCP-MD5 or TCP-AO. Where SYNs are held the
    // workers count some of these.
    "limit_flows",
    "limit_descriptors",
    "limit_buffered",
    "bypassed",
    "draining",
    "unattended",
    "foreign_options",
    // Because their answers would not go back by the leg that they came by, or their destination is translated.
    "asymmetric",
    "translated",
    // Because they have few hops left: they are sent to find out the way.
    "few_hops",
    // Packets that passed, by kind; to UDP port 443 also those that were refused.
    "unsplit_tcp",
    "unsplit_quic",
    "rejected_quic",
    "unsplit_ipsec",
    "unsplit_other",
];

/// Where in the forward hook SYNs are held, and where in the prerouting hook packets are delivered: behind every
/// chain of an operator.
pub(crate) const HOOK_PRIORITY: i32 = 10_000;

/// Hops that are enough for any way through the Internet: who has fewer left traces the way (traceroute begins at 1
/// and goes up to 30). Hosts send with 64 or more.
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
    /// SYNs wait in queues for their worker's word. Otherwise they go to a listener at once.
    pub queued: bool,
    /// By which SYNs are dealt to workers, so that nobody knows to whose.
    pub seed: u32,
    /// Where nobody is let in: see [`crate::DecoyListener`].
    pub decoy: ListenAddresses,
    /// By [`LegId`].
    pub interfaces: [Vec<Interface>; 2],
    /// Which new connections are for it.
    pub ingresses: Vec<Ingress>,
    /// The operator's policies, the first that matches first.
    pub policies: Vec<Policy>,
    /// What becomes of QUIC.
    pub quic: Quic,
    /// The largest segment by leg.
    pub mss: [Option<Bytes>; 2],
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
        let names = self.interfaces[leg as usize].iter();
        let names: Vec<_> = names.map(|one| format!("\"{}\"", one.name)).collect();
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
        let (own, passing, admission) = (self.own(), self.passing(), switch_position::chain());
        let (passed, entering) = (
            passed_syns::sets(),
            syn_entrance::sets(self.seed, self.queued),
        );
        let holders = is("priority", self.marks.holders());
        let unreachable = self.marks.unreachable();
        let ours = self.marks.intercepted();
        format!(
            "\
{counters}{switch}{passed}{entering}{admission}chain choose {{
}}
{crosses}chain hold {{
  type filter hook forward priority {HOOK_PRIORITY}; policy accept;
  meta mark {ours:#x} drop
  {SYN} jump choose
}}
chain after {{
  type filter hook forward priority {}; policy accept;
  meta mark {unreachable:#x} reject with icmpx host-unreachable
  meta priority {:#x} counter name translated
  {holders} jump note_passed
  {holders} meta priority set 0
}}
{own}{passing}",
            HOOK_PRIORITY + 3,
            self.marks.translated(),
        )
    }

    /// Chains for the packets of our own sockets.
    fn own(&self) -> String {
        let ours = self.marks.intercepted();
        let mask = Marks::mask();
        let stands = format!("socket mark & {mask:#x} == {ours:#x}");
        // Of a socket that shows no mark, no rule that asks for one says anything.
        let foreign = format!("socket mark & {mask:#x} != {ours:#x}");
        let by_leg = format!(
            "iifname {{ {}, {} }}",
            self.names(LegId::Lan),
            self.names(LegId::Sat)
        );
        let deliver = format!("meta mark set {ours:#x} accept");
        let found = self.marks.found();
        let without_ecn = self.marks.without_ecn();
        let legs = [LegId::Lan, LegId::Sat];
        let [lan, sat] = legs.map(|leg| self.marks.leg(leg));
        let [tracked_lan, tracked_sat] = legs.map(|leg| self.marks.tracked(leg));
        let tracked = is("mark", self.marks.tracked_ones());
        let looped = is("mark", self.marks.for_workers());
        let astray: String = legs.map(|leg| self.astray(leg)).concat();
        let holders = is("priority", self.marks.holders());
        let (restore, remember) = (self.restore(), mss::remember(&holders, self.seed));
        let listeners: String = self
            .entrances()
            .enumerate()
            .map(|(number, (_, _, addresses))| {
                let entrance = is("priority", self.marks.entrance(number));
                self.to_listeners(addresses, &entrance, &deliver)
            })
            .collect();
        let again = format!("{SYN} socket transparent 1");
        let again = self.to_listeners(&self.decoy, &again, "jump unmarked");
        format!(
            "\
{}chain find {{
  notrack meta mark set {found:#x} accept
}}
chain unmarked {{
  {foreign} accept
  {by_leg} goto find
}}
chain take {{
  type filter hook prerouting priority raw; policy accept;
  meta l4proto != udp socket mark vmap {{ {lan:#x} : goto find, {sat:#x} : goto find, {tracked_lan:#x} : accept, {tracked_sat:#x} : accept }}
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 jump unmarked
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 jump unmarked
  iifname lo {looped} notrack accept
  {looped} drop
{again}}}
chain answers {{
{}}}
chain handshake {{
  tcp flags & (syn | ack) == syn | ack goto answers
{astray}  meta priority {without_ecn:#x} tcp flags set syn
}}
chain notrack_out {{
  type filter hook output priority raw; policy accept;
  meta mark & {mask:#x} != {ours:#x} accept
  meta l4proto tcp tcp flags & syn == syn jump handshake
  {tracked} accept
  notrack
}}
chain to_listener {{
{restore}{remember}{listeners}}}
chain late {{
  {foreign} accept
  {stands} {deliver}
  {by_leg} {deliver}
}}
chain deliver {{
  type filter hook prerouting priority {HOOK_PRIORITY}; policy accept;
  meta mark {found:#x} {deliver}
  meta mark {ours:#x} accept
  iifname lo jump to_listener
  meta l4proto tcp tcp flags & (syn | ack) != syn socket transparent 1 jump late
  meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 jump late
  {SYN} {stands} {deliver}
}}
",
            mss::map(),
            mss::bound(self.seed),
        )
    }

    /// The marks of dials that conntrack sees, as an nft set.
    fn tracked(&self) -> String {
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.marks.tracked(leg));
        format!("{{ {lan:#x}, {sat:#x} }}")
    }

    /// Drops what is dialled by a leg and would leave by an interface that is not the leg's: the client's SYN was
    /// about to leave by one.
    fn astray(&self, leg: LegId) -> String {
        let (plain, tracked) = (self.marks.leg(leg), self.marks.tracked(leg));
        let set = self.set(leg);
        format!("  meta mark {{ {plain:#x}, {tracked:#x} }} oifname != {set} counter drop\n")
    }

    /// The body of another table, for where addresses are translated: what conntrack knows of a SYN. And dials keep
    /// their destination, by a translation to itself before all others: what an operator does with the connections
    /// of the gateway's own programs (a proxy for them, say) is not for those that it forwards.
    pub(crate) fn nat_table(&self) -> String {
        let tracked = self.tracked();
        format!(
            "\
chain translated {{
  type filter hook forward priority {}; policy accept;
  {SYN} ct status dnat meta priority set {:#x}
}}
chain untranslated {{
  type nat hook output priority -199; policy accept;
  meta mark {tracked} dnat ip to ip daddr
  meta mark {tracked} dnat ip6 to ip6 daddr
}}
",
            HOOK_PRIORITY - 1,
            self.marks.translated(),
        )
    }

    /// Rules that give the packets of TCP that match `which` to the listeners `addresses`, and then do `then`.
    fn to_listeners(&self, addresses: &ListenAddresses, which: &str, then: &str) -> String {
        let rule = |(family, ip, address)| {
            format!(
                "  meta nfproto {family} meta l4proto tcp {which} tproxy {ip} to {address} {then}\n"
            )
        };
        addresses.listeners().map(rule).collect()
    }

    /// Counts what is forwarded between the legs, and thus not split.
    fn passing(&self) -> String {
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.set(leg));
        format!(
            "\
chain refuse_quic {{
}}
chain clamp {{
  type filter hook forward priority {}; policy accept;
}}
chain passing {{
  type filter hook forward priority {}; policy accept;
  iifname {lan} oifname {sat} jump by_kind
  iifname {sat} oifname {lan} jump by_kind
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
",
            HOOK_PRIORITY + 4,
            HOOK_PRIORITY + 5,
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
        // Another gateway of this namespace has chosen, or it is to pass.
        let _ = writeln!(
            commands,
            "add rule {table} choose meta priority & 0xff000000 == 0x62000000 accept"
        );
        for matches in passed_syns::matches() {
            let _ = writeln!(commands, "add rule {table} choose {matches} accept");
        }
        for (number, ingress) in self.ingresses.iter().enumerate() {
            let (crosses, back) = (self.crosses(ingress.leg), self.set(ingress.leg));
            let _ = writeln!(
                commands,
                "add rule {table} choose {crosses} fib saddr oifname != {back} counter name asymmetric accept"
            );
            let _ = writeln!(
                commands,
                "add rule {table} choose {crosses} goto cross_{number}"
            );
            let _ = writeln!(commands, "add rule {table} cross_{number} jump admission");
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
        commands
    }

    /// What lets SYNs whose header is `ip` (nft's word) in to the listeners of a profile, which have the same families as
    /// those of the others.
    fn enter(&self, leg: LegId, ip: &str, profile: usize) -> String {
        let tag = self.marks.held(self.entrance(leg, profile), 0);
        match self.queued {
            false => {
                let any = self.marks.for_any_worker();
                format!("meta priority set {tag:#x} meta mark set {any:#x} goto enter")
            }
            true => format!("{} goto enter", self.deal("priority", ip, tag)),
        }
    }

    /// What becomes of SYNs of one family, whose header is `ip`, that arrive by `leg`.
    fn rules(&self, leg: LegId, family: &str, ip: &str) -> Vec<String> {
        let interfaces = &self.interfaces[leg as usize];
        let mut rules = Vec::new();
        if !self.queued {
            // In a queue, the SYN is read to its last option.
            let foreign =
                |option| format!("tcp option {option} exists counter name foreign_options return");
            rules.extend(["mptcp", "19", "29"].map(foreign));
        }
        // A dial has hops of its own: traceroute would take every server for the next hop.
        let hops = match family {
            "ipv4" => "ip ttl",
            _ => "ip6 hoplimit",
        };
        let few = format!("{hops} < {FEW_HOPS} counter name few_hops return");
        for policy in &self.policies {
            let Some(matches) = policy.matches(family == "ipv4", leg, interfaces) else {
                continue;
            };
            if policy.action == Action::Split {
                rules.push(format!("{matches}{few}"));
            }
            let profile = policy.profile.map_or(0, |place| place + 1);
            let action = match policy.action {
                Action::Split => self.enter(leg, ip, profile),
                Action::Bypass => "return".to_owned(),
                Action::Reject => "meta l4proto tcp reject with tcp reset".to_owned(),
            };
            rules.push(format!(
                "{matches}counter name {} {action}",
                policy.counter()
            ));
        }
        rules.push(few);
        rules.push(self.enter(leg, ip, 0));
        rules
    }

    /// Commands that take all such rules away, and give those that stand either way.
    fn clear(&self, table: &str) -> String {
        let crosses = (0..self.ingresses.len()).map(|number| format!("cross_{number}"));
        let chains = ["choose", "refuse_quic", "clamp"].map(str::to_owned);
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
                // The kernel only ever makes it smaller.
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
                marks: Marks::new(Owner { pid: 1, start: 1 }),
                workers,
                queued,
                seed: 7,
                decoy: ingress.addresses[0],
                interfaces: interfaces.clone(),
                ingresses: vec![ingress.clone()],
                policies: Vec::new(),
                quic: Quic::Count,
                mss: [None; 2],
            };
            let all = rules.table("") + &rules.commands("inet t");
            let tproxy: Vec<&str> = all.lines().filter(|line| line.contains("tproxy")).collect();
            assert_eq!(tproxy.len(), 4);
            for rule in tproxy {
                let then = rule.find("meta mark set").or(rule.find("jump"));
                assert!(rule.find("tproxy") < then, "{rule}");
            }
            assert!(
                rules
                    .commands("inet t")
                    .starts_with("flush chain inet t choose\n")
            );
        }
    }
}
