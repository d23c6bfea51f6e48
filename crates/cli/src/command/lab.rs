//! `bentpipe lab`: scenarios of real TCP over emulated links.

use super::figures;
use crate::failure::{Blame, Failure};
use crate::lateness::Lateness;
use crate::stop::Stop;
use crate::terminal;
use anyhow::anyhow;
use bentpipe_lab::{LabError, Progress, RunOptions, RunResult};
use bentpipe_os::need::Need;
use bentpipe_outcome::Look;
use bentpipe_scenario::Scenario;
use bentpipe_web::live;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// What to do in the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the scenario in FILE once and print what each flow achieved
    #[command(after_help = "\
Examples:
  sudo bentpipe lab run scenarios/geo.toml --pcap out
  sudo bentpipe lab run scenarios/geo.toml --out results/geo --json geo.json")]
    Run(Run),
    /// Remove what killed runs left in the kernel, and say what it was
    #[command(after_help = "\
Removes only namespaces, nft tables, interfaces, rules and routes that carry our name and whose
process is dead. Every run does the same when it starts.")]
    Clean,
}

/// Options of `lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The scenario, a TOML file
    file: PathBuf,
    /// Folder for manifest, CSV and JSON
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a capture of each end of each link to DIR/LINK-NODE.pcapng, by dumpcap
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write how the run stands to FILE while it goes on, a line of JSON each 100 ms; `-`: to stdout, in place
    /// of the tables
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// Write all figures to FILE; `-`: to stdout, in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    lateness: Lateness,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run_file(args),
        Command::Clean => clean(),
    }
}

fn run_file(args: &Run) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let text = super::read(&args.file)?;
    let mut scenario = super::parse(&name, &text)?;
    super::traffic::load(&mut scenario, &args.file).or_usage()?;
    let stop = Stop::on_signals().or_usage()?;
    needs(&scenario).or_usage()?;
    let quiet = live::has_stdout(args.live.as_deref(), args.json.as_deref()).or_usage()?;
    let live = { args.live.as_deref() }
        .map(|path| live::Live::open(path, &bentpipe_lab::outline(&scenario)));
    let live = live
        .transpose()
        .or_usage()?
        .map(|live| Arc::new(Mutex::new(live)));
    let result = {
        let bar = stderr().is_terminal().then(bar);
        let shown = bar.clone();
        let options = RunOptions {
            out: args.out.clone(),
            pcap: args.pcap.clone(),
            cancel: stop.flag(),
            lateness_limit: args.lateness.limit,
            watch: live.clone().map(|live| {
                let cancel = stop.flag();
                Arc::new(move |look: &Look| {
                    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
                    if live.look(look).is_break() {
                        cancel.store(true, Ordering::Relaxed);
                    }
                }) as _
            }),
            progress: shown.map(|bar| Arc::new(move |p: &Progress| show(&bar, p)) as _),
            ..RunOptions::default()
        };
        let result = bentpipe_lab::run(&scenario, &options);
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        result
    };
    if let Some(live) = live {
        live.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .whole()
            .or_run()?;
    }
    match result {
        Ok(result) => report(&scenario, &result, args, true, quiet),
        // What it found is lost otherwise.
        Err(LabError::Unwritten { result, source }) => {
            report(&scenario, &result, args, false, quiet)?;
            Err(blame(*source))
        }
        Err(error) => Err(blame(error)),
    }
}

pub(crate) fn needs(scenario: &Scenario) -> Result<(), bentpipe_os::need::Missing> {
    Need::Root.check()?;
    if scenario.links.values().any(|link| link.is_emulated()) {
        Need::Tun.check()?;
    }
    if scenario
        .gateways
        .values()
        .any(|gateway| gateway.splits().is_some())
    {
        Need::check_all(&[Need::Nft, Need::Tproxy])?;
    }
    Ok(())
}

/// Whose fault an error of the lab is: what the scenario asks for and cannot be had is the
/// caller's.
fn blame(error: LabError) -> Failure {
    match error {
        LabError::Cancelled => Failure::Interrupted,
        LabError::Scenario(_)
        | LabError::Missing(_)
        | LabError::TooLarge { .. }
        | LabError::Traffic { .. }
        | LabError::NoPath(_)
        | LabError::Control { .. }
        | LabError::Foreign { .. }
        | LabError::Busy(_)
        | LabError::Output { .. } => Failure::Usage(error.into()),
        _ => Failure::Run(error.into()),
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32.cyan/dim} {msg}")
        .expect("the template is well-formed")
        .progress_chars("━╸─");
    let bar = ProgressBar::new(1).with_style(style);
    terminal::attach(&bar);
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_length(progress.at_most.as_millis() as u64);
    bar.set_position(progress.elapsed.min(progress.at_most).as_millis() as u64);
    let (elapsed, at_most) = (progress.elapsed.as_secs(), progress.at_most.as_secs());
    bar.set_message(format!(
        "{elapsed} of at most {at_most} s, {} received",
        progress.received
    ));
}

/// Prints what was found, and where it was `written`; fails when the run is no result.
fn report(
    scenario: &Scenario,
    result: &RunResult,
    args: &Run,
    written: bool,
    quiet: bool,
) -> Result<(), Failure> {
    let measured = result
        .measured()
        .map_err(|reasons| anyhow!("the run is no result: {}", reasons.join("; ")))
        .or_run()?;
    if let Some(out) = args.out.as_ref().filter(|_| written) {
        terminal::say(&format!("Results: {}", out.display()));
    }
    figures::report(&measured.outcome(scenario), args.json.as_deref(), quiet)
}

fn clean() -> Result<(), Failure> {
    Need::Root.check().or_usage()?;
    let swept = bentpipe_os::sweep::sweep();
    if swept.is_empty() {
        return terminal::print("Nothing of a dead run was left.").or_run();
    }
    terminal::print(swept.to_string().trim_end()).or_run()?;
    match swept.failures.as_slice() {
        [] => Ok(()),
        failures => Err(Failure::Run(anyhow!(
            "could not remove everything: {}",
            failures.join("; ")
        ))),
    }
}
