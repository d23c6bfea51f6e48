//! Queues: what waits for the serialiser, and who is refused.
//!
//! A new queue is one file here and one line in [`registry`].

mod blue;
mod drop_tail;
mod red;

pub use blue::{Blue, BlueSettings};
pub use drop_tail::DropTail;
pub use red::{Red, RedError, RedLinux, RedNs2, RedSettings, Thresholds};

use bentpipe_base::{Bytes, Instant, Stream};

/// A queue in front of a serialiser.
///
/// The packet being serialised has left it. `now` never goes backwards, over both `push` and `pop`.
pub trait Queue<P>: Send {
    /// Takes `packet` of `len` bytes, or gives it back: refused. `draw` is the queue's own stream.
    ///
    /// # Errors
    /// The packet itself, when the queue refuses it.
    fn push(&mut self, packet: P, len: Bytes, now: Instant, draw: &mut Stream) -> Result<(), P>;

    /// The next packet to serialise, if one waits.
    fn pop(&mut self, now: Instant) -> Option<Waiting<P>>;

    /// The serialiser has been idle since then, with nobody waiting: told before the push that ends it.
    fn idle_since(&mut self, _since: Instant) {}

    /// Packets waiting.
    fn len(&self) -> usize;

    /// Bytes waiting, link framing not counted.
    fn bytes(&self) -> Bytes;

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<P> {
    /// The packet.
    pub packet: P,
    /// Its length, link framing not counted.
    pub len: Bytes,
    /// When it was queued.
    pub since: Instant,
}

/// What a queue holds at most. A bound below one packet passes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// So many packets.
    Packets(usize),
    /// So many bytes, link framing not counted.
    Bytes(Bytes),
    /// Whatever comes.
    #[default]
    Infinite,
}

impl Limit {
    /// Whether one more packet of `len` fits beside `packets` of together `bytes`.
    pub fn admits(self, packets: usize, bytes: Bytes, len: Bytes) -> bool {
        match self {
            Self::Packets(most) => packets < most,
            Self::Bytes(most) => bytes + len <= most,
            Self::Infinite => true,
        }
    }
}

/// The queue of a direction: the common one by value, so that the simulator's hot path is inlined,
/// any other behind a pointer.
pub enum Discipline<P> {
    /// First in, first out; the newcomer is dropped when full.
    DropTail(DropTail<P>),
    /// Any other.
    Other(Box<dyn Queue<P>>),
}

impl<P> Default for Discipline<P> {
    fn default() -> Self {
        Self::DropTail(DropTail::new(Limit::Infinite))
    }
}

impl<P> From<DropTail<P>> for Discipline<P> {
    fn from(queue: DropTail<P>) -> Self {
        Self::DropTail(queue)
    }
}

impl<P: Send> Queue<P> for Discipline<P> {
    fn push(&mut self, packet: P, len: Bytes, now: Instant, draw: &mut Stream) -> Result<(), P> {
        match self {
            Self::DropTail(queue) => queue.push(packet, len, now, draw),
            Self::Other(queue) => queue.push(packet, len, now, draw),
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<P>> {
        match self {
            Self::DropTail(queue) => queue.pop(now),
            Self::Other(queue) => queue.pop(now),
        }
    }

    fn idle_since(&mut self, since: Instant) {
        match self {
            Self::DropTail(queue) => queue.idle_since(since),
            Self::Other(queue) => queue.idle_since(since),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::DropTail(queue) => queue.len(),
            Self::Other(queue) => queue.len(),
        }
    }

    fn bytes(&self) -> Bytes {
        match self {
            Self::DropTail(queue) => queue.bytes(),
            Self::Other(queue) => queue.bytes(),
        }
    }
}

/// One kind of queue.
pub struct Entry<P> {
    /// As scenarios name it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The queue bounded by a limit, everything else as its file recommends.
    pub build: fn(Limit) -> Discipline<P>,
}

/// Every kind of queue.
pub const fn registry<P: Send + 'static>() -> &'static [Entry<P>] {
    &[
        Entry {
            name: "drop-tail",
            summary: "first in, first out; the newcomer is dropped when full",
            build: |limit| Discipline::DropTail(DropTail::new(limit)),
        },
        Entry {
            name: "blue",
            summary: "drops at random as often as overflow and idle time have taught it",
            build: |limit| {
                let blue = Blue::new(BlueSettings::recommended(limit));
                Discipline::Other(Box::new(blue))
            },
        },
        Entry {
            name: "red",
            summary: "drops at random before it is full, by its average length (Floyd and Jacobson, 1993)",
            build: |limit| {
                let red = Red::new(RedSettings::recommended(limit));
                Discipline::Other(Box::new(red.expect("5 is below 15")))
            },
        },
        Entry {
            name: "red-linux",
            summary: "RED as Linux does it: one random number from drop to drop, never gentle",
            build: |limit| {
                let red = RedLinux::new(RedSettings::recommended(limit));
                Discipline::Other(Box::new(red.expect("5 is below 15")))
            },
        },
        Entry {
            name: "red-ns2",
            summary: "RED as ns-2 2.35 does it: waits between drops, never drops with one packet waiting",
            build: |limit| {
                let red = RedNs2::new(RedSettings::recommended(limit));
                Discipline::Other(Box::new(red.expect("5 is below 15")))
            },
        },
    ]
}
