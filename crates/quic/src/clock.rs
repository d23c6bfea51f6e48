//! The stack's clocks, all from the time that is an argument here.

use bentpipe_base::Instant;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use quinn_proto::TimeSource;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Turns our instants into the stack's and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base(pub(crate) std::time::Instant);

impl Base {
    pub(crate) fn to_std(self, at: Instant) -> std::time::Instant {
        self.0 + Duration::from_nanos(at.as_nanos())
    }

    pub(crate) fn to_ours(self, at: std::time::Instant) -> Instant {
        Instant::ZERO + at.saturating_duration_since(self.0)
    }
}

/// What the stack and TLS take for the time of day: tokens and tickets have an age.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// Time of day at [`Instant::ZERO`], since 1970, in nanoseconds.
    origin: Arc<AtomicU64>,
    now: Arc<AtomicU64>,
}

impl Calendar {
    pub(crate) fn new(origin: Duration) -> Self {
        let origin = u64::try_from(origin.as_nanos()).unwrap_or(u64::MAX);
        Self {
            origin: Arc::new(origin.into()),
            now: Arc::default(),
        }
    }

    /// It is so long after 1970 at `now`: clocks are set while this runs.
    pub(crate) fn correct(&self, since_1970: Duration, now: Instant) {
        let since_1970 = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let origin = since_1970.saturating_sub(now.as_nanos());
        self.origin.store(origin, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, now: Instant) {
        // Each value stands for itself: nothing else is read by it.
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn since_1970(&self) -> Duration {
        let [origin, now] = [&self.origin, &self.now].map(|it| it.load(Ordering::Relaxed));
        Duration::from_nanos(origin.saturating_add(now))
    }
}

impl TimeSource for Calendar {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.since_1970()
    }
}

impl TimeProvider for Calendar {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_1970()))
    }
}
