//! Samples of the round-trip time, from acknowledgements and from what SACK blocks name.

use super::{AckSample, Sender};
use bentpipe_base::Instant;
use bentpipe_scoreboard::NewlyAcked;
use std::time::Duration;

impl Sender {
    /// If a segment was sent again later than this, an acknowledgement that arrives now may mean an earlier
    /// transmission: either the peer echoes an older timestamp, or the answer would have been faster than any round
    /// trip (RFC 8985, section 6.2, step 2).
    pub(super) fn certain_until(&self, echo: Option<Duration>, now: Instant) -> Option<Instant> {
        let least = self.min_rtt.get()?;
        let since = |time: Duration| now.as_nanos().saturating_sub(time.as_nanos() as u64);
        // Timestamps count whole milliseconds.
        let echoed = echo.map_or(u64::MAX, |echo| {
            since(echo) / 1_000_000 * 1_000_000 + 999_999
        });
        Some(Instant::from_nanos(since(least).min(echoed)))
    }

    /// Takes a sample of the round-trip time for the retransmission timeout, never from a segment sent twice (Karn's
    /// rule).
    pub(super) fn clock(
        &mut self,
        ack: u64,
        newly_acked: &NewlyAcked,
        echo: Option<Duration>,
        now: Instant,
    ) {
        if let Some((end, sent)) = self.timed
            && ack >= end
        {
            self.timed = None;
            if end == 1 {
                self.handshake = Some(now.since(sent));
            }
            if self.config.ns2.is_timed(end) {
                self.rto.sample(sent, now);
            }
        } else if !self.config.ns2.one_timed_segment
            && let Some((last, _)) = newly_acked.last
        {
            if !newly_acked.again {
                self.rto.sample(last, now);
            } else if let Some(echo) = echo {
                let sent = now.as_nanos().saturating_sub(echo.as_nanos() as u64);
                self.rto.sample(Instant::from_nanos(sent), now);
            }
        }
    }

    /// A handshake that somebody else did took `rtt`, until `now`.
    pub(crate) fn sample_handshake(&mut self, rtt: Duration, now: Instant) {
        let sent = now.as_nanos().saturating_sub(rtt.as_nanos() as u64);
        self.handshake = Some(rtt);
        self.rto.sample(Instant::from_nanos(sent), now);
    }

    /// A segment sent once that the peer holds by SACK is a sample as good as one acknowledged, where
    /// the acknowledgement gave none. While such segments are older than what the first missing one
    /// was last sent in, its retransmission timer starts anew (Linux `tcp_clean_rtx_queue`).
    pub(crate) fn clock_by_sack(&mut self, sample: &mut AckSample) {
        let Some(sent) = sample.newly_acked.latest else {
            return;
        };
        if !sample.newly_acked.news || sample.rtt.is_some() || sent.transmits > 1 {
            return;
        }
        let now = sample.now;
        sample.rtt = Some(now.since(sent.at));
        self.rto.observe(sent.at, now);
        if self
            .board
            .get(self.una)
            .is_some_and(|head| sent.at < head.at)
        {
            self.settle(now);
        }
    }
}
