//! Limits the time that the server's one thread works for peers that have shown nothing of themselves.

use bentpipe_base::Instant;
use core::time::Duration;

/// The part of the time that such work takes in the long run: one of so many.
const SHARE: u32 = 8;
/// What may be worked at once after a time without: many puts that begin together.
const BURST: Duration = Duration::from_millis(250);

/// A token bucket of working time. It counts time and not peers, because addresses can be forged, and because the same
/// datagram costs a hundred times more on one disk than on another.
#[derive(Debug)]
pub(super) struct TimeBudget {
    /// When all that was worked is a `SHARE`th of the time.
    even_at: Instant,
}

impl TimeBudget {
    pub(super) const fn new(now: Instant) -> Self {
        Self { even_at: now }
    }

    /// Whether work may begin.
    pub(super) fn is_left(&self, now: Instant) -> bool {
        self.even_at.since(now) < BURST * SHARE
    }

    /// Work went on from `from` to `to`.
    pub(super) fn spend(&mut self, from: Instant, to: Instant) {
        self.even_at = self.even_at.max(from) + to.since(from) * SHARE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Work of 2 ms that is asked for all the time, for `time`: how much of it is done.
    fn worked(budget: &mut TimeBudget, now: &mut Instant, time: Duration) -> Duration {
        let end = *now + time;
        let mut worked = Duration::ZERO;
        while *now < end {
            if budget.is_left(*now) {
                budget.spend(*now, *now + 2 * MS);
                *now += 2 * MS;
                worked += 2 * MS;
            } else {
                *now += MS
            }
        }
        worked
    }

    #[test]
    fn what_is_asked_for_without_end_takes_its_part_of_the_time() {
        let mut now = Instant::ZERO;
        let mut budget = TimeBudget::new(now);
        let burst = worked(&mut budget, &mut now, 250 * MS);
        assert_eq!(burst, 250 * MS, "many puts may begin together");
        worked(&mut budget, &mut now, 5000 * MS);
        let part = worked(&mut budget, &mut now, 8000 * MS);
        assert!((990 * MS..=1010 * MS).contains(&part), "{part:?}");
        now += Duration::from_secs(60);
        let again = worked(&mut budget, &mut now, 10_000 * MS);
        assert!(again <= 1600 * MS, "a pause earns one burst: {again:?}");
    }
}
