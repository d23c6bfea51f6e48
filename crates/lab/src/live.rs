//! Looks at a run while it goes on: what its flows and emulators count anyway, read from beside them.

use crate::emulator::{Emulator, Traffic};
use crate::flow::Running;
use bentpipe_base::Bytes;
use bentpipe_outcome::{Engine, FlowLook, LinkLook, Look, Outline};
use bentpipe_scenario::Scenario;
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
    )
}

/// How the run of `scenario` stands `at` this time of it. Links without an emulator are wires: nothing waits there.
pub(crate) fn look(
    scenario: &Scenario,
    at: Duration,
    running: &[Running],
    emulators: &BTreeMap<String, Emulator>,
) -> Look {
    let flows = running.iter().take(Look::FLOWS).map(|flow| {
        let sender = flow.sender();
        FlowLook {
            received: Bytes(flow.received()),
            cwnd: sender.map(|tcp| tcp.cwnd.into()),
            srtt: sender.map(|tcp| tcp.rtt),
            segments_again: sender.map(|tcp| tcp.total_retrans.into()),
        }
    });
    let links = scenario.links.keys().flat_map(|link| {
        let counted = emulators.get(link).map(Emulator::snapshot);
        let ways = counted.map(|counted| [counted.from_a, counted.from_b]);
        ways.map_or([LinkLook::default(); 2], |ways| ways.map(|way| of(&way)))
    });
    Look {
        at,
        flows: flows.collect(),
        links: links.take(Look::LINKS).collect(),
    }
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
