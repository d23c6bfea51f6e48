//! What one direction of a connection has sent: retransmissions, reordering and round-trip times follow from it.

use bentpipe_base::Instant;
use std::collections::BTreeMap;

/// Ranges kept apart at most. Where acknowledgements are missing (a capture of one direction), the oldest are then
/// taken for acknowledged: retransmissions of them are still seen, their round-trip times are not.
const MOST: usize = 1 << 15;

/// A stretch of the stream that was sent in one piece, or several that were acknowledged.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: u64,
    /// When it was last sent.
    at: Instant,
    /// How often it was sent again.
    again: u32,
    acknowledged: bool,
}

/// What has been sent, by place in the stream.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    ranges: BTreeMap<u64, Range>,
    /// All before this was sent and acknowledged, and has no range any more.
    floor: u64,
    acknowledged: u64,
    /// When the last of what is acknowledged was sent.
    latest_acknowledged: Instant,
}

/// What a segment was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Bytes of it that had been sent before.
    pub(crate) again: u64,
    /// It filled a hole before what was seen already.
    pub(crate) out_of_order: bool,
    /// How long before it was last sent, and how often it was sent again, if it had not been acknowledged.
    pub(crate) retransmitted: Option<(u64, u32)>,
}

/// What an acknowledgement said of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acked {
    /// It ended where a range that was sent once ends: nanoseconds since that was sent.
    Sample(u64),
    /// The same, but something before it was sent later: the time is that of a repair.
    AfterLoss,
    /// The range was sent more than once: nanoseconds since the last time.
    Ambiguous(u64),
    /// It covers a range and goes on.
    Cumulative,
}

impl Sent {
    /// Whether something was sent that is not acknowledged.
    pub(crate) fn is_outstanding(&self) -> bool {
        let last = self.ranges.last_key_value();
        last.is_some_and(|(_, range)| range.end > self.acknowledged)
    }

    /// Something from `start` to `end` was sent at `now`.
    pub(crate) fn record(&mut self, start: u64, end: u64, now: Instant) -> Recorded {
        let mut recorded = Recorded::default();
        let known = self.floor.clamp(start, end);
        recorded.again = known - start;
        let mut start = known;
        let mut split = false;
        while start < end {
            let Some((first, range)) = self.reaching_beyond(start) else {
                self.insert(start, end, now);
                break;
            };
            if start < first {
                recorded.out_of_order |= end < range.end;
                self.insert(start, end.min(first), now);
                start = end.min(first);
                continue;
            }
            let acked = self.send_again(first, now, split, &mut recorded);
            if acked && !split {
                self.latest_acknowledged = self.latest_acknowledged.max(now);
            }
            split = true;
            recorded.again += end.min(range.end) - start;
            start = end.min(range.end);
        }
        recorded
    }

    /// The first range that ends behind `place`.
    fn reaching_beyond(&self, place: u64) -> Option<(u64, Range)> {
        let before = self.ranges.range(..=place).next_back();
        let around = before.filter(|(_, range)| range.end > place);
        let found = around.or_else(|| self.ranges.range(place..).next());
        found.map(|(first, range)| (*first, *range))
    }

    fn insert(&mut self, start: u64, end: u64, at: Instant) {
        let range = Range {
            end,
            at,
            again: 0,
            acknowledged: false,
        };
        self.ranges.insert(start, range);
        if self.ranges.len() > MOST
            && let Some((_, oldest)) = self.ranges.pop_first()
        {
            self.floor = self.floor.max(oldest.end);
            self.latest_acknowledged = self.latest_acknowledged.max(oldest.at);
        }
    }

    /// Whether the range had been acknowledged.
    fn send_again(
        &mut self,
        first: u64,
        now: Instant,
        split: bool,
        recorded: &mut Recorded,
    ) -> bool {
        let Some(range) = self.ranges.get_mut(&first) else {
            return false;
        };
        range.again = range.again.saturating_add(1);
        if !split {
            if !range.acknowledged {
                recorded.retransmitted = Some((now.nanos_since(range.at), range.again));
            }
            range.at = now;
        }
        range.acknowledged
    }

    /// All before `place` is acknowledged at `now`.
    pub(crate) fn acknowledge(&mut self, place: u64, now: Instant, mut each: impl FnMut(Acked)) {
        if place <= self.acknowledged {
            return;
        }
        // The range around what was acknowledged until now may go on behind it.
        let from = self.ranges.range(..=self.acknowledged).next_back();
        let from = from.map_or(0, |(first, _)| *first);
        let mut latest = self.latest_acknowledged;
        for (_, range) in self.ranges.range_mut(from..place) {
            latest = latest.max(range.at);
            // Some of it was acknowledged before.
            if range.acknowledged {
                continue;
            }
            range.acknowledged = true;
            let took = now.nanos_since(range.at);
            each(match (range.end == place, latest > range.at, range.again) {
                (false, ..) => Acked::Cumulative,
                (true, true, _) => Acked::AfterLoss,
                (true, false, 0) => Acked::Sample(took),
                (true, false, _) => Acked::Ambiguous(took),
            });
        }
        self.latest_acknowledged = latest;
        self.acknowledged = place;
        self.join(from, place);
    }

    /// Joins the acknowledged ranges from `from` to `to` that touch each other.
    fn join(&mut self, from: u64, to: u64) {
        let mut cursor = from;
        while let Some((first, range)) = self.ranges.range(cursor..to).next() {
            let (first, range) = (*first, *range);
            let before = self.ranges.range(..first).next_back();
            let touching = before.filter(|(_, before)| before.end == first && before.acknowledged);
            if let Some(before) = touching.map(|(start, _)| *start) {
                self.ranges.remove(&first);
                if let Some(joined) = self.ranges.get_mut(&before) {
                    joined.end = range.end;
                    joined.at = joined.at.max(range.at);
                }
            }
            cursor = first + 1;
        }
    }
}
