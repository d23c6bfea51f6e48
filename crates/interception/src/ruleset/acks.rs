//! Leads acknowledgements of the satellite leg's sockets to the thread that thins them out (`ack_rate`).
//!
//! They get a priority, by which the next chain, of another table ([`bentpipe_os::nft::HoldTable`]), has them wait. They get
//! none, and leave at once, while that thread does not hold its position of the [`super::Switch`].

use super::{QueueReader, Ruleset};
use bentpipe_gateway_config::LegId;

/// The priority in the output hook at which they wait: before conntrack.
pub const WAIT: i32 = -301;

impl Ruleset {
    /// Chains that tag the packets that are to wait, and take the tag away behind the queue.
    pub(super) fn ack_chains(&self) -> String {
        if !self.thins_acks {
            return String::new();
        }
        let (sat, tracked) = (self.marks.sat(), self.marks.tracked(LegId::Sat));
        let (tag, attended) = (self.marks.acknowledging(), QueueReader::Acks.attends());
        format!(
            "\
chain acks {{
  type filter hook output priority {}; policy accept;
  meta mark {{ {sat:#x}, {tracked:#x} }} meta l4proto tcp meta length < 128 tcp flags & (fin | syn | rst | psh | ack) == ack {attended} meta priority set {tag:#x}
}}
chain acks_end {{
  type filter hook output priority {}; policy accept;
  meta priority {tag:#x} meta priority set 0
}}
",
            WAIT - 1,
            WAIT + 1
        )
    }
}
