//! Looks at a run while it goes on: what its flows and emulators count anyway, read from beside them.

use crate::emulator::{Emulator, Traffic};
use crate::flow::Running;
use crate::legs::Latest;
use bentpipe_base::Bytes;
use bentpipe_outcome::{Engine, FlowLook, LinkLook, Look, Outline, TcpLook};
use bentpipe_plan as plan;
use bentpipe_scenario::Scenario;
use bentpipe_sockets::tcp::Info;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the looks at a run of `scenario` have.
pub fn outline(scenario: &Scenario) -> Outline {
    Outline::new(
        Engine::Kernel,
        (&scenario.name, scenario.seed),
        scenario.time_limit,
        scenario.flows.iter().map(|flow| flow.name.as_str()),
        { scenario.links.iter() }.map(|(name, link)| (name.as_str(), &link.ends)),
        { plan::gateway::legs(scenario, Look::FLOWS).into_iter() }
            .map(|(flow, gateway)| (scenario.flows[flow].name.as_str(), gateway)),
    )
}

/// What counts in a run.
pub(crate) struct Counting<'r> {
    scenario: &'r Scenario,
    emulators: &'r BTreeMap<String, Emulator>,
    /// Flow and gateway of each leg.
    legs: Vec<(usize, &'r str)>,
    latest: Latest,
}

impl<'r> Counting<'r> {
    /// Of a run of `scenario` over `emulators`, whose legs are seen as `latest`.
    pub(crate) fn new(
        scenario: &'r Scenario,
        emulators: &'r BTreeMap<String, Emulator>,
        latest: Latest,
    ) -> Self {
        let mut legs = plan::gateway::legs(scenario, Look::FLOWS);
        legs.truncate(Look::LEGS);
        Self {
            scenario,
            emulators,
            legs,
            latest,
        }
    }

    /// How the run stands `at` this time of it. Links without an emulator are wires: nothing waits there.
    pub(crate) fn look(&self, at: Duration, running: &[Running]) -> Look {
        let flows = running.iter().take(Look::FLOWS).map(|flow| FlowLook {
            received: Bytes(flow.received()),
            source: tcp(flow.sender()),
        });
        let legs = self.legs.iter();
        let legs = legs.map(|(flow, gateway)| tcp(self.latest.of(*flow, gateway)));
        let links = self.scenario.links.keys().flat_map(|link| {
            let counted = self.emulators.get(link).map(Emulator::snapshot);
            let ways = counted.map(|counted| [counted.from_a, counted.from_b]);
            ways.map_or([LinkLook::default(); 2], |ways| ways.map(|way| of(&way)))
        });
        Look {
            at,
            flows: flows.collect(),
            links: links.take(Look::LINKS).collect(),
            legs: legs.collect(),
        }
    }
}

fn tcp(info: Option<Info>) -> TcpLook {
    info.map_or(TcpLook::default(), |info| TcpLook {
        cwnd: Some(info.cwnd.into()),
        srtt: Some(info.rtt),
        segments_again: Some(info.total_retrans.into()),
    })
}

const fn of(way: &Traffic) -> LinkLook {
    LinkLook {
        waiting_packets: way.waiting_packets,
        dropped_packets: way.dropped_queue
            + way.dropped_corrupted
            + way.dropped_lost
            + way.dropped_before_queue,
    }
}
