//! Holds the packets that are on their way, in slots that are used again: queues and delay lines hold handles of 4 bytes.

use crate::Packet;
use core::mem;
use core::num::NonZero;

/// Stands for a packet in [`Packets`] while that is on its way; small, for queues hold tens of
/// thousands.
#[derive(Debug)]
pub(crate) struct Handle(NonZero<u32>);

/// All packets on their way. The place of one that has arrived is used again.
#[derive(Debug)]
pub(crate) struct Packets {
    /// Handles name them; the first is never used.
    places: Vec<Packet>,
    free: Vec<Handle>,
}

impl Handle {
    #[inline]
    const fn place(&self) -> usize {
        self.0.get() as usize
    }
}

impl Packets {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            places: vec![Packet::default()],
            free: Vec::new(),
        }
    }

    /// Stores `packet`, which sets out.
    /// Always inlined: a call would move the packet once more.
    #[inline(always)]
    pub(crate) fn put(&mut self, packet: Packet) -> Handle {
        match self.free.pop() {
            Some(handle) => {
                // The old packet is dropped after `packet` has its place: before, `packet` would have to wait on the stack.
                drop(mem::replace(&mut self.places[handle.place()], packet));
                handle
            }
            None => self.extend(packet),
        }
    }

    #[cold]
    fn extend(&mut self, packet: Packet) -> Handle {
        let place = u32::try_from(self.places.len()).ok().and_then(NonZero::new);
        self.places.push(packet);
        Handle(place.expect("memory holds fewer than 2^32 packets"))
    }

    /// The packet.
    #[inline]
    pub(crate) fn get(&self, handle: &Handle) -> &Packet {
        &self.places[handle.place()]
    }

    /// Takes the packet out: it is no longer on its way.
    #[inline]
    pub(crate) fn take(&mut self, handle: Handle) -> Packet {
        let packet = mem::take(&mut self.places[handle.place()]);
        self.free(handle);
        packet
    }

    /// Frees the packet's slot: it is no longer on its way.
    #[inline]
    pub(crate) fn free(&mut self, handle: Handle) {
        self.free.push(handle);
    }
}
