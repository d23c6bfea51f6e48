//! What an acknowledgement tells of the segments in flight.

use super::SentRun;
use bentpipe_base::Instant;

/// What an acknowledgement told about segments in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewlyAcked {
    /// Segments acknowledged cumulatively.
    pub(crate) acked: u32,
    /// Segments newly known to have arrived, one way or the other.
    pub(crate) delivered: u32,
    /// The last segment acknowledged: when it was last sent, and how often it was.
    pub(crate) last: Option<(Instant, u16)>,
    /// Of all newly delivered segments the one sent last, as far as that is certain: see
    /// [`Self::certain_until`].
    pub(crate) latest: Option<Transmission>,
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
pub(crate) struct Transmission {
    pub(crate) to: u64,
    pub(crate) at: Instant,
    /// How often it was sent.
    pub(crate) transmits: u16,
}

impl NewlyAcked {
    pub(super) fn take(&mut self, sent: &SentRun) {
        self.delivered += sent.count;
        let to = sent.to();
        self.highest = self.highest.max(to);
        if sent.transmits == 1 {
            let first = sent.from + u64::from(sent.len);
            self.lowest_once = Some(self.lowest_once.map_or(first, |lowest| lowest.min(first)));
        } else if self.certain_until.is_some_and(|until| sent.at > until) {
            return;
        }
        let later = |latest: &Transmission| (sent.at, to) >= (latest.at, latest.to);
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(Transmission {
                to,
                at: sent.at,
                transmits: sent.transmits,
            });
        }
    }
}
