//! Nodes, links and routes, and the schedule of everything that waits for its time.

use crate::codec::Codec;
use crate::counters::LinkCounters;
use crate::event_queue::EventQueue;
use crate::packet_slab::{Handle, Packets};
use crate::{Observer, SimError};
use bentpipe_base::{Bytes, Instant};
use bentpipe_link::Direction;

/// One direction of a link, and where it leads.
pub(crate) struct Line {
    pub(crate) direction: Direction<Handle, LinkCounters>,
    /// The node it leads to.
    pub(crate) to: usize,
    /// Data segments of the scenario's flows for which its queue had no room.
    pub(crate) refused_data: u64,
    /// The proxy at the node it leaves: what goes over this line passes through it first.
    pub(crate) pep_before: Option<usize>,
    /// The proxy at the node it leads to: what comes over this line passes through it first.
    pub(crate) pep_behind: Option<usize>,
    /// The line that all that comes over this one goes on over, where that carries nothing else. What has
    /// arrived waits here until that line has something to do, and costs no event.
    pub(crate) feeds: Option<usize>,
    /// The line that feeds this one so; nothing feeds that.
    pub(crate) fed_by: Option<usize>,
}

/// Packets and where they go next. Players of the schedule are the lines, in the order of their
/// links, then whoever the engine numbers behind them.
pub(crate) struct Network<O> {
    pub(crate) lines: Vec<Line>,
    /// By node, then by destination host: the line to take.
    pub(crate) routes: Routes,
    pub(crate) schedule: EventQueue,
    /// How many flows the scenario has; those behind them are cross traffic.
    pub(crate) own: usize,
    pub(crate) observer: O,
    /// With it, every packet becomes bytes and is read again at every hop.
    pub(crate) codec: Option<Codec>,
    /// The first thing that must not happen.
    pub(crate) fault: Option<SimError>,
    pub(crate) packets: Packets,
}

/// A packet that came over a line.
pub(crate) struct Arrival {
    pub(crate) packet: Handle,
    /// Bytes, link framing not counted.
    pub(crate) len: Bytes,
    /// The node that it reaches.
    pub(crate) node: usize,
    /// The proxy in front of that node.
    pub(crate) pep: Option<usize>,
}

/// Which line leads from each node to each host.
pub(crate) struct Routes {
    hosts: usize,
    lines: Vec<u16>,
}

impl Routes {
    /// No way.
    const NONE: u16 = u16::MAX;

    pub(crate) fn new(nodes: usize, hosts: usize) -> Self {
        Self {
            hosts,
            lines: vec![Self::NONE; nodes * hosts],
        }
    }

    pub(crate) fn set(&mut self, node: usize, host: usize, line: u16) {
        self.lines[node * self.hosts + host] = line;
    }

    #[inline]
    pub(crate) fn line(&self, node: usize, host: u16) -> Option<usize> {
        let line = self.lines[node * self.hosts + usize::from(host)];
        (line != Self::NONE).then_some(usize::from(line))
    }
}

impl Line {
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
    /// `packet` of `len` bytes enters the queue of `line`.
    #[inline]
    pub(crate) fn push(&mut self, line: usize, packet: Handle, len: Bytes, now: Instant) {
        if O::PACKETS {
            self.observer.sent(now, line, self.packets.get(&packet));
        }
        if self.codec.is_some() {
            if let Some(packet) = self.rewritten(packet) {
                self.enter(line, packet, len, now);
            }
        } else {
            self.enter(line, packet, len, now);
        }
    }

    /// `packet` after it was bytes.
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
        let line = &mut self.lines[number];
        if line.direction.carries() {
            // Behind others it changes nothing of what arrives first.
            return line.enter(&mut self.packets, self.own, packet, len, now);
        }
        let before = line.direction.deadline();
        line.enter(&mut self.packets, self.own, packet, len, now);
        let due = line.direction.deadline();
        if due != before {
            self.reschedule(number, due.unwrap_or(Instant::MAX));
        }
    }

    /// `line` is due at `due`; where it feeds another, that one is, unless it is busy.
    #[inline]
    fn reschedule(&mut self, line: usize, due: Instant) {
        let Some(fed) = self.lines[line].feeds else {
            return self.schedule.set(line, due);
        };
        if self.lines[fed].direction.deadline().is_none() {
            self.schedule.set(fed, due);
        }
    }

    /// What arrived until `now` over `feeder`, which feeds `line`, goes on, all at its time. Whoever calls it
    /// schedules `line`.
    #[inline]
    pub(crate) fn pull(&mut self, line: usize, feeder: usize, now: Instant) {
        let Ok([from, to]) = self.lines.get_disjoint_mut([feeder, line]) else {
            return;
        };
        while let Some((at, packet, len)) = from.direction.deliver_due(now) {
            to.enter(&mut self.packets, self.own, packet, len, at);
        }
    }

    /// Takes the next packet that `line` delivers at `now`, with the node and the proxy that it
    /// reaches; and says when the line is due next.
    #[inline]
    pub(crate) fn arrival(&mut self, line: usize, now: Instant) -> (Option<Arrival>, Instant) {
        let fed_by = self.lines[line].fed_by;
        if let Some(feeder) = fed_by {
            self.pull(line, feeder, now);
        }
        let Line {
            direction,
            to,
            pep_behind,
            ..
        } = &mut self.lines[line];
        let arrived = direction.deliver_sized(now);
        let due = direction.deadline();
        let arrival = arrived.map(|(_, packet, len)| {
            if O::PACKETS {
                self.observer.arrived(now, line, self.packets.get(&packet));
            }
            Arrival {
                packet,
                len,
                node: *to,
                pep: *pep_behind,
            }
        });
        // While it carries nothing, what feeds it tells when it has something to do.
        let due = match (due, fed_by) {
            (None, Some(feeder)) => self.lines[feeder].direction.deadline(),
            (due, _) => due,
        };
        let due = due.unwrap_or(Instant::MAX);
        self.schedule.set(line, due);
        (arrival, due)
    }
}
