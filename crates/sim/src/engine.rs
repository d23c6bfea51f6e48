//! The run loop: the source of events that is due first acts, and what follows from that is scheduled.
//!
//! The sources, in the order in which ties are broken: the simplex links (each due when its next packet arrives), the
//! proxies, the ends of the flows. A packet in flight has no entry in the event queue of its own: its link has. Timers are
//! lazy: where the deadline of an end moves to a later time, its old entry stays, the end is woken once in vain, and only
//! then its entry moves.

use crate::flow_endpoint::FlowEndpoint;
use crate::hosted_connection::{EndConnection, HostedConnection};
use crate::network::{Arrival, Network};
use crate::packet::NOWHERE;
use crate::packet_slab::Handle;
use crate::{EndId, Observer, Packet, SimError};
use bentpipe_base::{Bytes, Instant, Machine, Output};
use bentpipe_host::Tuple;
use bentpipe_link::Length;
use bentpipe_pep::{AnyPep, Side};
use bentpipe_tcp::Connection;
use bentpipe_traffic::Source;
use std::sync::Arc;

pub(crate) struct Engine<O> {
    pub(crate) network: Network<O>,
    pub(crate) ends: Vec<FlowEndpoint>,
    pub(crate) peps: Vec<PepNode>,
    /// How far each flow is.
    pub(crate) flows: Vec<FlowProgress>,
    /// Nodes below this number are hosts.
    pub(crate) hosts: usize,
    /// The number of the first end among the event queue's sources.
    pub(crate) first_end: usize,
    /// Flows of the scenario that are not over.
    pub(crate) open: usize,
    /// Draws the next transfer of each flow of cross traffic. The numbers of these flows follow those of the scenario's own.
    pub(crate) traffic: Vec<Source>,
    /// What a proxy sends in one turn. Empty between turns; kept for its memory.
    pub(crate) leaving: Vec<(Side, Handle, Bytes)>,
}

/// A proxy at a router, on one of its links.
pub(crate) struct PepNode {
    pub(crate) name: String,
    pub(crate) proxy: AnyPep<Packet>,
    /// The router.
    pub(crate) node: usize,
    /// The link towards space.
    pub(crate) link: usize,
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowProgress {
    /// When it ended, if it has.
    pub(crate) over: Option<Instant>,
    /// Whether it ended because its duration was over.
    pub(crate) cut: bool,
    /// Whether both ends start with an established connection.
    pub(crate) established: bool,
}

impl<O: Observer> Engine<O> {
    /// Runs until every flow is over, but not beyond `horizon`. Returns when it ended.
    pub(crate) fn run(&mut self, horizon: Instant) -> Result<Instant, SimError> {
        let (end, last) = self.play(horizon)?;
        for link in 0..self.network.links.len() {
            if let Some(feeder) = self.network.links[link].fed_by {
                // Of the sources that are due at the very end of the run only those before the last one have acted.
                let early = u64::from(feeder >= last);
                let until = Instant::from_nanos(end.as_nanos().saturating_sub(early));
                self.network.pull(link, feeder, until);
            }
        }
        self.network.fault.take().map_or(Ok(end), Err)
    }

    /// As [`Self::run`], but for packets that still wait at the end of a link that feeds another; returns the source that
    /// acted last too.
    fn play(&mut self, horizon: Instant) -> Result<(Instant, usize), SimError> {
        for end in 0..self.ends.len() {
            let due = self.ends[end].due();
            self.network.schedule.set(self.first_end + end, due);
        }
        let mut last = (Instant::ZERO, 0);
        while self.open > 0 {
            let (now, source) = self.network.schedule.first();
            if now > horizon {
                return Ok((horizon, usize::MAX));
            }
            while self.network.observer.next_look() <= now && now < Instant::MAX {
                self.network.show(&self.peps);
            }
            if self.network.observer.stops() {
                return Ok(last);
            }
            last = (now, source);
            let links = self.network.links.len();
            if source < links {
                self.arrivals(source, now);
            } else if source < self.first_end {
                self.wake_pep(source - links, now);
            } else {
                self.wake(source - self.first_end, now);
            }
            if self.network.fault.is_some() {
                break;
            }
        }
        self.network.fault.take().map_or(Ok(last), Err)
    }

    /// Everything that `link` delivers now.
    #[inline]
    fn arrivals(&mut self, link: usize, now: Instant) {
        loop {
            let (arrival, due) = self.network.arrival(link, now);
            if let Some(arrival) = arrival {
                self.receive(link, arrival, now);
            }
            if due > now {
                return;
            }
        }
    }

    #[inline]
    fn receive(&mut self, link: usize, arrival: Arrival, now: Instant) {
        let Arrival {
            packet,
            len,
            node,
            pep,
        } = arrival;
        if let Some(pep) = pep {
            self.pass(pep, Side::Space, packet, now);
        } else if node >= self.hosts {
            self.forward(node, packet, len, now);
        } else {
            self.deliver(node, link, packet, len, now);
        }
    }

    #[inline]
    fn forward(&mut self, node: usize, packet: Handle, len: Bytes, now: Instant) {
        let host = self.network.packets.get(&packet).host();
        let Some(link) = self.network.routes.link(node, host) else {
            return self.network.packets.free(packet);
        };
        match self.network.links[link].pep_before {
            Some(pep) => self.pass(pep, Side::Ground, packet, now),
            None => self.network.push(link, packet, len, now),
        }
    }

    /// `packet` reaches a proxy from `side`.
    #[inline(never)]
    fn pass(&mut self, pep: usize, side: Side, packet: Handle, now: Instant) {
        let due = self.turn(pep, Some((side, packet)), now);
        let source = self.network.links.len() + pep;
        self.network.schedule.schedule_earlier(source, due);
    }

    /// A proxy is due.
    fn wake_pep(&mut self, pep: usize, now: Instant) {
        let due = self.turn(pep, None, now);
        let source = self.network.links.len() + pep;
        self.network.schedule.set(source, due);
    }

    /// A turn of a proxy: sends what it has to send, and returns when it is due again. Where a timer and the arrival of a
    /// packet fall on one instant, the timer comes first, as in `run_timers_before`.
    fn turn(&mut self, pep: usize, arrived: Option<(Side, Handle)>, now: Instant) -> Instant {
        // What one proxy sends may reach another within this turn, which then needs a buffer too.
        let mut leaving = core::mem::take(&mut self.leaving);
        let PepNode {
            node, link, proxy, ..
        } = &mut self.peps[pep];
        let (node, link) = (*node, *link);
        let (packets, ends) = (&mut self.network.packets, &self.ends);
        let arrived = arrived.map(|(side, packet)| (side, packets.take(packet)));
        let due = proxy.turn(arrived, now, |output| match output {
            Output::Packet(side, mut packet) => {
                if packet.host() == NOWHERE {
                    packet.set_host(ends[packet.to.peer().index()].peer_host);
                }
                let len = packet.length();
                leaving.push((side, packets.put(link, packet), len));
            }
            Output::Event(never) => match never {},
        });
        for (side, packet, len) in leaving.drain(..) {
            match side {
                Side::Space => self.network.push(link, packet, len, now),
                Side::Ground => self.forward(node, packet, len, now),
            }
        }
        self.leaving = leaving;
        due.unwrap_or(Instant::MAX)
    }

    /// A packet has arrived over `link` at the host `node`. Hosts forward nothing.
    #[inline]
    fn deliver(&mut self, node: usize, link: usize, handle: Handle, len: Bytes, now: Instant) {
        let packet = self.network.packets.get(&handle);
        if usize::from(packet.host()) != node {
            return self.network.packets.free(handle);
        }
        let id = packet.to;
        if self
            .network
            .schedule
            .is_due(self.first_end + id.index(), now)
        {
            self.run_timers_before(id, link, len, now);
        }
        let packet = self.network.packets.get(&handle);
        self.ends[id.index()].receive(packet, now);
        self.network.packets.free(handle);
        let due = self.drain(id, now);
        let source = self.first_end + id.index();
        self.network.schedule.schedule_earlier(source, due);
    }

    /// Runs the timers of end `id` that expire at the instant at which a packet of `len` bytes arrives over `link`, where
    /// they come before the packet. As in ns-2's list of events the one that was scheduled first comes first: nearly always
    /// the timer, but not a delayed acknowledgement whose delay is shorter than the packet's passage over its last link. The
    /// entry of an end in the event queue is never later than the end is due, but may be earlier.
    #[cold]
    fn run_timers_before(&mut self, id: EndId, link: usize, len: Bytes, now: Instant) {
        let passage = self.network.links[link].direction.passage(len);
        let first = |end: &FlowEndpoint| {
            let tcp = end.tcp()?.connection.as_ref()?;
            let delay = tcp.get().and_then(Connection::ack_delay);
            let older = delay.is_none_or(|delay| delay >= passage);
            Some(older && tcp.deadline()? <= now)
        };
        while first(&self.ends[id.index()]) == Some(true) {
            self.ends[id.index()].timeout(now);
            self.drain(id, now);
        }
    }

    /// To be called after anything happened at an end: what leaves it sets out, and its flow is over where it was the last to
    /// be done. Returns when the end is due again.
    #[inline(always)]
    fn drain(&mut self, id: EndId, now: Instant) -> Instant {
        let end = &mut self.ends[id.index()];
        let due = self.network.drain(end, id, now);
        if end.take_acted() && self.note(id, now) {
            // A flow of cross traffic may have begun anew.
            return self.ends[id.index()].due();
        }
        due
    }

    /// Notes what an end has received, and ends its flow where that is cut or broken, or both ends are done; returns whether
    /// it is over.
    #[inline]
    fn note(&mut self, id: EndId, now: Instant) -> bool {
        let end = &mut self.ends[id.index()];
        if let Some(received) = end.take_progress() {
            self.network.observer.progress(now, id, received);
        }
        let cut = end.take_cut();
        (cut || end.is_over(now)) && self.conclude(id, cut, now)
    }

    /// Ends the flow of an end that is done or broken, or was cut now; returns whether it is over.
    #[cold]
    fn conclude(&mut self, id: EndId, cut: bool, now: Instant) -> bool {
        if cut {
            self.flows[id.flow()].cut = true;
            self.over(id.flow(), now);
        }
        if !self.ends[id.index()].is_over(now) {
            return cut;
        }
        // A split acknowledges before the receiver does.
        let both = [id, id.peer()].iter().all(|id| {
            let end = &self.ends[id.index()];
            end.done.is_some() && !end.record.owes_final_ack()
        });
        let over = both || self.ends[id.index()].is_broken();
        if over {
            self.over(id.flow(), now);
        }
        cut || over
    }

    /// Schedules an end for its deadline, if that is sooner than its entry.
    #[inline]
    fn schedule_earlier(&mut self, id: EndId) {
        let due = self.ends[id.index()].due();
        let source = self.first_end + id.index();
        self.network.schedule.schedule_earlier(source, due);
    }

    /// The entry of an end is due.
    fn wake(&mut self, index: usize, now: Instant) {
        let id = EndId(index as u32);
        let end = &mut self.ends[index];
        let mut due = end.due();
        // The entry may be an old one: deadlines move.
        if due <= now {
            due = if end.is_unopened() {
                self.open(id, now);
                self.ends[index].due()
            } else {
                end.timeout(now);
                self.drain(id, now)
            };
        }
        self.network.schedule.set(self.first_end + index, due);
    }

    /// A flow starts: makes the connections of both of its ends.
    fn open(&mut self, id: EndId, now: Instant) {
        let established = self.flows[id.flow()].established;
        let [iss, irs] = [id, id.peer()].map(|id| self.ends[id.index()].iss);
        for (end, iss, irs) in [(id.peer(), irs, iss), (id, iss, irs)] {
            let Some(tcp) = self.ends[end.index()].tcp() else {
                return;
            };
            let config = Arc::clone(&tcp.config);
            let codec = self.network.codec.as_ref().filter(|_| !established);
            let connection = match (codec, end == id) {
                (Some(codec), opens) => {
                    let [local, remote] = [end, end.peer()].map(|end| codec.addresses().of(end));
                    let tuple = Tuple { local, remote };
                    match HostedConnection::new(&config, opens, tuple, iss, now) {
                        Ok(hosted) => EndConnection::Hosted(Box::new(hosted)),
                        Err(fault) => {
                            self.network.fault = Some(fault);
                            return;
                        }
                    }
                }
                _ if established => {
                    EndConnection::Bare(Connection::established(config, iss, irs, now))
                }
                (None, true) => EndConnection::Bare(Connection::connect(config, iss, now)),
                (None, false) => EndConnection::Bare(Connection::listen(config, iss, now)),
            };
            self.ends[end.index()].open(connection, established, now);
            let due = self.drain(end, now);
            let source = self.first_end + end.index();
            self.network.schedule.schedule_earlier(source, due);
        }
    }

    fn over(&mut self, flow: usize, now: Instant) {
        if flow >= self.network.own {
            return self.renew(flow, now);
        }
        let progress = &mut self.flows[flow];
        if progress.over.is_none() {
            progress.over = Some(now);
            self.open -= 1;
        }
    }

    /// A transfer of cross traffic is over: its flow pauses and begins the next.
    fn renew(&mut self, flow: usize, now: Instant) {
        let (pause, amount) = self.traffic[flow - self.network.own].succeed();
        for id in [EndId::opener(flow), EndId::acceptor(flow)] {
            self.ends[id.index()].renew(now + pause, amount);
        }
        self.schedule_earlier(EndId::opener(flow));
    }
}
