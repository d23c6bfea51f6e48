//! The pacer: when the next segment may go, at the rate that congestion control or the configuration says.

use super::Sender;
use bentpipe_base::{Bytes, Instant, Rate};
use std::time::Duration;

/// The most lateness that a pacer makes up for at once: it bounds the burst.
const LATE_MAX: Duration = Duration::from_millis(10);

impl Sender {
    /// The payload rate that sending is paced at.
    pub(crate) fn pacing(&self) -> Option<Rate> {
        match (self.window.pacing, self.config.pacing) {
            (Some(control), Some(ceiling)) => Some(control.min(ceiling)),
            (control, ceiling) => control.or(ceiling),
        }
    }

    /// The pacer's next instant after `payload` bytes.
    pub(super) fn hold_back(&mut self, payload: u64, now: Instant) {
        if self.config.scps.is_some() {
            self.congestion.make_room(&mut self.window);
        }
        let Some(rate) = self.pacing() else {
            return;
        };
        if self.unpaced > 0 {
            self.unpaced -= 1;
            return;
        }
        let lost = now.since(self.pace).saturating_sub(self.late);
        self.pace = self.pace + lost + rate.serialisation(Bytes(payload));
        if self.pace > now {
            self.late = Duration::ZERO;
        }
    }

    /// The pacer's instant `at` has come, if it is not after `now`: what its driver is late is made up for, in part, so
    /// that a busy machine does not lower the rate (Linux takes up to half of a segment's time off the next).
    pub(crate) fn pacer_due(&mut self, at: Instant, now: Instant) {
        if at <= now {
            self.late = now.since(at).min(LATE_MAX);
        }
    }
}
