//! Tracks repairs: octets that the peer reported missing and that are still to be sent again, and octets that were sent
//! again and whose arrival the next report will tell.

use crate::MAX_STRETCHES;
use crate::stretches::Stretches;
use bentpipe_base::Instant;
use std::collections::VecDeque;

/// The horizon of a report: it says nothing about packets that were sent later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Horizon {
    /// The number of the packet that it answers.
    Packet(u64),
    /// No number came back: what was sent before this instant.
    Time(Instant),
}

/// A repair that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
    from: u64,
    to: u64,
    copies: u8,
}

/// See the file's head. Offsets are of the content.
#[derive(Clone, Debug)]
pub(crate) struct Repairs {
    /// The most stretches that each of the two lists below keeps.
    most: usize,
    missing: Stretches,
    flight: VecDeque<Sent>,
    /// The union of both lists, which share no octet. Only octets of a report that are not in it cost work.
    open: Stretches,
}

impl Default for Repairs {
    fn default() -> Self {
        Self {
            most: MAX_STRETCHES,
            missing: Stretches::default(),
            flight: VecDeque::new(),
            open: Stretches::default(),
        }
    }
}

impl Repairs {
    /// How many stretches the longer of the two lists has.
    pub(crate) fn len(&self) -> usize {
        self.missing.len().max(self.flight.len())
    }

    /// No more than `most` of either are kept from now on; what is there stays.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = most.min(MAX_STRETCHES);
    }

    /// A report names `holes`, `[from, to)` each, and tells the fate of what was sent before
    /// `horizon`. Returns what is found missing that was not known to be.
    pub(crate) fn report(
        &mut self,
        holes: impl Iterator<Item = (u64, u64)>,
        horizon: Horizon,
    ) -> Stretches {
        let is_reported = |sent: &Sent| match horizon {
            Horizon::Packet(number) => sent.number < number,
            Horizon::Time(at) => sent.at < at,
        };
        while self.flight.front().is_some_and(is_reported) {
            self.forget_oldest();
        }
        let mut new = Stretches::default();
        for (from, to) in holes {
            let mut at = from;
            while let Some((start, end)) = self.open.uncovered(at, to) {
                if self.missing.len() >= self.most {
                    break;
                }
                self.missing.insert(start, end);
                self.open.insert(start, end);
                new.insert(start, end);
                at = end;
            }
        }
        new
    }

    /// The next stretch to send again, of `most` octets at most.
    pub(crate) fn next(&mut self, most: u32, number: u64, now: Instant) -> Option<(u64, u32)> {
        let (from, to) = self.missing.first()?;
        let to = to.min(from.saturating_add(most.into()));
        self.missing.remove(from, to);
        self.push(Sent {
            number,
            at: now,
            from,
            to,
            copies: 1,
        });
        Some((from, (to - from) as u32))
    }

    /// A stretch that was sent again less than `copies` times and whose fate is open, for a line
    /// that would be idle.
    pub(crate) fn another(&mut self, copies: u8, number: u64, now: Instant) -> Option<(u64, u32)> {
        let sent = *self.flight.front().filter(|sent| sent.copies < copies)?;
        self.flight.pop_front();
        self.push(Sent {
            number,
            at: now,
            copies: sent.copies + 1,
            ..sent
        });
        Some((sent.from, (sent.to - sent.from) as u32))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether [`Self::another`] has something.
    pub(crate) fn has_another(&self, copies: u8) -> bool {
        self.flight.front().is_some_and(|sent| sent.copies < copies)
    }

    fn push(&mut self, sent: Sent) {
        if self.flight.len() >= self.most {
            self.forget_oldest();
        }
        self.flight.push_back(sent);
    }

    /// Forgets the oldest repair, whose fate is known or no longer waited for.
    fn forget_oldest(&mut self) {
        if let Some(sent) = self.flight.pop_front() {
            self.open.remove(sent.from, sent.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant::ZERO;

    #[test]
    fn what_is_under_way_is_not_sent_again_until_its_fate_is_told() {
        let mut repairs = Repairs::default();
        let holes = [(100, 200), (300, 350)];
        let report = |repairs: &mut Repairs, number| {
            let new = repairs.report(holes.into_iter(), Horizon::Packet(number));
            new.total()
        };
        assert_eq!(report(&mut repairs, 5), 150);
        assert_eq!(repairs.next(60, 10, T), Some((100, 60)));
        assert_eq!(repairs.next(60, 11, T), Some((160, 40)));
        // A report on packets before the tenth: nothing new.
        assert_eq!(report(&mut repairs, 10), 0);
        assert_eq!(repairs.next(60, 12, T), Some((300, 50)));
        assert_eq!(repairs.next(60, 13, T), None);
        // One on packets before the twelfth: the first two are lost again.
        assert_eq!(report(&mut repairs, 12), 100);
        assert_eq!(repairs.next(200, 14, T), Some((100, 100)));
        assert_eq!(repairs.next(200, 15, T), None);
    }

    #[test]
    fn an_idle_line_sends_what_is_open_once_more() {
        let mut repairs = Repairs::default();
        repairs.report([(0, 10)].into_iter(), Horizon::Packet(1));
        repairs.next(10, 2, T);
        assert!(repairs.has_another(2));
        assert_eq!(repairs.another(2, 3, T), Some((0, 10)));
        assert_eq!(repairs.another(2, 4, T), None);
        // The first copy's fate does not tell the second's.
        let mut report = |number| {
            let new = repairs.report([(0, 10)].into_iter(), Horizon::Packet(number));
            new.total()
        };
        assert_eq!((report(3), report(4)), (0, 10));
    }

    /// A peer may name holes in any order, wait until all is under way again, and then name the whole, again and again: that costs
    /// no more than what is new in it.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "what it costs is time")]
    fn the_same_holes_again_cost_little() {
        let begun = std::time::Instant::now();
        let mut repairs = Repairs::default();
        let count = 8192;
        for number in 0..count {
            // An order that neither rises nor falls.
            let at = 10 * (number * 4051 % count);
            repairs.report([(at, at + 1)].into_iter(), Horizon::Packet(0));
            assert_eq!(repairs.next(1, number, T), Some((at, 1)));
        }
        let whole = || [(0, 10 * count)].into_iter();
        let new = repairs.report(whole(), Horizon::Packet(0));
        assert_eq!(new.total(), 9 * count);
        for _ in 0..1000 {
            assert!(repairs.report(whole(), Horizon::Packet(0)).is_empty());
        }
        let took = begun.elapsed();
        assert!(took.as_secs_f64() < 2.0, "{took:?}");
    }

    #[test]
    fn holes_without_number_are_bounded() {
        let mut repairs = Repairs::default();
        let holes = (0..200_000).map(|i| (10 * i, 10 * i + 1));
        repairs.report(holes, Horizon::Time(T));
        assert_eq!(repairs.missing.len(), MAX_STRETCHES);
    }
}
