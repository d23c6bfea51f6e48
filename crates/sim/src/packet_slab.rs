//! Holds the packets that are on their way, in places that are used again: queues and delay lines hold handles of 4 bytes.

use crate::Packet;
use bentpipe_link::Mark;
use bentpipe_wire::Ecn;
use core::mem;
use core::num::NonZero;
use core::ops::Range;

/// Stands for a packet in [`Packets`] while that is on its way; small, for queues hold tens of
/// thousands. The highest bits say whether a queue may mark the packet, and whether one did.
#[derive(Debug)]
pub(crate) struct Handle(NonZero<u32>);

/// All packets on their way.
///
/// Packets that set out over one link take the places of one block after another, in the order in which they set out. They
/// mostly arrive in that order too, so that a processor that reads a long queue knows which memory it will need next. A
/// block is used again once all of its packets have arrived.
#[derive(Debug)]
pub(crate) struct Packets {
    /// In blocks. Handles name them; those of the first block are never used.
    places: Vec<Packet>,
    /// For each block, how many of its places hold a packet or have not been given out yet.
    taken: Vec<u32>,
    /// The blocks that nobody uses.
    free: Vec<u32>,
    /// For each link, the places of its block that were not given out yet.
    next: Vec<Range<u32>>,
}

/// Places of a block.
const BLOCK: u32 = 32;

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
    /// None, for so many simplex `links`.
    pub(crate) fn new(links: usize) -> Self {
        let mut packets = Self {
            places: Vec::new(),
            taken: Vec::new(),
            free: Vec::new(),
            next: vec![0..0; links],
        };
        packets.extend();
        packets
    }

    /// The place of the packet that sets out next over `link`, which is written there by whoever makes it. It holds an empty
    /// segment, or what is left of a packet that held no memory.
    #[inline]
    pub(crate) fn next(&mut self, link: usize) -> &mut Packet {
        if self.next[link].is_empty() {
            self.open(link);
        }
        &mut self.places[self.next[link].start as usize]
    }

    /// Gives `link` a block of places.
    #[cold]
    fn open(&mut self, link: usize) {
        let block = self.free.pop().unwrap_or_else(|| self.extend());
        let first = block * BLOCK;
        self.next[link] = first..first + BLOCK;
    }

    /// Makes a block.
    fn extend(&mut self) -> u32 {
        let block = u32::try_from(self.taken.len())
            .ok()
            .filter(|block| *block < PLACE / BLOCK)
            .expect("memory holds fewer than 2^30 packets");
        let places = self.places.len() + BLOCK as usize;
        if places > self.places.capacity() {
            // By a quarter, not twofold: the program may take the memory of all that they grow by at once.
            let more = (self.places.len() / 4).max(BLOCK as usize);
            self.places.reserve_exact(more);
        }
        self.places.resize_with(places, Packet::default);
        self.taken.push(BLOCK);
        block
    }

    /// The packet that was written into [`Self::next`] sets out over `link`; its IP header says `ecn`.
    #[inline]
    pub(crate) fn set_out(&mut self, link: usize, ecn: Ecn) -> Handle {
        let place = self.next[link].start;
        self.next[link].start = place + 1;
        Handle(NonZero::new(place).unwrap_or(NonZero::<u32>::MIN)).of(ecn)
    }

    /// Stores `packet`, which sets out over `link`.
    pub(crate) fn put(&mut self, link: usize, packet: Packet) -> Handle {
        let ecn = packet.ecn();
        *self.next(link) = packet;
        self.set_out(link, ecn)
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

    /// Frees the packet's place: it is no longer on its way.
    #[inline]
    pub(crate) fn free(&mut self, handle: Handle) {
        if self.places[handle.place()].holds_memory() {
            self.clear(&handle);
        }
        let block = handle.place() / BLOCK as usize;
        self.taken[block] -= 1;
        if self.taken[block] == 0 {
            self.taken[block] = BLOCK;
            // A block's number fits a handle.
            self.free.push(block as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Content;
    use crate::{EndId, Options};
    use bentpipe_base::Instant;
    use bentpipe_scenario::Scenario;

    fn numbered(number: usize) -> Packet {
        let to = EndId::opener(number);
        Packet::new(Content::default(), to, (0, Ecn::NotCapable), 40)
    }

    #[test]
    fn packets_of_two_links_stay_what_they_are_and_their_places_are_used_again() {
        let mut packets = Packets::new(2);
        let mut most = 0;
        for round in 0..10 {
            let handles: Vec<_> = (0..100)
                .map(|number| packets.put(number % 2, numbered(100 * round + number)))
                .collect();
            for (number, handle) in handles.iter().enumerate() {
                assert_eq!(packets.get(handle), &numbered(100 * round + number));
            }
            let beside = |i: usize| handles[i].place() + 1 == handles[i + 2].place();
            let apart = (0..98).filter(|i| !beside(*i)).count();
            assert!(apart <= 2 * 3, "{apart} of 98 are in another block");
            for handle in handles {
                packets.free(handle);
            }
            if round == 1 {
                most = packets.places.len();
            }
        }
        assert_eq!(packets.places.len(), most);
    }

    #[test]
    fn places_of_lost_packets_are_used_again() {
        let text = r#"
            name = "lossy"
            time_limit = "10min"
            [hosts.a]
            [hosts.b]
            [links.space]
            ends = ["a", "b"]
            rate = "10Mbit/s"
            delay = "20ms"
            packet_error_rate = "10%"
            queue = { kind = "drop-tail", packets = 50 }
            [[flows]]
            from = "a"
            to = "b"
            duration = "10min"
        "#;
        let scenario = Scenario::parse("lossy", text).unwrap();
        let mut engine =
            crate::engine_builder::engine(&scenario, &Options::default(), (), &|_| None).unwrap();
        engine.run(Instant::ZERO + scenario.time_limit).unwrap();
        let network = &engine.network;
        let sent: u64 = network
            .links
            .iter()
            .map(|link| link.direction.observer().packets)
            .sum();
        let places = network.packets.places.len();
        assert!(
            sent > 5000 && places <= 10 * BLOCK as usize,
            "{places} places for {sent}"
        );
    }
}
