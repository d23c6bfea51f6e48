//! Samples of a flow's queueing: by how much its source's smoothed round-trip time exceeds propagation, taken as often as
//! the lab takes them.

use bentpipe_base::Instant;
use bentpipe_outcome::{Flow, Mean};
use core::time::Duration;

/// The samples of one flow. Its source has them taken before it does anything, so that each is of the state at its own
/// time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueingSamples {
    /// When the next one is due; [`Instant::MAX`] where none is.
    pub(crate) next: Instant,
    round_trip: Duration,
    taken: Mean,
}

impl QueueingSamples {
    /// The samples of an end that is no source: none.
    pub(crate) const NONE: Self = Self {
        next: Instant::MAX,
        round_trip: Duration::ZERO,
        taken: Mean { sum: 0.0, count: 0 },
    };

    /// The samples of a flow that starts at `start` and whose packets propagate there and back in `round_trip`.
    pub(crate) fn new(start: Instant, round_trip: Duration) -> Self {
        Self {
            next: start + Flow::START,
            round_trip,
            ..Self::NONE
        }
    }

    /// Takes those that were due before `now`, while the smoothed round-trip time was `srtt`.
    pub(crate) fn take(&mut self, srtt: Option<Duration>, now: Instant) {
        while self.next < now {
            if let Some(srtt) = srtt {
                let excess = srtt.saturating_sub(self.round_trip);
                self.taken.sum += 1e3 * excess.as_secs_f64();
                self.taken.count += 1;
            }
            self.next += Flow::SAMPLED;
        }
    }

    /// All of them until `end`, the smoothed round-trip time being `srtt` since the last were taken.
    pub(crate) fn until(mut self, srtt: Option<Duration>, end: Instant) -> Mean {
        self.take(srtt, end);
        self.taken
    }
}
