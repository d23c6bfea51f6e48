//! `bentpipe demo`: what a satellite link does to TCP, and what the gateway gives back.

mod progress;

use super::save;
use crate::failure::{Blame, Failure};
use crate::lateness::Lateness;
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_demo::plan::{self, Selection, VARIANTS};
use bentpipe_demo::report::Report;
use bentpipe_demo::results::{self, Outcome, Row};
use bentpipe_demo::time_budget::{BOUND, Shed, admit};
use bentpipe_demo::{cell, contrast, table};
use bentpipe_lab::pool::{self, default_jobs, processors};
use bentpipe_report::date;
use progress::Progress;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

macro_rules! examples {
    () => {
        "\
Examples:
  sudo bentpipe demo                                   the main contrast in a minute, everything in five
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

A run in which the host paused, so that the emulated link stood still for longer than --lateness-limit
allows, is run again alone at the end. If that does not help its figure is shown with a mark. After five
minutes repetitions are left out, and nothing is begun that would not be over after seven, but for what the
exit code depends on.

Exit codes: 0 when cubic end to end and bentpipe_rate were measured at 1% loss (--quick: at 5%) and the
gateway carried more, whatever else failed, with a warning; with --only, when each row has its bulk transfer;
1 when not. With --strict: 1 when any run failed or was disturbed, and there is no bound of time.

Keys of --json, one object a row:
  mode                       end-to-end, or split (through the gateway)
  cc                         control of the server, or of the gateway's satellite leg
  loss, stock_buffers        share of packets corrupted; whether the terminal keeps stock buffers
  goodput_mbps, limit_mbps   of the bulk transfer (null when it failed), and at most
  share, most_retransmitted  goodput/limit; share of the bulk transfer's bytes sent again, by who repeated most
  t_100kB_s, t_2MB_s         medians in seconds; null when cut off or failed
  t_100kB_cut, t_2MB_cut     whether that is because it was cut off
  t_100kB_all_s, t_2MB_all_s every run by its seed, from 1; null where cut off
  goodput_host_paused_ms, t_100kB_host_paused_ms, t_2MB_host_paused_ms
                             how long the host paused in that run; null where it did not matter
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
    /// Fail when any run fails or the host paused in every try of one; run everything, however long it takes
    #[arg(long)]
    strict: bool,
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

/// Runs the demo: table on stdout, report in its folder.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let selection = Selection {
        only: args.only.clone(),
        quick: args.quick,
    };
    let jobs = args.jobs.map_or_else(default_jobs, usize::from);
    let stop = Stop::on_signals().or_usage()?;
    let folder = args.report.join("runs");
    let bench =
        cell::Bench::new(folder, args.lateness.limit, args.strict, stop.flag()).or_usage()?;
    // It is checked now whether files can be written, not after five minutes of running.
    prepare(args).or_usage()?;
    let (outcomes, shed) = measure(args, &selection, &bench, jobs, &stop);
    if stop.asked() {
        return Err(Failure::Interrupted);
    }
    let rows = results::rows(&selection, &outcomes);
    terminal::print(&table::render(&rows)).or_run()?;
    if let Some(shed) = shed.words() {
        let minutes = BOUND.as_secs() / 60;
        let said = format!("\n{shed} to keep within {minutes} minutes");
        terminal::print(&said).or_run()?;
    }
    let manifest = manifest(&bench, &outcomes, shed, jobs, began.elapsed());
    let page = write(args, &selection, &rows, &outcomes, manifest).or_run()?;
    terminal::print(&format!(
        "\nReport: {} (in {} s)",
        page.display(),
        began.elapsed().as_secs()
    ))
    .or_run()?;
    let warnings = verdict(args.strict, &selection, &rows)?;
    for warning in warnings {
        terminal::say(&format!("warning: {warning}"));
    }
    Ok(())
}

/// Runs everything, shows the main contrast meanwhile; also what there was no time for.
fn measure(
    args: &Args,
    selection: &Selection,
    bench: &cell::Bench,
    jobs: usize,
    stop: &Stop,
) -> (Vec<Outcome>, Shed) {
    let began = Instant::now();
    let groups = plan::groups(selection);
    let progress = Progress::new(&groups.concat(), jobs);
    let mut contrast = contrast::Contrast::default();
    let mut shed = Shed::default();
    let mut not_run = Vec::new();
    let mut outcomes = pool::run(
        groups,
        jobs,
        &stop.flag(),
        |cell| bench.run(cell),
        |cell, tries| args.strict || admit(selection, cell, tries, began.elapsed()),
        |event| {
            if let pool::Event::Shed(cell) = event {
                shed.note(cell);
                // Of what is repeated a figure is there all the same.
                not_run.extend((cell.seed == 1).then(|| results::not_run(cell)));
            }
            progress.hear(&event);
            let text = contrast.hear(&event).filter(|_| !stop.asked());
            // Where stdout is gone the table will say so.
            let _ = text.map(|text| terminal::print(&text));
        },
    );
    outcomes.append(&mut not_run);
    (outcomes, shed)
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

/// What a reader needs to judge the figures.
fn manifest(
    bench: &cell::Bench,
    outcomes: &[Outcome],
    shed: Shed,
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
    let left_out = shed
        .words()
        .map_or(String::new(), |shed| format!("; {shed} for want of time"));
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
            format!(
                "{}, of which {again} repeated alone{left_out}",
                outcomes.len() - shed.cells
            ),
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

/// Fails when the main contrast does not stand, or, where asked to be strict, when any run failed; else what is to be
/// warned of.
fn verdict(strict: bool, selection: &Selection, rows: &[Row]) -> Result<Vec<String>, Failure> {
    let failed: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.failed)
        .map(String::as_str)
        .collect();
    let first = match failed.as_slice() {
        [] => None,
        [one] => Some(format!("a run failed: {one}")),
        [first, ..] => Some(format!("{} runs failed, first: {first}", failed.len())),
    };
    if strict {
        let not_run = rows.iter().any(|row| !row.not_run.is_empty());
        let why = first.or_else(|| not_run.then(|| "some cells were not run".to_owned()));
        return why.map_or(Ok(Vec::new()), |why| Err(Failure::Run(anyhow!(why))));
    }
    contrast::judge(selection, rows).map_err(|why| {
        let first = first.as_ref().map(|first| format!("; {first}"));
        Failure::Run(anyhow!("{why}{}", first.unwrap_or_default()))
    })?;
    let stands = first.map(|why| format!("{why}; the main contrast stands"));
    let mut warnings: Vec<String> = stands.into_iter().collect();
    let pauses: Vec<f64> = rows
        .iter()
        .flat_map(Row::paused)
        .map(|(_, pause)| pause)
        .collect();
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    if !pauses.is_empty() {
        warnings.push(format!(
            "this host paused for up to {longest:.0} ms; {} figures are marked, as they say less",
            pauses.len()
        ));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests;
