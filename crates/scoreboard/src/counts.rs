//! How many segments there are of each kind.

use crate::Scoreboard;

impl Scoreboard {
    /// Segments in flight by the latest knowledge: RFC 6675's pipe, in segments.
    pub fn pipe(&self) -> u32 {
        self.segments + self.again_out - self.sacked_out - self.lost_out
    }

    /// Segments sent and not acknowledged.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Segments that are held by SACK.
    pub fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Segments taken for lost, sent again or not.
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Segments taken for lost that were sent again, and are on their way.
    pub fn again_out(&self) -> u32 {
        self.again_out
    }

    /// Whether a segment that was sent again is under way, or is the first one (Linux `tcp_any_retrans_done`).
    pub fn has_resent(&self) -> bool {
        self.again_out > 0 || self.ring.front().is_some_and(|first| first.transmits > 1)
    }
}
