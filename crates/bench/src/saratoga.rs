//! `bench saratoga`: our files by Saratoga, and iperf3 over UDP and TCP, one after another on the
//! same wire, again and again.
//!
//! Two namespaces and a veth between them; in every pair each subject has its turn, in an order that
//! rotates. With loss, packets are dropped at random in both directions, and only ours takes part.
//! What each figure means: docs/bench-saratoga.md.

mod error;
mod report;
mod run;
mod stage;
mod subject;

pub use error::SaratogaBenchError;
pub use report::{Comparison, Entry, Report, Verdict};
pub use subject::Subject;

use super::{digits, ground, stats, turns};
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_os::sweep::sweep;
use report::Samples;
use run::Racer;
use stage::Stage;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds in which every subject has its turn; six or more for an interval.
    pub pairs: usize,
    /// The file's size.
    pub size: Bytes,
    /// What our sender is told: more than the machine can.
    pub rate: Rate,
    /// Packets lost, in each direction.
    pub loss: Probability,
    /// Octets of the packets of all subjects over UDP, and of the largest that the wire carries.
    pub mtu: u32,
    /// Two pairs of short measurements: whether it works, not how fast.
    pub quick: bool,
    /// Our program; `None` is the program that runs now.
    pub bentpipe: Option<PathBuf>,
    /// The rival's program.
    pub iperf3: PathBuf,
    /// Set it to stop early and clean up.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pairs: 7,
            size: Bytes(1_000_000_000),
            rate: Rate::from_bits_per_sec(100_000_000_000),
            loss: Probability::ZERO,
            mtu: 1500,
            quick: false,
            bentpipe: None,
            iperf3: PathBuf::from("iperf3"),
            cancel: Arc::default(),
        }
    }
}

/// A short file, for `quick`.
const SHORT: Bytes = Bytes(50_000_000);

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
}

/// What one transfer gave.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Gbit/s of content at the receiver.
    goodput: f64,
    /// Processor seconds of both sides for each GB that arrived.
    cpu: f64,
    /// Most memory resident at once, in MB: of who sends, of who receives.
    memory: [f64; 2],
}

/// Runs the comparison; `progress` hears of every measurement before it starts. Without iperf3 ours
/// runs alone, and a note of the report says so.
///
/// # Errors
/// Needs root; with loss, nft. A transfer that fails, or whose file is not what was sent, ends the run.
pub fn run(
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, SaratogaBenchError> {
    let pairs = if options.quick { 2 } else { options.pairs };
    let size = if options.quick {
        options.size.min(SHORT)
    } else {
        options.size
    };
    let mut notes = Vec::new();
    let mut racers = vec![Racer::ours(options)?];
    if options.loss != Probability::ZERO {
        let loss = options.loss.value() * 100.0;
        notes.push(format!(
            "{loss}% of the packets lost each way; iperf3 takes no part"
        ));
    } else {
        match Racer::rivals(options) {
            Some(rivals) => racers.extend(rivals),
            None => notes.push("SKIPPED iperf3: install it with `apt install iperf3`".to_owned()),
        }
    }
    let swept = sweep();
    if !swept.is_empty() {
        tracing::info!("what a killed run left behind:\n{swept}");
    }
    let stage = Stage::build(size, options)?;
    notes.insert(0, stage.conditions());
    let mut samples = Samples::default();
    for pair in 1..=pairs {
        for (turn, index) in turns(racers.len(), pair).into_iter().enumerate() {
            let racer = &racers[index];
            progress(&Progress {
                done: (pair - 1) * racers.len() + turn,
                total: pairs * racers.len(),
                pair,
                subject: racer.subject,
            });
            let sample = racer.run(&stage, options);
            // Ctrl-C reaches our children too: what they then say is no failure of theirs.
            if options.cancel.load(Ordering::Relaxed) {
                return Err(SaratogaBenchError::Cancelled);
            }
            samples.push(racer.subject, sample?);
        }
    }
    let present: Vec<Subject> = racers.iter().map(|racer| racer.subject).collect();
    Ok(Report::new(report::entries(&samples, &present), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_skipped_with_what_to_install() {
        let options = Options {
            iperf3: PathBuf::from("no-such-program"),
            ..Options::default()
        };
        assert!(Racer::rivals(&options).is_none());
    }

    #[test]
    fn iperf3_is_measured_by_what_arrives() {
        bentpipe_os::need!(Root, Program("iperf3"));
        let options = Options {
            quick: true,
            mtu: 9000,
            ..Options::default()
        };
        let stage = Stage::build(Bytes(1000), &options).unwrap();
        for racer in Racer::rivals(&options).unwrap() {
            let sample = racer.run(&stage, &options).unwrap();
            // Bounds that any working machine keeps and a wrong unit does not.
            assert!((0.005..1000.0).contains(&sample.goodput), "{sample:?}");
            assert!((0.001..1000.0).contains(&sample.cpu), "{sample:?}");
            let memory = |mb: f64| (0.5..1000.0).contains(&mb);
            assert!(sample.memory.into_iter().all(memory), "{sample:?}");
        }
    }
}
