//! The pacer: when the next segment may go, at the rate that congestion control or the configuration says.

use super::Sender;
use bentpipe_base::{Bytes, Instant, Rate};
use std::time::Duration;

/// The most lateness that a pacer makes up for at once: it bounds the burst.
const LATE_MAX: Duration = Duration::from_millis(10);
/// Segments that leave together where the window admits so many, as Linux's (`tcp_min_tso_segs`): a receiver that delays
/// acknowledgements answers a pair at once, and waits for the second of two that come one by one.
const TOGETHER: u32 = 2;

impl Sender {
    /// The payload rate that sending is paced at.
    pub(crate) fn pacing(&self) -> Option<Rate> {
        match self.config.pacing {
            None => self.window.pacing,
            Some(ceiling) => Some(self.window.pacing.map_or(ceiling, |rate| rate.min(ceiling))),
        }
    }

    /// The pacer's next instant after `payload` bytes.
    #[inline]
    pub(super) fn hold_back(&mut self, payload: u64, now: Instant) {
        let unpaced = match self.config.scps {
            Some(_) => self.congestion.make_room(&mut self.window),
            None => Bytes(0),
        };
        if let Some(rate) = self.pacing() {
            // The pacer counts payload.
            let unpaced = unpaced.0 * self.window.mss.0 / self.window.wire.0.max(1);
            self.pace_after(payload + unpaced, rate, now);
        }
    }

    fn pace_after(&mut self, payload: u64, rate: Rate, now: Instant) {
        if self.unpaced > 0 {
            self.unpaced -= 1;
            return;
        }
        self.together = match self.together {
            (at, segments) if at == now => (at, segments + 1),
            _ => (now, 1),
        };
        let lost = now.since(self.pace).saturating_sub(self.late);
        self.pace = self.pace + lost + rate.serialisation(Bytes(payload));
        if self.pace > now {
            self.late = Duration::ZERO;
        }
    }

    /// Whether the pacer holds the next segment back.
    #[inline]
    pub(crate) fn held_back(&self, now: Instant) -> bool {
        self.pace > now && self.pacing().is_some() && !self.joins(now)
    }

    /// Whether the next segment leaves together with the last.
    fn joins(&self, now: Instant) -> bool {
        let (at, segments) = self.together;
        // SCPS-TP's bucket is that of the link, and what models the path takes its samples of single segments.
        let gathers = self.config.scps.is_none() && self.sampler.is_none();
        gathers && at == now && segments < TOGETHER
    }

    /// The pacer's instant `at` has come, if it is not after `now`: what its driver is late is made up for, in part, so
    /// that a busy machine does not lower the rate (Linux takes up to half of a segment's time off the next).
    pub(crate) fn pacer_due(&mut self, at: Instant, now: Instant) {
        if at <= now {
            self.late = now.since(at).min(LATE_MAX);
        }
    }
}
