//! `bentpipe compare`: the simulator's TCP against the kernel's, on the same scenario.

mod figures;
mod page;
mod runs;
mod table;
#[cfg(test)]
mod tests;

use super::save;
use crate::command::lab;
use crate::failure::{Blame, Failure};
use crate::lateness::Lateness;
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_lab::pool;
use bentpipe_report::date;
use bentpipe_scenario::study::SEED;
use bentpipe_scenario::{Scenario, Study, study};
use bentpipe_study::Comparison;
use page::CompareReport;
use runs::{Bench, Case, Cell};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

const EXAMPLES: &str = "\
Examples:
  sudo bentpipe compare scenarios/compare.toml
  sudo bentpipe compare scenarios/compare.toml --runs 3 --report out --json out.json

Every [[sweep]] of the file but one named `seed` gives cases; each runs with the seeds 1 to N, once
on the kernel's TCP in the lab and once in the simulator, where equal seeds lose the same packets.
A flow agrees when the mean goodputs differ by at most 10%; ratios have their 95% confidence intervals.";

/// Options of `bentpipe compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The scenario, a TOML file, with or without sweep axes
    file: PathBuf,
    /// Runs of each case on either side
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Write an HTML report with the congestion windows of both sides to DIR/index.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the figures to FILE, one JSON object a flow and case; `-`: to stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs of the lab side by side; one whose emulator falls behind is repeated alone
    /// [default: 5 a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    #[command(flatten)]
    lateness: Lateness,
}

/// Most cases of one comparison.
const MOST_CASES: u64 = 200;

/// Runs the comparison: table on stdout, report in its folder.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let cases = cases(&args.file)?;
    let stop = Stop::on_signals().or_usage()?;
    for case in &cases {
        lab::needs(&case.scenario).or_usage()?;
    }
    prepare(args).or_usage()?;
    // What only one side can do should be known now, not after the other has run for minutes.
    let simulated = runs::simulate(&cases, args.runs).or_usage()?;
    let jobs = args.jobs.map_or_else(pool::default_jobs, usize::from);
    let cells = runs::cells(&cases, args.runs);
    let total = cells.len();
    let bench = Bench::new(args.lateness, stop.flag());
    let mut ended = 0;
    let outcomes = pool::run(
        vec![cells],
        jobs,
        &stop.flag(),
        |cell: &Cell| bench.run(&cases[cell.case].scenario, cell.seed),
        |_, _| true,
        |event| {
            if let pool::Event::Ended(outcome) = event {
                ended += 1;
                say(ended, total, &cases, outcome);
            }
        },
    );
    if stop.asked() {
        return Err(Failure::Interrupted);
    }
    let rows = figures::rows(&cases, &simulated, &outcomes);
    let manifest = manifest(args, &bench, &outcomes, began);
    write(args, &cases, &rows, manifest)?;
    let failed = outcomes
        .iter()
        .find_map(|outcome| Some((&outcome.cell, outcome.result.as_ref().err()?)));
    match failed {
        None => Ok(()),
        Some((cell, why)) => Err(Failure::Run(anyhow!(
            "{}, seed {}: {why}",
            cases[cell.case].name,
            cell.seed
        ))),
    }
}

fn say(ended: usize, total: usize, cases: &[Case], outcome: &runs::Outcome) {
    let name = &cases[outcome.cell.case].name;
    let seed = outcome.cell.seed;
    let result = match &outcome.result {
        Ok(run) => {
            let flows = run.flows.iter();
            let goodputs: Vec<String> = flows
                .map(|side| format!("{:.2} Mb/s", side.goodput_mbps))
                .collect();
            goodputs.join(", ")
        }
        Err(why) => why.clone(),
    };
    terminal::say(&format!("[{ended}/{total}] {name}, seed {seed}: {result}"));
}

/// The scenarios to compare: one a point of the file's axes.
fn cases(file: &Path) -> Result<Vec<Case>, Failure> {
    let name = file.display().to_string();
    let text = super::read(file)?;
    let mut study = Study::parse(&name, &text, bentpipe_scenario::Known::default())
        .map_err(Failure::Mistakes)?;
    bentpipe_study::read_profiles(&mut study, file).or_usage()?;
    study.set_seeds(1);
    let count = study.len();
    if count > MOST_CASES {
        let why = anyhow!("`{name}` has {count} cases; at most {MOST_CASES} can be compared");
        return Err(Failure::Usage(why));
    }
    let expander = study.expander();
    let cases = (0..count).map(|index| {
        let point = expander.point(index).map_err(Failure::Mistakes)?;
        Ok(case(&study, point))
    });
    cases.collect()
}

fn case(study: &Study, point: study::Point) -> Case {
    let axes = study.axes().iter().zip(&point.labels);
    let labels: Vec<&str> = axes
        .filter(|(axis, _)| axis.name() != SEED)
        .map(|(_, label)| label.as_str())
        .collect();
    let name = match labels.as_slice() {
        [] => point.scenario.name.clone(),
        labels => labels.join(", "),
    };
    Case {
        name,
        scenario: point.scenario,
    }
}

/// Makes sure that everything can be written.
fn prepare(args: &Args) -> anyhow::Result<()> {
    let page = args.report.as_ref().map(|folder| folder.join("index.html"));
    if let Some(folder) = &args.report {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    }
    let json = args.json.clone().filter(|path| path != Path::new("-"));
    for file in [page, json].into_iter().flatten() {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .with_context(|| format!("cannot write `{}`: choose another place", file.display()))?;
    }
    Ok(())
}

/// What a reader needs to judge the figures.
fn manifest(
    args: &Args,
    bench: &Bench,
    outcomes: &[runs::Outcome],
    began: Instant,
) -> Vec<(String, String)> {
    let done = outcomes
        .iter()
        .filter_map(|outcome| outcome.result.as_ref().ok());
    let lateness = done.map(|run| run.lateness_ms).fold(0.0, f64::max);
    let again = outcomes
        .iter()
        .filter(|outcome| outcome.attempts > 1)
        .count();
    let line = |name: &str, value: String| (name.to_owned(), value);
    vec![
        line("bentpipe", env!("CARGO_PKG_VERSION").to_owned()),
        line("kernel", bench.kernel()),
        line(
            "runs",
            format!(
                "{} of the lab, of which {again} repeated alone; {} a case and side",
                outcomes.len(),
                args.runs
            ),
        ),
        line(
            "measured",
            format!(
                "{}, in {} s",
                date(SystemTime::now()),
                began.elapsed().as_secs()
            ),
        ),
        line(
            "emulator lateness",
            format!("p99 of the worst run {lateness:.2} ms"),
        ),
    ]
}

fn write(
    args: &Args,
    cases: &[Case],
    rows: &[Comparison],
    manifest: Vec<(String, String)>,
) -> Result<(), Failure> {
    let json = figures::to_json(rows).or_run()?;
    if args.json.as_deref() == Some(Path::new("-")) {
        terminal::print(json.trim_end()).or_run()?;
    } else {
        terminal::print(&table::render(rows)).or_run()?;
        if let Some(path) = &args.json {
            save(path, &json).or_run()?;
        }
    }
    if let Some(folder) = &args.report {
        let scenario: &Scenario = &cases[0].scenario;
        let report = CompareReport {
            name: &scenario.name,
            rows,
            manifest,
            scenario: scenario.to_toml(),
        };
        let page = folder.join("index.html");
        save(&page, &report.to_html().or_run()?).or_run()?;
        terminal::say(&format!("Report: {}", page.display()));
    }
    Ok(())
}
