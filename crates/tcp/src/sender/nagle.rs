//! Nagle's rule (RFC 9293, section 3.7.4), and Minshall's form of it, which Linux has: a small segment waits only for small
//! ones in flight, so that the tail of a long write leaves with the rest (draft-minshall-nagle-01).

use super::Sender;

impl Sender {
    /// Whether a small segment has to wait for what is in flight.
    pub(super) fn waits_by_nagle(&self) -> bool {
        self.nagle
            && if self.config.minshall {
                self.small > self.una
            } else {
                // The answer to a SYN that goes with early data is none of it.
                self.una.max(1) != self.next
            }
    }
}
