use bentpipe_base::{Bytes, Fifo, Instant};

/// The packets of a direction in the order they were sent: first those under way, then those that
/// wait. A packet goes over from the one to the other where it stands; it is written once and read
/// once.
pub(crate) struct Ring<P> {
    slots: Fifo<Slot<P>>,
    /// How many slots from the front have begun to leave; unless it is none, the first of them
    /// holds a packet.
    begun: usize,
    /// How many of those hold none any more.
    hollow: usize,
    /// Of those that wait.
    waiting: Bytes,
}

struct Slot<P> {
    /// Under way: when it arrives. Waiting: since when.
    time: Instant,
    len: Bytes,
    /// `None`: lost on the way.
    packet: Option<P>,
}

impl<P> Ring<P> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Fifo::new(),
            begun: 0,
            hollow: 0,
            waiting: Bytes(0),
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

    /// A packet begins to wait at `since`.
    #[inline]
    pub(crate) fn wait(&mut self, packet: P, len: Bytes, since: Instant) {
        self.waiting += len;
        self.slots.push_back(Slot {
            time: since,
            len,
            packet: Some(packet),
        });
    }

    /// The length of the packet that has waited longest, and since when.
    #[inline]
    pub(crate) fn next(&self) -> Option<(Bytes, Instant)> {
        let slot = self.slots.get(self.begun)?;
        Some((slot.len, slot.time))
    }

    /// The packet that has waited longest begins to leave, to arrive at `arrival`: no earlier than
    /// any before it.
    #[inline]
    pub(crate) fn begin(&mut self, arrival: Instant) {
        if let Some(slot) = self.slots.get_mut(self.begun) {
            slot.time = arrival;
            self.waiting = self.waiting - slot.len;
            self.begun += 1;
        }
    }

    /// The packet that has waited longest begins to leave, and never arrives.
    pub(crate) fn lose(&mut self) {
        let Some(slot) = self.slots.get_mut(self.begun) else {
            return;
        };
        self.waiting = self.waiting - slot.len;
        slot.packet = None;
        if self.begun == 0 {
            self.slots.drop_front();
        } else {
            self.begun += 1;
            self.hollow += 1;
        }
    }

    /// When the first packet under way arrives.
    #[inline]
    pub(crate) fn arrival(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(slot) if self.begun > 0 => Some(slot.time),
            _ => None,
        }
    }

    /// Takes the first packet under way, if it arrives by `now`.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Instant, P)> {
        if self.begun == 0 {
            return None;
        }
        let slot = self.slots.front_mut()?;
        if slot.time > now {
            return None;
        }
        // Taken out of its slot first, so that it is copied once.
        let taken = (slot.time, slot.packet.take()?);
        self.slots.drop_front();
        self.begun -= 1;
        if self.hollow > 0 {
            self.skip();
        }
        Some(taken)
    }

    /// Drops what is hollow at the front.
    fn skip(&mut self) {
        while self.begun > 0 && self.slots.front().is_some_and(|slot| slot.packet.is_none()) {
            self.slots.drop_front();
            self.begun -= 1;
            self.hollow -= 1;
        }
    }
}
