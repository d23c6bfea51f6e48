//! One run of the demo: its scenario, and the figures of its result.

use crate::plan::{CUTOFF, Cell, DELAY, LINK_RATE, Measure, Mode};
use crate::results::Figures;
use bentpipe_base::{Bytes, Rate};
use bentpipe_lab::pool::Try;
use bentpipe_lab::{Controls, LabError, Measured, RunOptions, RunResult};
use bentpipe_os::need::{Missing, Need};
use bentpipe_outcome::{End, Flow, Point};
use bentpipe_plan::limits::FullPacket;
use bentpipe_scenario::{Scenario, Topology};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The scenario of every run, with marks for what differs.
const TEMPLATE: &str = include_str!("cell.toml");
/// `tcp_rmem` of a terminal that someone has prepared for the satellite.
const PREPARED: &str = r#"["4096B", "16777216B", "67108864B"]"#;
/// `tcp_rmem` of a stock Linux.
const STOCK: &str = r#"["4096B", "131072B", "6291456B"]"#;

/// Settings of all runs that a reader should know, for the report.
pub fn settings() -> impl Iterator<Item = (&'static str, String)> {
    [
        (
            "terminal",
            format!("receive buffers {PREPARED}; stock: {STOCK}"),
        ),
        (
            "server",
            "send buffer up to 16 MiB: no row end to end gains from more".into(),
        ),
        (
            "link losses",
            "each packet by itself, in both directions".into(),
        ),
    ]
    .into_iter()
}

/// Where the runs of the demo are made.
pub struct Bench {
    /// Holds a folder for each run.
    folder: PathBuf,
    /// How late an emulator may deliver 1% of the packets; see `RunOptions::lateness_limit`.
    lateness_limit: Option<Duration>,
    /// A run in which the host paused has failed, and its figures are not shown.
    strict: bool,
    cancel: Arc<AtomicBool>,
    /// Held for the whole demo, so that no gateway's end takes them from another.
    controls: Controls,
    kernel: String,
}

impl Bench {
    /// A bench that writes under `folder` and stops when `cancel` is set.
    ///
    /// # Errors
    /// When the machine lacks what the demo needs.
    pub fn new(
        folder: PathBuf,
        lateness_limit: Option<Duration>,
        strict: bool,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self, Missing> {
        let needs = [
            Need::Root,
            Need::Nft,
            Need::Tproxy,
            Need::Tun,
            Need::Btf,
            Need::StructOps,
        ];
        Need::check_all(&needs)?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        let kernel = release.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned());
        Ok(Self {
            folder,
            lateness_limit,
            strict,
            cancel,
            controls: Controls::default(),
            kernel,
        })
    }

    /// Release of the kernel.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Runs `cell` once.
    pub fn run(&self, cell: &Cell) -> Try<Figures> {
        let name = cell.name();
        let scenario = match Scenario::parse(&name, &scenario(cell)) {
            Ok(scenario) => scenario,
            Err(problems) => return Try::Failed(problems.to_string()),
        };
        let options = RunOptions {
            out: Some(self.folder.join(&name)),
            cancel: Arc::clone(&self.cancel),
            controls: self.controls.clone(),
            lateness_limit: self.lateness_limit,
            ..RunOptions::default()
        };
        match bentpipe_lab::run(&scenario, &options) {
            Ok(result) => judge(cell, &result, self.strict),
            Err(LabError::Cancelled) => Try::Stopped,
            // A busy host may keep one from being ready in time.
            Err(error @ LabError::Gateway { .. }) => Try::Invalid(error.to_string(), None),
            Err(error) => Try::Failed(error.to_string()),
        }
    }
}

/// The goodput that no TCP can exceed in `cell`, as a run of it tells.
pub(crate) fn limit(cell: &Cell) -> Option<Rate> {
    let scenario = Scenario::parse(&cell.name(), &scenario(cell)).ok()?;
    let flow = scenario.flows.first()?;
    let path = Topology::new(&scenario).path(&flow.from, &flow.to)?;
    FullPacket::new(&scenario, flow, &path).goodput_limit(&path)
}

/// The text of the scenario of `cell`.
fn scenario(cell: &Cell) -> String {
    let server_cc = match cell.variant.mode {
        Mode::EndToEnd => cell.variant.cc,
        Mode::Split => "cubic",
    };
    let amount = match cell.measure.size() {
        Some(size) => format!("bytes = \"{size}\""),
        None => format!("duration = \"{}s\"", cell.bulk.as_secs()),
    };
    let marks = [
        ("title", cell.title()),
        ("seed", cell.seed.to_string()),
        ("time_limit", format!("{}s", CUTOFF.as_secs())),
        ("rate", LINK_RATE.to_string()),
        ("delay", format!("{}ms", DELAY.as_millis())),
        ("loss", format!("\"{}\"", cell.loss())),
        ("queue", LINK_RATE.over(2 * DELAY).to_string()),
        (
            "receive_buffer",
            if cell.variant.stock_buffers {
                STOCK
            } else {
                PREPARED
            }
            .into(),
        ),
        ("server_cc", server_cc.into()),
        ("split", split(cell)),
        ("amount", amount),
    ];
    marks
        .iter()
        .fold(TEMPLATE.to_owned(), |text, (mark, value)| {
            text.replace(&format!("{{{{{mark}}}}}"), value)
        })
}

/// The gateway's own part. `insist`: a row must show the control that it names, or fail.
fn split(cell: &Cell) -> String {
    let cc = cell.variant.cc;
    let leg = match (cell.variant.mode, cc) {
        (Mode::EndToEnd, _) => return String::new(),
        (Mode::Split, "cubic") => String::new(),
        // Both of ours are told what the operator knows: the rate of the link.
        (Mode::Split, _) => format!("rate = \"{LINK_RATE}\"\n"),
    };
    format!("\n[gateways.hub.split.sat]\ncongestion_control = \"{cc}\"\ninsist = true\n{leg}")
}

fn judge(cell: &Cell, result: &RunResult, strict: bool) -> Try<Figures> {
    let tried = read(cell, result.measured_anyway());
    match (result.measured(), tried) {
        (Ok(_), tried) => tried,
        (Err(reasons), Try::Done(figures)) if !strict => {
            let pause = pause(result.measured_anyway());
            let left = pause.map(|pause| Figures {
                host_paused_ms: Some(pause.as_secs_f64() * 1e3),
                ..figures
            });
            Try::Invalid(reasons.join("; "), left)
        }
        (Err(reasons), _) => Try::Invalid(reasons.join("; "), None),
    }
}

/// The longest time for which an emulator stood still, where nothing worse happened to it.
fn pause(measured: &Measured) -> Option<Duration> {
    let links = || measured.links.values();
    let worse = links()
        .flat_map(|link| [&link.port_a, &link.port_b])
        .any(|port| port.write_errors > 0 || port.failure.is_some());
    let longest = links().map(|link| link.lateness.max).max();
    longest.filter(|_| !worse)
}

fn read(cell: &Cell, measured: &Measured) -> Try<Figures> {
    let Some(flow) = measured.flows.first() else {
        return Try::Failed("the run has no flow".into());
    };
    match (&flow.end, cell.measure) {
        (End::Failed(why), _) => Try::Failed(why.clone()),
        (End::CutOff, Measure::Bulk) => Try::Failed("the transfer did not end in time".into()),
        _ if flow.control.is_empty() => {
            Try::Failed("the sender's congestion control is unknown".into())
        }
        _ => Try::Done(figures(measured, flow)),
    }
}

fn figures(measured: &Measured, flow: &Flow) -> Figures {
    let received: Vec<(Duration, Bytes)> = measured
        .samples
        .iter()
        .filter(|sample| sample.flow == 0 && sample.point == Point::Receiver)
        .map(|sample| (sample.at, sample.bytes))
        .collect();
    let lateness = measured
        .links
        .values()
        .map(|link| link.lateness.p99.as_secs_f64() * 1e3);
    Figures {
        goodput_mbps: flow.goodput().mbps(),
        completion_s: flow.completion.map(|time| time.as_secs_f64()),
        most_retransmitted: flow.most_retransmitted(),
        lateness_ms: lateness.max_by(f64::total_cmp),
        host_paused_ms: None,
        series: per_second(&received, flow.elapsed),
    }
}

/// The mean rate of each whole second of `elapsed`, in Mb/s, from bytes received by the time since
/// connect().
fn per_second(received: &[(Duration, Bytes)], elapsed: Duration) -> Vec<f64> {
    let total_by = |second: u64| {
        let passed = received.partition_point(|(at, _)| *at <= Duration::from_secs(second));
        passed.checked_sub(1).map_or(0, |last| received[last].1.0)
    };
    (1..=elapsed.as_secs())
        .map(|second| Bytes(total_by(second) - total_by(second - 1)).bits() as f64 / 1e6)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Selection, groups};
    use bentpipe_scenario::{Amount, Queue, QueueLimit};

    #[test]
    fn every_run_of_the_plan_is_a_right_scenario() {
        for selection in [
            Selection::default(),
            Selection {
                quick: true,
                ..Selection::default()
            },
        ] {
            for cell in groups(&selection).concat() {
                let text = scenario(&cell);
                assert!(!text.contains("{{"), "{text}");
                let read =
                    Scenario::parse("cell.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                let link = &read.links["space"];
                assert_eq!(link.forward, link.reverse);
                assert_eq!(
                    link.forward.queue,
                    Queue::drop_tail(QueueLimit::Bytes(Bytes(750_000)))
                );
                let loss = link.forward.channels.chance("packet_error_rate");
                assert_eq!(loss, cell.loss());
                assert_eq!(read.flows[0].opened_by, "terminal");
                // By flow, not as the host's default: the kernel loses a reference to a BPF control
                // that it refuses as a namespace's default, and never lets go of it again.
                let sender = match cell.variant.mode {
                    Mode::EndToEnd => cell.variant.cc,
                    Mode::Split => "cubic",
                };
                assert_eq!(read.flows[0].congestion_control.as_deref(), Some(sender));
                assert_eq!(read.hosts["server"].tcp.congestion_control, "cubic");
                assert_eq!(read.seed, cell.seed);
                let expected = match cell.measure.size() {
                    Some(size) => Amount::Bytes(size),
                    None => Amount::Duration(cell.bulk),
                };
                assert_eq!(read.flows[0].amount, expected);
                let split = &read.gateways["hub"].split;
                assert_eq!(split.is_some(), cell.variant.mode == Mode::Split);
                let rmem = read.hosts["terminal"].tcp.receive_buffer;
                assert_eq!(rmem.max == Bytes(6_291_456), cell.variant.stock_buffers);
                if let Some(split) = split {
                    let text = split.written().to_string();
                    let config = bentpipe_gateway_config::Config::parse("split", &text).unwrap();
                    assert_eq!(config.sat.congestion.as_deref(), Some(cell.variant.cc));
                    assert_eq!(config.sat.link.rate.is_some(), cell.variant.cc != "cubic");
                }
            }
        }
    }

    #[test]
    fn the_series_is_the_difference_of_what_had_arrived() {
        let at = |millis, bytes| (Duration::from_millis(millis), Bytes(bytes));
        let received = [
            at(100, 0),
            at(900, 125_000),
            at(1_000, 250_000),
            at(1_900, 500_000),
        ];
        let series = per_second(&received, Duration::from_millis(3_500));
        assert_eq!(series, [2.0, 2.0, 0.0]);
    }
}
