//! The flows of cross traffic: behind those of the scenario, and renewed when they end.

use crate::SimError;
use bentpipe_scenario::{Amount, Flow, FlowKind, Scenario};
use bentpipe_traffic::{Direction, Source};

/// The flows of `scenario`, and behind them those of its cross traffic with their first transfers.
/// None of the latter while their profile was not read.
pub(crate) fn flows(scenario: &Scenario, seed: u64) -> Vec<Flow> {
    let mut flows = scenario.flows.clone();
    let Some(traffic) = &scenario.traffic else {
        return flows;
    };
    let profile = traffic.profile(seed);
    let transfers = profile.iter().flat_map(|profile| &profile.transfers);
    flows.extend(transfers.enumerate().map(|(index, transfer)| {
        let [first, second] = &traffic.between;
        let (from, to) = match transfer.direction {
            Direction::Forward => (first, second),
            Direction::Reverse => (second, first),
        };
        Flow {
            name: format!("traffic-{index}"),
            kind: FlowKind::Bulk,
            app: None,
            from: from.clone(),
            to: to.clone(),
            opened_by: from.clone(),
            start: transfer.start,
            amount: Amount::Bytes(transfer.bytes),
            congestion_control: None,
            variant: traffic.variant.clone(),
            path_rate: None,
        }
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
