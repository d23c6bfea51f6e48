//! What one acknowledgement, with its SACK blocks, newly told about the segments in flight.

use crate::SentRun;
use bentpipe_base::Instant;

/// A summary of the segments that one acknowledgement newly acknowledged, cumulatively or by SACK.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewlyAcked {
    /// Segments acknowledged cumulatively.
    pub acked: u32,
    /// Segments newly known to have arrived, cumulatively acknowledged or held by SACK.
    pub delivered: u32,
    /// When the last segment that was cumulatively acknowledged was last sent, and how often it was sent.
    pub last: Option<(Instant, u8)>,
    /// When the last of them was sent that no SACK block had named before, leaving out those that [`Self::certain_until`] makes
    /// doubtful.
    pub last_new: Option<Instant>,
    /// When the first and the last were sent of those acknowledged cumulatively that no SACK block had named before, without
    /// those that were sent again.
    pub in_order_once: Option<(Instant, Instant)>,
    /// The same of those that SACK blocks name now.
    pub sacked_once: Option<(Instant, Instant)>,
    /// The most recently sent of all newly delivered segments, leaving out those that [`Self::certain_until`] makes
    /// doubtful.
    pub latest: Option<Transmission>,
    /// Where the lowest newly delivered segment that was sent only once ends.
    pub lowest_once: Option<u64>,
    /// Where the highest newly delivered segment ends; 0 where there is none.
    pub highest: u64,
    /// If a segment was sent again later than this, then the acknowledgement may mean an earlier transmission of it
    /// (RFC 8985, section 6.2, step 2).
    pub certain_until: Option<Instant>,
    /// At least one cumulatively acknowledged segment was sent more than once.
    pub again: bool,
    /// A SACK block named bytes that were not known to be held.
    pub news: bool,
}

/// How a segment in flight was last sent.
#[derive(Clone, Copy, Debug)]
pub struct Transmission {
    pub to: u64,
    pub at: Instant,
    /// How often it was sent.
    pub transmits: u8,
}

/// Takes the next segment into the first and last of those sent once.
fn widen(ends: &mut Option<(Instant, Instant)>, sent: &SentRun) {
    if sent.transmits == 1 {
        let first = ends.map_or(sent.at, |(first, _)| first);
        *ends = Some((first, sent.at));
    }
}

impl NewlyAcked {
    /// Whether its transmission is certain.
    fn is_certain(&self, sent: &SentRun) -> bool {
        sent.transmits == 1 || self.certain_until.is_none_or(|until| sent.at <= until)
    }

    /// Takes one that is acknowledged cumulatively.
    pub(crate) fn take_in_order(&mut self, sent: &SentRun) {
        if self.is_certain(sent) {
            self.last_new = Some(sent.at);
        }
        widen(&mut self.in_order_once, sent);
        self.take(sent);
    }

    /// Takes one that a SACK block names.
    pub(crate) fn take_sacked(&mut self, sent: &SentRun) {
        widen(&mut self.sacked_once, sent);
        self.take(sent);
    }

    /// Takes in a run that was delivered.
    #[inline(never)]
    pub(crate) fn take(&mut self, sent: &SentRun) {
        self.delivered += u32::from(sent.count);
        let to = sent.to();
        self.highest = self.highest.max(to);
        if sent.transmits == 1 {
            let first = sent.from + u64::from(sent.len);
            self.lowest_once = Some(self.lowest_once.map_or(first, |lowest| lowest.min(first)));
        } else if !self.is_certain(sent) {
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
