use crate::Limit;
use crate::burst::{Bucket, Burst};
use crate::channel::{Channel, Fate, Stack};
use crate::jitter::Jitter;
use crate::queue::{Discipline, Queue};
use crate::ring::Ring;
use crate::way::{Way, nanos};
use bentpipe_base::{Bytes, Instant, Observer, Rate, Silent, Stream};
use core::time::Duration;

/// The settings of one direction of a link.
pub struct Settings<P> {
    /// The rate of the serialiser; `None`: unlimited, every packet leaves at once.
    /// A rate of zero stops the link: packets wait until a rate is set.
    pub rate: Option<Rate>,
    /// What leaves faster than that after a pause.
    pub burst: Option<Burst>,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// A packet takes up to so much longer than that, by chance; none overtakes another.
    pub jitter: Duration,
    /// Framing that the link adds to every packet.
    pub overhead: Bytes,
    /// The queue in front of the serialiser.
    pub queue: Discipline<P>,
    /// The channels, which add errors; empty for a link without errors.
    pub channels: Vec<Box<dyn Channel>>,
    /// The channels stand before the queue, as the error model of ns-2 does (`errormodule`): what they strike takes no
    /// room in the queue and no time of the serialiser. Otherwise they stand behind both.
    pub errors_before_queue: bool,
    /// The changes of rate and delay, in ascending order of time.
    pub changes: Vec<Change>,
}

impl<P> Default for Settings<P> {
    /// A wire without limits, delay or errors.
    fn default() -> Self {
        Self {
            rate: None,
            burst: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            overhead: Bytes(0),
            queue: Discipline::default(),
            channels: Vec::new(),
            errors_before_queue: false,
            changes: Vec::new(),
        }
    }
}

/// A change of a direction during a run; `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the beginning of the run. What begins to leave from here on is sent as follows; what has begun
    /// keeps its times.
    pub at: Duration,
    /// The rate of the serialiser, more than nothing.
    pub rate: Option<Rate>,
    /// The propagation delay. Where it shrinks nothing overtakes what left earlier.
    pub delay: Option<Duration>,
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
    way: Way<O>,
    /// Packets under way; with drop-tail also those that wait.
    ring: Ring<P>,
    queue: Waiters<P>,
    queue_draw: Stream,
    /// Packets that the queue has marked, as far as the observer knows.
    marked: u64,
    /// The channels before the queue.
    entrance: Stack,
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
                    ring.push(waiting.packet, waiting.len, waiting.since, None);
                }
                Waiters::Ring(queue.limit())
            }
            Discipline::Other(queue) => Waiters::Queue(queue),
        };
        let (entrance, channels) = if settings.errors_before_queue {
            (settings.channels, Vec::new())
        } else {
            (Vec::new(), settings.channels)
        };
        let mut way = Way {
            rate: settings.rate,
            bucket: settings.burst.map(Bucket::new),
            delay: nanos(settings.delay),
            jitter: Jitter::new(nanos(settings.jitter), seed, name),
            overhead: settings.overhead,
            transmissions: Default::default(),
            excess: 0,
            free: Instant::ZERO,
            latest: Instant::ZERO,
            next_change: Instant::MAX,
            began: Instant::ZERO,
            changes: settings.changes.into(),
            channel: Stack::new(seed, name, channels),
            is_plain: false,
            observer,
        };
        way.find_whether_plain();
        Self {
            way,
            ring,
            queue,
            queue_draw: Stream::new(seed, &format!("{name}.queue")),
            marked: 0,
            entrance: Stack::new(seed, name, entrance),
        }
    }

    /// A packet of `len` bytes arrives; given back when the queue refuses it, and gone when a channel strikes it.
    #[inline(always)]
    pub fn push(&mut self, packet: P, len: Bytes, now: Instant) -> Option<P> {
        self.advance(now);
        if !self.entrance.is_empty() && self.is_struck(len, now) {
            self.ring.discard(packet);
            return None;
        }
        let Waiters::Ring(limit) = self.queue else {
            return self.queue_up(packet, len, now);
        };
        if !limit.admits(self.ring.waiting(), self.ring.waiting_bytes(), len) {
            self.way.refused(len, now);
            return Some(packet);
        }
        // Where packets wait, the serialiser is busy or stopped.
        let idle = self.way.free <= now && !self.way.stopped();
        let arrival = if idle {
            // This packet begins now, not when the last one ended.
            self.way.free = now;
            let Some(arrival) = self.way.leave(len, now) else {
                self.ring.discard(packet);
                return None;
            };
            Some(arrival)
        } else {
            None
        };
        self.ring.push(packet, len, now, arrival);
        None
    }

    /// Whether a channel before the queue strikes a packet of `len` bytes.
    #[inline(never)]
    fn is_struck(&mut self, len: Bytes, now: Instant) -> bool {
        let size = len + self.way.overhead;
        let struck = self.entrance.strike(size.bits(), now) != Fate::Deliver;
        if struck {
            self.way.struck_before_queue(size, now);
        }
        struck
    }

    /// [`Self::push`] into a queue of its own.
    #[inline(never)]
    fn queue_up(&mut self, packet: P, len: Bytes, now: Instant) -> Option<P> {
        let Waiters::Queue(queue) = &mut self.queue else {
            return Some(packet);
        };
        if queue.is_empty() && self.way.free < now {
            queue.idle_since(self.way.free);
            self.way.free = now;
        }
        let refused = queue.push(packet, len, now, &mut self.queue_draw).err();
        if queue.marked() > self.marked {
            self.marked = queue.marked();
            self.way.marked(len, now);
        }
        match refused {
            None => self.advance(now),
            Some(_) => self.way.refused(len, now),
        }
        refused
    }

    /// Begins every transmission due up to `now`, each at its exact time.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        // This happens seldom, so that only the test is inlined.
        if self.way.free <= now && !self.nobody_waits() {
            self.catch_up(now);
        }
    }

    #[inline(never)]
    fn catch_up(&mut self, now: Instant) {
        // What is stopped stays so until somebody sets a rate.
        if self.way.stopped() {
            return;
        }
        if let Waiters::Queue(_) = self.queue {
            while self.way.free <= now && self.depart() {}
            return;
        }
        let Self { way, ring, .. } = self;
        while way.free <= now && ring.begin(|len, since| way.leave(len, since)) {}
    }

    /// The next packet that arrives by `now`, with the exact time of its arrival.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<(Instant, P)> {
        let (at, packet, _) = self.deliver_sized(now)?;
        Some((at, packet))
    }

    /// [`Self::deliver`] with the packet's length, link framing not counted.
    #[inline]
    pub fn deliver_sized(&mut self, now: Instant) -> Option<(Instant, P, Bytes)> {
        self.advance(now);
        self.ring.take(now)
    }

    /// [`Self::deliver_sized`] at [`Self::deadline`], again until there is a packet, or nothing to do by `now`.
    #[inline]
    pub fn deliver_due(&mut self, now: Instant) -> Option<(Instant, P, Bytes)> {
        // What is never due is not due at the end of time either.
        let until = now.min(Instant::from_nanos(u64::MAX - 1));
        loop {
            let due = self.due();
            if due > until {
                return None;
            }
            if let Some(arrived) = self.deliver_sized(due) {
                return Some(arrived);
            }
        }
    }

    /// When [`Self::deliver`] or [`Self::advance`] has something to do next. While a packet is under way, nothing that is
    /// pushed changes it.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.ring.arrival() {
            Instant::MAX if self.nobody_waits() || self.way.stopped() => None,
            // Nothing under way will arrive, so that the next departure is the next thing to do.
            Instant::MAX => Some(self.way.free),
            // Transmissions that start before the first packet under way arrives are made up for at that time.
            arrival => Some(arrival),
        }
    }

    /// [`Self::deadline`]; [`Instant::MAX`] is never.
    #[inline]
    pub fn due(&self) -> Instant {
        self.deadline().unwrap_or(Instant::MAX)
    }

    /// Keeps the packets that channels strike from now on for [`Self::take_lost`], for an owner who has something to give back
    /// with them; otherwise they are dropped.
    pub const fn keep_lost(&mut self) {
        self.ring.keep_lost();
    }

    /// Whether there are packets for [`Self::take_lost`].
    #[inline]
    pub const fn has_lost(&self) -> bool {
        self.ring.has_lost()
    }

    /// One of the packets that a channel struck, if they are kept.
    pub fn take_lost(&mut self) -> Option<P> {
        self.ring.take_lost()
    }

    /// Changes the rate. What has begun to leave keeps its time of arrival; what waits in the
    /// queue leaves at the new rate.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        self.advance(now);
        if self.way.stopped() {
            self.way.free = self.way.free.max(now);
        }
        self.way.rate = rate;
        self.way.transmissions = Default::default();
        self.advance(now);
    }

    /// Changes the delay. What has begun to leave keeps its time of arrival; what follows arrives
    /// after the new delay, but never before what left earlier.
    pub fn set_delay(&mut self, delay: Duration, now: Instant) {
        self.advance(now);
        self.way.delay = nanos(delay);
    }

    /// Changes the channels behind the queue. What has begun to leave keeps its fate. A channel of a kind that is or
    /// was in use draws on from the same stream.
    pub fn set_channels(&mut self, channels: Vec<Box<dyn Channel>>, now: Instant) {
        self.advance(now);
        self.way.channel.replace(channels);
        self.way.find_whether_plain();
    }

    /// The run begins at `at`: [`Settings::changes`] and the times of channels count from there, and before it
    /// is told none of them comes. A change takes effect with the first packet that begins to leave at its instant or
    /// later: no event marks it.
    pub fn begin(&mut self, at: Instant) {
        self.way.begin(at);
        self.entrance.begin(at);
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

    /// From the first bit of a packet of `len` bytes that leaves to the last that arrives, at the rate and
    /// the delay of now, without jitter.
    pub fn passage(&self, len: Bytes) -> Duration {
        self.way.passage(len)
    }

    /// Whether a packet is under way that will arrive, so that no [`Self::push`] changes [`Self::deadline`].
    #[inline]
    pub const fn is_carrying(&self) -> bool {
        self.ring.arrival().as_nanos() != Instant::MAX.as_nanos()
    }

    /// Packets that left the queue and have not arrived yet.
    pub fn under_way(&self) -> usize {
        self.ring.under_way()
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.way.observer
    }

    /// The observer, to be changed.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.way.observer
    }

    #[inline]
    fn nobody_waits(&self) -> bool {
        match &self.queue {
            Waiters::Ring(_) => self.ring.waiting() == 0,
            Waiters::Queue(queue) => queue.is_empty(),
        }
    }

    /// The serialiser takes the next packet of a queue of its own when it is free; `false` when the queue gave none.
    #[inline]
    fn depart(&mut self) -> bool {
        let Waiters::Queue(queue) = &mut self.queue else {
            return false;
        };
        if queue.is_empty() {
            return false;
        }
        // The queue has picked its packet: it is put on the ring, and its transmission starts at once.
        let Some(waiting) = queue.pop(self.way.free) else {
            return false;
        };
        self.ring
            .push(waiting.packet, waiting.len, waiting.since, None);
        let way = &mut self.way;
        self.ring.begin(|len, since| way.leave(len, since))
    }
}
