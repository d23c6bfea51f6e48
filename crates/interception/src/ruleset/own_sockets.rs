//! The chains for packets of our own sockets:
//!
//! - `take` (prerouting, raw priority, before conntrack) keeps packets of our connections from being tracked. Both legs of
//!   a split flow have the same addresses and ports, and so would be one tuple to conntrack, which confuses drop-invalid
//!   rules and masquerading. Where addresses are translated the dialled leg is tracked all the same. Packets of
//!   established connections are recognised by their socket's mark, in one look-up a packet; ICMP errors only
//!   where they come by the leg of their socket ([`super::icmp_errors`]). Sockets in a handshake and in
//!   TIME_WAIT show no mark: they count as ours where they are transparent and the packet comes by a leg; packets
//!   of another transparent proxy are left alone. Looped SYNs are not tracked either, nor are other SYNs that find a
//!   socket of their four numbers: they are repetitions, and that socket answers them again. A SYN that finds a socket
//!   in TIME_WAIT ends that, whatever interface it comes by, and goes on: `tproxy` finds no listener, which ends the rule. So does
//!   an answer to a SYN that passed ([`super::time_wait`]).
//! - `notrack_out` keeps what we send from being tracked, and resets by which a dial would end another connection
//!   from leaving ([`dialled`]). It drops a dial that would leave by another interface than
//!   those of its leg, because the operator's routes ask for something that a dial does not have, or because its
//!   destination is this machine. It bounds the MSS option of our answers to SYNs by that of the SYN (`answers`, see
//!   [`mss`]). Where our sockets ask for ECN, it removes that from the dials for clients that did not: an answer
//!   without ECN settles it for both ends.
//! - `deliver` gives packets to our sockets: looped SYNs to the listeners, packets of our connections on either leg, and
//!   ICMP errors about them (for path MTU discovery). It is at the end of prerouting, so that an operator's marks do
//!   not overwrite ours, and after the translation of destinations, so that a dial whose own address was translated gets
//!   its answers. A looped SYN must not get its socket earlier: newer kernels take a packet that has a socket for one that
//!   came by a wire, and a reverse-path rule (`fib saddr . iif`) would drop it. Other SYNs are delivered only to sockets that
//!   have a mark: those in TIME_WAIT have none, and would catch the SYNs of new connections.
//!
//! Each packet of each flow goes through these three. So what is for established connections comes first, and what is for
//! handshakes and resets alone is in chains of its own, one for each kind of packet and family.

use super::{HOOK_PRIORITY, Ruleset, SYN, dialled, is, lost_resets, mss};
use crate::listen_addresses::{ListenAddresses, Listening};
use crate::mark::Marks;
use bentpipe_gateway_config::LegId;

/// The flags of a packet that is known to be of TCP (FIN 1, SYN 2, RST 4, ACK 0x10): with nft's `tcp flags`, each rule would ask
/// for the protocol again.
pub(super) const FLAGS: &str = "@th,104,8";
/// A SYN, of those that have no ACK flag.
const BEGINS: &str = "@th,104,8 & 0x12 == 0x02";

impl Ruleset {
    /// Chains for the packets of our own sockets.
    pub(super) fn own(&self) -> String {
        let ours = self.marks.intercepted();
        let mask = Marks::mask();
        let stands = format!("socket mark & {mask:#x} == {ours:#x}");
        // A rule that compares the mark of a socket never matches where the socket shows no mark.
        let foreign = format!("socket mark & {mask:#x} != {ours:#x}");
        let by_leg = format!(
            "iifname {{ {}, {} }}",
            self.names(LegId::Lan),
            self.names(LegId::Sat)
        );
        let deliver = format!("meta mark set {ours:#x} accept");
        let found = self.marks.found();
        let legs = [LegId::Lan, LegId::Sat];
        let [lan, sat] = legs.map(|leg| self.marks.leg(leg));
        let [tracked_lan, tracked_sat] = legs.map(|leg| self.marks.tracked(leg));
        let carried = self.marks.carried();
        let looped = is("mark", self.marks.for_workers());
        let has_socket = format!("{SYN} socket transparent 1");
        let again = self.to_listeners(&self.decoy, &has_socket, "jump unmarked");
        let errors = self.icmp_errors(&deliver);
        let [lead, lead_late] = ["errors", "late_errors"].map(Self::lead_errors);
        let (answered, to_answered) = (self.answered([&foreign, &stands]), self.to_answered());
        let early = self.early || !self.queued;
        let forget = dialled::forget(early);
        format!(
            "\
{}{}{}{answered}{errors}{}{}chain find {{
  notrack meta mark set {found:#x} accept
}}
chain unmarked {{
  {foreign} accept
  {by_leg} goto find
}}
chain stands {{
{forget}  goto find
}}
chain stands_tracked {{
{forget}  accept
}}
chain unshown_special {{
{to_answered}  socket transparent 1 jump unmarked
}}
chain unshown {{
  {FLAGS} & 0x06 != 0 goto unshown_special
  goto unmarked
}}
chain begins {{
  iifname lo {looped} notrack accept
  {looped} drop
  jump connection_begins
{again}}}
chain take_tcp {{
  {BEGINS} goto begins
{forget}  socket transparent 1 jump unshown
  {looped} drop
  goto repeat_reset
}}
chain take {{
  type filter hook prerouting priority raw; policy accept;
  meta l4proto tcp socket mark vmap {{ {lan:#x} : goto stands, {sat:#x} : goto stands, {carried:#x} : goto stands, {tracked_lan:#x} : goto stands_tracked, {tracked_sat:#x} : goto stands_tracked }}
  meta l4proto tcp goto take_tcp
{lead}  {looped} drop
}}
chain late {{
  {foreign} accept
  {stands} {deliver}
  {by_leg} {deliver}
}}
chain late_unshown_special {{
{to_answered}  socket transparent 1 jump late
}}
chain late_unshown {{
  {FLAGS} & 0x06 != 0 goto late_unshown_special
  goto late
}}
chain late_begins {{
  {SYN} {stands} {deliver}
}}
chain late_tcp {{
  {BEGINS} goto late_begins
  socket transparent 1 jump late_unshown
}}
chain deliver {{
  type filter hook prerouting priority {HOOK_PRIORITY}; policy accept;
  meta mark {found:#x} {deliver}
  meta mark {ours:#x} accept
  iifname lo jump to_listener
  meta l4proto tcp goto late_tcp
{lead_late}}}
",
            dialled::sets(self.seed),
            lost_resets::chains(self.seed),
            mss::map(),
            self.to_listener(&deliver),
            self.output(&looped, early),
        )
    }

    /// The chain `to_listener`, for what comes by `lo`, with a chain for each family.
    fn to_listener(&self, deliver: &str) -> String {
        let holders = self.marks.holders();
        let others = format!(
            "meta priority & {:#x} != {:#x} return",
            holders.mask, holders.value
        );
        // What no rule has overwritten on the way need not be restored.
        let intact = is("priority", holders) + " " + &is("mark", self.marks.for_workers());
        let [mut chains, mut places] = [String::new(), String::new()];
        for (family, ip) in [("ipv4", "ip"), ("ipv6", "ip6")] {
            let listeners: String = self
                .entrances()
                .enumerate()
                .flat_map(|(number, (_, _, addresses))| {
                    let entrance = is("priority", self.marks.entrance(number));
                    let of_family = addresses
                        .listeners()
                        .filter(move |(one, ..)| *one == family);
                    of_family.map(move |one| Self::to_listener_at(one, &entrance, deliver))
                })
                .collect();
            chains += &format!(
                "chain come_{ip} {{\n{}{listeners}}}\nchain to_listener_{ip} {{\n  {intact} goto come_{ip}\n  {}\n  {others}\n  {}\n  goto come_{ip}\n}}\n",
                mss::remember(ip, self.seed),
                self.restore_priority(ip),
                self.restore_mark(ip),
            );
            places += &format!("  meta nfproto {family} goto to_listener_{ip}\n");
        }
        format!(
            "{chains}chain to_listener {{\n  {}\n{places}}}\n",
            self.of_another()
        )
    }

    /// Chain `notrack_out` and those that it leads to.
    fn output(&self, looped: &str, early: bool) -> String {
        let (ours, mask) = (self.marks.intercepted(), Marks::mask());
        let untracked = is("mark", self.marks.untracked_ones());
        let tracked = is("mark", self.marks.tracked_ones());
        let [proven, proven_without_ecn] = self.marks.proven();
        let without_ecn = self.marks.without_ecn();
        let wrong_interface: String = [LegId::Lan, LegId::Sat]
            .map(|leg| self.wrong_interface(leg))
            .concat();
        // Where clients are answered early, all of them have proved that they are there when they are dialled for.
        let remember = if early {
            String::new()
        } else {
            format!(
                "  meta mark {} meta priority != {{ {proven:#x}, {proven_without_ecn:#x} }} jump remember_dial\n",
                self.of_legs()
            )
        };
        let special = "meta l4proto tcp tcp flags & (syn | rst) != 0 jump special";
        format!(
            "\
chain answers {{
{}{}}}
chain handshake {{
  {looped} return
  {FLAGS} & 0x10 != 0 goto answers
{remember}{wrong_interface}  meta priority {{ {without_ecn:#x}, {proven_without_ecn:#x} }} tcp flags set syn
}}
chain special {{
  {FLAGS} & 0x02 != 0 goto handshake
  {FLAGS} & 0x10 != 0 goto note_reset
  goto keep_resets
}}
chain untracked {{
  {special}
  notrack
}}
chain notrack_out {{
  type filter hook output priority raw; policy accept;
  {untracked} goto untracked
  meta mark & {mask:#x} != {ours:#x} accept
  {special}
  {tracked} accept
  notrack
}}
",
            dialled::remember_answers(self.seed, early),
            mss::bound(self.seed),
        )
    }

    /// The marks of dials that conntrack sees, as an nft set.
    pub(super) fn tracked(&self) -> String {
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.marks.tracked(leg));
        format!("{{ {lan:#x}, {sat:#x} }}")
    }

    /// The marks of sockets of one leg, with commas.
    fn of_leg(&self, leg: LegId) -> String {
        let (plain, tracked) = (self.marks.leg(leg), self.marks.tracked(leg));
        match leg {
            LegId::Lan => format!("{plain:#x}, {tracked:#x}"),
            LegId::Sat => format!("{plain:#x}, {tracked:#x}, {:#x}", self.marks.carried()),
        }
    }

    /// The marks of sockets of both, as an nft set.
    fn of_legs(&self) -> String {
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.of_leg(leg));
        format!("{{ {lan}, {sat} }}")
    }

    /// Drops dials that would leave by an interface that is not their leg's, as the client's SYN was about to.
    fn wrong_interface(&self, leg: LegId) -> String {
        let (marks, set) = (self.of_leg(leg), self.set(leg));
        format!("  meta mark {{ {marks} }} oifname != {set} counter drop\n")
    }

    /// Rules that give the packets of TCP that match `which` to the listeners `addresses`, and then do `then`.
    pub(super) fn to_listeners(
        &self,
        addresses: &ListenAddresses,
        which: &str,
        then: &str,
    ) -> String {
        let rule = |one| Self::to_listener_at(one, which, then);
        addresses.listeners().map(rule).collect()
    }

    /// The rule for one of the listeners.
    fn to_listener_at((family, ip, address): Listening, which: &str, then: &str) -> String {
        format!(
            "  meta nfproto {family} meta l4proto tcp {which} tproxy {ip} to {address} {then}\n"
        )
    }
}
