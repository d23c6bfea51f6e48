use crate::channel::{Channel, Fate, Stack};
use crate::queue::{Discipline, Queue, Waiting};
use bentpipe_base::{Bytes, DropCause, Fact, Instant, Observer, Rate, Silent, Stream};
use core::time::Duration;
use std::collections::VecDeque;

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
    /// When the serialiser is done with all that it has begun.
    free: Instant,
    /// Packets under way with their times of arrival, in order of both.
    ring: VecDeque<(Instant, P)>,
    queue: Discipline<P>,
    observer: O,
    queue_draw: Stream,
    channel: Stack,
}

impl<P: Send, O: Observer> Direction<P, O> {
    /// The direction called `name` (such as `"sat.forward"`), its chance drawn from `seed`.
    pub fn new(settings: Settings<P>, seed: u64, name: &str, observer: O) -> Self {
        Self {
            rate: settings.rate,
            delay: settings.delay,
            overhead: settings.overhead,
            free: Instant::ZERO,
            ring: VecDeque::new(),
            queue: settings.queue,
            observer,
            queue_draw: Stream::new(seed, &format!("{name}.queue")),
            channel: Stack::new(seed, name, settings.channels),
        }
    }

    /// A packet of `len` bytes arrives at the queue.
    #[inline]
    pub fn push(&mut self, packet: P, len: Bytes, now: Instant) {
        self.advance(now);
        if self.queue.is_empty() && self.free < now {
            // The serialiser was idle: this packet begins now, not when the last one ended.
            self.free = now;
        }
        match self.queue.push(packet, len, now, &mut self.queue_draw) {
            Ok(()) => self.advance(now),
            Err(_) => self.dropped(len + self.overhead, DropCause::Queue, now),
        }
    }

    /// Begins every transmission due up to `now`, each at its exact time.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        while self.free <= now && !self.stopped() && !self.queue.is_empty() {
            let Some(waiting) = self.queue.pop(self.free) else {
                return;
            };
            self.depart(waiting);
        }
    }

    /// The next packet that arrives by `now`, with the exact time of its arrival.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        match self.ring.front() {
            Some((arrival, _)) if *arrival <= now => self.ring.pop_front(),
            _ => None,
        }
    }

    /// When [`Self::deliver`] or [`Self::advance`] has something to do next.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.ring.front() {
            // What starts before the head arrives is made up for when it does.
            Some((arrival, _)) => Some(*arrival),
            None if self.stopped() || self.queue.is_empty() => None,
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
        Backlog {
            packets: self.queue.len(),
            bytes: self.queue.bytes(),
        }
    }

    /// Packets that left the queue and have not arrived yet.
    pub fn under_way(&self) -> usize {
        self.ring.len()
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

    /// The serialiser takes a packet at `self.free`.
    #[inline]
    fn depart(&mut self, waiting: Waiting<P>) {
        let start = self.free;
        let size = waiting.len + self.overhead;
        let waited = start - waiting.since;
        self.observer
            .observe(start, &Fact::Departed { size, waited });
        let transmission = self
            .rate
            .map_or(Duration::ZERO, |rate| rate.serialisation(size));
        self.free = start + transmission;
        match self.channel.strike(size.bits(), self.free) {
            Fate::Deliver => {
                let arrival = self.free + self.delay;
                // A delay that has shrunk must not let a packet overtake another.
                let earliest = self.ring.back().map_or(arrival, |(last, _)| *last);
                self.ring.push_back((arrival.max(earliest), waiting.packet));
            }
            Fate::Corrupt => self.dropped(size, DropCause::Corrupted, start),
            Fate::Lose => self.dropped(size, DropCause::Lost, start),
        }
    }

    fn dropped(&mut self, size: Bytes, cause: DropCause, at: Instant) {
        self.observer.observe(at, &Fact::Dropped { size, cause });
    }
}
