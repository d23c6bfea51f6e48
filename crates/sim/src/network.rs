//! Nodes, links and routes, and the schedule of everything that waits for its time.

use crate::codec::Codec;
use crate::counters::LinkCounters;
use crate::tournament::Tournament;
use crate::{Observer, Packet, SimError};
use bentpipe_base::{Bytes, Instant};
use bentpipe_link::Direction;

/// One direction of a link, and where it leads.
pub(crate) struct Line {
    pub(crate) direction: Direction<Packet, LinkCounters>,
    /// The node it leads to.
    pub(crate) to: usize,
    /// Data segments of the scenario's flows for which its queue had no room.
    pub(crate) refused_data: u64,
    /// The proxy at the node it leaves: what goes over this line passes through it first.
    pub(crate) pep_before: Option<usize>,
    /// The proxy at the node it leads to: what comes over this line passes through it first.
    pub(crate) pep_behind: Option<usize>,
}

/// Packets and where they go next. Players of the schedule are the lines, in the order of their
/// links, then whoever the engine numbers behind them.
pub(crate) struct Network<O> {
    pub(crate) lines: Vec<Line>,
    /// By node, then by destination host: the line to take.
    pub(crate) routes: Routes,
    pub(crate) schedule: Tournament,
    /// How many flows the scenario has; those behind them are cross traffic.
    pub(crate) own: usize,
    pub(crate) observer: O,
    /// With it, every packet becomes bytes and is read again at every hop.
    pub(crate) codec: Option<Codec>,
    /// The first thing that must not happen.
    pub(crate) fault: Option<SimError>,
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

impl<O: Observer> Network<O> {
    /// `packet` enters the queue of `line`.
    #[inline]
    pub(crate) fn push(&mut self, line: usize, mut packet: Packet, now: Instant) {
        self.observer.sent(now, line, &packet);
        if let Some(codec) = &mut self.codec {
            match codec.hop(packet) {
                Ok(read) => packet = read,
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return;
                }
            }
        }
        let len = Bytes(u64::from(packet.len));
        let data = packet.to.flow() < self.own && !packet.segment.payload.is_empty();
        let Line {
            direction,
            refused_data,
            ..
        } = &mut self.lines[line];
        let before = direction.observer().refused;
        direction.push(packet, len, now);
        let queued = direction.waiting();
        let counters = direction.observer_mut();
        *refused_data += u64::from(data && counters.refused > before);
        counters.longest_queue = counters.longest_queue.max(queued);
        self.reschedule(line);
    }

    /// The next packet that `line` delivers at `now`.
    #[inline]
    pub(crate) fn arrival(&mut self, line: usize, now: Instant) -> Option<Packet> {
        let (_, packet) = self.lines[line].direction.deliver(now)?;
        self.observer.arrived(now, line, &packet);
        Some(packet)
    }

    /// Notes when `line` is due next, and returns it.
    #[inline]
    pub(crate) fn reschedule(&mut self, line: usize) -> Instant {
        let due = self.lines[line].direction.deadline();
        let due = due.unwrap_or(Instant::MAX);
        if due != self.schedule.due(line) {
            self.schedule.set(line, due);
        }
        due
    }
}
