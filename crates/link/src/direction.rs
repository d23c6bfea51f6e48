use crate::Limit;
use crate::channel::{Channel, Fate, Stack};
use crate::queue::{Discipline, Queue};
use crate::ring::Ring;
use bentpipe_base::{Bytes, DropCause, Fact, Instant, Observer, Rate, Silent, Stream};
use core::time::Duration;

/// What one direction of a link is like.
pub struct Settings<P> {
    /// The rate of the serialiser; `None`: unlimited, every packet leaves at once.
    /// A rate of zero stops the link: packets wait until a rate is set.
    pub rate: Option<Rate>,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// Framing that the link adds to every packet.
    pub overhead: Bytes,
    /// What waits for the serialiser.
    pub queue: Discipline<P>,
    /// What the way does to packets; none: nothing.
    pub channels: Vec<Box<dyn Channel>>,
}

impl<P> Default for Settings<P> {
    /// A wire without limits, delay or errors.
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            overhead: Bytes(0),
            queue: Discipline::default(),
            channels: Vec::new(),
        }
    }
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: usize,
    /// Bytes, link framing not counted.
    pub bytes: Bytes,
}

/// One way over a link. See the crate's head for the order of things.
///
/// `now` must never go backwards. Two things that fall on the same nanosecond: a departure comes
/// before an arrival at the queue.
///
/// The observer hears of a departure, and of what the channel did, at the instant of the first bit;
/// its instants never go backwards, but may lie before `now`.
pub struct Direction<P, O = Silent> {
    rate: Option<Rate>,
    delay: Duration,
    overhead: Bytes,
    /// The size met last and its time in the serialiser: links see few sizes.
    transmission: (Bytes, Duration),
    /// When the serialiser is done with all that it has begun.
    free: Instant,
    /// The latest arrival of all that have begun.
    latest: Instant,
    /// Packets under way; with drop-tail also those that wait.
    ring: Ring<P>,
    queue: Waiters<P>,
    observer: O,
    queue_draw: Stream,
    channel: Stack,
}

/// Where packets wait.
enum Waiters<P> {
    /// At the end of the ring, drop-tail.
    Ring(Limit),
    /// In a queue of its own.
    Queue(Box<dyn Queue<P>>),
}

impl<P: Send, O: Observer> Direction<P, O> {
    /// The direction called `name` (such as `"sat.forward"`), its chance drawn from `seed`.
    pub fn new(settings: Settings<P>, seed: u64, name: &str, observer: O) -> Self {
        let mut ring = Ring::new();
        let queue = match settings.queue {
            Discipline::DropTail(mut queue) => {
                while let Some(waiting) = queue.pop(Instant::ZERO) {
                    ring.wait(waiting.packet, waiting.len, waiting.since);
                }
                Waiters::Ring(queue.limit())
            }
            Discipline::Other(queue) => Waiters::Queue(queue),
        };
        Self {
            rate: settings.rate,
            delay: settings.delay,
            overhead: settings.overhead,
            transmission: (Bytes(0), Duration::ZERO),
            free: Instant::ZERO,
            latest: Instant::ZERO,
            ring,
            queue,
            observer,
            queue_draw: Stream::new(seed, &format!("{name}.queue")),
            channel: Stack::new(seed, name, settings.channels),
        }
    }

    /// A packet of `len` bytes arrives at the queue.
    #[inline]
    pub fn push(&mut self, packet: P, len: Bytes, now: Instant) {
        self.advance(now);
        if self.free < now && self.nobody_waits() {
            // The serialiser was idle: this packet begins now, not when the last one ended.
            self.free = now;
        }
        let taken = match &mut self.queue {
            Waiters::Ring(limit) => {
                let room = limit.admits(self.ring.waiting(), self.ring.waiting_bytes(), len);
                if room {
                    self.ring.wait(packet, len, now);
                }
                room
            }
            Waiters::Queue(queue) => queue.push(packet, len, now, &mut self.queue_draw).is_ok(),
        };
        if taken {
            self.advance(now);
        } else {
            self.dropped(len + self.overhead, DropCause::Queue, now);
        }
    }

    /// Begins every transmission due up to `now`, each at its exact time.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        // Seldom: inlined is only the question.
        if self.free <= now && !self.nobody_waits() {
            self.catch_up(now);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while self.free <= now && !self.nobody_waits() && !self.stopped() && self.depart() {}
    }

    /// The next packet that arrives by `now`, with the exact time of its arrival.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        self.ring.take(now)
    }

    /// When [`Self::deliver`] or [`Self::advance`] has something to do next.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.ring.arrival() {
            // What starts before the head arrives is made up for when it does.
            Some(arrival) => Some(arrival),
            None if self.nobody_waits() || self.stopped() => None,
            // All that was under way is lost: the next departure decides.
            None => Some(self.free),
        }
    }

    /// Changes the rate. What has begun to leave keeps its time of arrival; what waits in the
    /// queue leaves at the new rate.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        self.advance(now);
        if self.stopped() {
            self.free = self.free.max(now);
        }
        self.rate = rate;
        self.transmission = (Bytes(0), Duration::ZERO);
        self.advance(now);
    }

    /// Changes the delay. What has begun to leave keeps its time of arrival; what follows arrives
    /// after the new delay, but never before what left earlier.
    pub fn set_delay(&mut self, delay: Duration, now: Instant) {
        self.advance(now);
        self.delay = delay;
    }

    /// Changes the channels. What has begun to leave keeps its fate. A channel of a kind that is or
    /// was in use draws on from the same stream.
    pub fn set_channels(&mut self, channels: Vec<Box<dyn Channel>>, now: Instant) {
        self.advance(now);
        self.channel.replace(channels);
    }

    /// What waits in the queue at `now`; the packet being serialised has left it.
    pub fn backlog(&mut self, now: Instant) -> Backlog {
        self.advance(now);
        let (packets, bytes) = match &self.queue {
            Waiters::Ring(_) => (self.ring.waiting(), self.ring.waiting_bytes()),
            Waiters::Queue(queue) => (queue.len(), queue.bytes()),
        };
        Backlog { packets, bytes }
    }

    /// Packets that wait in the queue since [`Self::advance`] was last called, as every other
    /// method does that is given the time.
    #[inline]
    pub fn waiting(&self) -> usize {
        match &self.queue {
            Waiters::Ring(_) => self.ring.waiting(),
            Waiters::Queue(queue) => queue.len(),
        }
    }

    /// Packets that left the queue and have not arrived yet.
    pub fn under_way(&self) -> usize {
        self.ring.under_way()
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to be changed.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.rate.is_some_and(|rate| rate.bits_per_sec() == 0)
    }

    #[inline]
    fn nobody_waits(&self) -> bool {
        match &self.queue {
            Waiters::Ring(_) => self.ring.waiting() == 0,
            Waiters::Queue(queue) => queue.is_empty(),
        }
    }

    /// The serialiser takes the next packet at `self.free`; `false` when the queue gave none.
    #[inline]
    fn depart(&mut self) -> bool {
        let start = self.free;
        if let Waiters::Queue(queue) = &mut self.queue {
            // The queue has chosen: for no time at all it is the one that waits in the ring.
            let Some(waiting) = queue.pop(start) else {
                return false;
            };
            self.ring.wait(waiting.packet, waiting.len, waiting.since);
        }
        let Some((len, since)) = self.ring.next() else {
            return false;
        };
        let size = len + self.overhead;
        let waited = start - since;
        self.observer
            .observe(start, &Fact::Departed { size, waited });
        self.free = start + self.transmission(size);
        match self.channel.strike(size.bits(), self.free) {
            Fate::Deliver => {
                // A delay that has shrunk must not let a packet overtake another.
                self.latest = self.latest.max(self.free + self.delay);
                self.ring.begin(self.latest);
            }
            Fate::Corrupt => self.lost(size, DropCause::Corrupted, start),
            Fate::Lose => self.lost(size, DropCause::Lost, start),
        }
        true
    }

    /// How long `size` occupies the serialiser.
    #[inline]
    fn transmission(&mut self, size: Bytes) -> Duration {
        if self.transmission.0 != size {
            let rate = self.rate;
            let time = rate.map_or(Duration::ZERO, |rate| rate.serialisation(size));
            self.transmission = (size, time);
        }
        self.transmission.1
    }

    #[cold]
    fn lost(&mut self, size: Bytes, cause: DropCause, start: Instant) {
        self.ring.lose();
        self.dropped(size, cause, start);
    }

    fn dropped(&mut self, size: Bytes, cause: DropCause, at: Instant) {
        self.observer.observe(at, &Fact::Dropped { size, cause });
    }
}
