//! `bentpipe demo`: what a satellite link does to TCP, and what the gateway gives back.

mod cell;
pub(crate) mod plan;
mod pool;
mod progress;
pub(crate) mod results;
mod table;

use crate::failure::{Blame, Failure};
use crate::report::Report;
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use plan::{Selection, VARIANTS};
use progress::Progress;
use results::{Outcome, Row};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options of `bentpipe demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo bentpipe demo                                   everything, under five minutes
  sudo bentpipe demo --quick                           a sample in half a minute
  sudo bentpipe demo --only e2e-bbr,split-rate         two rows
  sudo bentpipe lab run demo-report/runs/split-rate-loss1-bulk-seed1/scenario.toml
                                                       one run again")]
pub(crate) struct Args {
    /// Folder for the HTML report and the results of every run
    #[arg(long, value_name = "DIR", default_value = "demo-report")]
    report: PathBuf,
    /// Write the rows to FILE, one JSON object a row
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these rows of the table
    #[arg(long, value_name = "ROW", value_delimiter = ',', value_parser = keys())]
    only: Vec<String>,
    /// A sample in half a minute: three rows, short transfers, one run each
    #[arg(long)]
    quick: bool,
    /// Runs side by side; a run whose emulator falls behind is repeated alone [default: 4 a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
}

fn keys() -> clap::builder::PossibleValuesParser {
    VARIANTS
        .iter()
        .map(|variant| variant.key)
        .collect::<Vec<_>>()
        .into()
}

/// Links emulated side by side on each processor: measured to leave the emulators' lateness clean
/// on two.
const JOBS_PER_PROCESSOR: usize = 4;

/// Runs the demo: table on stdout, report in its folder.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let selection = Selection {
        only: args.only.clone(),
        quick: args.quick,
    };
    let jobs = args.jobs.map_or_else(default_jobs, usize::from);
    // What cannot be written should be known now, not in five minutes.
    prepare(args).or_usage()?;
    let stop = Stop::on_signals().or_usage()?;
    let bench = cell::Bench::new(args.report.join("runs"), stop.flag())?;
    let cells = plan::cells(&selection);
    let outcomes = {
        let progress = Progress::new(&cells, jobs);
        let stopped = stop.flag();
        pool::run(
            cells,
            jobs,
            &stopped,
            |cell| bench.run(cell),
            |event| progress.hear(&event),
        )
    };
    if stop.asked() {
        return Err(Failure::Interrupted);
    }
    let rows = results::rows(&selection, &outcomes);
    terminal::print(&table::render(&rows)).or_run()?;
    let manifest = manifest(&bench, &outcomes, jobs, began.elapsed());
    let page = write(args, &selection, &rows, &outcomes, manifest).or_run()?;
    terminal::print(&format!(
        "\nReport: {} (in {} s)",
        page.display(),
        began.elapsed().as_secs()
    ))
    .or_run()?;
    verdict(&rows)
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * JOBS_PER_PROCESSOR
}

/// Makes sure that everything can be written.
fn prepare(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.report)
        .with_context(|| format!("cannot make the folder `{}`", args.report.display()))?;
    for file in [Some(&args.report.join("index.html")), args.json.as_ref()]
        .into_iter()
        .flatten()
    {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .with_context(|| format!("cannot write `{}`: choose another place", file.display()))?;
    }
    Ok(())
}

/// Writes report and JSON; the path of the page.
fn write(
    args: &Args,
    selection: &Selection,
    rows: &[Row],
    outcomes: &[Outcome],
    manifest: Vec<(String, String)>,
) -> anyhow::Result<PathBuf> {
    let rerun = "Every run is a scenario of its own, in a folder of its name beside this page: \
                 `bentpipe lab run runs/NAME/scenario.toml` runs it again."
        .to_owned();
    let report = Report {
        selection,
        rows,
        outcomes,
        manifest,
        rerun,
    };
    let page = args.report.join("index.html");
    let json = results::to_json(rows)?;
    save(&page, &report.to_html()?)?;
    save(&args.report.join("rows.json"), &json)?;
    if let Some(path) = &args.json {
        save(path, &json)?;
    }
    Ok(page)
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// What a reader needs to judge the figures.
fn manifest(
    bench: &cell::Bench,
    outcomes: &[Outcome],
    jobs: usize,
    took: Duration,
) -> Vec<(String, String)> {
    let lateness = outcomes
        .iter()
        .filter_map(|outcome| outcome.result.as_ref().ok()?.lateness_ms)
        .fold(0.0, f64::max);
    let again = outcomes
        .iter()
        .filter(|outcome| outcome.attempts > 1)
        .count();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let line = |name: &str, value: String| (name.to_owned(), value);
    let mut lines = vec![
        line("bentpipe", env!("CARGO_PKG_VERSION").to_owned()),
        line("kernel", bench.kernel().to_owned()),
        line(
            "machine",
            format!("{processors} processors; up to {jobs} links side by side"),
        ),
        line(
            "runs",
            format!("{}, of which {again} repeated alone", outcomes.len()),
        ),
        line("time", format!("{} s", took.as_secs())),
        line(
            "emulator lateness",
            format!("p99 of the worst run {lateness:.2} ms"),
        ),
    ];
    lines.extend(cell::settings().map(|(name, value)| line(name, value)));
    lines
}

/// Fails when a run did.
fn verdict(rows: &[Row]) -> Result<(), Failure> {
    let failed: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.failed)
        .map(String::as_str)
        .collect();
    match failed.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::Run(anyhow!("a run failed: {one}"))),
        [first, ..] => Err(Failure::Run(anyhow!(
            "{} runs failed, first: {first}",
            failed.len()
        ))),
    }
}
