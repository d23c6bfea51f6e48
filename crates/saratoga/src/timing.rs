//! The round-trip time of a session and the intervals that follow from it.

use bentpipe_base::Instant;
use core::time::Duration;

/// Between two questions before a round trip was measured.
const FIRST: Duration = Duration::from_millis(200);
/// Between two questions at least.
const LEAST: Duration = Duration::from_millis(10);
/// Between two questions at most: about four round trips to a geostationary satellite.
const MOST: Duration = Duration::from_millis(2500);

/// Between two REQUESTs.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Smoothed round-trip time, and when the peer was last heard.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    smoothed: Option<Duration>,
    least: Option<Duration>,
    heard: Instant,
}

impl Timing {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            smoothed: None,
            least: None,
            heard: now,
        }
    }

    /// Anything arrived.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When the peer was last heard; before that, when the session began.
    pub(crate) const fn heard_at(&self) -> Instant {
        self.heard
    }

    /// A round trip took `sample` (RFC 6298, equation 2.3).
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => smoothed * 7 / 8 + sample / 8,
            None => sample,
        });
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
    }

    pub(crate) const fn round_trip(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The shortest round trip.
    pub(crate) const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// When the peer counts as gone.
    pub(crate) fn silent_at(&self, silence: Duration) -> Instant {
        self.heard + silence
    }

    /// How long after a REQUEST the next may follow: there may be hundreds of them, and the way to the peer narrow.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let [least, most] = PAUSE;
        (now.since(self.heard) / 2).clamp(least, most)
    }

    /// How long after one question the next may follow: a quarter of a round trip, and a quarter of
    /// the silence when the peer does not answer.
    pub(crate) fn interval(&self, now: Instant) -> Duration {
        let usual = self.smoothed.map_or(FIRST, |smoothed| smoothed / 4);
        let silence = now.since(self.heard) / 4;
        usual.max(silence).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_slow_down_in_silence_and_follow_the_round_trip_otherwise() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut timing = Timing::new(at(0));
        assert_eq!(timing.interval(at(100)), FIRST);
        timing.hear(at(600));
        timing.sample(Duration::from_millis(600));
        assert_eq!(timing.interval(at(600)), Duration::from_millis(150));
        assert_eq!(timing.interval(at(4600)), Duration::from_secs(1));
        assert_eq!(timing.interval(at(60_000)), MOST);
        assert_eq!(timing.silent_at(Duration::from_secs(30)), at(30_600));
    }
}
