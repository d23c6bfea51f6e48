//! A run of segments in flight: one entry of the scoreboard.

use bentpipe_base::Instant;

/// Consecutive segments in flight that were sent at one instant, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct SentRun {
    /// Where the first of them begins.
    pub from: u64,
    /// When it was last sent.
    pub at: Instant,
    /// Bytes of each, a FIN among them.
    pub len: u32,
    /// How many.
    pub count: u32,
    /// How often it was sent.
    pub transmits: u16,
    /// Held by the peer.
    pub sacked: bool,
    /// Taken for lost.
    pub lost: bool,
    /// Sent again since, and on its way.
    pub again: bool,
}

impl SentRun {
    /// Where the last of them ends.
    #[inline]
    pub fn to(&self) -> u64 {
        self.from + u64::from(self.len) * u64::from(self.count)
    }

    /// Whether it is on its way as far as is known: neither held by the peer nor taken for lost, or sent again since.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        !self.sacked && (!self.lost || self.again)
    }

    /// Whether `next`, the segment behind them, is one of them.
    #[inline]
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        (self.at, self.len, self.transmits) == (next.at, next.len, next.transmits)
    }

    /// Takes off those that end at or below `end`, which is not before the end of the first.
    #[inline]
    pub(crate) fn take(&mut self, end: u64) -> Self {
        let count = if self.to() > end {
            ((end - self.from) / u64::from(self.len.max(1))) as u32
        } else {
            self.count
        };
        let taken = Self { count, ..*self };
        self.from = taken.to();
        self.count -= count;
        taken
    }
}

// Tens of thousands may be in flight.
const _: () = assert!(size_of::<SentRun>() <= 32);
