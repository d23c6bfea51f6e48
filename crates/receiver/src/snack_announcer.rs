//! Which hole of what was received the next acknowledgement announces by SNACK.
//!
//! The peer may be the reference implementation, which sends a hole again by itself once it heard of it, but never
//! hears of it again if that one acknowledgement is lost. So each hole is announced in two acknowledgements, and again
//! after two round-trip times, four, and so on, as long as it is one.

use bentpipe_base::{Instant, Ranges};
use std::collections::BTreeSet;
use std::time::Duration;

/// Holes that are remembered, to be announced again. The peer's own timers see to the rest.
const REMEMBERED: usize = 1024;
/// How often a hole is announced at most.
const MOST: u32 = 6;

/// A hole that was announced; first comes the one that is due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Announced {
    due: Instant,
    from: u64,
    to: u64,
    /// How often it was announced.
    times: u32,
}

/// Chooses the hole of each SNACK option by what was announced so far.
#[derive(Debug, Default)]
pub(super) struct SnackAnnouncer {
    /// How long a hole may close by itself.
    delay: Duration,
    /// All holes below were announced.
    until: u64,
    /// Where the lowest of the others ends, and since when it is known.
    seen: Option<(u64, Instant)>,
    announced: BTreeSet<Announced>,
}

impl SnackAnnouncer {
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The hole to announce at `now` to a peer that hears that all before `next` arrived, where `beyond` arrived
    /// besides. `patience` passes before a hole is announced for the third time.
    pub(super) fn next(
        &mut self,
        next: u64,
        beyond: &Ranges,
        patience: Duration,
        now: Instant,
    ) -> Option<(u64, u64)> {
        self.until = self.until.max(next);
        let (hole, times) = match self.new_hole(beyond, now) {
            Some(hole) => (hole, 1),
            None => self.due_again(next, beyond, now)?,
        };
        let wait = match times {
            1 => Duration::ZERO,
            times => patience.saturating_mul(1 << (times - 2)),
        };
        self.until = self.until.max(hole.1);
        if times < MOST && self.announced.len() < REMEMBERED {
            self.announced.insert(Announced {
                due: now + wait,
                from: hole.0,
                to: hole.1,
                times,
            });
        }
        Some(hole)
    }

    /// No hole that ends above this is old enough to be announced.
    pub(super) fn edge(&self) -> u64 {
        if self.delay.is_zero() {
            u64::MAX
        } else {
            self.until
        }
    }

    /// The lowest hole above all that were announced, once it is old enough.
    fn new_hole(&mut self, beyond: &Ranges, now: Instant) -> Option<(u64, u64)> {
        let mut lowest = None;
        // It lies below one of the last stretches, as new holes come at the end.
        for (from, to) in beyond.iter().rev() {
            if from <= self.until {
                lowest = lowest.map(|(begin, end)| (to.max(begin), end));
                break;
            }
            lowest = Some((self.until, from));
        }
        let hole = lowest?;
        let since = match self.seen {
            Some((end, since)) if end == hole.1 => since,
            _ => now,
        };
        self.seen = Some((hole.1, since));
        (now.since(since) >= self.delay).then_some(hole)
    }

    /// What is left of a hole that is due again, and how often it is announced then.
    fn due_again(&mut self, next: u64, beyond: &Ranges, now: Instant) -> Option<((u64, u64), u32)> {
        while let Some(hole) = self.announced.first().copied()
            && hole.due <= now
        {
            self.announced.pop_first();
            if let Some(left) = beyond.uncovered(hole.from.max(next), hole.to) {
                return Some((left, hole.times + 1));
            }
        }
        None
    }

    /// When a hole is to be announced although no segment comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let again = self.announced.first().map(|hole| hole.due);
        let young = self
            .seen
            .filter(|(end, _)| *end > self.until)
            .map(|(_, since)| since + self.delay);
        again.into_iter().chain(young).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn held(stretches: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        for &(from, to) in stretches {
            ranges.insert(from, to);
        }
        ranges
    }

    #[test]
    fn each_hole_is_announced_in_two_acknowledgements_and_later_again() {
        let mut announcer = SnackAnnouncer::new(Duration::ZERO);
        let beyond = held(&[(20, 30), (40, 50)]);
        let mut next = |millis| announcer.next(10, &beyond, PATIENCE, at(millis));
        assert_eq!(
            [next(0), next(0), next(0)],
            [Some((10, 20)), Some((30, 40)), Some((10, 20))]
        );
        assert_eq!([next(1), next(1), next(99)], [Some((30, 40)), None, None]);
        assert_eq!(
            [next(100), next(101), next(102)],
            [Some((10, 20)), Some((30, 40)), None]
        );
        assert_eq!(
            [next(299), next(300), next(10_000)],
            [None, Some((10, 20)), Some((30, 40))]
        );
    }

    #[test]
    fn of_a_hole_that_was_filled_in_part_the_rest_is_announced() {
        let mut announcer = SnackAnnouncer::new(Duration::ZERO);
        assert_eq!(
            announcer.next(10, &held(&[(40, 50)]), PATIENCE, at(0)),
            Some((10, 40))
        );
        assert_eq!(
            announcer.next(20, &held(&[(40, 50)]), PATIENCE, at(1)),
            Some((20, 40))
        );
        assert_eq!(announcer.next(50, &held(&[]), PATIENCE, at(500)), None);
        assert_eq!(announcer.deadline(), None);
    }

    #[test]
    fn a_hole_may_close_by_itself_before_it_is_announced() {
        let mut announcer = SnackAnnouncer::new(Duration::from_millis(5));
        assert_eq!(
            announcer.next(10, &held(&[(20, 30)]), PATIENCE, at(0)),
            None
        );
        assert_eq!(announcer.deadline(), Some(at(5)));
        assert_eq!(
            announcer.next(30, &held(&[(40, 50)]), PATIENCE, at(4)),
            None
        );
        assert_eq!(announcer.deadline(), Some(at(9)));
        assert_eq!(
            announcer.next(30, &held(&[(40, 50)]), PATIENCE, at(9)),
            Some((30, 40))
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut announcer = SnackAnnouncer::new(Duration::ZERO);
        let mut beyond = Ranges::default();
        for i in 1..10_000u64 {
            beyond.insert(2 * i, 2 * i + 1);
            assert_eq!(
                announcer.next(1, &beyond, PATIENCE, at(0)),
                Some((2 * i - 1, 2 * i))
            );
        }
        assert_eq!(announcer.announced.len(), REMEMBERED);
    }
}
