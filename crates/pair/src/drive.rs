//! The loop: two sides, the link between them, and the flows on their tunnels.

use crate::PairError;
use crate::setup::Setup;
use crate::transfer::{End, Transfer};
use bentpipe_base::{Bytes, Instant, Machine as _, Output};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_link::{Direction, Link, Mark};
use bentpipe_outcome as outcome;
use bentpipe_plan::addresses::{Addresses, accepted_port};
use bentpipe_plan::limits::FullPacket;
use bentpipe_plan::links;
use bentpipe_quic::{ConnectionId, Datagram, Endpoint};
use bentpipe_scenario::{Amount, Flow, Topology};
use bentpipe_sim::{LinkCounters, Packet};
use bentpipe_tunnel::{Event, Read, Role, Side, TunnelId};
use bentpipe_tunnel_sockets::FecCounters;
use core::time::Duration;
use std::collections::BTreeMap;

/// How long the near end may take to reach the far one, as in the lab.
const REACH: Duration = Duration::from_secs(20);
/// The connection stands so long before the run begins, as about in the lab, where flows are prepared then.
const SETTLE: Duration = Duration::from_secs(1);
const ENDS: [End; 2] = [End::Near, End::Far];
const RESET: &str = "the tunnel was reset";

/// A packet on the link.
pub(crate) enum Carried {
    /// One of QUIC, whose bytes nothing marks.
    Quic(Datagram),
    /// One of a flow that passes end to end.
    Tcp(usize, Packet),
}

impl Mark for Carried {
    fn is_capable(&self) -> bool {
        match self {
            Self::Quic(_) => false,
            Self::Tcp(_, packet) => packet.is_capable(),
        }
    }

    fn mark(&mut self) {
        if let Self::Tcp(_, packet) = self {
            packet.mark();
        }
    }
}

/// A packet that entered the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When, since the near end began to connect.
    pub at: Instant,
    /// Whether from the near end.
    pub from_near: bool,
    /// Its length, headers of IP included.
    pub length: Bytes,
}

/// What entered the link, where that is wanted.
pub(crate) struct Trace(Option<Vec<Departure>>);

impl Trace {
    pub(crate) fn note(&mut self, at: Instant, from: End, length: Bytes) {
        let from_near = from == End::Near;
        self.0.iter_mut().for_each(|all| {
            all.push(Departure {
                at,
                from_near,
                length,
            });
        });
    }
}

/// What of a pair moves.
pub(crate) struct Drive<'s> {
    pub(crate) setup: Setup<'s>,
    pub(crate) now: Instant,
    begin: Instant,
    /// The near one and the far one.
    pub(crate) sides: [Side<Endpoint>; 2],
    /// From each of them.
    pub(crate) ways: [Direction<Carried, LinkCounters>; 2],
    /// The near end's.
    pub(crate) connection: Option<ConnectionId>,
    /// The far end's.
    served: Option<ConnectionId>,
    /// Tunnels may be opened.
    pub(crate) ready: bool,
    /// And no more of them at present.
    pub(crate) full: bool,
    /// Why the connection was lost last.
    lost: String,
    pub(crate) transfers: Vec<Transfer>,
    /// The flow of a tunnel, by the end that names it.
    pub(crate) flows: [BTreeMap<TunnelId, usize>; 2],
    /// Tunnels, of which both ends tell.
    pub(crate) opened: [u64; 2],
    pub(crate) trace: Trace,
}

impl<'s> Drive<'s> {
    pub(crate) fn new(setup: Setup<'s>) -> Result<Self, PairError> {
        let failed = |error: &dyn core::fmt::Display| PairError::Endpoint(error.to_string());
        let [near, far] =
            [(0, false), (1, true)].map(|(end, serves)| Endpoint::new(&setup.configs[end], serves));
        let template = Template::of_authority(&setup.addresses[1].to_string());
        let templates = vec![template.map_err(|error| failed(&error))?];
        let near = near.map_err(|error| failed(&error))?;
        let far = far.map_err(|error| failed(&error))?;
        let near = Side::new(near, Role::Near, templates.clone());
        let far = Side::new(far, Role::Far, templates);
        let name = setup.hop.name;
        let settings = links::settings(setup.hop.link).map_err(|why| PairError::Link {
            link: name.to_owned(),
            why: why.to_string(),
        })?;
        let [there, back] = settings.map(|settings| (settings, LinkCounters::default()));
        let mut ways = Link::new(there, back, setup.seed, name).into_directions();
        if setup.hop.link.ends[0] != setup.pair.near {
            ways.reverse();
        }
        Ok(Self {
            setup,
            now: Instant::ZERO,
            begin: Instant::ZERO,
            sides: [near, far],
            ways,
            connection: None,
            served: None,
            ready: false,
            full: false,
            lost: String::new(),
            transfers: Vec::new(),
            flows: [BTreeMap::new(), BTreeMap::new()],
            opened: [0; 2],
            trace: Trace(None),
        })
    }

    /// With a trace.
    pub(crate) fn traced(mut self) -> Self {
        self.trace = Trace(Some(Vec::new()));
        self
    }

    /// Runs to its end.
    pub(crate) fn run(mut self) -> Result<(outcome::Run, Vec<Departure>), PairError> {
        self.reach()?;
        let end = self.begin + self.setup.scenario.time_limit;
        while self.now < end {
            self.act();
            if self
                .transfers
                .iter()
                .all(|transfer| transfer.over.is_some())
            {
                break;
            }
            self.step(end);
        }
        self.act();
        let trace = self.trace.0.take().unwrap_or_default();
        Ok((self.outcome(), trace))
    }

    /// Waits for the connection; then the run begins.
    fn reach(&mut self) -> Result<(), PairError> {
        self.connect();
        let end = Instant::ZERO + REACH;
        while !self.ready {
            self.act();
            if self.now >= end {
                return Err(PairError::Unreached {
                    near: self.setup.pair.near.to_owned(),
                    seconds: REACH.as_secs(),
                    why: match self.lost.as_str() {
                        "" => "no answer came".to_owned(),
                        lost => lost.to_owned(),
                    },
                });
            }
            self.step(end);
        }
        self.begin = self.now + SETTLE;
        while self.now < self.begin {
            self.act();
            self.step(self.begin);
        }
        for way in &mut self.ways {
            way.begin(self.begin);
        }
        let flows = self.setup.scenario.flows.iter();
        self.transfers = flows.map(|flow| Transfer::new(flow, self.begin)).collect();
        Ok(())
    }

    fn connect(&mut self) {
        let far = self.setup.addresses[1];
        self.ready = false;
        match self.sides[0].quic_mut().connect(far, self.now) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.lost = error.to_string(),
        }
    }

    /// Does all that there is to do now.
    fn act(&mut self) {
        self.begin_and_end();
        loop {
            let told = self.drain();
            if told.is_empty() {
                break;
            }
            for (end, event) in told {
                self.heard(end, event);
            }
        }
    }

    /// Opens the flows whose time has come, and ends those whose time is over.
    fn begin_and_end(&mut self) {
        for index in 0..self.transfers.len() {
            let transfer = &self.transfers[index];
            if transfer.over.is_some() {
                continue;
            }
            if transfer.until.is_some_and(|until| until <= self.now) {
                if let Some(tunnel) = transfer.tunnels[0] {
                    self.sides[0].reset(tunnel);
                }
                let transfer = &mut self.transfers[index];
                transfer.passing = None;
                transfer.end(self.now, None);
            } else if transfer.waits.is_some_and(|until| until <= self.now) {
                self.give_up_waiting(index);
            } else if !transfer.has_begun() && transfer.start <= self.now {
                self.open(index);
            }
        }
    }

    /// The server of a flow, whose port tells the flow.
    pub(crate) fn target(&self, index: usize) -> Target {
        let scenario = self.setup.scenario;
        let flow = &scenario.flows[index];
        let path = Topology::new(scenario).path(&flow.opened_by, flow.acceptor());
        let address = path.map_or(self.setup.addresses[1].ip(), |path| {
            Addresses::new(scenario).ends(&path)[1]
        });
        core::net::SocketAddr::new(address, accepted_port(index)).into()
    }

    /// The connection of a flow's opener stands.
    pub(crate) fn connected(&mut self, index: usize) {
        let transfer = &mut self.transfers[index];
        transfer.connected.get_or_insert(self.now);
        if transfer.source == End::Near {
            self.send(End::Near, index);
        }
    }

    /// Writes what `source`, where the source of a flow is, has to say.
    fn send(&mut self, source: End, index: usize) {
        let transfer = &mut self.transfers[index];
        transfer.may_send = true;
        let Some(tunnel) = transfer.tunnels[source as usize].filter(|_| transfer.over.is_none())
        else {
            return;
        };
        let side = &mut self.sides[source as usize];
        while !transfer.is_sent() {
            let mut piece = transfer.next();
            match side.write(tunnel, &mut piece) {
                Ok(written) => transfer.sent(written),
                // Why it has ended is told besides.
                Err(_) => return,
            }
            if !piece.is_empty() {
                return;
            }
        }
        // It may have ended meanwhile.
        let _ = side.finish(tunnel);
    }

    fn heard(&mut self, end: End, event: Event) {
        let of = |flows: &[BTreeMap<TunnelId, usize>; 2], tunnel: &TunnelId| {
            flows[end as usize].get(tunnel).copied()
        };
        match event {
            Event::Connected { connection, .. } if end == End::Far => {
                self.served = Some(connection);
            }
            Event::Ready(_) => self.ready = true,
            Event::Lost { reason, .. } => self.lost(end, &reason),
            Event::Asked(tunnel, request) => self.asked(tunnel, request.target.port),
            Event::Answered(tunnel, answer) => {
                let Some(index) = of(&self.flows, &tunnel) else {
                    return;
                };
                match answer {
                    Ok(()) => self.connected(index),
                    Err(why) => self.transfers[index].end(self.now, Some(why.to_string())),
                }
            }
            Event::Readable(tunnel) => {
                if let Some(index) = of(&self.flows, &tunnel) {
                    self.read(end, tunnel, index);
                }
            }
            Event::Writable(tunnel) => {
                if let Some(index) = of(&self.flows, &tunnel)
                    && self.transfers[index].source == end
                    && self.transfers[index].may_send
                {
                    self.send(end, index);
                }
            }
            Event::Reset(tunnel) => {
                if let Some(index) = self.flows[end as usize].remove(&tunnel) {
                    self.transfers[index].end(self.now, Some(RESET.to_owned()));
                }
            }
            Event::Done(tunnel) => {
                self.flows[end as usize].remove(&tunnel);
            }
            Event::Room(_) if end == End::Near => self.has_room(),
            Event::Connected { .. }
            | Event::Early(_)
            | Event::NoProxy(_)
            | Event::GoingAway(_)
            | Event::Room(_)
            | Event::Udp(..) => {}
        }
    }

    /// The far end dials over a wire that takes no time.
    fn asked(&mut self, tunnel: TunnelId, port: u16) {
        let index = usize::from(port.saturating_sub(accepted_port(0)));
        if self.sides[1].accept(tunnel).is_err() || index >= self.transfers.len() {
            return;
        }
        self.opened[1] += 1;
        self.flows[1].insert(tunnel, index);
        self.transfers[index].tunnels[1] = Some(tunnel);
        if self.transfers[index].source == End::Far {
            self.send(End::Far, index);
        }
    }

    fn read(&mut self, end: End, tunnel: TunnelId, index: usize) {
        let side = &mut self.sides[end as usize];
        let transfer = &mut self.transfers[index];
        let receives = transfer.source != end;
        loop {
            match side.read(tunnel) {
                Ok(Read::Data(piece)) if receives && transfer.over.is_none() => {
                    transfer.got(piece.len(), self.now);
                }
                Ok(Read::Data(_)) => {}
                Ok(Read::Final) => {
                    if receives {
                        // A receiver that has all closes its side too.
                        let _ = side.finish(tunnel);
                        transfer.end(self.now, None);
                    }
                }
                Ok(Read::BrokenOff) => {
                    side.reset(tunnel);
                    self.flows[end as usize].remove(&tunnel);
                    return transfer.end(self.now, Some(RESET.to_owned()));
                }
                Ok(Read::Blocked) | Err(_) => return,
            }
        }
    }

    /// A connection is gone, and all flows on it; the near end makes another.
    fn lost(&mut self, end: End, reason: &str) {
        let flows = core::mem::take(&mut self.flows[end as usize]);
        for index in flows.into_values() {
            self.transfers[index].end(self.now, Some(reason.to_owned()));
        }
        if end == End::Near {
            reason.clone_into(&mut self.lost);
            self.full = false;
            self.connect();
            for index in 0..self.transfers.len() {
                if self.transfers[index].waits.is_some() {
                    self.give_up_waiting(index);
                }
            }
        }
    }

    /// Everything that leaves enters the link; returns what both sides tell.
    fn drain(&mut self) -> Vec<(End, Event)> {
        let mut told = Vec::new();
        let now = self.now;
        self.drain_passing();
        for end in ENDS {
            let way = &mut self.ways[end as usize];
            let trace = &mut self.trace;
            let headers = self.setup.headers;
            self.sides[end as usize].drain(now, |output| match output {
                Output::Packet((), datagram) => {
                    let length = Bytes(datagram.data.len() as u64) + headers;
                    trace.note(now, end, length);
                    // What the queue has no room for is gone.
                    let _ = way.push(Carried::Quic(datagram), length, now);
                }
                Output::Event(event) => told.push((end, event)),
            });
        }
        told
    }

    /// Goes on to when something is due, at the latest to `end`.
    fn step(&mut self, end: Instant) {
        let sides = self.sides.iter().filter_map(Side::deadline);
        let ways = self.ways.iter().filter_map(Direction::deadline);
        let flows = self
            .transfers
            .iter()
            .filter(|transfer| transfer.over.is_none());
        let flows = flows.filter_map(Transfer::deadline);
        let next = sides.chain(ways).chain(flows).min();
        self.now = next.unwrap_or(end).min(end).max(self.now);
        for from in ENDS {
            let to = 1 - from as usize;
            while let Some((_, carried)) = self.ways[from as usize].deliver(self.now) {
                match carried {
                    Carried::Quic(mut datagram) => {
                        datagram.peer = self.setup.addresses[from as usize];
                        self.sides[to].input((), datagram, self.now);
                    }
                    Carried::Tcp(index, packet) => {
                        if let Some(passing) = &mut self.transfers[index].passing {
                            passing.receive(&packet, self.now);
                        }
                    }
                }
            }
        }
        for side in &mut self.sides {
            if side.deadline().is_some_and(|due| due <= self.now) {
                side.timeout(self.now);
            }
        }
    }

    fn outcome(&self) -> outcome::Run {
        let scenario = self.setup.scenario;
        let topology = Topology::new(scenario);
        let flows = scenario.flows.iter().zip(&self.transfers);
        outcome::Run {
            engine: outcome::Engine::Simulator,
            scenario: scenario.name.clone(),
            seed: self.setup.seed,
            elapsed: self.now.since(self.begin),
            flows: flows
                .map(|(flow, transfer)| self.flow(flow, transfer, &topology))
                .collect(),
            links: self.links(),
            proxies: self.proxies(),
            ..outcome::Run::default()
        }
    }

    fn flow(&self, flow: &Flow, transfer: &Transfer, topology: &Topology<'_>) -> outcome::Flow {
        let since = |at: Instant| at.since(transfer.start);
        let by_size = matches!(flow.amount, Amount::Bytes(_));
        let end = match &transfer.over {
            None => outcome::End::CutOff,
            Some((_, None)) => outcome::End::Finished,
            Some((_, Some(why))) => outcome::End::Failed(why.clone()),
        };
        let finished = end == outcome::End::Finished;
        let completion = transfer.last.filter(|_| by_size && finished).map(since);
        let path = topology.path(&flow.from, &flow.to);
        let over = transfer.over.as_ref().map_or(self.now, |(at, _)| *at);
        outcome::Flow {
            name: flow.name.clone(),
            control: transfer.control.to_owned(),
            size: match flow.amount {
                Amount::Bytes(size) => Some(size),
                Amount::Segments(_) | Amount::Duration(_) => None,
            },
            round_trip: topology
                .round_trip(&flow.from, &flow.to)
                .unwrap_or_default(),
            limit: path.and_then(|path| {
                FullPacket::new(self.setup.scenario, flow, &path).goodput_limit(&path)
            }),
            received: Bytes(transfer.received),
            connect: transfer.connected.map(since),
            elapsed: completion.unwrap_or_else(|| since(over)),
            completion,
            end,
            ..outcome::Flow::default()
        }
    }

    fn links(&self) -> Vec<outcome::SimplexLink> {
        let hop = &self.setup.hop;
        let ways = self
            .ways
            .iter()
            .zip([[hop.from, hop.to], [hop.to, hop.from]]);
        let mut links: Vec<_> = ways
            .map(|(way, [from, to])| outcome::SimplexLink {
                // Nobody counts who waits.
                longest_queue: None,
                ..way.observer().outcome([hop.name, from, to], None)
            })
            .collect();
        if hop.link.ends[0] != hop.from {
            links.reverse();
        }
        links
    }

    /// What each end did.
    fn proxies(&self) -> Vec<outcome::Proxy> {
        let names = [self.setup.pair.near, self.setup.pair.far];
        let connections = [self.connection, self.served];
        let ends = names
            .into_iter()
            .zip(connections)
            .zip(self.opened)
            .zip(&self.sides);
        let mut all: Vec<_> = ends
            .map(|(((name, connection), opened), side)| {
                let stats = connection.and_then(|connection| side.quic().stats(connection));
                let fec = stats.and_then(|stats| stats.fec).map(FecCounters::from);
                let fec = fec.unwrap_or_default();
                outcome::Proxy {
                    name: name.to_owned(),
                    counters: vec![
                        ("tunnels", opened),
                        ("fec_repairs", fec.repairs),
                        ("fec_recovered", fec.recovered),
                        ("fec_unrepaired", fec.unrepaired),
                    ],
                }
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
