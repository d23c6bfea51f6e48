//! An observer that remembers, and a packet that is only a number.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{DropCause, Fact, Instant, Observer, Probability};
use bentpipe_link::{Direction, Settings};
use core::time::Duration;

#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<(Instant, Fact)>);

impl Observer for Log {
    fn observe(&mut self, now: Instant, fact: &Fact) {
        self.0.push((now, *fact));
    }
}

impl Log {
    pub(crate) fn drops(&self, wanted: DropCause) -> usize {
        let is = |fact: &Fact| matches!(fact, Fact::Dropped { cause, .. } if *cause == wanted);
        self.0.iter().filter(|(_, fact)| is(fact)).count()
    }

    pub(crate) fn waits(&self) -> Vec<Duration> {
        let waited = |(now, fact): &(Instant, Fact)| match fact {
            Fact::Departed { since, .. } => Some(now.since(*since)),
            Fact::Dropped { .. } | Fact::Marked { .. } => None,
        };
        self.0.iter().filter_map(waited).collect()
    }
}

/// One of a run that begins at once.
pub(crate) fn direction(settings: Settings<u32>) -> Direction<u32, Log> {
    let mut direction = Direction::new(settings, 1, "test", Log::default());
    direction.begin(Instant::ZERO);
    direction
}

/// All that arrives up to `now`: nanosecond and number.
pub(crate) fn arrivals(direction: &mut Direction<u32, Log>, now: Instant) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| direction.deliver(now))
        .map(|(at, packet)| (at.as_nanos(), packet))
        .collect()
}

pub(crate) const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

pub(crate) fn probability(value: f64) -> Probability {
    Probability::new(value).expect("between 0 and 1")
}

/// Standard deviations of a two-sided 99.99% interval.
pub(crate) const SIGMAS: f64 = 3.89;

pub(crate) fn assert_binomial(hits: usize, trials: usize, p: f64, what: &str) {
    let (n, mean) = (trials as f64, trials as f64 * p);
    let spread = SIGMAS * (n * p * (1.0 - p)).sqrt() + 0.5;
    let off = (hits as f64 - mean).abs();
    assert!(
        off <= spread,
        "{what}: {hits} of {trials}, expected {mean} ± {spread}"
    );
}
