//! From runs to rows: means of both sides, and how far they are apart.

use super::runs::{Case, Outcome, Run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far mean goodputs may be apart.
const TOLERANCE: f64 = 0.1;
/// Between two samples of a congestion window: as often as the lab takes them.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// What one flow of one run brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) goodput_mbps: f64,
    /// Segments that its sender's TCP sent again; `None` without one.
    pub(crate) sent_again: Option<u64>,
    /// Expiries of that TCP's retransmission timer.
    pub(crate) timeouts: Option<u64>,
    /// Until its sender knew that all had arrived, in seconds; `None` for a flow without an end.
    pub(crate) sender_s: Option<f64>,
    /// Until the last byte arrived.
    pub(crate) receiver_s: Option<f64>,
    /// The measure `local`: segments that the scenario's gateways sent again, of all flows.
    pub(crate) local: Option<f64>,
    /// Packets that queues dropped on its way, by link.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Why the run is no result.
    pub(crate) broken: Option<String>,
    /// Congestion window in segments, each [`STEP`] from the connect on; 0 before there is one.
    pub(crate) cwnd: Vec<u32>,
}

/// All runs of one flow on one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Runs with a result.
    pub(crate) n: usize,
    pub(crate) mean_mbps: f64,
    pub(crate) min_mbps: f64,
    pub(crate) max_mbps: f64,
    /// Mean number of segments that the sender's TCP sent again; `None` without one.
    pub(crate) sent_again: Option<f64>,
    /// Mean number of segments that gateways sent again, of all flows, where a gateway says so.
    pub(crate) local: Option<f64>,
    /// Mean number of retransmission timeouts.
    pub(crate) timeouts: Option<f64>,
    /// Mean time until the sender knew that all had arrived, where every run has one.
    pub(crate) sender_s: Option<f64>,
    /// Mean time until the last byte arrived.
    pub(crate) receiver_s: Option<f64>,
    /// Mean number of packets that queues dropped on the flow's way, by link.
    pub(crate) dropped: BTreeMap<String, f64>,
    /// The windows of each run.
    #[serde(skip)]
    pub(crate) cwnd: Vec<Vec<u32>>,
}

/// One flow of one case, on both sides.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) flow: String,
    pub(crate) lab: Summary,
    pub(crate) simulator: Summary,
    /// Mean goodput of the simulator over that of the lab; `None` where one has none.
    pub(crate) ratio: Option<f64>,
    /// Whether they differ by at most 10%.
    pub(crate) agrees: bool,
    /// Mean distance of the two mean windows over time, as a share of the lab's mean.
    pub(crate) cwnd_apart: Option<f64>,
}

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

impl Summary {
    fn new<'a>(sides: impl Iterator<Item = &'a Side>) -> Self {
        let sides: Vec<&Side> = sides.filter(|side| side.broken.is_none()).collect();
        let goodputs = || sides.iter().map(|side| side.goodput_mbps);
        if sides.is_empty() {
            return Self::default();
        }
        let mean = |sum: f64| sum / sides.len() as f64;
        Self {
            n: sides.len(),
            mean_mbps: mean(goodputs().sum()),
            min_mbps: goodputs().fold(f64::INFINITY, f64::min),
            max_mbps: goodputs().fold(0.0, f64::max),
            sent_again: mean_of(&sides, |side| Some(side.sent_again? as f64)),
            local: mean_of(&sides, |side| side.local),
            timeouts: mean_of(&sides, |side| Some(side.timeouts? as f64)),
            sender_s: mean_of(&sides, |side| side.sender_s),
            receiver_s: mean_of(&sides, |side| side.receiver_s),
            dropped: mean_dropped(&sides),
            cwnd: sides.iter().map(|side| side.cwnd.clone()).collect(),
        }
    }

    /// The mean window of the runs at each step that all of them have.
    fn mean_cwnd(&self) -> Vec<f64> {
        let steps = self.cwnd.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |step: usize| {
            let sum: f64 = self.cwnd.iter().map(|run| f64::from(run[step])).sum();
            sum / self.cwnd.len() as f64
        };
        (0..steps).map(mean).collect()
    }
}

/// `None` where a run has no such figure.
fn mean_of(sides: &[&Side], figure: fn(&Side) -> Option<f64>) -> Option<f64> {
    let sum: Option<f64> = sides.iter().map(|side| figure(side)).sum();
    Some(sum? / sides.len() as f64)
}

fn mean_dropped(sides: &[&Side]) -> BTreeMap<String, f64> {
    let mut mean = BTreeMap::new();
    for (link, drops) in sides.iter().flat_map(|side| &side.dropped) {
        *mean.entry(link.clone()).or_default() += *drops as f64 / sides.len() as f64;
    }
    mean
}

/// Mean distance of two series, as a share of the mean of the first.
fn apart(lab: &[f64], simulator: &[f64]) -> Option<f64> {
    let sum: f64 = lab.iter().zip(simulator).map(|(a, b)| (a - b).abs()).sum();
    let whole: f64 = lab.iter().zip(simulator).map(|(a, _)| a).sum();
    (whole > 0.0).then(|| sum / whole)
}

/// A row for each flow of each case.
pub(crate) fn rows(cases: &[Case], simulated: &[Vec<Run>], outcomes: &[Outcome]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, (case, runs)) in cases.iter().zip(simulated).enumerate() {
        let mut done: Vec<(u64, &Run)> = outcomes
            .iter()
            .filter(|outcome| outcome.cell.case == number)
            .filter_map(|outcome| Some((outcome.cell.seed, outcome.result.as_ref().ok()?)))
            .collect();
        done.sort_by_key(|(seed, _)| *seed);
        for (index, flow) in case.scenario.flows.iter().enumerate() {
            let lab = Summary::new(done.iter().filter_map(|(_, run)| run.flows.get(index)));
            let simulator = Summary::new(runs.iter().filter_map(|run| run.flows.get(index)));
            rows.push(Row::new(&case.name, &flow.name, lab, simulator));
        }
    }
    rows
}

impl Row {
    pub(super) fn new(case: &str, flow: &str, lab: Summary, simulator: Summary) -> Self {
        let both = lab.n > 0 && simulator.n > 0 && lab.mean_mbps > 0.0;
        let ratio = both.then(|| simulator.mean_mbps / lab.mean_mbps);
        Self {
            case: case.to_owned(),
            flow: flow.to_owned(),
            ratio,
            agrees: ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= TOLERANCE),
            cwnd_apart: apart(&lab.mean_cwnd(), &simulator.mean_cwnd()),
            lab,
            simulator,
        }
    }
}

/// The rows as a JSON array, one object a row and line.
pub(crate) fn to_json(rows: &[Row]) -> serde_json::Result<String> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    Ok(format!("[\n{}\n]\n", lines?.join(",\n")))
}
