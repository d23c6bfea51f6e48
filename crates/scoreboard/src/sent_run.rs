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
    /// One segment of `len` bytes that begins at `from` and is sent for the first time, at `now`.
    #[inline]
    pub(crate) const fn segment(from: u64, len: u32, now: Instant) -> Self {
        Self {
            from,
            at: now,
            len,
            count: 1,
            transmits: 1,
            sacked: false,
            lost: false,
            again: false,
        }
    }

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

    /// Whether the segment of `len` bytes behind them, which is sent for the first time, at `now`, is one of them.
    #[inline]
    pub(crate) fn is_continued_by(&self, len: u32, now: Instant) -> bool {
        (self.at, self.len, self.transmits) == (now, len, 1)
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
