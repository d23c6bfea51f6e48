//! Simplex links and routes, and the event queue.

use crate::codec::Codec;
use crate::event_queue::EventQueue;
use crate::link_counters::LinkCounters;
use crate::packet_slab::{Handle, Packets};
use crate::{Observer, SimError};
use bentpipe_base::{Bytes, Instant};
use bentpipe_link::Direction;

/// One direction of a link, and where it leads (`SimplexLink` of ns-2). The simplex link 2i leads from the first end of
/// link i to its second, 2i + 1 back.
pub(crate) struct SimplexLink {
    pub(crate) direction: Direction<Handle, LinkCounters>,
    /// The node it leads to.
    pub(crate) to: usize,
    /// Data segments of the scenario's flows for which its queue had no room.
    pub(crate) refused_data: u64,
    /// The proxy at the node it leaves: what goes over this link passes through it first.
    pub(crate) pep_before: Option<usize>,
    /// The proxy at the node it leads to: what comes over this link passes through it first.
    pub(crate) pep_behind: Option<usize>,
    /// The next link of all packets that arrive over this one, where that carries nothing else. Such packets wait at the
    /// end of this link until the next one has an event of its own: their arrival costs none.
    pub(crate) feeds: Option<usize>,
    /// The link whose next link this one is in that way. No link feeds that one in turn.
    pub(crate) fed_by: Option<usize>,
}

/// Packets, the links that they are on, and where they go next. The sources of the event queue are first the simplex links,
/// then the proxies and the ends of flows, which the engine numbers.
pub(crate) struct Network<O> {
    pub(crate) links: Vec<SimplexLink>,
    /// By node, then by destination host: the link to take.
    pub(crate) routes: Routes,
    pub(crate) schedule: EventQueue,
    /// How many flows the scenario has. Flows with higher numbers are cross traffic.
    pub(crate) own: usize,
    pub(crate) observer: O,
    /// Where there is one, every packet is emitted as bytes and parsed again at every hop.
    pub(crate) codec: Option<Codec>,
    /// The first mistake of this program that was noticed.
    pub(crate) fault: Option<SimError>,
    pub(crate) packets: Packets,
}

/// A packet that came over a link.
pub(crate) struct Arrival {
    pub(crate) packet: Handle,
    /// Bytes, link framing not counted.
    pub(crate) len: Bytes,
    /// The node that it reaches.
    pub(crate) node: usize,
    /// The proxy in front of that node.
    pub(crate) pep: Option<usize>,
}

/// Which link leads from each node to each host.
pub(crate) struct Routes {
    hosts: usize,
    links: Vec<u16>,
}

impl Routes {
    /// The host cannot be reached from there.
    const NONE: u16 = u16::MAX;

    pub(crate) fn new(nodes: usize, hosts: usize) -> Self {
        Self {
            hosts,
            links: vec![Self::NONE; nodes * hosts],
        }
    }

    pub(crate) fn set(&mut self, node: usize, host: usize, link: u16) {
        self.links[node * self.hosts + host] = link;
    }

    #[inline]
    pub(crate) fn link(&self, node: usize, host: u16) -> Option<usize> {
        let link = self.links[node * self.hosts + usize::from(host)];
        (link != Self::NONE).then_some(usize::from(link))
    }
}

impl SimplexLink {
    /// `packet` of `len` bytes enters the queue. `own` is how many flows the scenario has.
    #[inline]
    fn enter(
        &mut self,
        packets: &mut Packets,
        own: usize,
        packet: Handle,
        len: Bytes,
        now: Instant,
    ) {
        let direction = &mut self.direction;
        if let Some(refused) = direction.push(packet, len, now) {
            let packet = packets.get(&refused);
            let data = packet.to.flow() < own && packet.has_data();
            self.refused_data += u64::from(data);
            packets.free(refused);
        }
        let queued = direction.waiting();
        let counters = direction.observer_mut();
        counters.longest_queue = counters.longest_queue.max(queued);
    }
}

impl<O: Observer> Network<O> {
    /// `packet` of `len` bytes enters the queue of `link`.
    #[inline]
    pub(crate) fn push(&mut self, link: usize, packet: Handle, len: Bytes, now: Instant) {
        if O::PACKETS {
            self.observer.sent(now, link, self.packets.get(&packet));
        }
        if self.codec.is_some() {
            if let Some(packet) = self.rewritten(packet) {
                self.enter(link, packet, len, now);
            }
        } else {
            self.enter(link, packet, len, now);
        }
    }

    /// `packet`, emitted as bytes and parsed again.
    #[cold]
    fn rewritten(&mut self, packet: Handle) -> Option<Handle> {
        let packet = self.packets.take(packet);
        let read = self.codec.as_mut()?.hop(packet);
        read.map(|packet| self.packets.put(packet))
            .map_err(|fault| self.fault.get_or_insert(fault))
            .ok()
    }

    #[inline]
    fn enter(&mut self, number: usize, packet: Handle, len: Bytes, now: Instant) {
        let link = &mut self.links[number];
        if link.direction.carries() {
            // It is behind other packets, so that the arrival which is due first stays the same.
            return link.enter(&mut self.packets, self.own, packet, len, now);
        }
        let before = link.direction.deadline();
        link.enter(&mut self.packets, self.own, packet, len, now);
        let due = link.direction.deadline();
        if due != before {
            self.reschedule(number, due.unwrap_or(Instant::MAX));
        }
    }

    /// Schedules `link` for `due`. Where it feeds another link, that one is scheduled instead, unless it carries packets:
    /// then it has an entry already.
    #[inline]
    fn reschedule(&mut self, link: usize, due: Instant) {
        let Some(fed) = self.links[link].feeds else {
            return self.schedule.set(link, due);
        };
        if self.links[fed].direction.deadline().is_none() {
            self.schedule.set(fed, due);
        }
    }

    /// Moves the packets that have arrived until `now` over `feeder` into the queue of `link`, each at the time of its
    /// arrival. The caller schedules `link`.
    #[inline]
    pub(crate) fn pull(&mut self, link: usize, feeder: usize, now: Instant) {
        let Ok([from, to]) = self.links.get_disjoint_mut([feeder, link]) else {
            return;
        };
        while let Some((at, packet, len)) = from.direction.deliver_due(now) {
            to.enter(&mut self.packets, self.own, packet, len, at);
        }
    }

    /// Takes the next packet that `link` delivers at `now`, with the node and the proxy that it reaches. Returns when the
    /// link is due next, too.
    #[inline]
    pub(crate) fn arrival(&mut self, link: usize, now: Instant) -> (Option<Arrival>, Instant) {
        let fed_by = self.links[link].fed_by;
        if let Some(feeder) = fed_by {
            self.pull(link, feeder, now);
        }
        let SimplexLink {
            direction,
            to,
            pep_behind,
            ..
        } = &mut self.links[link];
        let arrived = direction.deliver_sized(now);
        let own_deadline = direction.deadline();
        let arrival = arrived.map(|(_, packet, len)| {
            self.packets.arrive(&packet);
            if O::PACKETS {
                self.observer.arrived(now, link, self.packets.get(&packet));
            }
            Arrival {
                packet,
                len,
                node: *to,
                pep: *pep_behind,
            }
        });
        // While it carries nothing it is due when its feeder delivers.
        let deadline = match (own_deadline, fed_by) {
            (None, Some(feeder)) => self.links[feeder].direction.deadline(),
            (own, _) => own,
        };
        let due = deadline.unwrap_or(Instant::MAX);
        self.schedule.set(link, due);
        (arrival, due)
    }
}
