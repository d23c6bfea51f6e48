//! Simplex links and routes, and the event queue.

use crate::engine::PepNode;
use crate::event_queue::EventQueue;
use crate::flow_endpoint::FlowEndpoint;
use crate::link_counters::LinkCounters;
use crate::observer::Standing;
use crate::packet_codec::Codec;
use crate::packet_slab::{Handle, Packets};
use crate::{Content, EndId, Observer, SimError};
use bentpipe_base::{Bytes, Instant};
use bentpipe_link::Direction;
use bentpipe_outcome::LinkLook;

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
    #[inline(always)]
    fn enter(
        &mut self,
        packets: &mut Packets,
        own: usize,
        packet: Handle,
        len: Bytes,
        now: Instant,
    ) {
        let direction = &mut self.direction;
        let refused = direction.push(packet, len, now);
        if direction.has_lost() {
            free_lost(direction, packets);
        }
        if let Some(refused) = refused {
            return self.refused(packets, own, refused);
        }
        let queued = direction.waiting();
        let counters = direction.observer_mut();
        counters.longest_queue = counters.longest_queue.max(queued);
    }

    /// The queue has no room for `packet`.
    #[cold]
    fn refused(&mut self, packets: &mut Packets, own: usize, handle: Handle) {
        let packet = packets.get(&handle);
        let data = packet.to.flow() < own && packet.has_data();
        self.refused_data += u64::from(data);
        packets.free(handle);
    }
}

/// Frees the places of packets that will not arrive over `direction`.
#[cold]
fn free_lost(direction: &mut Direction<Handle, LinkCounters>, packets: &mut Packets) {
    while let Some(lost) = direction.take_lost() {
        packets.free(lost);
    }
}

impl<O: Observer> Network<O> {
    /// All that leaves `end` sets out. Returns when the end is due again.
    #[inline(never)]
    pub(crate) fn drain(&mut self, end: &mut FlowEndpoint, id: EndId, now: Instant) -> Instant {
        let link = end.link;
        while let Some((ecn, len)) = end.transmit_into(self.packets.next(link), now) {
            let handle = self.packets.set_out(link, ecn);
            if O::ENDS
                && let Content::Tcp(segment) = &self.packets.get(&handle).content
            {
                self.observer.segment(now, id, segment);
            }
            self.push(link, handle, len, now);
        }
        if O::ENDS
            && let Some(connection) = end.connection()
        {
            self.observer.acted(now, id, connection);
        }
        end.due()
    }

    /// Shows the links and `peps` to the observer when it next looks. Links are as they were when a packet last came or went: to
    /// bring them up to that time would count transmissions that the run may end before.
    #[cold]
    pub(crate) fn show(&mut self, peps: &[PepNode]) {
        let at = self.observer.next_look();
        let looks = self.links.iter().map(|link| {
            let waiting = link.direction.waiting();
            let counters = link.direction.observer();
            LinkLook {
                waiting_packets: waiting as u64,
                dropped_packets: counters.refused
                    + counters.corrupted
                    + counters.lost
                    + counters.struck_before_queue,
            }
        });
        let standing = Standing {
            links: looks.collect(),
            peps,
        };
        self.observer.look(at, &standing);
    }

    /// `packet` of `len` bytes enters the queue of `link`.
    #[inline]
    pub(crate) fn push(&mut self, link: usize, packet: Handle, len: Bytes, now: Instant) {
        if O::PACKETS {
            self.observer.sent(now, link, self.packets.get(&packet));
        }
        if self.codec.is_some() {
            if let Some(packet) = self.rewritten(link, packet) {
                self.enter(link, packet, len, now);
            }
        } else {
            self.enter(link, packet, len, now);
        }
    }

    /// `packet`, emitted as bytes and parsed again.
    #[cold]
    fn rewritten(&mut self, link: usize, packet: Handle) -> Option<Handle> {
        let packet = self.packets.take(packet);
        let read = self.codec.as_mut()?.hop(packet);
        read.map(|packet| self.packets.put(link, packet))
            .map_err(|fault| self.fault.get_or_insert(fault))
            .ok()
    }

    #[inline]
    fn enter(&mut self, number: usize, packet: Handle, len: Bytes, now: Instant) {
        let link = &mut self.links[number];
        let carrying = link.direction.is_carrying();
        let before = link.direction.due();
        link.enter(&mut self.packets, self.own, packet, len, now);
        if carrying {
            return;
        }
        let due = link.direction.due();
        if due != before {
            self.reschedule(number, due);
        }
    }

    /// Schedules `link` for `due`. Where it feeds another link, that one is scheduled instead, unless it carries packets:
    /// then it has an entry already.
    #[inline(never)]
    fn reschedule(&mut self, link: usize, due: Instant) {
        let Some(fed) = self.links[link].feeds else {
            return self.schedule.set(link, due);
        };
        if self.links[fed].direction.due() == Instant::MAX {
            self.schedule.set(fed, due);
        }
    }

    /// Moves the packets that have arrived until `now` over `feeder` into the queue of `link`, each at the time of its
    /// arrival. Returns when the feeder is due next. The caller schedules `link`.
    #[inline]
    pub(crate) fn pull(&mut self, link: usize, feeder: usize, now: Instant) -> Instant {
        let Ok([from, to]) = self.links.get_disjoint_mut([feeder, link]) else {
            return Instant::MAX;
        };
        while let Some((at, packet, len)) = from.direction.deliver_due(now) {
            to.enter(&mut self.packets, self.own, packet, len, at);
        }
        from.direction.due()
    }

    /// Takes the next packet that `link` delivers at `now`, with the node and the proxy that it reaches. Returns when the
    /// link is due next, too.
    #[inline]
    pub(crate) fn arrival(&mut self, link: usize, now: Instant) -> (Option<Arrival>, Instant) {
        let fed = match self.links[link].fed_by {
            Some(feeder) => self.pull(link, feeder, now),
            None => Instant::MAX,
        };
        let SimplexLink {
            direction,
            to,
            pep_behind,
            ..
        } = &mut self.links[link];
        let arrived = direction.deliver_sized(now);
        // While it carries nothing it is due when its feeder delivers.
        let due = match direction.due() {
            Instant::MAX => fed,
            own => own,
        };
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
        self.schedule.set(link, due);
        (arrival, due)
    }
}
