//! The two ends of one flow for a run that has a network of its own, which carries their packets.

use crate::endpoint_builder::EndpointBuilder;
use crate::flow_endpoint::{FlowEndpoint, Protocol};
use crate::hosted_connection::EndConnection;
use crate::outcome::why;
use crate::{EndId, Packet, SimError};
use bentpipe_base::Instant;
use bentpipe_link::Mark;
use bentpipe_scenario::{Flow, Scenario, Topology};
use bentpipe_tcp::Connection;
use bentpipe_wire::Ecn;
use std::collections::BTreeMap;
use std::sync::Arc;

const OPENER: EndId = EndId::opener(0);
const ACCEPTOR: EndId = EndId::acceptor(0);

/// A flow of TCP between its two hosts, as a scenario has them. Whoever drives it carries [`Packet`]s between them, and ends it when
/// its time is over.
pub struct EndToEnd {
    /// The opener's, and the acceptor's.
    ends: [FlowEndpoint; 2],
    /// Which of them sends.
    source: usize,
}

impl EndToEnd {
    /// Opens `flow` of `scenario` at `now`.
    ///
    /// # Errors
    /// What the flow asks for and the simulator does not have.
    pub fn open(
        scenario: &Scenario,
        flow: &Flow,
        seed: u64,
        now: Instant,
    ) -> Result<Self, SimError> {
        let topology = Topology::new(scenario);
        let mut builder = EndpointBuilder {
            scenario,
            topology: &topology,
            seed,
            wire: false,
            shares: BTreeMap::new(),
            controls: &|_| None,
            templates: Vec::new(),
        };
        let (mut ends, established) = builder.ends(flow)?;
        let [iss, irs] = ends.each_ref().map(|end| end.iss);
        for (end, peer) in ends.iter_mut().zip([ACCEPTOR, OPENER]) {
            end.peer = peer;
            end.cut = None;
            end.record.until = Instant::MAX;
        }
        let numbers = [(iss, irs), (irs, iss)];
        for (end, (own, other)) in ends.iter_mut().zip(numbers).rev() {
            let Protocol::Tcp(tcp) = &end.protocol else {
                continue;
            };
            let config = Arc::clone(&tcp.config);
            let connection = match (established, end.opens) {
                (true, _) => Connection::established(config, own, other, now),
                (false, true) => Connection::connect(config, own, now),
                (false, false) => Connection::listen(config, own, now),
            };
            end.open(EndConnection::Bare(connection), established, now);
        }
        Ok(Self {
            ends,
            source: usize::from(flow.opened_by != flow.from),
        })
    }

    fn sink(&self) -> &FlowEndpoint {
        &self.ends[1 - self.source]
    }

    /// A packet has arrived at the end that it is for.
    pub fn receive(&mut self, packet: &Packet, now: Instant) {
        self.ends[usize::from(packet.to == ACCEPTOR)].receive(packet, now);
    }

    /// The next packet that leaves the opener, or the acceptor.
    pub fn transmit(&mut self, opener: bool, now: Instant) -> Option<Packet> {
        let mut packet = Packet::default();
        let end = &mut self.ends[usize::from(!opener)];
        end.transmit_into(&mut packet, now).map(|_| packet)
    }

    /// When it has something to do next.
    pub fn deadline(&self) -> Option<Instant> {
        let due = { self.ends.iter() }.map(FlowEndpoint::due).min();
        due.filter(|due| *due != Instant::MAX)
    }

    /// The time is `now`: acts on every deadline up to it.
    pub fn timeout(&mut self, now: Instant) {
        for end in &mut self.ends {
            if end.due() <= now {
                end.timeout(now);
            }
        }
    }

    /// The congestion control of its source.
    pub fn control(&self) -> &'static str {
        let tcp = self.ends[self.source].tcp();
        tcp.map_or("", |tcp| tcp.control)
    }

    /// When its opener's connection stood.
    pub fn connected(&self) -> Option<Instant> {
        self.ends[0].record.connected
    }

    /// Bytes that its receiver has read, and when it read the last of them.
    pub fn received(&self) -> (u64, Option<Instant>) {
        let record = &self.sink().record;
        (record.received, record.last)
    }

    /// Whether all has come; why it failed, where it did. `None`: it goes on.
    pub fn over(&mut self, now: Instant) -> Option<Result<(), &'static str>> {
        let broken = self.ends.iter().find_map(|end| end.record.broken);
        if let Some(cause) = broken {
            return Some(Err(why(cause)));
        }
        let sink = &mut self.ends[1 - self.source];
        sink.is_over(now).then_some(Ok(()))
    }
}

impl Mark for Packet {
    fn is_capable(&self) -> bool {
        self.ecn().is_capable()
    }

    fn mark(&mut self) {
        self.set_ecn(Ecn::Marked);
    }
}
