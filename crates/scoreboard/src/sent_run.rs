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
    pub(crate) count: u16,
    /// How often it was sent, up to 255 times.
    pub transmits: u8,
    /// What is known of it.
    pub state: SentState,
}

/// What is known of a segment in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentState {
    /// Nothing: it is on its way.
    Outstanding,
    /// The peer holds it.
    Sacked,
    /// It is taken for lost, and waits to be sent again.
    Lost,
    /// It was taken for lost, was sent again since, and is on its way.
    Resent,
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
            state: SentState::Outstanding,
        }
    }

    /// Where the last of them ends.
    #[inline]
    pub fn to(&self) -> u64 {
        self.from + u64::from(self.len) * u64::from(self.count)
    }

    /// Whether the peer holds it.
    #[inline]
    pub(crate) fn is_sacked(&self) -> bool {
        self.state == SentState::Sacked
    }

    /// Whether it was taken for lost, sent again since or not.
    #[inline]
    pub(crate) fn was_lost(&self) -> bool {
        matches!(self.state, SentState::Lost | SentState::Resent)
    }

    /// Whether it is on its way as far as is known.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state, SentState::Outstanding | SentState::Resent)
    }

    /// Whether the segment of `len` bytes behind them, which is sent for the first time, at `now`, is one of them.
    #[inline]
    pub(crate) fn is_continued_by(&self, len: u32, now: Instant) -> bool {
        (self.at, self.len, self.transmits) == (now, len, 1) && self.count < u16::MAX
    }

    /// Takes off those that end at or below `end`, which is not before the end of the first.
    #[inline]
    pub(crate) fn take(&mut self, end: u64) -> Self {
        let count = if self.to() > end {
            ((end - self.from) / u64::from(self.len.max(1))) as u16
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
const _: () = assert!(size_of::<SentRun>() <= 24);
