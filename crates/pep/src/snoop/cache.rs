//! The cache of one direction: copies of the data segments that the receiver has not acknowledged.

use crate::Packet;
use bentpipe_base::{Bytes, Instant, Seq};
use std::collections::VecDeque;

/// A copy of a data segment under way.
#[derive(Clone, Debug)]
pub(super) struct Cached<P> {
    /// Number of its first byte.
    pub(super) seq: Seq,
    /// The number after its last.
    pub(super) end: Seq,
    /// The packet as it was forwarded last.
    pub(super) packet: P,
    /// Its length on the wire.
    pub(super) size: Bytes,
    /// When it was sent over the link last.
    pub(super) sent: Instant,
    /// The number of its first transmission, among all transmissions of the flow.
    pub(super) first: u64,
    /// The number of its last transmission.
    pub(super) order: u64,
    /// How often it was retransmitted locally.
    pub(super) tries: u8,
    /// The last retransmission was by the timer.
    pub(super) timed: bool,
    /// Its sender has sent it again: it knows of the loss, and the agent leaves further losses of this segment to it.
    pub(super) resent: bool,
    /// The receiver holds it by SACK, beyond a gap.
    pub(super) sacked: bool,
}

impl<P: Packet> Cached<P> {
    /// A copy of `packet`, forwarded at `now` for the first time.
    pub(super) fn new(seq: Seq, end: Seq, packet: P, now: Instant) -> Self {
        Self {
            seq,
            end,
            size: packet.wire_length(),
            packet,
            sent: now,
            first: 0,
            order: 0,
            tries: 0,
            timed: false,
            resent: false,
            sacked: false,
        }
    }
}

/// Copies in order of sequence, disjoint, within 2^30 of one another.
#[derive(Debug)]
pub(super) struct Cache<P> {
    entries: VecDeque<Cached<P>>,
    bytes: Bytes,
}

/// Where a segment lies among the cached ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the one at this index.
    Same(usize),
    /// It shares bytes with some, but is not the same as any.
    Overlaps,
    /// Between others: it would be at this index.
    Free(usize),
}

impl<P> Cache<P> {
    pub(super) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: Bytes(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all copies, and gives their room back.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes on the wire of all copies.
    pub(super) const fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub(super) fn front(&self) -> Option<&Cached<P>> {
        self.entries.front()
    }

    pub(super) fn back(&self) -> Option<&Cached<P>> {
        self.entries.back()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Cached<P>> {
        self.entries.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Cached<P>> {
        self.entries.get_mut(index)
    }

    /// Index of the first copy that ends after `seq`; `len()` when none does.
    pub(super) fn after(&self, seq: Seq) -> usize {
        // Nearly always it is the first.
        match self.entries.front() {
            Some(front) if front.end > seq => 0,
            _ => self.entries.partition_point(|entry| entry.end <= seq),
        }
    }

    /// Where the segment from `seq` up to `end` lies.
    pub(super) fn place(&self, seq: Seq, end: Seq) -> Place {
        if self.entries.back().is_none_or(|back| back.end <= seq) {
            return Place::Free(self.entries.len());
        }
        let index = self.after(seq);
        match self.entries.get(index) {
            Some(entry) if entry.seq == seq && entry.end == end => Place::Same(index),
            Some(entry) if entry.seq < end => Place::Overlaps,
            _ => Place::Free(index),
        }
    }

    /// Puts `entry` at `index`, which [`Self::place`] gave.
    pub(super) fn insert(&mut self, index: usize, entry: Cached<P>) {
        self.bytes += entry.size;
        self.entries.insert(index, entry);
    }

    /// Puts another copy of the same bytes at `index`.
    pub(super) fn refresh(&mut self, index: usize, packet: P, size: Bytes) {
        if let Some(entry) = self.entries.get_mut(index) {
            self.bytes = self.bytes - entry.size + size;
            entry.packet = packet;
            entry.size = size;
        }
    }

    /// Takes out those that share bytes with `seq` up to `end`.
    pub(super) fn cut(&mut self, seq: Seq, end: Seq) {
        let from = self.after(seq);
        let count = self
            .entries
            .range(from..)
            .take_while(|entry| entry.seq < end)
            .count();
        let removed: Bytes = self
            .entries
            .drain(from..from + count)
            .map(|entry| entry.size)
            .sum();
        self.bytes = self.bytes - removed;
    }

    /// Takes the first out if it lies before `ack` as a whole.
    pub(super) fn pop_before(&mut self, ack: Seq) -> Option<Cached<P>> {
        self.entries.front().filter(|front| front.end <= ack)?;
        let front = self.entries.pop_front()?;
        self.bytes = self.bytes - front.size;
        Some(front)
    }
}
