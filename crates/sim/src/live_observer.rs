//! Looks at a run while it goes on, each a set time of the scenario after the one before.

use crate::{EndId, Observer, Standing};
use bentpipe_base::{Bytes, Instant};
use bentpipe_outcome::{Engine, FlowLook, Look, Outline, TcpLook};
use bentpipe_plan as plan;
use bentpipe_scenario::Scenario;
use bentpipe_tcp::Connection;
use core::ops::ControlFlow;
use core::time::Duration;

/// Hands a [`Look`] to a function as often as [`Look::every`] says, and ends the run where that breaks off.
#[derive(Debug)]
pub struct Live<F> {
    tell: F,
    every: Duration,
    next: Instant,
    /// Whether the source is the end that opens the connection, by flow.
    source_opens: Vec<bool>,
    flows: Vec<FlowLook>,
    legs: Vec<Leg>,
    stopped: bool,
}

/// The TCP of a gateway by which a flow is sent on.
#[derive(Debug)]
struct Leg {
    gateway: String,
    source: EndId,
    sink: EndId,
    look: TcpLook,
}

impl<F: FnMut(&Look) -> ControlFlow<()>> Live<F> {
    /// Looks at a run of `scenario`, the first of them when the first event is due.
    pub fn new(scenario: &Scenario, tell: F) -> Self {
        let watched = scenario.flows.iter().take(Look::FLOWS);
        let source_opens: Vec<bool> = watched.map(|flow| flow.opened_by == flow.from).collect();
        let legs = plan::gateway::legs(scenario, source_opens.len()).into_iter();
        let legs = legs.take(Look::LEGS).map(|(flow, gateway)| {
            let [source, sink] = match source_opens[flow] {
                true => [EndId::opener(flow), EndId::acceptor(flow)],
                false => [EndId::acceptor(flow), EndId::opener(flow)],
            };
            Leg {
                gateway: gateway.to_owned(),
                source,
                sink,
                look: TcpLook::default(),
            }
        });
        Self {
            tell,
            legs: legs.collect(),
            every: Look::every(scenario.time_limit),
            next: Instant::ZERO,
            flows: vec![FlowLook::default(); source_opens.len()],
            source_opens,
            stopped: false,
        }
    }
}

impl<F: FnMut(&Look) -> ControlFlow<()>> Observer for Live<F> {
    fn progress(&mut self, _now: Instant, end: EndId, bytes: u64) {
        // Cross traffic has numbers behind the scenario's flows.
        let Some(source_opens) = self.source_opens.get(end.flow()) else {
            return;
        };
        if end.opens() != *source_opens {
            self.flows[end.flow()].received = Bytes(bytes);
        }
    }

    fn acted(&mut self, _now: Instant, end: EndId, tcp: &Connection) {
        let Some(source_opens) = self.source_opens.get(end.flow()) else {
            return;
        };
        if end.opens() != *source_opens {
            return;
        }
        self.flows[end.flow()].source = of(tcp);
    }

    fn next_look(&self) -> Instant {
        self.next
    }

    fn look(&mut self, at: Instant, standing: &Standing<'_>) {
        self.next = at + self.every;
        for leg in &mut self.legs {
            if let Some(tcp) = standing.connection_to(&leg.gateway, leg.source, leg.sink) {
                leg.look = of(tcp);
            }
        }
        let links = &standing.links;
        let look = Look {
            at: at - Instant::ZERO,
            flows: self.flows.clone(),
            links: links[..links.len().min(Look::LINKS)].to_vec(),
            legs: self.legs.iter().map(|leg| leg.look).collect(),
        };
        self.stopped |= (self.tell)(&look).is_break();
    }

    fn stops(&self) -> bool {
        self.stopped
    }
}

fn of(tcp: &Connection) -> TcpLook {
    let gauges = tcp.gauges();
    TcpLook {
        cwnd: Some(gauges.cwnd),
        srtt: gauges.srtt,
        segments_again: Some(tcp.counters().retransmitted),
    }
}

/// What the looks at a run of `scenario` with this seed have.
pub fn outline(scenario: &Scenario, seed: u64) -> Outline {
    Outline::new(
        Engine::Simulator,
        (&scenario.name, seed),
        scenario.time_limit,
        scenario.flows.iter().map(|flow| flow.name.as_str()),
        { scenario.links.iter() }.map(|(name, link)| (name.as_str(), &link.ends)),
        { plan::gateway::legs(scenario, Look::FLOWS).into_iter() }
            .map(|(flow, gateway)| (scenario.flows[flow].name.as_str(), gateway)),
    )
}
