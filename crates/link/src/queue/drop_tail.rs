use super::{Discipline, Fault, Limit, LinkInfo, Queue, QueueKind, Values, Waiting};
use bentpipe_base::{Bytes, Instant, Stream};
use std::collections::VecDeque;

/// Drop-tail: first in, first out; a newcomer that does not fit is dropped, whatever waits stays.
/// Bounded in packets, in bytes, or not at all.
pub struct DropTail<P> {
    limit: Limit,
    bytes: Bytes,
    packets: VecDeque<Waiting<P>>,
}

impl<P> DropTail<P> {
    /// An empty queue bounded by `limit`.
    pub const fn new(limit: Limit) -> Self {
        Self {
            limit,
            bytes: Bytes(0),
            packets: VecDeque::new(),
        }
    }

    /// What it holds at most.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Whether a packet of `len` bytes fits now.
    pub fn admits(&self, len: Bytes) -> bool {
        self.limit.admits(self.packets.len(), self.bytes, len)
    }
}

impl<P> QueueKind<P> for DropTail<P> {
    const NAME: &'static str = "drop-tail";
    const SUMMARY: &'static str = "first in, first out; the newcomer is dropped when full";

    fn build(limit: Limit, _values: &Values, _link: &LinkInfo) -> Result<Discipline<P>, Fault> {
        Ok(Discipline::DropTail(Self::new(limit)))
    }
}

impl<P: Send> Queue<P> for DropTail<P> {
    fn push(&mut self, packet: P, len: Bytes, now: Instant, _draw: &mut Stream) -> Result<(), P> {
        if !self.admits(len) {
            return Err(packet);
        }
        self.bytes += len;
        self.packets.push_back(Waiting {
            packet,
            len,
            since: now,
        });
        Ok(())
    }

    fn pop(&mut self, _now: Instant) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.bytes = self.bytes - waiting.len;
        Some(waiting)
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn bytes(&self) -> Bytes {
        self.bytes
    }
}
