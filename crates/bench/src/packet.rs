//! `bench packet`: our TCP in user space, smoltcp's and the kernel's own, each over a TUN interface to the kernel; Snoop, and a
//! pair of gateways with SCPS-TP between them, beside plain forwarding; the host half alone, in virtual time.
//!
//! Every subject has namespaces of its own, and they take turns as those of the other benchmarks. What each figure
//! means: docs/packet-plane.md.

mod carrier;
mod error;
mod figure;
mod host_half;
mod report;
mod rival;
mod stack;
mod stage;
mod subject;

pub use error::PacketBenchError;
pub use figure::Figure;
pub use report::{Comparison, Entry, Goal, Report};
pub use subject::Subject;

use super::gateway::traffic::Cancel;
use super::gateway::{self, usage};
use super::{digits, ground, stats, turns};
use bentpipe_base::Bytes;
use bentpipe_os::sweep::sweep;
use report::Samples;
use stage::Stage;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that a connection of a stack in user space may have on its way, and wait to be read. As many fit the queue of
/// smoltcp's interface, 500 packets: beyond that the kernel drops.
const BUFFER: Bytes = Bytes(512 * 1024);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds in which every subject has its turn; six or more for an interval.
    pub pairs: usize,
    /// Two pairs of short measurements: whether it works, not how fast.
    pub quick: bool,
    /// Leave gateways and forwarding out, which need nft.
    pub without_gateways: bool,
    /// Our program, for the gateway; `None` is the program that runs now.
    pub bentpipe: Option<PathBuf>,
    /// The example `smoltcp` of this crate, built.
    pub smoltcp: PathBuf,
    /// Set it to stop early and clean up.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pairs: 7,
            quick: false,
            without_gateways: false,
            bentpipe: None,
            smoltcp: PathBuf::from("target/release/examples/smoltcp"),
            cancel: Arc::default(),
        }
    }
}

/// The progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measurements finished.
    pub done: usize,
    /// Measurements in all, those of gateways left out.
    pub total: usize,
    /// The pair under way, from 1.
    pub pair: usize,
    /// The subject under way.
    pub subject: &'static str,
}

/// How long each measurement takes.
#[derive(Clone, Copy, Debug)]
struct Timing {
    warm_up: Duration,
    window: Duration,
    /// Connections of the host half.
    connections: u16,
}

impl Timing {
    const fn of(quick: bool) -> Self {
        let (warm_up, window, connections) = if quick {
            (50, 150, 1_000)
        } else {
            (200, 500, 10_000)
        };
        Self {
            warm_up: Duration::from_millis(warm_up),
            window: Duration::from_millis(window),
            connections,
        }
    }
}

/// Runs the comparison; `progress` hears of every measurement before it starts. Without the rival's program the others
/// run, and a note of the report says so.
///
/// # Errors
/// Needs root and TUN interfaces; Snoop needs nft and TPROXY. A measurement that fails ends the run.
pub fn run(
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, PacketBenchError> {
    let timing = Timing::of(options.quick);
    let pairs = if options.quick { 2 } else { options.pairs };
    let cancel = Cancel(Arc::clone(&options.cancel));
    let mut samples = Samples::default();
    // Memory is measured once, and first: what a process has freed it does not take from the kernel again.
    let own = host_half::measure(timing.connections)?;
    samples.push(Subject::HostHalf, Figure::IdleMemory, own.idle_memory);
    let mut notes = stage::requirements()?;
    let subjects = Subject::measured(&options.smoltcp, &mut notes);
    let swept = sweep();
    if !swept.is_empty() {
        tracing::info!("what a killed run left behind:\n{swept}");
    }
    let stages = subjects
        .iter()
        .map(|subject| Stage::build(*subject, options))
        .collect::<Result<Vec<_>, _>>()?;
    notes.extend(stages.first().map(Stage::conditions));
    let total = pairs * (stages.len() + 1);
    for pair in 1..=pairs {
        for (turn, index) in turns(stages.len() + 1, pair).into_iter().enumerate() {
            let stage = stages.get(index);
            progress(&Progress {
                done: (pair - 1) * (stages.len() + 1) + turn,
                total,
                pair,
                subject: stage.map_or(Subject::HostHalf, Stage::subject).name(),
            });
            cancel.check()?;
            let Some(stage) = stage else {
                let accepts = host_half::measure(timing.connections)?.accepts;
                samples.push(Subject::HostHalf, Figure::Accepts, accepts);
                continue;
            };
            for figure in Figure::OVER_TUN {
                let value = stage
                    .measure(figure, timing, &cancel)
                    .map_err(|error| stage.explain(figure, error))?;
                samples.push(stage.subject(), figure, value);
            }
        }
    }
    drop(stages);
    let mut entries = report::entries(&samples);
    if !options.without_gateways {
        for measured in [report::SNOOP, report::SCPS] {
            match gateways(measured, options, pairs, progress) {
                Ok((own, said)) => {
                    entries.extend(own);
                    notes.extend(said);
                }
                Err(error) if options.cancel.load(Ordering::Relaxed) => return Err(error),
                // What the others came to is not lost with it.
                Err(error) => notes.push(format!("FAILED {}: {error}", measured.subject.name())),
            }
        }
    }
    Ok(Report::new(entries, notes))
}

/// Gateways beside plain forwarding: entries and notes.
fn gateways(
    measured: report::OfGateways,
    options: &Options,
    pairs: usize,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(Vec<Entry>, Vec<String>), PacketBenchError> {
    let options = gateway::Options {
        pairs,
        figures: measured.figures().map(str::to_owned).collect(),
        subjects: vec![gateway::Subject::Kernel, measured.subject],
        quick: options.quick,
        offloads: measured.offloads,
        bentpipe: options.bentpipe.clone(),
        cancel: Arc::clone(&options.cancel),
        ..gateway::Options::default()
    };
    let report = gateway::run(&options, &mut |at| {
        progress(&Progress {
            done: at.done,
            total: at.total,
            pair: at.pair,
            subject: at.subject.name(),
        });
    })?;
    Ok((measured.entries(report.entries()), report.notes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_the_kernel_are_measured() {
        bentpipe_os::need!(Root, Tun);
        let options = Options {
            quick: true,
            without_gateways: true,
            smoltcp: PathBuf::from("no-such-program"),
            ..Options::default()
        };
        let mut heard = 0;
        let report = run(&options, &mut |progress| {
            assert_eq!((progress.done, progress.total), (heard, 10));
            heard += 1;
        })
        .unwrap();
        assert_eq!(heard, 10);
        assert!(report.notes().iter().any(|note| note.contains("SKIPPED")));
        // Bounds that any working machine keeps and a wrong unit does not.
        let bounds = |figure| match figure {
            "to_kernel" | "from_kernel" => 0.01..1000.0,
            "round_trip" => 2.0..50_000.0,
            // What other tests of this process have freed is taken first, and seen by nobody.
            "idle_memory" => 0.0..20_000.0,
            _ => 500.0..50_000_000.0,
        };
        assert_eq!(report.entries().len(), 4 * 3 + 2);
        for entry in report.entries() {
            assert!(bounds(entry.figure).contains(&entry.value), "{entry:?}");
        }
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        bentpipe_os::need!(Root, Tun);
        let options = Options {
            quick: true,
            ..Options::default()
        };
        options.cancel.store(true, Ordering::Relaxed);
        assert!(run(&options, &mut |_| ()).unwrap_err().is_cancelled());
    }
}
