use crate::{Bytes, Instant};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The queue had no room.
    Queue,
    /// Bits were hit; the link's CRC discards the packet.
    Corrupted,
    /// The channel swallowed the packet whole.
    Lost,
    /// A channel that stands before the queue struck the packet, which never came there.
    BeforeQueue,
}

/// One thing that happened; the common vocabulary of simulator, emulator and gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact {
    /// A packet of `size` was dropped.
    Dropped {
        /// Bytes on the wire.
        size: Bytes,
        /// Why.
        cause: DropCause,
    },
    /// A packet of `size` was marked by a queue that would have dropped it (RFC 3168).
    Marked {
        /// Bytes on the wire.
        size: Bytes,
    },
    /// A packet of `size` began its way over the link after waiting in the queue.
    Departed {
        /// Bytes on the wire.
        size: Bytes,
        /// Since when it waited.
        since: Instant,
    },
}

/// Is told of each [`Fact`] as it happens, for instance to count or to trace.
pub trait Observer {
    /// `fact` happened at `now`.
    fn observe(&mut self, now: Instant, fact: &Fact);
}

/// The observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn observe(&mut self, _now: Instant, _fact: &Fact) {}
}
