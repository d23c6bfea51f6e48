use bentpipe_base::{Bytes, Instant, append};
use std::collections::VecDeque;

/// The packets of a direction in the order in which they were sent: first those under way, then those that wait. A
/// packet that begins to leave stays in its slot, so that it is written once and read once.
pub(crate) struct Ring<P> {
    slots: VecDeque<Slot<P>>,
    /// How many slots at the front have begun to leave. The first of them always holds a packet.
    begun: usize,
    /// How many of these slots are empty, because their packets were lost.
    hollow: usize,
    /// When the first packet under way arrives; [`Instant::MAX`] where none is under way.
    arrival: Instant,
    /// The bytes of the packets that wait.
    waiting: Bytes,
    /// Packets that never arrive, until their owner takes them.
    lost: Vec<P>,
    /// Their owner wants them.
    keeps_lost: bool,
}

struct Slot<P> {
    /// For a packet under way, when it arrives; for one that waits, since when.
    time: Instant,
    /// The packet's length in bytes, which fits 32 bits.
    len: u32,
    /// The packet; `None` where it was lost on the way.
    packet: Option<P>,
}

impl<P> Slot<P> {
    #[inline]
    fn new(packet: P, len: Bytes, time: Instant) -> Self {
        Self {
            time,
            len: len.0 as u32,
            packet: Some(packet),
        }
    }
}

impl<P> Ring<P> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            begun: 0,
            hollow: 0,
            arrival: Instant::MAX,
            waiting: Bytes(0),
            lost: Vec::new(),
            keeps_lost: false,
        }
    }

    /// Packets that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.slots.len() - self.begun
    }

    /// Bytes that wait.
    #[inline]
    pub(crate) const fn waiting_bytes(&self) -> Bytes {
        self.waiting
    }

    /// Packets under way.
    pub(crate) const fn under_way(&self) -> usize {
        self.begun - self.hollow
    }

    /// A packet begins to wait at `since`. With an `arrival`, no earlier than any before it, it leaves at once instead,
    /// which it may while nobody waits.
    #[inline]
    pub(crate) fn push(&mut self, packet: P, len: Bytes, since: Instant, arrival: Option<Instant>) {
        let slot = Slot::new(packet, len, arrival.unwrap_or(since));
        match arrival {
            Some(arrival) => {
                debug_assert_eq!(self.waiting(), 0);
                self.begin_at(arrival);
            }
            None => self.waiting.0 += u64::from(slot.len),
        }
        append(&mut self.slots, slot);
    }

    /// The packet that has waited longest begins to leave. `settle` is told its length and since
    /// when it waited, and says when it arrives, no earlier than any before it; `None`: never.
    /// Whether there was one.
    #[inline]
    pub(crate) fn begin(&mut self, settle: impl FnOnce(Bytes, Instant) -> Option<Instant>) -> bool {
        let Some(slot) = self.slots.get_mut(self.begun) else {
            return false;
        };
        let len = Bytes(slot.len.into());
        // It was added when the packet began to wait.
        self.waiting.0 -= len.0;
        match settle(len, slot.time) {
            Some(arrival) => {
                slot.time = arrival;
                self.begin_at(arrival);
            }
            None => self.lose(),
        }
        true
    }

    /// One packet more has begun to leave.
    #[inline]
    fn begin_at(&mut self, arrival: Instant) {
        if self.begun == 0 {
            self.arrival = arrival;
        }
        self.begun += 1;
    }

    /// The packet that begins to leave never arrives.
    #[cold]
    fn lose(&mut self) {
        let packet = if self.begun == 0 {
            self.slots.pop_front().and_then(|slot| slot.packet)
        } else if let Some(slot) = self.slots.get_mut(self.begun) {
            self.begun += 1;
            self.hollow += 1;
            slot.packet.take()
        } else {
            None
        };
        if let Some(packet) = packet {
            self.discard(packet);
        }
    }

    /// `packet` never arrives.
    #[cold]
    pub(crate) fn discard(&mut self, packet: P) {
        if self.keeps_lost {
            self.lost.push(packet);
        }
    }

    /// Keeps packets that never arrive until they are taken.
    pub(crate) const fn keep_lost(&mut self) {
        self.keeps_lost = true;
    }

    /// Whether packets that never arrive were kept.
    #[inline]
    pub(crate) const fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Takes one of them.
    pub(crate) fn take_lost(&mut self) -> Option<P> {
        self.lost.pop()
    }

    /// When the first packet under way arrives; [`Instant::MAX`] where none is under way.
    #[inline]
    pub(crate) const fn arrival(&self) -> Instant {
        self.arrival
    }

    /// Takes the first packet under way, if it arrives by `now`, with the time of its arrival and its length.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Instant, P, Bytes)> {
        if self.arrival > now {
            return None;
        }
        let slot = self.slots.pop_front()?;
        self.begun -= 1;
        if self.hollow > 0 {
            self.skip();
        }
        self.arrival = match self.slots.front() {
            Some(next) if self.begun > 0 => next.time,
            _ => Instant::MAX,
        };
        Some((slot.time, slot.packet?, Bytes(slot.len.into())))
    }

    /// Drops what is hollow at the front.
    #[cold]
    fn skip(&mut self) {
        while self.begun > 0 && self.slots.front().is_some_and(|slot| slot.packet.is_none()) {
            self.slots.pop_front();
            self.begun -= 1;
            self.hollow -= 1;
        }
    }
}
