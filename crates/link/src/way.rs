use crate::Change;
use crate::channel::{Fate, Stack};
use bentpipe_base::{Bytes, DropCause, Fact, Instant, Observer, Rate};
use core::time::Duration;
use std::collections::VecDeque;

/// The serialiser and the way behind it: settles of each packet, as its first bit leaves, whether
/// and when it arrives.
pub(crate) struct Way<O> {
    pub(crate) rate: Option<Rate>,
    /// In nanoseconds.
    pub(crate) delay: u64,
    pub(crate) overhead: Bytes,
    /// The two sizes met last, the latest first, and their times in the serialiser, in nanoseconds: links see
    /// few sizes, data and acknowledgements.
    pub(crate) transmissions: [(Bytes, u64); 2],
    /// When the serialiser is done with all that it has begun.
    pub(crate) free: Instant,
    /// The latest arrival of all that have begun.
    pub(crate) latest: Instant,
    /// When the first of `changes` falls due; the end of time without any.
    pub(crate) next_change: Instant,
    /// In order.
    pub(crate) changes: VecDeque<Change>,
    pub(crate) channel: Stack,
    pub(crate) observer: O,
}

impl<O: Observer> Way<O> {
    /// Whether nothing leaves.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.rate.is_some_and(|rate| rate.bits_per_sec() == 0)
    }

    /// A packet of `len` that has waited since `since` begins to leave at `self.free`: when it
    /// arrives, if it does.
    #[inline(always)]
    pub(crate) fn leave(&mut self, len: Bytes, since: Instant) -> Option<Instant> {
        let start = self.free;
        if start >= self.next_change {
            self.change(start);
        }
        let size = len + self.overhead;
        self.observer
            .observe(start, &Fact::Departed { size, since });
        self.free = start.plus_nanos(self.transmission(size));
        let fate = self.channel.strike(size.bits(), self.free);
        if fate != Fate::Deliver {
            self.lost(size, fate, start);
            return None;
        }
        // A delay that has shrunk must not let a packet overtake another.
        self.latest = self.latest.max(self.free.plus_nanos(self.delay));
        Some(self.latest)
    }

    /// Changes to make from now on.
    pub(crate) fn follow(&mut self, changes: VecDeque<Change>) {
        self.changes = changes;
        self.next_change = self.changes.front().map_or(Instant::MAX, |next| next.at);
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
            self.next_change = self.changes.front().map_or(Instant::MAX, |next| next.at);
        }
    }

    /// How long `size` occupies the serialiser, in nanoseconds.
    #[inline]
    fn transmission(&mut self, size: Bytes) -> u64 {
        if self.transmissions[0].0 != size {
            self.transmissions.swap(0, 1);
            if self.transmissions[0].0 != size {
                self.transmissions[0] = (size, self.serialisation(size));
            }
        }
        self.transmissions[0].1
    }

    #[cold]
    fn serialisation(&self, size: Bytes) -> u64 {
        self.rate.map_or(0, |rate| nanos(rate.serialisation(size)))
    }

    /// In the serialiser and behind it.
    pub(crate) fn passage(&self, len: Bytes) -> Duration {
        let serialisation = self.serialisation(len + self.overhead);
        Duration::from_nanos(serialisation.saturating_add(self.delay))
    }

    #[cold]
    fn lost(&mut self, size: Bytes, fate: Fate, start: Instant) {
        let cause = match fate {
            Fate::Corrupt => DropCause::Corrupted,
            _ => DropCause::Lost,
        };
        self.observer.observe(start, &Fact::Dropped { size, cause });
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
