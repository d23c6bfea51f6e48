//! The points of a study on the kernel's TCP.

use crate::lateness::Lateness;
use bentpipe_lab::{Controls, FlowResult, LabError, Measured, Outcome, Point, RunOptions};
use bentpipe_scenario::Scenario;
use bentpipe_study::{Measures, greatest, least, mean, share, target};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a flow's delay is not judged by: its beginning.
const START: Duration = Duration::from_secs(5);

/// How often a run in which an emulator fell behind is made before its point is given up.
const TRIES: u32 = 3;

/// What the runs of a study have in common.
pub(super) struct Kernel {
    controls: Controls,
    lateness: Lateness,
    cancel: Arc<AtomicBool>,
}

impl Kernel {
    /// Runs end early when `cancel` is raised.
    pub(super) fn new(lateness: Lateness, cancel: Arc<AtomicBool>) -> Self {
        Self {
            controls: Controls::default(),
            lateness,
            cancel,
        }
    }

    /// Runs `scenario` in the lab and takes those measures that can be seen there.
    pub(super) fn measure(&self, scenario: &Scenario) -> Result<Measures, String> {
        let mut late = String::new();
        for _ in 0..TRIES {
            let options = RunOptions {
                cancel: Arc::clone(&self.cancel),
                controls: self.controls.clone(),
                lateness_limit: self.lateness.limit,
                ..RunOptions::default()
            };
            let result = bentpipe_lab::run(scenario, &options)
                .map_err(|error: LabError| error.to_string())?;
            match result.measured() {
                Ok(measured) => return measures(measured),
                Err(reasons) => late = reasons.join("; "),
            }
        }
        Err(format!("no result in {TRIES} runs: {late}"))
    }
}

/// By the names of the simulator's.
fn measures(run: &Measured) -> Result<Measures, String> {
    for flow in &run.flows {
        if let Outcome::Failed(why) = &flow.outcome {
            return Err(format!("flow `{}` failed: {why}", flow.name));
        }
    }
    let senders = || run.flows.iter().filter_map(|flow| flow.sender);
    let sent: u64 = senders().map(|tcp| tcp.bytes_sent.0).sum();
    let again: u64 = senders().map(|tcp| tcp.bytes_retrans.0).sum();
    let legs = run.flows.iter().flat_map(|flow| flow.legs.values());
    let ways = || {
        run.links
            .values()
            .flat_map(|link| [&link.from_a, &link.from_b])
    };
    let goodputs = || run.flows.iter().map(|flow| flow.goodput.mbps());
    let (sum, squares) = (
        goodputs().sum::<f64>(),
        goodputs().map(|g| g * g).sum::<f64>(),
    );
    let lateness = run
        .links
        .values()
        .map(|link| link.lateness.p99.as_secs_f64());
    let last = run.flows.iter().map(|flow| flow.completion);
    let last: Option<Vec<Duration>> = last.collect();
    let targets = || {
        let flows = run.flows.iter();
        flows.map(|flow| target(flow.size?, flow.limit?, flow.round_trip))
    };
    let shares = targets().zip(&run.flows);
    let shares = shares.map(|(target, flow)| Some(flow.completion?.as_secs_f64() / target?));
    let of_limit = run.flows.iter();
    let of_limit = least(of_limit.map(|flow| share(flow.goodput, flow.limit?)));
    let delays = run.samples.iter().filter_map(|sample| {
        let srtt = sample.tcp.filter(|_| sample.at > START)?.rtt;
        let delay = srtt.saturating_sub(run.flows[sample.flow].round_trip);
        (sample.point == Point::Sender).then_some(1e3 * delay.as_secs_f64())
    });
    let values = [
        ("of_limit", of_limit),
        ("queueing", mean(delays)),
        ("target", greatest(targets())),
        ("of_target", greatest(shares)),
        ("goodput", Some(sum)),
        (
            "jain",
            (squares > 0.0).then(|| sum * sum / (run.flows.len() as f64 * squares)),
        ),
        (
            "retransmitted",
            (sent > 0).then(|| 100.0 * again as f64 / sent as f64),
        ),
        (
            "timeouts",
            Some(senders().map(|tcp| f64::from(tcp.total_rto)).sum()),
        ),
        (
            "local",
            Some(legs.map(|tcp| f64::from(tcp.total_retrans)).sum()),
        ),
        (
            "dropped",
            Some(ways().map(|way| way.dropped_queue as f64).sum()),
        ),
        (
            "corrupted",
            Some(
                ways()
                    .map(|way| (way.dropped_corrupted + way.dropped_lost) as f64)
                    .sum(),
            ),
        ),
        (
            "completion",
            last.and_then(|all| all.into_iter().max())
                .map(|time| time.as_secs_f64()),
        ),
        ("kbps_sender", kbps(run, |flow| flow.acknowledged)),
        ("kbps_receiver", kbps(run, |flow| flow.completion)),
        ("lateness", Some(lateness.fold(0.0, f64::max) * 1e3)),
    ];
    let values = values.into_iter();
    Ok(values
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect())
}

/// Payload received over what `time` tells, all flows together; `None` when one has no such time.
fn kbps(run: &Measured, time: fn(&FlowResult) -> Option<Duration>) -> Option<f64> {
    let rates = run.flows.iter().map(|flow| {
        let rate = 8.0 * flow.received.0 as f64 / time(flow)?.as_secs_f64() / 1e3;
        (rate > 0.0 && rate.is_finite()).then_some(rate)
    });
    rates.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_study::MEASURES;

    /// Tables ask by the names of the simulator's measures: another name would never be found.
    #[test]
    fn every_measure_has_a_name_that_tables_know() {
        let flow = |completion| FlowResult {
            name: "f".into(),
            size: Some(bentpipe_base::Bytes(1_000_000)),
            round_trip: Duration::from_millis(500),
            outcome: Outcome::Finished,
            congestion_control: "cubic".into(),
            connect: None,
            completion,
            acknowledged: Some(Duration::from_secs(2)),
            elapsed: Duration::from_secs(4),
            received: bentpipe_base::Bytes(1_000_000),
            goodput: bentpipe_base::Rate::from_bits_per_sec(2_000_000),
            limit: Some(bentpipe_base::Rate::from_bits_per_sec(4_000_000)),
            sender: None,
            legs: std::collections::BTreeMap::new(),
        };
        let run = |completion| Measured {
            flows: vec![flow(completion)],
            ..Measured::default()
        };
        let whole = measures(&run(Some(Duration::from_secs(4)))).unwrap();
        assert!(
            whole
                .keys()
                .all(|name| MEASURES.iter().any(|known| known.name == name))
        );
        assert_eq!(
            (
                whole["completion"],
                whole["kbps_sender"],
                whole["kbps_receiver"]
            ),
            (4.0, 4000.0, 2000.0)
        );
        assert_eq!(whole["target"], 1.02 * 2.0 + 4.0 * 0.5);
        let cut = measures(&run(None)).unwrap();
        assert!(!cut.contains_key("completion") && !cut.contains_key("kbps_receiver"));
        assert_eq!(cut["goodput"], 2.0);
    }
}
