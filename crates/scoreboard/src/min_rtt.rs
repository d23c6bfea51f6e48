//! The minimum round-trip time of the last minutes: RACK's min_RTT (RFC 8985, section 6.2, step 1), which must follow a
//! path that becomes longer. As Linux (`tcp_min_rtt_wlen`) it forgets samples after 5 minutes; it keeps one minimum for
//! each half of that time.

use bentpipe_base::Instant;
use std::time::Duration;

const HALF: Duration = Duration::from_secs(150);

/// The minimum of the samples of the last 150 to 300 s.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinRtt {
    /// The minimum of the current half, and of the one before.
    halves: [Option<Duration>; 2],
    /// When the current half began.
    began: Instant,
}

impl MinRtt {
    /// `rtt` was measured at `now`.
    pub fn observe(&mut self, rtt: Duration, now: Instant) {
        let age = now.since(self.began);
        if age >= HALF {
            let [last, _] = self.halves;
            self.halves = [None, last.filter(|_| age < 2 * HALF)];
            self.began = now;
        }
        let least = &mut self.halves[0];
        *least = Some(least.map_or(rtt, |least| least.min(rtt)));
    }

    /// The minimum, if there was any sample.
    pub fn get(&self) -> Option<Duration> {
        self.halves.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_is_believed_after_five_minutes_at_most() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut least = MinRtt::default();
        assert_eq!(least.get(), None);
        least.observe(Duration::from_millis(50), at(1));
        for second in 2..150 {
            least.observe(Duration::from_millis(600), at(second));
            assert_eq!(least.get(), Some(Duration::from_millis(50)));
        }
        least.observe(Duration::from_millis(600), at(299));
        assert_eq!(least.get(), Some(Duration::from_millis(50)), "half is kept");
        least.observe(Duration::from_millis(700), at(449));
        assert_eq!(least.get(), Some(Duration::from_millis(600)));
        least.observe(Duration::from_millis(800), at(10_000));
        assert_eq!(least.get(), Some(Duration::from_millis(800)), "a silence");
    }
}
