//! One scenario on either side: the lab and the simulator, with the same figures.

use super::figures::{STEP, on_grid};
use crate::lateness::Lateness;
use bentpipe_lab::{Controls, LabError, Measured, RunOptions, pool};
use bentpipe_outcome::{self as outcome, End, Point};
use bentpipe_pair::RunError;
use bentpipe_scenario::{Flow, Scenario, Topology};
use bentpipe_sim::Options;
use bentpipe_study::Side;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// One scenario that is compared.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its values on the axes of the file.
    pub(crate) name: String,
    pub(crate) scenario: Scenario,
}

/// One run of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its case, by number.
    pub(crate) case: usize,
    pub(crate) seed: u64,
}

/// What one run brings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// In the order of the scenario.
    pub(crate) flows: Vec<Side>,
    /// 99th percentile of the emulators' lateness; 0 in virtual time.
    pub(crate) lateness_ms: f64,
}

/// A run of the lab that ended.
pub(crate) type Outcome = pool::Outcome<Cell, Run>;

/// All runs of the lab: every case with the seeds 1 to `runs`.
pub(crate) fn cells(cases: &[Case], runs: u64) -> Vec<Cell> {
    let seeds = (1..=runs).flat_map(|seed| (0..cases.len()).map(move |case| Cell { case, seed }));
    seeds.collect()
}

/// All runs of the simulator, by case and seed, a thread a case.
pub(crate) fn simulate(cases: &[Case], runs: u64) -> Result<Vec<Vec<Run>>, RunError> {
    thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .map(|case| {
                scope.spawn(move || {
                    (1..=runs)
                        .map(|seed| simulated(&case.scenario, seed))
                        .collect()
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        results.collect()
    })
}

fn simulated(scenario: &Scenario, seed: u64) -> Result<Run, RunError> {
    let options = Options {
        seed: Some(seed),
        ..Options::default()
    };
    let run = bentpipe_pair::run_sampled(scenario, &options)?;
    let flows = run.flows.iter().zip(&scenario.flows).enumerate();
    let sides = flows.map(|(index, (flow, plan))| {
        let cwnd = on_grid(&windows(&run, index), flow.elapsed);
        side(scenario, plan, &run, flow, cwnd)
    });
    Ok(Run {
        flows: sides.collect(),
        lateness_ms: 0.0,
    })
}

/// The congestion window of the sender of flow number `index`, by the time from the flow's start.
fn windows(run: &outcome::Run, index: usize) -> Vec<(Duration, f64)> {
    { run.samples.iter() }
        .filter(|sample| sample.flow == index && sample.point == Point::Sender)
        .filter_map(|sample| Some((sample.at, sample.tcp?.cwnd)))
        .collect()
}

/// `flow` of `run`, which is `plan` of `scenario`, and had the windows `cwnd`.
fn side(
    scenario: &Scenario,
    plan: &Flow,
    run: &outcome::Run,
    flow: &outcome::Flow,
    cwnd: Vec<u32>,
) -> Side {
    Side {
        goodput_mbps: flow.goodput().mbps(),
        sent_again: flow.segments_again,
        local: outcome::find("local").ok().and_then(|local| local.of(run)),
        timeouts: flow.timeouts,
        sender_s: flow.acknowledged.map(|time| time.as_secs_f64()),
        receiver_s: flow.completion.map(|time| time.as_secs_f64()),
        dropped: on_the_way(scenario, plan, run),
        broken: match &flow.end {
            End::Finished | End::CutOff => None,
            End::Failed(why) => Some(why.clone()),
        },
        cwnd,
    }
}

/// What queues dropped on the way of `flow`, by link.
fn on_the_way(scenario: &Scenario, flow: &Flow, run: &outcome::Run) -> BTreeMap<String, u64> {
    let path = Topology::new(scenario).path(&flow.from, &flow.to);
    let hops = path.iter().flat_map(|path| &path.hops);
    let drops = hops.filter_map(|hop| {
        let mut links = run.links.iter();
        let link = links.find(|link| link.link == hop.name && link.from == hop.from)?;
        Some((hop.name.to_owned(), link.refused))
    });
    drops.collect()
}

/// What runs of the lab have in common.
pub(crate) struct Bench {
    controls: Controls,
    lateness: Lateness,
    cancel: Arc<AtomicBool>,
    kernel: Mutex<String>,
}

impl Bench {
    pub(crate) fn new(lateness: Lateness, cancel: Arc<AtomicBool>) -> Self {
        Self {
            controls: Controls::default(),
            lateness,
            cancel,
            kernel: Mutex::default(),
        }
    }

    /// Release of the kernel, once a run has ended.
    pub(crate) fn kernel(&self) -> String {
        let kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        kernel.clone()
    }

    /// Runs `scenario` once with `seed`.
    pub(crate) fn run(&self, scenario: &Scenario, seed: u64) -> pool::Try<Run> {
        let scenario = Scenario {
            seed,
            ..scenario.clone()
        };
        let options = RunOptions {
            cancel: Arc::clone(&self.cancel),
            controls: self.controls.clone(),
            lateness_limit: self.lateness.limit,
            ..RunOptions::default()
        };
        let result = match bentpipe_lab::run(&scenario, &options) {
            Ok(result) => result,
            Err(LabError::Cancelled) => return pool::Try::Stopped,
            Err(error) => return pool::Try::Failed(error.to_string()),
        };
        self.kernel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&result.manifest.kernel);
        match result.measured() {
            Ok(measured) => judge(&scenario, measured),
            Err(reasons) => pool::Try::Invalid(reasons.join("; "), None),
        }
    }
}

fn judge(scenario: &Scenario, measured: &Measured) -> pool::Try<Run> {
    let run = measured.outcome(scenario);
    let mut flows = Vec::new();
    for (index, (flow, plan)) in run.flows.iter().zip(&scenario.flows).enumerate() {
        if let End::Failed(why) = &flow.end {
            return pool::Try::Failed(format!("flow `{}` failed: {why}", flow.name));
        }
        // A sample is due at a multiple of the step and taken a little later: each to its own.
        let points: Vec<(Duration, f64)> = { windows(&run, index).into_iter() }
            .map(|(at, cwnd)| (at.saturating_sub(STEP / 2), cwnd))
            .collect();
        let cwnd = on_grid(&points, flow.elapsed.max(STEP));
        flows.push(side(scenario, plan, &run, flow, cwnd));
    }
    pool::Try::Done(Run {
        flows,
        lateness_ms: 1e3 * run.lateness.as_secs_f64(),
    })
}
