//! When the state of a flow is noted.

use super::{SAMPLE, Shared};
use bentpipe_base::Instant;
use bentpipe_sockets::timer;

/// When the next sample is due.
pub(super) struct SampleClock {
    pub(super) next: Instant,
}

impl SampleClock {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            next: shared.opened.get().copied().unwrap_or(shared.start),
        }
    }

    /// The time, if a sample is due.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let now = timer::now();
        if now < self.next {
            return None;
        }
        while self.next <= now {
            self.next += SAMPLE;
        }
        Some(now)
    }
}
