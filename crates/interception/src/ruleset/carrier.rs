//! Leads packets to our own TCP, which carries a satellite leg: those that sockets of that leg send, and those of TCP that come
//! from space.
//!
//! By a priority the next chain, of another table ([`bentpipe_os::nft::HoldTable`]), has them wait for it. From space come, beside
//! packets for such sockets, SYNs that it has to know before anybody decides about them, and packets of connections whose
//! socket has ended before all of its bytes were there. So all of TCP waits that is not for another socket of the leg, and what is
//! not for our own TCP goes on from there; as long as it attends, which the [`Switch`] tells. What is for a socket of the leg
//! waits in any case.

use super::{CARRIED, Ruleset};
use bentpipe_gateway_config::LegId;
use bentpipe_os::nft::Switch;

/// Where in the output hook packets of sockets wait, behind `notrack_out`, and where in the prerouting hook those from space do,
/// before `take`. They are tagged at the priority before each, and lose the tag at the one behind it.
pub const PRIORITIES: [i32; 2] = [-298, -302];

impl Ruleset {
    /// Chains that no packet has anything to do with unless our own TCP carries a leg.
    pub(super) fn carrier_chains(&self) -> String {
        if !self.carries {
            return String::new();
        }
        let [from_socket, from_space] = self.marks.to_carry();
        let [output, input] = PRIORITIES;
        let (carried, space) = (self.marks.carried(), self.set(LegId::Sat));
        let others = [self.marks.sat(), self.marks.tracked(LegId::Sat)];
        let [plain, tracked] = others;
        let attended = Switch::matches(CARRIED);
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
chain carrier_in {{
  type filter hook prerouting priority {}; policy accept;
  iifname != {space} accept
  meta l4proto != tcp accept
  socket mark {{ {plain:#x}, {tracked:#x} }} accept
  socket mark {carried:#x} meta priority set {from_space:#x} accept
  {attended} meta priority set {from_space:#x}
}}
chain carrier_in_end {{
  type filter hook prerouting priority {}; policy accept;
  meta priority {from_space:#x} meta priority set 0
}}
",
            output - 1,
            output + 1,
            input - 1,
            input + 1,
        )
    }
}
