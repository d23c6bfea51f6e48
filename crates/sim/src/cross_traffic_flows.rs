//! Adds the flows of cross traffic behind those of the scenario, each with its first transfer. The engine gives such a
//! flow its next transfer when one ends.

use crate::SimError;
use bentpipe_scenario::{Amount, Flow, Scenario, Topology, UnreadProfile};
use bentpipe_traffic::Source;

/// The flows of `scenario`, and behind them those of its cross traffic, each with its first transfer.
pub(crate) fn flows(scenario: &Scenario, seed: u64) -> Result<Vec<Flow>, SimError> {
    let mut flows = scenario.flows.clone();
    let Some(traffic) = &scenario.traffic else {
        return Ok(flows);
    };
    let profile = traffic.profile(seed).map_err(unread)?;
    flows.extend(
        profile
            .transfers
            .iter()
            .enumerate()
            .map(|(index, transfer)| Flow {
                start: transfer.start,
                amount: Amount::Bytes(transfer.bytes),
                ..traffic.flow(&format!("traffic-{index}"), transfer.direction)
            }),
    );
    Ok(flows)
}

fn unread(UnreadProfile(file): UnreadProfile) -> SimError {
    SimError::Profile { file }
}

/// Refuses cross traffic that crosses a split without handshakes: nothing would tell the split that a flow's next transfer
/// is a new connection.
pub(crate) fn check(scenario: &Scenario, topology: &Topology<'_>) -> Result<(), SimError> {
    let Some(traffic) = &scenario.traffic else {
        return Ok(());
    };
    let [a, b] = &traffic.between;
    let host = |name| scenario.hosts.get(name);
    let handshakes = [a, b].map(host).into_iter().flatten();
    let path = topology.path(a, b);
    if handshakes
        .into_iter()
        .all(|host| host.endpoint.handshakes())
    {
        return Ok(());
    }
    let hops = path.iter().flat_map(|path| &path.hops);
    let mut crossed = hops.filter_map(|hop| {
        [hop.from, hop.to].into_iter().find(|node| {
            let gateway = scenario.gateways.get(*node);
            gateway.is_some_and(|it| it.splits().is_some() && it.sat == hop.name)
        })
    });
    match crossed.next() {
        Some(gateway) => Err(SimError::Renewed {
            gateway: gateway.to_owned(),
        }),
        None => Ok(()),
    }
}

/// What draws the transfers that follow in each flow of the cross traffic.
pub(crate) fn sources(scenario: &Scenario, seed: u64) -> Result<Vec<Source>, SimError> {
    let Some(traffic) = &scenario.traffic else {
        return Ok(Vec::new());
    };
    let profile = traffic.profile(seed).map_err(unread)?;
    let flows = 0..profile.transfers.len();
    Ok(flows
        .map(|flow| Source::new(profile.model, seed, flow))
        .collect())
}
