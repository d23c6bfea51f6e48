//! From runs to rows, a flow of a case each.

use super::runs::{Case, Outcome, Run};
use bentpipe_study::{Comparison, Side};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two samples of a congestion window: as often as the lab takes them.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// The value at each multiple of [`STEP`] up to `until`: that of the last point by then.
pub(crate) fn on_grid(points: &[(Duration, f64)], until: Duration) -> Vec<u32> {
    let steps = (until.as_millis() / STEP.as_millis()).min(1_000_000) as u32;
    let value = |step: u32| {
        let passed = points.partition_point(|(at, _)| *at <= STEP * step);
        let value = passed.checked_sub(1).map_or(0.0, |last| points[last].1);
        value.round() as u32
    };
    (0..=steps).map(value).collect()
}

/// A row for each flow of each case.
pub(crate) fn rows(
    cases: &[Case],
    simulated: &[Vec<Run>],
    outcomes: &[Outcome],
) -> Vec<Comparison> {
    let mut rows = Vec::new();
    for (number, (case, runs)) in cases.iter().zip(simulated).enumerate() {
        let done = { outcomes.iter() }
            .filter(|outcome| outcome.cell.case == number)
            .filter_map(|outcome| Some((outcome.cell.seed, outcome.result.as_ref().ok()?)));
        let lab: BTreeMap<u64, &Run> = done.collect();
        let simulator: BTreeMap<u64, &Run> = (1..).zip(runs).collect();
        for (index, flow) in case.scenario.flows.iter().enumerate() {
            let side = |runs: &BTreeMap<u64, &Run>| -> BTreeMap<u64, Side> {
                let sides = runs.iter();
                sides
                    .filter_map(|(seed, run)| Some((*seed, run.flows.get(index)?.clone())))
                    .collect()
            };
            rows.push(Comparison::new(
                &case.name,
                &flow.name,
                &side(&lab),
                &side(&simulator),
            ));
        }
    }
    rows
}

/// The rows as a JSON array, one object a row and line.
pub(crate) fn to_json(rows: &[Comparison]) -> serde_json::Result<String> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    Ok(format!("[\n{}\n]\n", lines?.join(",\n")))
}
