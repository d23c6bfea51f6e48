//! `bentpipe sim`: scenarios in virtual time.

use super::{figures, traffic};
use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::Context;
use bentpipe_base::Instant;
use bentpipe_outcome::{self as outcome, Look, Point, Sample};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Options, Sampler, Series};
use bentpipe_web::live;
use clap::Subcommand;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What to do in the simulator.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the scenario in FILE in virtual time and print what each flow achieved
    #[command(after_help = "\
Examples:
  bentpipe sim run scenarios/geo.toml
  bentpipe sim run scenarios/geo.toml --seed 7 --json - | jq .flows
  bentpipe sim run scenarios/geo.toml --trace out --pcap out

Needs no rights and no network. The same file and seed give the same results, bit for bit.")]
    Run(Run),
}

/// Options of `sim run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The scenario, a TOML file
    file: PathBuf,
    /// Seed of every draw of chance [default: the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Turn every packet into bytes and back at every hop; results are the same
    #[arg(long)]
    wire: bool,
    /// Write a capture of each end of each link to DIR/LINK-NODE.pcapng
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write time and segment number of each flow, at its source and receiver, to DIR/FLOW.csv
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Write how the run stands to FILE while it goes on, a line of JSON each 100 ms of its time; `-`: to
    /// stdout, in place of the tables
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// Write all figures to FILE; `-`: to stdout, in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    bentpipe_process::map_long_blocks(32 << 10);
    let Command::Run(args) = command;
    let name = args.file.display().to_string();
    let text = super::read(&args.file)?;
    let mut scenario = super::parse(&name, &text)?;
    traffic::load(&mut scenario, &args.file).or_usage()?;
    for warning in bentpipe_sim::warnings(&scenario).or_usage()? {
        terminal::say(&format!("warning: {warning}"));
    }
    let quiet = live::has_stdout(args.live.as_deref(), args.json.as_deref()).or_usage()?;
    let outcome = simulate(&scenario, args)?;
    figures::report(&outcome, args.json.as_deref(), quiet)
}

fn simulate(scenario: &Scenario, args: &Run) -> Result<outcome::Run, Failure> {
    let options = Options {
        seed: args.seed,
        wire: args.wire,
    };
    if args.pcap.is_none() && args.trace.is_none() && args.live.is_none() {
        if let Some(outcome) = bentpipe_pair::run(scenario, &options).or_usage()? {
            return Ok(outcome);
        }
        let finished = bentpipe_sim::finish(scenario, &options).or_usage()?;
        let outcome = finished.outcome.clone();
        // The program ends after this run.
        std::mem::forget(finished);
        return Ok(outcome);
    }
    let captures = args.pcap.as_deref().map(|folder| {
        bentpipe_study::captures(scenario, folder)
            .with_context(|| format!("cannot write captures to `{}`", folder.display()))
    });
    let captures = captures.transpose().or_usage()?;
    let trace = args.trace.as_deref();
    let traces = trace.map(|_| (Series::new(scenario), Sampler::new(scenario)));
    let outline = bentpipe_sim::outline(scenario, args.seed.unwrap_or(scenario.seed));
    let live = { args.live.as_deref() }.map(|path| live::Live::open(path, &outline));
    let mut live = live.transpose().or_usage()?;
    let looks = { live.as_mut() }
        .map(|live| bentpipe_sim::Live::new(scenario, |look: &Look| live.look(look)));
    let observed = bentpipe_sim::observe(scenario, &options, ((traces, captures), looks));
    let (mut outcome, ((traces, captures), _)) = observed.or_usage()?;
    if let Some(mut live) = live {
        live.whole().or_run()?;
    }
    if let Some(captures) = captures {
        captures
            .finish()
            .context("cannot write the captures")
            .or_usage()?;
    }
    if let Some((folder, (series, sampler))) = trace.zip(traces) {
        outcome.samples = sampler.into_samples();
        write_traces(folder, scenario, &outcome, &series).or_usage()?;
    }
    Ok(outcome)
}

/// One file a flow: what its source sent and its receiver got, in the order of time.
fn write_traces(
    folder: &Path,
    scenario: &Scenario,
    outcome: &outcome::Run,
    series: &Series,
) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let flows = outcome.flows.iter().zip(&scenario.flows);
    for (index, ((flow, plan), sent)) in flows.zip(series.flows()).enumerate() {
        let sent = sent.iter().map(|sent| {
            let event = if sent.again { "sent again" } else { "sent" };
            (sent.at, event, sent.end)
        });
        let own = |sample: &&Sample| (sample.flow, &sample.point) == (index, &Point::Receiver);
        let received = outcome.samples.iter().filter(own).map(|sample| {
            let at = Instant::ZERO + plan.start + sample.at;
            (at, "received", sample.bytes.0)
        });
        let mut rows: Vec<_> = sent.chain(received).collect();
        rows.sort_by_key(|(at, ..)| *at);
        let mut text = String::from("time_s,event,segment\n");
        for (at, event, bytes) in rows {
            let segment = bytes.div_ceil(flow.mss.map_or(1, |mss| mss.0.max(1)));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{},{event},{segment}", at.as_secs_f64());
        }
        let path = folder.join(format!("{}.csv", flow.name));
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}
