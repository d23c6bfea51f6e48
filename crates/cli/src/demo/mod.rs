//! `bentpipe demo`: what a satellite link does to TCP, and what the gateway gives back.

mod cell;
pub(crate) mod plan;
pub(crate) mod pool;
mod progress;
pub(crate) mod results;
mod table;

use crate::failure::{Blame, Failure};
use crate::lateness::Lateness;
use crate::report::Report;
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use plan::{Selection, VARIANTS};
use progress::Progress;
use results::{Outcome, Row};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

macro_rules! examples {
    () => {
        "\
Examples:
  sudo bentpipe demo                                   everything, under five minutes
  sudo bentpipe demo --quick                           a sample in half a minute
  sudo bentpipe demo --only e2e-bbr,split-rate         two rows
  sudo bentpipe lab run demo-report/runs/split-rate-loss1-bulk-seed1/scenario.toml
                                                       one run again"
    };
}

const EXAMPLES: &str = examples!();

const MANUAL: &str = concat!(
    examples!(),
    "

What is measured, on real Linux TCP over an emulated link of 10 Mb/s, 300 ms each way, with a queue
of one bandwidth-delay product (750 kB) and 0, 1 and 5% of the packets corrupted in each direction:
the terminal behind the satellite connects to the server and downloads. Goodput is that of a bulk
transfer of 30 s over its whole time; 100 kB and 2 MB are timed from connect() to the last byte, cut
off at 60 s, medians of three runs where they are fast. The limit is rate x 1448/1500 x (1 - loss).

Keys of --json, one object a row:
  mode                       end-to-end, or split (through the gateway)
  cc                         control of the server, or of the gateway's satellite leg
  loss, stock_buffers        share of packets corrupted; whether the terminal keeps stock buffers
  goodput_mbps, limit_mbps   of the bulk transfer (null when it failed), and at most
  share, retransmitted       goodput/limit; share of the bulk transfer's bytes that were sent again
  t_100kB_s, t_2MB_s         medians in seconds; null when cut off or failed
  t_100kB_cut, t_2MB_cut     whether that is because it was cut off
  t_100kB_all_s, t_2MB_all_s every run by its seed, from 1; null where cut off
  failed                     what failed, in words"
);

/// Options of `bentpipe demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = MANUAL)]
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
    /// Runs side by side; a run whose emulator falls behind is repeated alone [default: 5 a processor, 24 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    #[command(flatten)]
    lateness: Lateness,
}

fn keys() -> clap::builder::PossibleValuesParser {
    VARIANTS
        .iter()
        .map(|variant| variant.key)
        .collect::<Vec<_>>()
        .into()
}

/// Links emulated side by side on each processor. On two processors ten leave the emulators' p99
/// lateness at 0.2 ms in the median run and take three and a half minutes.
const JOBS_PER_PROCESSOR: usize = 5;
/// More would wait for the longest runs alone.
const MOST_JOBS: usize = 24;

/// Runs the demo: table on stdout, report in its folder.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let selection = Selection {
        only: args.only.clone(),
        quick: args.quick,
    };
    let jobs = args.jobs.map_or_else(default_jobs, usize::from);
    let stop = Stop::on_signals().or_usage()?;
    let bench = cell::Bench::new(args.report.join("runs"), args.lateness, stop.flag())?;
    // What cannot be written should be known now, not in five minutes.
    prepare(args).or_usage()?;
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

pub(crate) fn default_jobs() -> usize {
    (processors() * JOBS_PER_PROCESSOR).min(MOST_JOBS)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

pub(crate) fn save(path: &Path, text: &str) -> anyhow::Result<()> {
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
    let processors = processors();
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
        line(
            "measured",
            format!("{}, in {} s", date(SystemTime::now()), took.as_secs()),
        ),
        line(
            "emulator lateness",
            format!("p99 of the worst run {lateness:.2} ms"),
        ),
    ];
    lines.extend(cell::settings().map(|(name, value)| line(name, value)));
    lines
}

/// The day of `time` in UTC, as 2026-11-21.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    // Days of the proleptic Gregorian calendar in years that begin in March, so that the leap day
    // is the last (Hinnant, "chrono-compatible low-level date algorithms").
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 86_399));
        // Days since 1970: 0; 29 February and 1 March 2000; 31 December 2026 (20,818 days).
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(11_017), "2000-03-01");
        assert_eq!(day(20_818), "2026-12-31");
    }
}
