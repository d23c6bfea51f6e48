//! Holds the packets that are on their way, in slots that are used again: queues and delay lines hold handles of 4 bytes.

use crate::Packet;
use bentpipe_link::Mark;
use bentpipe_wire::Ecn;
use core::mem;
use core::num::NonZero;

/// Stands for a packet in [`Packets`] while that is on its way; small, for queues hold tens of
/// thousands. The highest bits say whether a queue may mark the packet, and whether one did.
#[derive(Debug)]
pub(crate) struct Handle(NonZero<u32>);

/// All packets on their way. The place of one that has arrived is used again.
#[derive(Debug)]
pub(crate) struct Packets {
    /// Handles name them; the first is never used.
    places: Vec<Packet>,
    free: Vec<Handle>,
}

/// A queue may mark the packet.
const CAPABLE: u32 = 1 << 31;
/// A queue did, of which the packet itself knows when it arrives.
const MARKED: u32 = 1 << 30;
const PLACE: u32 = MARKED - 1;

impl Handle {
    #[inline]
    const fn place(&self) -> usize {
        (self.0.get() & PLACE) as usize
    }

    /// The same, of a packet whose IP header says `ecn`.
    #[inline]
    fn of(self, ecn: Ecn) -> Self {
        match ecn {
            Ecn::NotCapable => self,
            _ => Self(self.0 | CAPABLE),
        }
    }

    /// The same without what it says of its last packet.
    #[inline]
    fn bare(self) -> Self {
        NonZero::new(self.0.get() & PLACE).map_or(self, Self)
    }
}

impl Mark for Handle {
    fn is_capable(&self) -> bool {
        self.0.get() & CAPABLE != 0
    }

    fn mark(&mut self) {
        self.0 |= MARKED;
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
        let ecn = packet.ecn();
        let handle = match self.free.pop() {
            Some(handle) => {
                // The old packet holds no memory since it was freed: to drop it would ask for each part once more.
                mem::forget(mem::replace(&mut self.places[handle.place()], packet));
                handle
            }
            None => self.extend(packet),
        };
        handle.of(ecn)
    }

    #[cold]
    fn extend(&mut self, packet: Packet) -> Handle {
        let place = u32::try_from(self.places.len())
            .ok()
            .and_then(NonZero::new)
            .filter(|place| place.get() <= PLACE);
        self.places.push(packet);
        Handle(place.expect("memory holds fewer than 2^30 packets"))
    }

    /// The packet.
    #[inline]
    pub(crate) fn get(&self, handle: &Handle) -> &Packet {
        &self.places[handle.place()]
    }

    /// The packet has arrived: if a queue marked it, it says so.
    #[inline]
    pub(crate) fn arrive(&mut self, handle: &Handle) {
        if handle.0.get() & MARKED != 0 {
            self.places[handle.place()].set_ecn(Ecn::Marked);
        }
    }

    /// Takes the packet out: it is no longer on its way.
    #[inline]
    pub(crate) fn take(&mut self, handle: Handle) -> Packet {
        let packet = mem::take(&mut self.places[handle.place()]);
        self.free(handle);
        packet
    }

    #[cold]
    fn clear(&mut self, handle: &Handle) {
        self.places[handle.place()] = Packet::default();
    }

    /// Frees the packet's slot: it is no longer on its way.
    #[inline]
    pub(crate) fn free(&mut self, handle: Handle) {
        if self.places[handle.place()].holds_memory() {
            self.clear(&handle);
        }
        self.free.push(handle.bare());
    }
}
