//! `bench gateway`: plain kernel forwarding, HAProxy and our gateway, one after another on the same
//! path, again and again.
//!
//! Every subject has three namespaces of its own (client, gateway, server; two veth pairs, no
//! emulated link; a pair of gateways has a fourth), all set alike, and they take turns: each measurement of a pair runs on one
//! subject right after the other, in an order that rotates from pair to pair. What disturbs the
//! machine so disturbs them alike, and the ratio of a pair is steadier than its two values. What
//! each figure means: docs/bench-gateway.md.

mod contest;
mod error;
mod figure;
mod haproxy;
mod launch;
mod proxy;
mod report;
mod stage;
mod subject;
pub(crate) mod traffic;
pub(crate) mod usage;

pub use error::BenchError;
pub use figure::{Figure, figures};
pub use report::{Comparison, Entry, Report, Verdict};
pub use subject::Subject;
pub use traffic::{Direction, TrafficError};

use super::{digits, ground, stats, turns, write_json};
use bentpipe_os::sweep::sweep;
use figure::{STEPS, Step, asks_for};
use report::Values;
use stage::Stage;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use traffic::Cancel;

/// What to measure, and with whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds in which every subject has its turn; six or more for an interval.
    pub pairs: usize,
    /// Names of figures, or beginnings of names; empty for all.
    pub figures: Vec<String>,
    /// Who takes part.
    pub subjects: Vec<Subject>,
    /// Two pairs of short measurements: whether it works, not how fast.
    pub quick: bool,
    /// Whether packets may stand for several segments on their way (GSO, GRO).
    pub offloads: bool,
    /// Our program; `None` is the program that runs now.
    pub bentpipe: Option<PathBuf>,
    /// HAProxy's program.
    pub haproxy: PathBuf,
    /// Set it to stop early and clean up.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pairs: 7,
            figures: Vec::new(),
            subjects: Subject::usual(),
            quick: false,
            offloads: true,
            bentpipe: None,
            haproxy: PathBuf::from("haproxy"),
            cancel: Arc::default(),
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measurements finished.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The pair under way, from 1.
    pub pair: usize,
    /// The subject under way.
    pub subject: Subject,
    /// The first figure of the measurement under way.
    pub figure: &'static str,
}

/// How long each measurement takes.
#[derive(Clone, Copy, Debug)]
struct Timing {
    warm_up: Duration,
    window: Duration,
    /// Between measurements, for the last one's flows to go.
    settle: Duration,
    idle_flows: usize,
    /// Of a crowd's flows, one in so many takes part.
    crowd_divisor: usize,
    /// How long a crowd is looked at: every flow has to have had its turns.
    crowd: Duration,
}

impl Timing {
    fn of(quick: bool) -> Self {
        let milliseconds = Duration::from_millis;
        if quick {
            Self {
                warm_up: milliseconds(100),
                window: milliseconds(300),
                settle: milliseconds(100),
                idle_flows: 500,
                crowd_divisor: 10,
                crowd: milliseconds(300),
            }
        } else {
            Self {
                warm_up: milliseconds(300),
                window: milliseconds(1000),
                settle: milliseconds(200),
                idle_flows: 4000,
                crowd_divisor: 1,
                crowd: milliseconds(5000),
            }
        }
    }
}

/// Most flows that a proxy must bear at once, with room to spare.
const MOST_FLOWS: usize = 9200;

/// Most pipes that HAProxy may have: with them, these flows fit into 20,000 descriptors. (Left alone it
/// reserves room for a quarter as many as flows, and does not start where they would not fit.)
const MOST_PIPES: usize = 700;

/// Runs the comparison; `progress` hears of every measurement before it starts.
///
/// # Errors
/// Needs root, nft and HAProxy. A measurement that fails ends the run: a subject that loses flows
/// has no figures.
pub fn run(options: &Options, progress: &mut dyn FnMut(&Progress)) -> Result<Report, BenchError> {
    let figures = wanted_figures(options)?;
    let steps: Vec<_> = STEPS
        .iter()
        .filter(|(_, own)| own.iter().any(|figure| figures.contains(figure)))
        .collect();
    let pairs = if options.quick { 2 } else { options.pairs };
    let timing = Timing::of(options.quick);
    let mut notes = stage::requirements(options)?;
    let swept = sweep();
    if !swept.is_empty() {
        tracing::info!("what a killed run left behind:\n{swept}");
    }
    let mut stages = options
        .subjects
        .iter()
        .map(|subject| Stage::build(*subject, options))
        .collect::<Result<Vec<_>, _>>()?;
    notes.extend(stages.first().map(Stage::conditions));
    let per_pair: usize = steps
        .iter()
        .map(|(step, _)| {
            stages
                .iter()
                .filter(|stage| takes_part(stage, *step))
                .count()
        })
        .sum();
    let mut values = Values::default();
    let mut load = Vec::new();
    let mut done = 0;
    for pair in 1..=pairs {
        load.push(background_load(options)?);
        for (step, own) in &steps {
            for index in turns(stages.len(), pair) {
                let stage = &mut stages[index];
                if !takes_part(stage, *step) {
                    continue;
                }
                let subject = stage.subject();
                progress(&Progress {
                    done,
                    total: per_pair * pairs,
                    pair,
                    subject,
                    figure: own[0].name,
                });
                let measured = measure(stage, *step, &timing)
                    .map_err(|source| BenchError::measurement(stage, own[0].name, pair, source))?;
                for (figure, value) in own.iter().zip(measured) {
                    if let Some(value) = value.filter(|_| figures.contains(figure)) {
                        values.push(subject, figure, value);
                    }
                }
                done += 1;
            }
        }
    }
    notes.extend(load_note(&load));
    Ok(Report::new(
        &values,
        figures,
        options.subjects.clone(),
        notes,
    ))
}

fn wanted_figures(options: &Options) -> Result<Vec<Figure>, BenchError> {
    let wanted = &options.figures;
    if let Some(name) = wanted
        .iter()
        .find(|name| !figures().any(|figure| asks_for(name, figure)))
    {
        let known: Vec<_> = figures().map(|figure| figure.name).collect();
        return Err(BenchError::NoSuchFigure {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    Ok(figures()
        .filter(|figure| wanted.is_empty() || wanted.iter().any(|name| asks_for(name, figure)))
        .copied()
        .collect())
}

/// `splice-auto` is there to show what it costs; that is a matter of bulk. How a handshake is made is
/// one of short connections.
fn takes_part(stage: &Stage, step: Step) -> bool {
    match stage.subject() {
        Subject::HaproxySpliceAuto => matches!(step, Step::Bulk { .. }),
        Subject::BentpipeEarly => matches!(step, Step::Connects { .. }),
        Subject::BentpipeSnoop | Subject::BentpipeScps => {
            matches!(step, Step::Bulk { .. } | Step::RoundTrip)
        }
        Subject::BentpipePastChains | Subject::BentpipeTwice | Subject::BentpipeQuic => {
            !matches!(step, Step::Idle | Step::Crowd { .. })
        }
        _ => true,
    }
}

/// The values of the step's figures, in their order; `None` where the subject has none.
fn measure(stage: &mut Stage, step: Step, timing: &Timing) -> Result<Vec<Option<f64>>, BenchError> {
    let Timing {
        warm_up, window, ..
    } = *timing;
    if matches!(step, Step::Idle | Step::Crowd { .. }) {
        // What a proxy has grown to in other measurements it would not grow to again.
        stage.restart()?;
    }
    let path = stage.path();
    let values = match step {
        Step::Bulk { direction, flows } => {
            let bulk = traffic::bulk(&path, direction, flows, warm_up, window)?;
            vec![Some(bulk.goodput), Some(bulk.cpu), bulk.proxy_cpu]
        }
        Step::RoundTrip => {
            vec![Some(traffic::round_trip(&path, warm_up, window / 2)?)]
        }
        Step::Connects { at_once } => {
            let connects = traffic::connects(&path, at_once, warm_up, window)?;
            vec![
                Some(connects.rate),
                connects.proxy_cpu,
                Some(connects.path_cpu),
            ]
        }
        Step::Idle => {
            let idle = traffic::idle(&path, timing.idle_flows, timing.settle)?;
            let own = idle.proxy_memory.unwrap_or(0.0);
            vec![
                Some(idle.kernel_memory + own),
                idle.proxy_memory,
                Some(idle.kernel_memory),
                idle.descriptors,
            ]
        }
        Step::Crowd { busy, silent } => {
            let share = timing.crowd_divisor;
            let crowd = traffic::crowd(&path, busy / share, silent / share, warm_up, timing.crowd)?;
            vec![Some(crowd.jain), Some(crowd.goodput)]
        }
    };
    path.cancel.sleep(timing.settle)?;
    Ok(values)
}

/// Processors kept busy by others, while nothing of ours runs.
fn background_load(options: &Options) -> Result<f64, BenchError> {
    let read = || usage::MachineCpu::now().map_err(BenchError::Load);
    let before = read()?;
    Cancel(Arc::clone(&options.cancel)).sleep(Duration::from_millis(200))?;
    let after = read()?;
    Ok(after.since(&before) / after.elapsed(&before).as_secs_f64())
}

fn load_note(load: &[f64]) -> Option<String> {
    let median = stats::median(load)?;
    let most = load.iter().copied().fold(0.0, f64::max);
    let advice = if most > 0.1 {
        "; on a quiet machine the intervals are narrower"
    } else {
        ""
    };
    Some(format!(
        "processors busy with other things before each pair: median {median:.2}, at most {most:.2} of {}{advice}",
        usage::processors(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_figure_is_refused_with_those_there_are() {
        let options = Options {
            figures: vec!["goodput".to_owned(), "speed".to_owned()],
            ..Options::default()
        };
        let error = run(&options, &mut |_| ()).unwrap_err().to_string();
        assert!(
            error.contains("`speed`") && error.contains("round_trip"),
            "{error}"
        );
    }

    #[test]
    fn the_kernel_is_measured() {
        bentpipe_os::need!(Root, Nft, Tproxy);
        let options = Options {
            figures: [
                "round_trip",
                "connects_1",
                "goodput_down_1",
                "idle_kernel_memory",
            ]
            .map(str::to_owned)
            .to_vec(),
            subjects: vec![Subject::Kernel],
            quick: true,
            ..Options::default()
        };
        let mut heard = 0;
        let report = run(&options, &mut |progress| {
            assert_eq!((progress.done, progress.total), (heard, 8));
            heard += 1;
        })
        .unwrap();
        assert_eq!(heard, 8);
        // Bounds that any working machine keeps and a wrong unit does not. Others free memory of the kernel meanwhile.
        let bounds = [
            ("goodput_down_1", 0.1..1000.0),
            ("round_trip", 2.0..20_000.0),
            ("connects_1", 20.0..200_000.0),
            ("idle_kernel_memory", 1_000.0..50_000.0),
        ];
        assert_eq!(report.entries().len(), bounds.len());
        for (entry, (figure, bound)) in report.entries().iter().zip(bounds) {
            assert_eq!((entry.figure, entry.pairs), (figure, 2));
            assert!(bound.contains(&entry.value), "{figure}: {}", entry.value);
        }
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        bentpipe_os::need!(Root, Nft, Tproxy);
        let options = Options {
            subjects: vec![Subject::Kernel],
            ..Options::default()
        };
        options
            .cancel
            .store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(run(&options, &mut |_| ()).unwrap_err().is_cancelled());
    }
}
