//! The flows of cross traffic: behind those of the scenario, and renewed when they end.

use crate::SimError;
use bentpipe_scenario::{Amount, Flow, Scenario};
use bentpipe_traffic::Source;

/// The flows of `scenario`, and behind them those of its cross traffic with their first transfers.
/// None of the latter while their profile was not read.
pub(crate) fn flows(scenario: &Scenario, seed: u64) -> Vec<Flow> {
    let mut flows = scenario.flows.clone();
    let Some(traffic) = &scenario.traffic else {
        return flows;
    };
    let profile = traffic.profile(seed);
    let transfers = profile.iter().flat_map(|profile| &profile.transfers);
    flows.extend(transfers.enumerate().map(|(index, transfer)| Flow {
        start: transfer.start,
        amount: Amount::Bytes(transfer.bytes),
        ..traffic.flow(&format!("traffic-{index}"), transfer.direction)
    }));
    flows
}

/// What draws the transfers that follow in each flow of the cross traffic.
pub(crate) fn sources(scenario: &Scenario, seed: u64) -> Result<Vec<Source>, SimError> {
    let Some(traffic) = &scenario.traffic else {
        return Ok(Vec::new());
    };
    let profile = traffic.profile(seed).ok_or_else(|| SimError::Profile {
        file: traffic.file().unwrap_or_default().to_owned(),
    })?;
    let flows = 0..profile.transfers.len();
    Ok(flows
        .map(|flow| Source::new(profile.model, seed, flow))
        .collect())
}
