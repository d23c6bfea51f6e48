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
        let flight = self.una..self.next;
        if let Some((end, sent)) = self.timed
            && ack >= end
        {
            self.timed = None;
            if end == 1 {
                self.handshake = Some(now.since(sent));
            }
            if self.config.ns2.is_timed(end) {
                self.rto.sample(sent, now, flight);
            }
        } else if !self.config.ns2.one_timed_segment
            && let Some((last, _)) = newly_acked.last
        {
            // Linux times the first of those that no SACK block had named.
            let timed = match newly_acked.in_order_once {
                _ if newly_acked.again => None,
                Some((first, _)) if self.rto.is_linux() => Some(first),
                _ if self.rto.is_linux() => None,
                _ => Some(last),
            };
            let echoed = echo.map(|echo| {
                Instant::from_nanos(now.as_nanos().saturating_sub(echo.as_nanos() as u64))
            });
            if let Some(sent) = timed.or(echoed) {
                self.rto.sample(sent, now, flight);
            }
        }
    }

    /// The round trip that congestion control is told: of the last segment acknowledged. Linux takes the last that no SACK block had
    /// named, or the age of the timestamp that is echoed where one was sent again (`ca_rtt_us`).
    pub(super) fn round_trip(
        &self,
        newly_acked: &NewlyAcked,
        echo: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        if self.rto.is_linux() {
            let last = newly_acked.in_order_once.filter(|_| !newly_acked.again);
            let echo = echo.filter(|_| newly_acked.acked > 0);
            return last.map(|(_, last)| now.since(last)).or(echo);
        }
        let last = newly_acked.last.filter(|(_, transmits)| *transmits == 1);
        last.map(|(at, _)| now.since(at))
    }

    /// A handshake that somebody else did took `rtt`, until `now`.
    pub(crate) fn sample_handshake(&mut self, rtt: Duration, now: Instant) {
        let sent = now.as_nanos().saturating_sub(rtt.as_nanos() as u64);
        self.handshake = Some(rtt);
        self.rto
            .sample(Instant::from_nanos(sent), now, self.una..self.next);
    }

    /// A segment sent once that the peer holds by SACK is a sample as good as one acknowledged, where
    /// the acknowledgement gave none. While such segments are older than what the first missing one
    /// was last sent in, its retransmission timer starts anew (Linux `tcp_clean_rtx_queue`).
    pub(crate) fn clock_by_sack(&mut self, sample: &mut AckSample) {
        let newly_acked = &sample.newly_acked;
        let Some((first, last)) = newly_acked.sacked_once.filter(|_| newly_acked.news) else {
            return;
        };
        let now = sample.now;
        let acknowledged = newly_acked.acked > 0;
        if !acknowledged || self.rto.is_linux() {
            sample.rtt = Some(now.since(last));
        }
        if acknowledged {
            return;
        }
        self.rto.observe(first, now, self.una..self.next);
        if self.board.get(self.una).is_some_and(|head| first < head.at) {
            self.settle(now);
        }
    }
}
