//! Refuses flows and cross traffic that would go on for ever at one instant, because nothing on their path takes time.

use crate::SimError;
use bentpipe_gateway_config::Leg;
use bentpipe_scenario::{Amount, Direction, Flow, FlowKind, Hop, Scenario, Topology};
use core::time::Duration;

/// A pause or a delay below this counts as none, because with a shorter one a run of an hour would have billions of
/// exchanges and would practically not end either.
const LEAST: Duration = Duration::from_micros(1);

/// Checks that no flow of `scenario` sends without end over links that take no time, and that transfers of its cross
/// traffic do not follow each other there without a pause.
pub(crate) fn check(scenario: &Scenario, topology: &Topology<'_>) -> Result<(), SimError> {
    let mut flows = scenario.flows.iter();
    match flows.find(|flow| is_endless(flow) && is_timeless(scenario, topology, flow)) {
        Some(flow) => Err(SimError::Timeless {
            flow: flow.name.clone(),
        }),
        None => cross_traffic(scenario, topology),
    }
}

/// Checks the cross traffic. A transfer is followed by the next when its receiver has all of it, so that one link on
/// the path that takes time is enough, wherever a proxy splits the connection. A pause that the model draws is enough
/// too.
fn cross_traffic(scenario: &Scenario, topology: &Topology<'_>) -> Result<(), SimError> {
    let profile =
        { scenario.traffic.iter() }.find_map(|it| Some((it, it.profile(scenario.seed).ok()?)));
    let Some((traffic, profile)) = profile.filter(|(_, profile)| !profile.transfers.is_empty())
    else {
        return Ok(());
    };
    let pauses = profile.model.idle + profile.model.settle >= LEAST;
    let [a, b] = &traffic.between;
    let path = topology.path(a, b);
    if pauses || path.is_none_or(|path| path.hops.iter().any(takes_time)) {
        return Ok(());
    }
    Err(SimError::TimelessTraffic {
        between: traffic.between.clone(),
    })
}

/// Whether `flow` has neither an amount nor pauses that would end what it sends at one instant. A flow that is told a rate
/// paces itself, and sends nothing without end at an instant.
fn is_endless(flow: &Flow) -> bool {
    let lasts = matches!(flow.amount, Amount::Duration(_));
    lasts
        && flow.path_rate.is_none()
        && match flow.kind {
            FlowKind::Bulk => true,
            FlowKind::RequestResponse { think, .. } => think < LEAST,
            FlowKind::OnOff { rate, .. } => rate.is_none(),
        }
}

/// Whether `flow` reaches its receiver, or a split that buffers without bound, over links that take no time. A split with
/// a bound fills up, and then the links behind it count.
fn is_timeless(scenario: &Scenario, topology: &Topology<'_>, flow: &Flow) -> bool {
    let Some(path) = topology.path(&flow.from, &flow.to) else {
        return false;
    };
    // Data that arrives over one leg waits in the send buffer of the other.
    let bottomless = |node: &str, link: &str| {
        let gateway = scenario.gateways.get(node);
        gateway.is_some_and(|gateway| {
            gateway.splits().is_some_and(|split| {
                let from_space = gateway.sat == link;
                let config = split.config();
                let onward = if from_space { &config.lan } else { &config.sat };
                onward.send_buffer == Leg::UNBOUNDED
            })
        })
    };
    for hop in &path.hops {
        if takes_time(hop) {
            return false;
        }
        if bottomless(hop.to, hop.name) {
            return true;
        }
    }
    true
}

/// Whether a segment and its acknowledgement take time together, at whatever moment.
fn takes_time(hop: &Hop<'_>) -> bool {
    let delayed = |way: &Direction| {
        let changes = way.changes.iter().filter_map(|change| change.delay);
        changes.chain([way.delay]).all(|delay| delay >= LEAST)
    };
    [&hop.link.forward, &hop.link.reverse]
        .into_iter()
        .any(|way| way.rate.is_some() || delayed(way))
}
