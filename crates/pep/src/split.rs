//! TCP splitting ("spoofing"): the proxy terminates each connection on both of its sides. It acknowledges data before
//! the receiver has it, and sends it on over the other side by that side's own policy.
//!
//! J. Ishac, M. Allman, "On the Performance of TCP Spoofing in Satellite Networks", IEEE MILCOM 2001; RFC 3135,
//! sections 2.2.3 and 3.1.2. Each flow is two `tcp::Connection`s, its legs, with a relay buffer between them. A FIN is
//! passed on when all data before it has been relayed; a reset on one side resets the other.
//!
//! The handshake is end to end by default, as in the paper
//! ([`Handshake::EndToEnd`](bentpipe_gateway_config::Handshake)): SYN, SYN-ACK and ACK pass through, and then both legs
//! go on with the sequence numbers, options and timestamps that the ends have seen. With `Early` the proxy answers the
//! SYN at once and opens the other side itself.
//!
//! The legs behave as the real gateway's sockets do. Each has the policy of its side
//! ([`bentpipe_gateway_config::Leg`]), reads no more from its peer than its receive buffer holds, and is given no more
//! than its send buffer holds. A congestion control that shares its link's rate shares it among all flows of the leg.
//! Headers are counted as the IP version of the flow's packets has them. Acknowledgements towards space may be thinned
//! out, as the gateway thins out those of its sockets ([`Config::ack_filter`]).
//!
//! Some packets pass untouched: those that cannot be parsed, those of connections whose SYN was not seen, those of
//! connections whose SYN carries something that the legs do not support (unknown options, data, a simultaneous open),
//! and those of connections beyond the limit of flows.
//!
//! Packets of the legs have the code point (DSCP) of what comes from their other side.
//!
//! Known deviations from the paper: the legs' window is as wide as the ends' window scale allows. ECN is each leg's own, where
//! both ends speak it: marks are echoed on the leg that has them. Urgent bytes go on in their place as ordinary ones: that they
//! are urgent is not passed on.

mod config;
mod counters;
mod decision;
mod flow;
mod half_open;
mod handshake_tracker;
mod leg_config;
mod legs;
mod memory_use;
mod new_legs;
mod scps;

pub use config::{Config, Resets};
pub use counters::{Counters, LegCounters};
pub use decision::{Admission, Decision};
pub use leg_config::{LegError, tcp_config};
pub use memory_use::Kept;

use crate::ack_filter::AckFilter;
use crate::flow_table::{FlowId, FlowTable};
use crate::{BuildPacket, Pep, Side};
use bentpipe_base::{Bytes, Instant, Machine, Output, Stream};
use bentpipe_gateway_config::{self as gateway_config, Action};
use bentpipe_tcp::Connection;
use bentpipe_wire::{Ecn, Flags, Segment};
use config::{Endpoints, Links};
use core::convert::Infallible;
use flow::{Flow, HANDSHAKE_TIMEOUT, Phase, after};
use half_open::HalfOpen;
use handshake_tracker::{HandshakeTracker, Progress};
use legs::{Broken, Legs};
use std::collections::{BTreeMap, VecDeque};

/// A flow's two ends: on the ground, in space.
type Key<E> = (E, E);

/// The proxy: see the module's head.
pub struct Split<P: BuildPacket> {
    config: Config,
    links: Links,
    flows: FlowTable<Key<P::Endpoint>, Flow>,
    half_open: HalfOpen<P::Host>,
    out: VecDeque<(Side, P)>,
    /// Flows whose legs were handed packets since something was last asked for, in their order: what came together is answered together.
    unsettled: VecDeque<FlowId>,
    /// Where acknowledgements towards space wait, if their rate is bounded.
    ack_filter: Option<AckFilter<P>>,
    /// Payload bytes held for all flows.
    held: u64,
    chance: Stream,
    counters: Counters,
    /// What becomes of a connection; `None`: all are split.
    admission: Option<Admission<P::Endpoint>>,
    /// What the legs of finished connections of watched flows sent: towards the ground, and towards space.
    watched: BTreeMap<Key<P::Endpoint>, [LegCounters; 2]>,
}

impl<P: BuildPacket> Split<P> {
    /// A proxy that has seen nothing.
    pub fn new(config: Config) -> Self {
        Self {
            chance: Stream::new(config.seed, "pep.split"),
            ack_filter: config.ack_filter.map(AckFilter::new),
            config,
            links: Links::default(),
            flows: FlowTable::new(),
            half_open: HalfOpen::default(),
            out: VecDeque::new(),
            unsettled: VecDeque::new(),
            held: 0,
            counters: Counters::default(),
            admission: None,
            watched: BTreeMap::new(),
        }
    }

    /// Asks `admission` what becomes of each connection that it would split. One that is refused is answered by a reset; where there
    /// are no handshakes it passes, for nobody asks.
    pub fn admit_by(&mut self, admission: Admission<P::Endpoint>) {
        self.admission = Some(admission);
    }

    /// Keeps what the legs of the flow between `one` and `other` send, so that [`sent_to`](Self::sent_to) knows it when
    /// its connection is over: of the many of cross traffic nobody asks.
    pub fn watch(&mut self, one: P::Endpoint, other: P::Endpoint) {
        for key in [(one, other), (other, one)] {
            self.watched.entry(key).or_default();
        }
    }

    /// What this proxy sent to `to` of the flow from `from`, which is watched; `None` where it did not split that.
    pub fn sent_to(&self, from: P::Endpoint, to: P::Endpoint) -> Option<LegCounters> {
        let of = |key, towards: Side| {
            let mut sent = self.watched.get(&key)?[legs::index(towards)];
            let live = self.flows.peek(key).and_then(|id| self.flows.get(id));
            if let Some(Phase::Split(legs)) = live.map(|flow| &flow.phase) {
                sent += legs.sent(towards);
            }
            (sent != LegCounters::default()).then_some(sent)
        };
        of((to, from), Side::Ground).or_else(|| of((from, to), Side::Space))
    }

    /// The TCP by which it sends to `to` what it split of the flow from `from`; `None` where it splits none now.
    pub fn connection_to(&self, from: P::Endpoint, to: P::Endpoint) -> Option<&Connection> {
        let of = |key, towards| {
            let flow = self.flows.get(self.flows.peek(key)?)?;
            match &flow.phase {
                Phase::Split(legs) => Some(legs.connection(towards)),
                Phase::Handshake(_) => None,
            }
        };
        of((to, from), Side::Ground).or_else(|| of((from, to), Side::Space))
    }

    /// What it has done so far.
    pub fn tally(&self) -> Counters {
        let filter = self.ack_filter.as_ref();
        Counters {
            acks_thinned: filter.map_or(0, |filter| filter.tally().replaced),
            ..self.counters
        }
    }

    /// Connections that it knows: opening, split, or waiting for their last packets to die out.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Handles a packet; returns false where it is to pass as it is.
    fn take(&mut self, from: Side, packet: &P, now: Instant) -> bool {
        let (Some(view), Some(segment)) = (packet.view(), packet.segment()) else {
            self.counters.unread += 1;
            return false;
        };
        let key = match from {
            Side::Ground => (view.source, view.destination),
            Side::Space => (view.destination, view.source),
        };
        let syn = segment.flags.contains(Flags::SYN);
        let opens = syn && !segment.flags.contains(Flags::ACK);
        let mut known = self.flows.find(key);
        if let Some(id) = known
            && opens
            && self.is_over(id)
        {
            // Ports are used again.
            self.settle(id, now);
            self.forget(id);
            known = None;
        }
        let Some(id) = known else {
            return self.meet(from, key, packet, segment, now);
        };
        let Some(flow) = self.flows.get_mut(id) else {
            return false;
        };
        flow.hear(from, packet, now);
        match &mut flow.phase {
            Phase::Split(legs) => {
                legs.input(from, (segment, packet.ecn()), now);
                if self.unsettled.back() != Some(&id) {
                    self.unsettled.push_back(id);
                }
                true
            }
            Phase::Handshake(tracker) => {
                let plain = scps::is_plain(packet, &segment);
                let progress = tracker.see(from, &segment, plain, now);
                if !self.has_room(id) {
                    self.forget(id);
                    return false;
                }
                self.open(id, from, progress, (segment, packet.ecn()), now)
            }
        }
    }

    fn is_over(&self, id: FlowId) -> bool {
        match self.flows.get(id) {
            Some(Flow {
                phase: Phase::Split(legs),
                ..
            }) => legs.is_over(),
            _ => false,
        }
    }

    /// Handles the first packet of an unknown connection; returns false where it is to pass as it is.
    fn meet(
        &mut self,
        from: Side,
        key: Key<P::Endpoint>,
        packet: &P,
        segment: Segment,
        now: Instant,
    ) -> bool {
        let (flags, ecn) = (segment.flags, packet.ecn());
        if flags.contains(Flags::RST) {
            return false;
        }
        let opens = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let bare = segment.payload.is_empty() && !flags.contains(Flags::FIN);
        if opens && bare && scps::is_plain(packet, &segment) {
            if !self.config.intercepts(from) {
                return false;
            }
            let Decision { action, profile } = self.admits(packet, from);
            match action {
                Action::Split => {}
                // A split has no cache of Snoop's: what a policy gives to one passes it.
                Action::Bypass | Action::Snoop => {
                    self.counters.bypassed += 1;
                    return false;
                }
                Action::Reject => {
                    self.counters.rejected += 1;
                    self.reject(packet, from, &segment);
                    return true;
                }
            }
            if self.is_full() {
                return false;
            }
            let endpoints = self.config.endpoints(profile, packet.ip_header());
            match self.config.handshake {
                gateway_config::Handshake::EndToEnd => {
                    let default_mss = endpoints.of(from).default_mss();
                    let tracker = HandshakeTracker::new(from, &segment, default_mss, now);
                    let id = self.add(key, Phase::Handshake(tracker), endpoints, now);
                    self.bound_half_open(id, from);
                    return false;
                }
                gateway_config::Handshake::Early => {
                    let legs = self.dial(key, from, &segment, &endpoints, now);
                    return self.split(key, (legs, endpoints), from, (segment, ecn), now);
                }
            }
        }
        let stands = flags.contains(Flags::ACK) && !flags.contains(Flags::SYN);
        if let Some(ends) = self.config.without_handshake.clone()
            && stands
            && !segment.payload.is_empty()
        {
            let Decision { action, profile } = self.admits(packet, from);
            if !self.config.intercepts(from) || action != Action::Split || self.is_full() {
                return false;
            }
            let endpoints = self.config.endpoints(profile, packet.ip_header());
            let [near, far] = handshake_tracker::unseen(&segment, &ends);
            let legs = self.taken_over(key, from, [&near, &far], &endpoints, now);
            return self.split(key, (legs, endpoints), from, (segment, ecn), now);
        }
        false
    }

    fn is_full(&mut self) -> bool {
        let full = self.flows.len() - self.half_open.len() >= self.config.flows;
        self.counters.refused += u64::from(full);
        full
    }

    /// Adds a flow that is split from its first packet on, which goes to its leg.
    fn split(
        &mut self,
        key: Key<P::Endpoint>,
        (legs, endpoints): (Legs, Endpoints),
        from: Side,
        arrived: (Segment, Ecn),
        now: Instant,
    ) -> bool {
        let id = self.add(key, Phase::Split(Box::new(legs)), endpoints, now);
        self.counters.split += 1;
        self.feed(id, from, arrived, now);
        true
    }

    fn feed(&mut self, id: FlowId, from: Side, arrived: (Segment, Ecn), now: Instant) {
        if let Some(Flow {
            phase: Phase::Split(legs),
            ..
        }) = self.flows.get_mut(id)
        {
            legs.input(from, arrived, now);
        }
        self.settle(id, now);
    }

    /// Acts on what became of a handshake; returns false where the packet is to pass as it is.
    fn open(
        &mut self,
        id: FlowId,
        from: Side,
        progress: Progress,
        arrived: (Segment, Ecn),
        now: Instant,
    ) -> bool {
        match progress {
            Progress::Continues => false,
            Progress::NotSplit => {
                self.forget(id);
                false
            }
            Progress::Complete { near, far } => {
                let (Some(flow), Some(key)) = (self.flows.get(id), self.flows.key(id)) else {
                    return false;
                };
                let mut legs = self.taken_over(key, from, [&near, &far], &flow.endpoints, now);
                let scps = legs.speaks_scps();
                if flow.endpoints.of(Side::Space).scps.is_some() {
                    self.counters.scps += u64::from(scps);
                    self.counters.plain += u64::from(!scps);
                }
                let segment = &arrived.0;
                let bare = segment.payload.is_empty() && !segment.flags.contains(Flags::FIN);
                // It tells the whole window of its leg in the place of the end that opened the connection.
                let announces = bare && scps && from == Side::Ground;
                if announces {
                    legs.announce_to_space();
                }
                if let Some(flow) = self.flows.get_mut(id) {
                    flow.phase = Phase::Split(Box::new(legs));
                }
                self.counters.split += 1;
                if !bare {
                    self.feed(id, from, arrived, now);
                } else if announces {
                    self.settle(id, now);
                }
                // A bare acknowledgement passes: it completes the handshake at the other end.
                !bare || announces
            }
        }
    }

    fn add(
        &mut self,
        key: Key<P::Endpoint>,
        phase: Phase,
        endpoints: Endpoints,
        now: Instant,
    ) -> FlowId {
        let silence = match phase {
            Phase::Handshake(_) => Some(HANDSHAKE_TIMEOUT),
            Phase::Split(_) => self.config.idle,
        };
        let flow = Flow::new(phase, endpoints, now);
        self.flows.insert(key, flow, after(now, silence))
    }

    fn forget(&mut self, id: FlowId) {
        self.half_open.end(id);
        let key = self.flows.key(id);
        if let Some(flow) = self.flows.remove(id)
            && let Phase::Split(legs) = flow.phase
        {
            self.held -= legs.held;
            if let Some(sent) = key.and_then(|key| self.watched.get_mut(&key)) {
                for side in [Side::Ground, Side::Space] {
                    sent[legs::index(side)] += legs.sent(side);
                }
            }
        }
    }

    /// To be called after anything happened to the legs of a flow: relays bytes between them, sends segments, and
    /// schedules the flow's deadline.
    fn settle(&mut self, id: FlowId, now: Instant) {
        let Some((ground, space)) = self.flows.key(id) else {
            return;
        };
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        let code_points = [Side::Ground, Side::Space].map(|side| flow.code_point(side));
        let (Phase::Split(legs), endpoints) = (&mut flow.phase, &flow.endpoints) else {
            return;
        };
        let before = legs.held;
        let (out, filter) = (&mut self.out, &mut self.ack_filter);
        let mut broken = false;
        legs.drain(now, |output| match output {
            Output::Packet(side, (segment, ecn)) => {
                let (source, destination) = match side {
                    Side::Ground => (space, ground),
                    Side::Space => (ground, space),
                };
                let length = Bytes(endpoints.of(side).wire_len(&segment) as u64);
                let waits = side == Side::Space && is_thinned(&segment, length);
                let packet = P::build(source, destination, segment, length);
                let code_point = code_points[legs::index(side)];
                let packet = packet.map(|packet| packet.with_ecn(ecn).with_code_point(code_point));
                match filter.as_mut().filter(|_| waits) {
                    Some(filter) => filter.offer(packet, now, out),
                    None => out.extend(packet.map(|packet| (side, packet))),
                }
            }
            Output::Event(Broken) => broken = true,
        });
        self.counters.broken += u64::from(broken);
        legs.count(&mut self.counters);
        self.held = self.held - before + legs.held;
        self.counters.most_held = self.counters.most_held.max(self.held);
        if legs.is_closed() {
            self.forget(id);
        } else if let Some(flow) = self.flows.get(id) {
            let due = flow.due(self.config.idle);
            self.flows.schedule(id, due);
        }
    }

    /// The flow is due.
    fn wake(&mut self, id: FlowId, now: Instant) {
        let idle = self.config.idle;
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        let silent = flow.silent(idle) <= now;
        match &mut flow.phase {
            Phase::Handshake(_) if silent => return self.forget(id),
            Phase::Handshake(_) => {}
            Phase::Split(legs) if silent => {
                self.counters.expired += 1;
                legs.abort(now);
            }
            Phase::Split(legs) => legs.timeout(now),
        }
        self.settle(id, now);
        if let Some(flow) = self.flows.get(id) {
            let due = flow.due(idle);
            self.flows.reschedule(id, due, now);
        }
    }
}

/// Whether `segment`, of `length` on the link, waits where acknowledgements are thinned out: as the gateway's rules choose.
fn is_thinned(segment: &Segment, length: Bytes) -> bool {
    let others = [Flags::FIN, Flags::SYN, Flags::RST, Flags::PSH];
    let acknowledges = segment.flags.contains(Flags::ACK);
    let bare = !others.iter().any(|flag| segment.flags.contains(*flag));
    acknowledges && bare && length < Bytes(128)
}

impl<P: BuildPacket> Machine for Split<P> {
    type Packet = P;
    type Port = Side;
    type Event = Infallible;

    fn input(&mut self, port: Side, packet: P, now: Instant) {
        if !self.take(port, &packet, now) {
            self.pass(port, packet);
        }
    }

    fn timeout(&mut self, now: Instant) {
        while let Some(id) = self.flows.due(now) {
            self.wake(id, now);
        }
        if let Some(filter) = &mut self.ack_filter {
            filter.offer(None, now, &mut self.out);
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<(Side, P)> {
        while let Some(id) = self.unsettled.pop_front() {
            self.settle(id, now);
        }
        self.out.pop_front()
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        let flows = self.flows.deadline().filter(|at| *at != Instant::MAX);
        let acks = self.ack_filter.as_ref().and_then(Machine::deadline);
        flows.into_iter().chain(acks).min()
    }
}

impl<P: BuildPacket> Pep for Split<P> {
    fn kind(&self) -> &'static str {
        "split"
    }

    /// Payload bytes in order that the far receiver has not acknowledged.
    fn buffered(&self) -> Bytes {
        Bytes(self.held)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let scps = self.config.space.scps.is_some();
        { self.tally() }.named(self.admission.is_some(), self.ack_filter.is_some(), scps)
    }
}
