//! Leads packets to our own TCP, which carries a satellite leg: those that sockets of that leg send, and those of TCP that come
//! from space.
//!
//! By a priority the next chain, of another table ([`bentpipe_os::nft::HoldTable`]), has them wait for it. From space come, beside
//! packets for such sockets, SYNs that it has to know before anybody decides about them, and packets of connections whose
//! socket has ended before all of its bytes were there; and ICMP errors about packets of its own that were too long. So all of TCP waits that is not for another socket of the leg, and what is
//! not for our own TCP goes on from there; as long as it attends, which the switch tells ([`QueueReader`]). What is for a carried socket
//! waits in any case, whichever interface it comes by: routes change in mid-connection, and what went past our own TCP straight to the
//! socket would set the two apart for good. What our own TCP sends to the socket itself has a mark, by which a rule of the routes leads
//! it there; while somebody has removed that it goes nowhere, for it has the numbers of another leg than the host it would come to.
//!
//! After a handover two gateways carry, each the connections that began with it. What comes from space for a socket of the other
//! goes to that one alone; what is for no socket waits for both, one after the other: each has a place of its own in the hook.

use super::{QueueReader, Ruleset};
use bentpipe_gateway_config::LegId;
use bentpipe_os::netlink::Mark;
use bentpipe_os::nft;

/// Where in the output hook packets of sockets wait, behind `notrack_out`.
const OUTPUT: i32 = -298;
/// Where in the prerouting hook packets from space wait for the first gateway: before `take`.
const PREROUTING: i32 = -302;
/// Beginning of the name of the chain that tells others which place is taken.
const TAGS: &str = "carrier_in_";

/// Where packets wait for the carrier of one gateway. They are tagged at the priority before, and lose the tag at the one behind
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierPlace(u8);

impl CarrierPlace {
    /// The gateways of one namespace that can tell their packets apart. The last one's are behind defragmentation.
    const MOST: u8 = 32;

    /// One that no other gateway of the calling thread's namespace has.
    pub fn free() -> Self {
        let rules = nft::list(&["chains"]).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot see whether another gateway here has a carrier");
            String::new()
        });
        Self::free_beside(&rules)
    }

    fn free_beside(rules: &str) -> Self {
        let taken = |place: &u8| {
            let chain = format!("{TAGS}{place}");
            rules.split_whitespace().any(|word| word == chain)
        };
        Self((0..Self::MOST).find(|place| !taken(place)).unwrap_or(0))
    }

    /// The priorities in the output and prerouting hooks.
    pub const fn priorities(self) -> [i32; 2] {
        [OUTPUT, PREROUTING - 3 * self.0 as i32]
    }
}

impl Ruleset {
    /// Chains that no packet has anything to do with unless our own TCP carries a leg.
    pub(super) fn carrier_chains(&self) -> String {
        let Some(place) = self.carrier else {
            return String::new();
        };
        let [from_socket, from_space] = self.marks.to_carry();
        let [output, input] = place.priorities();
        let [to_socket, _] = self.marks.carrying();
        let (carried, space) = (self.marks.carried(), self.set(LegId::Sat));
        let others = [self.marks.sat(), self.marks.tracked(LegId::Sat)];
        let [plain, tracked] = others;
        let Mark { value, mask } = Mark::GATEWAYS;
        let attended = QueueReader::Carrier.attends();
        format!(
            "\
chain carrier_out {{
  type filter hook output priority {}; policy accept;
  meta mark {carried:#x} meta l4proto tcp meta priority set {from_socket:#x}
}}
chain carrier_out_end {{
  type filter hook output priority {}; policy accept;
  meta priority {from_socket:#x} meta priority set 0
}}
chain {TAGS}{} {{
  type filter hook prerouting priority {}; policy accept;
  meta mark {to_socket:#x} accept
  meta l4proto tcp socket mark {carried:#x} meta priority set {from_space:#x} accept
  iifname != {space} accept
  {attended} icmp type destination-unreachable icmp code frag-needed meta priority set {from_space:#x}
  {attended} icmpv6 type packet-too-big meta priority set {from_space:#x}
  meta l4proto != tcp accept
  socket mark {{ {plain:#x}, {tracked:#x} }} accept
  socket mark & {mask:#x} == {value:#x} accept
  {attended} meta priority set {from_space:#x}
}}
chain carrier_keep {{
  type filter hook postrouting priority -400; policy accept;
  meta mark {to_socket:#x} oifname != lo drop
}}
chain carrier_in_end {{
  type filter hook prerouting priority {}; policy accept;
  meta priority {from_space:#x} meta priority set 0
}}
",
            output - 1,
            output + 1,
            place.0,
            input - 1,
            input + 1,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_once() {
        assert_eq!(CarrierPlace::free_beside(""), CarrierPlace(0));
        let rules =
            "table inet one {\n\tchain carrier_in_0 {\n\t}\n\tchain carrier_in_10 {\n\t}\n}";
        assert_eq!(CarrierPlace::free_beside(rules), CarrierPlace(1));
        let [first, second] = [0, 1].map(|place| CarrierPlace(place).priorities()[1]);
        // Each has its tag, its queue and the end of its tag behind one another.
        assert!(second + 1 < first - 1);
        // Fragments are put together at -400.
        assert!(CarrierPlace(CarrierPlace::MOST - 1).priorities()[1] - 1 > -400);
    }
}
