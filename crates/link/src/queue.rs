//! Queues: what waits for the serialiser, and who is refused.
//!
//! A new queue is one file here, with its keys in scenarios ([`QueueKind`]), and one line in [`registry`].

mod blue;
mod drop_tail;
mod kind;
mod marker;
mod red;

pub use blue::{Blue, BlueSettings};
pub use drop_tail::DropTail;
pub use kind::{Entry, LinkInfo, QueueKind, QueueSpec};
pub use red::{Red, RedError, RedLinux, RedNs2, RedSettings, Thresholds};

use crate::Mark;
use crate::keys::{Fault, Key, Value, Values};
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

    /// Packets that it has marked in place of dropping them.
    fn marked(&self) -> u64 {
        0
    }

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

    fn marked(&self) -> u64 {
        match self {
            Self::DropTail(queue) => queue.marked(),
            Self::Other(queue) => queue.marked(),
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

/// Every kind of queue.
pub const fn registry<P: Mark + Send + 'static>() -> &'static [Entry<P>] {
    const {
        &[
            Entry::of::<DropTail<P>>(),
            Entry::of::<Blue<P>>(),
            Entry::of::<Red<P>>(),
            Entry::of::<RedLinux<P>>(),
            Entry::of::<RedNs2<P>>(),
        ]
    }
}

/// The kind of queue called `name`.
pub fn find(name: &str) -> Option<QueueSpec> {
    let mut kinds = registry::<()>().iter().map(|entry| entry.spec);
    kinds.find(|spec| spec.name == name)
}

/// The queue of that kind, limit and values at the head of `link`.
///
/// # Errors
/// What is wrong with it.
pub fn build<P: Mark + Send + 'static>(
    spec: &QueueSpec,
    limit: Limit,
    values: &Values,
    link: &LinkInfo,
) -> Result<Discipline<P>, Fault> {
    if let Some(fault) = (spec.faults)(limit, values).into_iter().next() {
        return Err(fault);
    }
    let mut kinds = registry::<P>().iter();
    match kinds.find(|entry| entry.spec == *spec) {
        Some(entry) => (entry.build)(limit, values, link),
        None => Err(Fault {
            key: "kind",
            what: format!("unknown queue `{}`", spec.name),
            expected: "a kind of the registry".to_owned(),
        }),
    }
}
