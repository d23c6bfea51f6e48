//! `bench sim`: ns-2, ns-3 and our simulator, one after another on the same simulated link, again
//! and again.
//!
//! Each measurement is a process from its start to its end. In every pair each run is made by all
//! subjects one right after the other, in an order that turns from pair to pair, with a seed of the pair's own.
//! What each figure means: docs/bench-sim.md.

mod error;
mod report;
mod run;
mod scratch;
mod subject;

pub use error::SimBenchError;
pub use report::{Comparison, Entry, Report};
pub use run::Run;
pub use subject::Subject;

use super::{stats, turns};
use report::Samples;
use scratch::Scratch;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subject::{Entrant, Racer};

/// What to measure, and with whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds in which every subject has its turn; six or more for an interval.
    pub pairs: usize,
    /// Names of runs; empty for all.
    pub runs: Vec<String>,
    /// Who takes part, if it is here.
    pub subjects: Vec<Subject>,
    /// Two pairs of short runs: whether it works, not how fast.
    pub quick: bool,
    /// Our program; `None` is the program that runs now.
    pub bentpipe: Option<PathBuf>,
    /// ns-2's program.
    pub ns2: PathBuf,
    /// The C++ compiler for ns-3.
    pub compiler: PathBuf,
    /// Set it to stop early and clean up.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pairs: 7,
            runs: Vec::new(),
            subjects: Subject::ALL.to_vec(),
            quick: false,
            bentpipe: None,
            ns2: PathBuf::from("ns"),
            compiler: PathBuf::from("g++"),
            cancel: Arc::default(),
        }
    }
}

/// The progress of a comparison.
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
    /// The name of the run under way.
    pub run: &'static str,
}

/// What one process took.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Seconds.
    wall: f64,
    /// Seconds.
    cpu: f64,
    /// Bytes.
    memory: f64,
    reported: Reported,
}

/// What a subject said at the end of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    segments: f64,
    /// Seconds of virtual time, where the run ends with its transfer.
    simulated: Option<f64>,
    /// Seconds of processor time without its set-up, where it clocks that itself.
    clocked: Option<f64>,
}

/// Runs the comparison; `progress` hears of every measurement before it starts. Subjects that are
/// not here are left out, and a note of the report says so.
///
/// # Errors
/// Our own program must be there; a subject that fails ends the comparison.
pub fn run(
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, SimBenchError> {
    let runs =
        run::wanted(&options.runs, options.quick).map_err(|name| SimBenchError::NoSuchRun {
            name: name.to_owned(),
            known: run::names(),
        })?;
    let pairs = if options.quick { 2 } else { options.pairs };
    let scratch = Scratch::new()?;
    let mut notes = Vec::new();
    let mut racers = Vec::new();
    for subject in &options.subjects {
        match Racer::prepare(*subject, options, &scratch)? {
            Entrant::Ready(racer) => racers.push(racer),
            Entrant::Missing(advice) => notes.push(format!("SKIPPED {subject}: {advice}")),
        }
    }
    let taking_part = |run: &Run| racers.iter().filter(|racer| racer.takes_part(run)).count();
    let turn = |run: &Run| run.rounds * taking_part(run);
    let total = pairs * runs.iter().map(turn).sum::<usize>();
    let mut samples = Samples::default();
    let mut done = 0;
    for pair in 1..=pairs {
        let rounds = runs
            .iter()
            .flat_map(|run| (0..run.rounds).map(move |round| (run, round)));
        for (run, round) in rounds {
            let seed = (pair - 1) * run.rounds + round + 1;
            for index in turns(racers.len(), seed) {
                let racer = &racers[index];
                if !racer.takes_part(run) {
                    continue;
                }
                progress(&Progress {
                    done,
                    total,
                    pair,
                    subject: racer.subject,
                    run: run.name,
                });
                let sample = racer.run(run, seed, &scratch);
                // Ctrl-C reaches our children too: what they then say is no failure of theirs.
                if options.cancel.load(Ordering::Relaxed) {
                    return Err(SimBenchError::Cancelled);
                }
                samples.push(racer.subject, run, sample?);
                done += 1;
            }
        }
    }
    let present: Vec<Subject> = racers.iter().map(|racer| racer.subject).collect();
    Ok(Report::new(
        report::entries(&samples, &runs, &present),
        notes,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_run_is_refused_with_those_there_are() {
        let options = Options {
            runs: vec!["loss-free".to_owned(), "1e-6".to_owned()],
            ..Options::default()
        };
        let error = run(&options, &mut |_| ()).unwrap_err().to_string();
        assert!(
            error.contains("`1e-6`") && error.contains("1e-7-snoop"),
            "{error}"
        );
    }

    #[test]
    fn who_is_missing_is_skipped_with_what_to_install() {
        let nowhere = || PathBuf::from("no-such-program");
        let options = Options {
            subjects: vec![Subject::Ns2, Subject::Ns3],
            ns2: nowhere(),
            compiler: nowhere(),
            ..Options::default()
        };
        let report = run(&options, &mut |_| ()).unwrap();
        assert!(report.entries().is_empty());
        let [ns2, ns3] = report.notes() else {
            panic!("{:?}", report.notes());
        };
        assert!(
            ns2.starts_with("SKIPPED ns2") && ns2.contains("apt install ns2"),
            "{ns2}"
        );
        assert!(
            ns3.starts_with("SKIPPED ns3") && ns3.contains("libns3-dev"),
            "{ns3}"
        );
    }
}
