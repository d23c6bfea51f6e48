use crate::Change;
use crate::burst::Bucket;
use crate::channel::{Fate, Stack};
use crate::jitter::Jitter;
use bentpipe_base::{Bytes, DropCause, Fact, Instant, Observer, Rate};
use core::time::Duration;
use std::collections::VecDeque;

/// The serialiser and the way behind it. They decide for each packet, when its first bit leaves, whether and when it
/// arrives.
pub(crate) struct Way<O> {
    pub(crate) rate: Option<Rate>,
    /// Where packets leave faster than that for a while.
    pub(crate) bucket: Option<Bucket>,
    /// In nanoseconds.
    pub(crate) delay: u64,
    pub(crate) jitter: Option<Box<Jitter>>,
    pub(crate) overhead: Bytes,
    /// The transmission times of the two packet sizes met last, the latest first. Links mostly carry two sizes, data
    /// and acknowledgements.
    pub(crate) transmissions: [Transmission; 2],
    /// The sum of [`Transmission::excess`] since a whole nanosecond was last given back.
    pub(crate) excess: u32,
    /// When the serialiser is done with all that it has begun.
    pub(crate) free: Instant,
    /// The latest arrival of all that have begun.
    pub(crate) latest: Instant,
    /// When the first of `changes` falls due; the end of time without any, and before the run begins.
    pub(crate) next_change: Instant,
    /// When the run began, from which `changes` count.
    pub(crate) began: Instant,
    /// In order.
    pub(crate) changes: VecDeque<Change>,
    pub(crate) channel: Stack,
    /// Whether a packet's size alone decides when it arrives, and that it does: no burst, no jitter, no channel.
    pub(crate) is_plain: bool,
    pub(crate) observer: O,
}

/// How long packets of a size occupy the serialiser.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transmission {
    size: Bytes,
    /// Rounded up.
    nanos: u64,
    /// What rounding up added, in 2^-32 ns. It is given back later, because otherwise a link of 100 Gbit/s would be
    /// 1.7% too slow.
    excess: u32,
}

/// Transmissions longer than this keep their rounding, because a nanosecond is less than 0.01% of them. A size then
/// always takes the same time, as in ns-2, where the order of simultaneous packets depends on it.
const SLOW: u64 = 10_000;

impl Transmission {
    fn new(rate: Option<Rate>, size: Bytes) -> Self {
        let nanos = rate.map_or(0, |rate| nanos(rate.serialisation(size)));
        let excess = rate.filter(|_| nanos < SLOW).map_or(0, |rate| {
            let per_second = u128::from(rate.bits_per_sec().max(1));
            let wanted = u128::from(size.bits()) * 1_000_000_000;
            let added = (u128::from(nanos) * per_second).saturating_sub(wanted);
            // Less than a whole nanosecond.
            ((added << 32) / per_second) as u32
        });
        Self {
            size,
            nanos,
            excess,
        }
    }
}

impl<O: Observer> Way<O> {
    /// Whether nothing leaves.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.rate.is_some_and(|rate| rate.bits_per_sec() == 0)
    }

    /// Sends a packet of `len` at `self.free` that has waited since `since`; returns when it arrives, if it does.
    #[inline(always)]
    pub(crate) fn leave(&mut self, len: Bytes, since: Instant) -> Option<Instant> {
        let start = self.free;
        if start >= self.next_change {
            self.change(start);
        }
        // No packet comes near the bound of this number.
        let size = Bytes(len.0.wrapping_add(self.overhead.0));
        self.observer
            .observe(start, &Fact::Departed { size, since });
        let transmission = self.transmission(size);
        self.free = start.plus_nanos(transmission.nanos);
        if transmission.excess > 0 {
            self.give_back(transmission.excess);
        }
        let sent = if self.is_plain {
            self.free
        } else {
            self.disturb(size, start)?
        };
        // Neither a delay that has shrunk nor jitter lets a packet overtake another.
        let due = sent.plus_nanos(self.delay);
        self.latest = self.latest.max(due);
        Some(self.latest)
    }

    /// Finds whether it is so, after a change of what decides it.
    pub(crate) fn find_whether_plain(&mut self) {
        self.is_plain = self.bucket.is_none() && self.jitter.is_none() && self.channel.is_empty();
    }

    /// What burst, jitter and channels do to a packet of `size`, the first bit of which left at `start` and the last at
    /// `self.free`. Returns when its last bit is sent, jitter added; `None` where a channel strikes it.
    #[inline(never)]
    fn disturb(&mut self, size: Bytes, start: Instant) -> Option<Instant> {
        let sent = self.free;
        if let (Some(bucket), Some(rate)) = (&mut self.bucket, self.rate) {
            self.free = sent.max(bucket.take(size, rate, start));
        }
        // Drawn for each packet, whatever becomes of it.
        let late = self.jitter.as_mut().map_or(0, |jitter| jitter.next());
        let fate = self.channel.strike(size.bits(), sent);
        if fate != Fate::Deliver {
            self.lost(size, fate, start);
            return None;
        }
        Some(sent.plus_nanos(late))
    }

    /// The rate at which bits leave, as long as they may.
    fn line_rate(&self) -> Option<Rate> {
        match (self.rate, &self.bucket) {
            (Some(rate), Some(bucket)) if !self.stopped() => Some(rate.max(bucket.burst.ceiling)),
            (rate, _) => rate,
        }
    }

    /// The run begins at `at`.
    pub(crate) fn begin(&mut self, at: Instant) {
        self.began = at;
        self.channel.begin(at);
        self.await_change();
    }

    fn await_change(&mut self) {
        let next = self.changes.front();
        self.next_change = next.map_or(Instant::MAX, |next| self.began + next.at);
    }

    /// Makes the changes due up to `start`.
    #[cold]
    fn change(&mut self, start: Instant) {
        while self.next_change <= start {
            if let Some(change) = self.changes.pop_front() {
                self.rate = change.rate.or(self.rate);
                self.delay = change.delay.map_or(self.delay, nanos);
                self.transmissions = Default::default();
            }
            self.await_change();
        }
    }

    /// How long `size` occupies the serialiser.
    #[inline]
    fn transmission(&mut self, size: Bytes) -> Transmission {
        if self.transmissions[0].size != size {
            self.transmissions.swap(0, 1);
            if self.transmissions[0].size != size {
                self.transmissions[0] = Transmission::new(self.line_rate(), size);
            }
        }
        self.transmissions[0]
    }

    /// Rounding up has added `excess`: takes whole nanoseconds of it back.
    #[cold]
    fn give_back(&mut self, excess: u32) {
        let (sum, whole) = self.excess.overflowing_add(excess);
        self.excess = sum;
        if whole {
            self.free = Instant::from_nanos(self.free.as_nanos() - 1);
        }
    }

    /// In the serialiser and behind it.
    pub(crate) fn passage(&self, len: Bytes) -> Duration {
        let transmission = Transmission::new(self.line_rate(), len + self.overhead);
        Duration::from_nanos(transmission.nanos.saturating_add(self.delay))
    }

    #[cold]
    fn lost(&mut self, size: Bytes, fate: Fate, start: Instant) {
        let cause = match fate {
            Fate::Corrupt => DropCause::Corrupted,
            _ => DropCause::Lost,
        };
        self.observer.observe(start, &Fact::Dropped { size, cause });
    }

    /// A channel before the queue struck a packet of `size`.
    #[cold]
    pub(crate) fn struck_before_queue(&mut self, size: Bytes, now: Instant) {
        let cause = DropCause::BeforeQueue;
        self.observer.observe(now, &Fact::Dropped { size, cause });
    }

    /// The queue marks a packet of `len`.
    #[cold]
    pub(crate) fn marked(&mut self, len: Bytes, now: Instant) {
        let size = len + self.overhead;
        self.observer.observe(now, &Fact::Marked { size });
    }

    /// The queue refuses a packet of `len`.
    #[cold]
    pub(crate) fn refused(&mut self, len: Bytes, now: Instant) {
        let (size, cause) = (len + self.overhead, DropCause::Queue);
        self.observer.observe(now, &Fact::Dropped { size, cause });
    }
}

/// Nanoseconds of `time`, as many as fit.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
