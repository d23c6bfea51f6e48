//! How a segment in flight was sent, and what an acknowledgement tells of such segments.

use bentpipe_base::Instant;

/// Segments in flight that were sent together, all of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: u64,
    /// When it was last sent.
    pub(crate) at: Instant,
    /// Bytes of each, a FIN among them.
    pub(crate) len: u32,
    /// How many.
    pub(crate) count: u32,
    /// How often it was sent.
    pub(crate) transmits: u16,
    /// Held by the peer.
    pub(crate) sacked: bool,
    /// Taken for lost.
    pub(crate) lost: bool,
    /// Sent again since, and on its way.
    pub(crate) again: bool,
}

/// What an acknowledgement told about segments in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Segments acknowledged cumulatively.
    pub(crate) acked: u32,
    /// Segments newly known to have arrived, one way or the other.
    pub(crate) delivered: u32,
    /// The last segment acknowledged: when it was last sent, and how often it was.
    pub(crate) last: Option<(Instant, u16)>,
    /// Of all newly delivered segments the one sent last, as far as that is certain: see
    /// [`Self::certain_until`].
    pub(crate) latest: Option<Sending>,
    /// Of all newly delivered segments that were sent once, where the first ends.
    pub(crate) lowest_once: Option<u64>,
    /// Where the highest newly delivered segment ends; 0 where there is none.
    pub(crate) highest: u64,
    /// What arrived of a segment that was sent again after this may be an earlier transmission of it (RFC 8985,
    /// section 6.2, step 2).
    pub(crate) certain_until: Option<Instant>,
    /// Of the segments acknowledged cumulatively, one was sent more than once.
    pub(crate) again: bool,
    /// A SACK block told something new.
    pub(crate) news: bool,
}

/// How a segment in flight was last sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) to: u64,
    pub(crate) at: Instant,
    /// How often it was sent.
    pub(crate) transmits: u16,
}

impl Sent {
    /// Where the last of them ends.
    #[inline]
    pub(crate) fn to(&self) -> u64 {
        self.from + u64::from(self.len) * u64::from(self.count)
    }

    /// Whether it is on its way as far as is known: neither held by the peer nor taken for lost, or sent again since.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        !self.sacked && (!self.lost || self.again)
    }

    /// Whether `next`, the segment behind them, is one of them.
    #[inline]
    pub(super) fn goes_on_with(&self, next: &Self) -> bool {
        (self.at, self.len, self.transmits) == (next.at, next.len, next.transmits)
    }

    /// Takes off those that end at or below `end`, which is not before the end of the first.
    #[inline]
    pub(super) fn take(&mut self, end: u64) -> Self {
        let count = match self.to() > end {
            true => ((end - self.from) / u64::from(self.len.max(1))) as u32,
            false => self.count,
        };
        let taken = Self { count, ..*self };
        self.from = taken.to();
        self.count -= count;
        taken
    }
}

// Tens of thousands may be in flight.
const _: () = assert!(size_of::<Sent>() <= 32);

impl Delivery {
    pub(super) fn take(&mut self, sent: &Sent) {
        self.delivered += sent.count;
        let to = sent.to();
        self.highest = self.highest.max(to);
        if sent.transmits == 1 {
            let first = sent.from + u64::from(sent.len);
            self.lowest_once = Some(self.lowest_once.map_or(first, |lowest| lowest.min(first)));
        } else if self.certain_until.is_some_and(|until| sent.at > until) {
            return;
        }
        let later = |latest: &Sending| (sent.at, to) >= (latest.at, latest.to);
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(Sending {
                to,
                at: sent.at,
                transmits: sent.transmits,
            });
        }
    }
}
