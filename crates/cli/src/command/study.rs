//! `bentpipe study`: the tables and figures of papers, from sweeps of simulations.

mod kernel;
mod output;
mod progress;
mod time_sequences;

use crate::failure::{Blame, Failure};
use crate::lateness::Lateness;
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_report::study::StudyReport;
use bentpipe_report::svg;
use bentpipe_scenario::study::{Engine, Figure, FigureKind, SMALL_SHARE};
use bentpipe_scenario::{Scenario, Study};
use bentpipe_study::{
    Cell, Drawn, Judged, Line, Loaded, MOST_POINTS, Options, Results, Samples, Shard, StudyError,
    capture_folder, cells, gaps, judge, lines, load, share_within, simulate_captured, single,
    sizes, time_sequence,
};
use clap::Subcommand;
use progress::Bar;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What to do with a study.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every point of the study at PATH and print its tables
    #[command(after_help = "\
Examples:
  bentpipe study run papers/sing-soh-2005
  bentpipe study run papers/sing-soh-2005 --seeds 100 --json cells.json --report report
  bentpipe study run papers/sing-soh-2005/bursty.toml --quick
  sudo bentpipe study run papers/quic-4-sat --engine lab

Points run in the simulator or, where the file or --engine says so, on the kernel's TCP in the lab,
in wall time and as root. Ctrl-C keeps what is finished; the same command goes on from there. Every
value of an axis is in the study's file; docs/studies.md says what it may hold. With --shard jobs of
an array share the points out; `study merge` puts their folders together (docs/clusters.md).")]
    Run(Run),
    /// Put the folders of all shards of the study at PATH together, and print its tables
    #[command(after_help = "\
Examples:
  bentpipe study merge papers/sing-soh-2005
  bentpipe study merge papers/sing-soh-2005 --seeds 100 --out all node1/3-of-16 node2/4-of-16

The folder ends with the same bytes as that of a run of all points. Give the --seeds, --quick and
--engine that the shards had. Shards that are not there, or not finished, are named.")]
    Merge(Merge),
    /// Print the tables of those points of the study at PATH that are finished, and write its report
    #[command(after_help = "\
Examples:
  bentpipe study report papers/sing-soh-2005
  bentpipe study report papers/sing-soh-2005 --quick --report so-far

Nothing is run, and the study may run meanwhile: each cell is of the points that there are.")]
    Report(Report),
}

/// Which points of which study, and where their results are kept.
#[derive(Debug, clap::Args)]
struct Sweep {
    /// A study's folder, or its TOML file
    path: PathBuf,
    /// Seeds 1 to N [default: the study's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Fewer values, where the study names some for this
    #[arg(long)]
    quick: bool,
    /// Run the points on this engine [default: the study's, or else the simulator]
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    engine: Option<Engine>,
    /// Folder for the results [default: results/FOLDER/FILE, of the lab results/FOLDER/FILE-lab]; those of
    /// shards are in DIR-shards
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Points that are run at a time [default: the processors; in the lab 1]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Run more than a million points
    #[arg(long)]
    yes: bool,
    /// Replace the results that are there
    #[arg(long)]
    fresh: bool,
}

/// What is made of the points.
#[derive(Debug, clap::Args)]
struct Output {
    /// Write the cells of all tables, and the statements, to FILE; `-`: to stdout, in place of them
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the cells as CSV to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Folder for the HTML report, index.html, and each figure, figure-NAME.svg [default: `report` in the
    /// results' folder; in the lab not where a figure shows the course of single runs]
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Options of `study run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    sweep: Sweep,
    /// Run part K of N of the points alone, such as 3/16; print no tables
    #[arg(long, value_name = "K/N", conflicts_with_all = ["json", "csv", "report"])]
    shard: Option<Shard>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    lateness: Lateness,
}

/// Options of `study merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    sweep: Sweep,
    /// Folders of shards [default: all in DIR-shards, DIR that of the results]
    #[arg(value_name = "SHARD")]
    shards: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Options of `study report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    #[command(flatten)]
    sweep: Sweep,
    #[command(flatten)]
    output: Output,
}

fn engine(name: &str) -> Result<Engine, String> {
    let found = Engine::ALL.into_iter().find(|engine| engine.name() == name);
    found.ok_or_else(|| "simulator or lab".to_owned())
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let began = Instant::now();
    match command {
        Command::Run(args) => {
            let loaded = chosen(&args.sweep)?;
            let out = folder(&loaded, &args.sweep);
            match args.shard {
                None => {
                    let results = measured(&loaded, args, &out)?;
                    finished(&loaded, &results, &out, &args.output, began)
                }
                Some(shard) => {
                    let out = shards(&out).join(shard.folder());
                    let Results {
                        points, resumed, ..
                    } = measured(&loaded, args, &out)?;
                    terminal::print(&format!(
                        "shard {shard}: {points} points, {} of them run now, {:.1} s; results: {}",
                        points - resumed,
                        began.elapsed().as_secs_f64(),
                        out.display()
                    ))
                    .or_run()
                }
            }
        }
        Command::Merge(args) => {
            let loaded = chosen(&args.sweep)?;
            let out = folder(&loaded, &args.sweep);
            let results = merged(&loaded, args, &out)?;
            finished(&loaded, &results, &out, &args.output, began)
        }
        Command::Report(args) => {
            let loaded = chosen(&args.sweep)?;
            let out = folder(&loaded, &args.sweep);
            let results = so_far(&loaded, &args.sweep, &out)?;
            finished(&loaded, &results, &out, &args.output, began)
        }
    }
}

fn so_far(loaded: &Loaded, args: &Sweep, out: &Path) -> Result<Results, Failure> {
    let options = Options {
        out,
        shard: None,
        threads: args.threads.map_or_else(processors, NonZeroUsize::get),
        fresh: false,
        cancel: &AtomicBool::new(false),
        progress: &|_| {},
    };
    bentpipe_study::read_so_far(&loaded.study, &options).map_err(blame)
}

/// Prints and writes what is made of all points, whose results are in `out`.
fn finished(
    loaded: &Loaded,
    results: &Results,
    out: &Path,
    output: &Output,
    began: Instant,
) -> Result<(), Failure> {
    let made = Made {
        cells: cells(&loaded.study, &results.samples, &loaded.beside),
        statements: judge(
            &loaded.study,
            &results.samples,
            &loaded.beside,
            small_share(&loaded.study),
        ),
    };
    print(loaded, results, &made, began.elapsed(), output)?;
    let gaps = output::gaps(&loaded.study, &gaps(&loaded.study, &results.samples));
    if !gaps.is_empty() {
        terminal::say(&gaps);
    }
    let file = output.json.as_deref();
    if let Some(path) = file.filter(|path| *path != Path::new("-")) {
        write(path, &output::json(&made.cells, &made.statements).or_run()?).or_run()?;
    }
    if let Some(path) = &output.csv {
        write(path, &output::csv(&made.cells)).or_run()?;
    }
    match &output.report {
        Some(folder) => report(loaded, results, &made, (out, folder)),
        None if loaded.study.engine() == Engine::Lab && has_courses(&loaded.study) => Ok(()),
        None => report(loaded, results, &made, (out, &out.join("report"))),
    }
}

/// What is made of the points.
struct Made {
    cells: Vec<Cell>,
    statements: Vec<Judged>,
}

/// The study with seeds and values as the options say; a size that cannot be meant is refused.
fn chosen(args: &Sweep) -> Result<Loaded, Failure> {
    let mut loaded = load(&args.path).map_err(blame)?;
    let study = &mut loaded.study;
    if let Some(engine) = args.engine {
        study.set_engine(engine);
    }
    if args.quick {
        study.set_quick();
    }
    if let Some(seeds) = args.seeds
        && !study.set_seeds(seeds)
    {
        let why =
            "the study has no axis named `seed`; leave --seeds out, or add one with key = \"seed\"";
        return Err(Failure::Usage(anyhow!(why)));
    }
    let points = study.len();
    if points > MOST_POINTS && !args.yes {
        let axes: Vec<String> = study
            .axes()
            .iter()
            .map(|axis| format!("{} of {}", axis.len(), axis.name()))
            .collect();
        let why = format!(
            "the study has {points} points ({}), more than a million: give fewer values or seeds, or --yes",
            axes.join(" × ")
        );
        return Err(Failure::Usage(anyhow!(why)));
    }
    Ok(loaded)
}

/// Where the results are kept.
fn folder(loaded: &Loaded, args: &Sweep) -> PathBuf {
    args.out.clone().unwrap_or_else(|| {
        let mut name = loaded.name.clone().into_os_string();
        let lab = loaded.study.engine() == Engine::Lab;
        name.push(if lab { "-lab" } else { "" });
        Path::new("results").join(name)
    })
}

/// Beside the folder of results those of its shards, which are not part of it.
fn shards(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push("-shards");
    PathBuf::from(name)
}

fn merged(loaded: &Loaded, args: &Merge, out: &Path) -> Result<Results, Failure> {
    let folders = match &args.shards[..] {
        [] => below(&shards(out)),
        named => named.to_vec(),
    };
    if folders.is_empty() {
        let why = anyhow!(
            "there are no shards in {}: run them by `bentpipe study run PATH --shard K/N`, or name their folders",
            shards(out).display()
        );
        return Err(Failure::Usage(why));
    }
    let flag = Stop::on_signals().or_usage()?.flag();
    let bar = Bar::new(loaded.study.len());
    let options = Options {
        out,
        shard: None,
        threads: args
            .sweep
            .threads
            .map_or_else(processors, NonZeroUsize::get),
        fresh: args.sweep.fresh,
        cancel: &flag,
        progress: &|progress| bar.show(progress),
    };
    let results = bentpipe_study::merge(&loaded.study, &options, &folders);
    bar.finish();
    results.map_err(blame)
}

/// The folders in `path`, by name; none where it is not there.
fn below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.sort_unstable();
    folders
}

fn measured(loaded: &Loaded, args: &Run, out: &Path) -> Result<Results, Failure> {
    let study = &loaded.study;
    let lab = study.engine() == Engine::Lab;
    let stop = Stop::on_signals().or_usage()?;
    if lab {
        crate::command::lab::needs(study.base()).or_usage()?;
    }
    let most = || if lab { 1 } else { processors() };
    let flag = stop.flag();
    let bar = Bar::new(
        args.shard
            .map_or(study.len(), |shard| shard.len(study.len())),
    );
    let warnings = Warnings::default();
    let single = single(study);
    let options = Options {
        out,
        shard: args.shard,
        threads: args.sweep.threads.map_or_else(most, NonZeroUsize::get),
        fresh: args.sweep.fresh,
        cancel: &flag,
        progress: &|progress| bar.show(progress),
    };
    let folder = |scenario: &Scenario| study.is_captured().then(|| capture_folder(out, scenario));
    let results = if lab {
        let kernel = kernel::Kernel::new(args.lateness, stop.flag());
        let measure = |scenario: &Scenario| kernel.measure(scenario, &single, folder(scenario));
        bentpipe_study::run(study, &options, &measure)
    } else {
        let measure = |scenario: &Scenario| {
            warnings.note(scenario);
            match folder(scenario) {
                Some(folder) => simulate_captured(scenario, &single, &folder),
                None => bentpipe_pair::simulate(scenario, &single),
            }
        };
        bentpipe_study::run(study, &options, &measure)
    };
    bar.finish();
    warnings.say();
    results.map_err(blame)
}

/// Warnings about points, each with the number of points that it is about.
#[derive(Default)]
struct Warnings(Mutex<BTreeMap<String, u64>>);

impl Warnings {
    /// A scenario that cannot run is reported when it is run.
    fn note(&self, scenario: &Scenario) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in bentpipe_sim::warnings(scenario).unwrap_or_default() {
            *all.entry(warning).or_default() += 1;
        }
    }

    fn say(self) {
        let all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (warning, points) in all {
            terminal::say(&format!("warning: at {points} points {warning}"));
        }
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn print(
    loaded: &Loaded,
    results: &Results,
    made: &Made,
    took: Duration,
    output: &Output,
) -> Result<(), Failure> {
    if output.json.as_deref() == Some(Path::new("-")) {
        return terminal::print(&output::json(&made.cells, &made.statements).or_run()?).or_run();
    }
    for spec in loaded.study.tables() {
        let text = output::table(&loaded.study, spec, &made.cells);
        terminal::print(&text).or_run()?;
    }
    if !made.statements.is_empty() {
        terminal::print(&output::statements(&made.statements)).or_run()?;
    }
    let points = results.points;
    let ran = points - results.resumed;
    terminal::print(&format!(
        "{points} points, {ran} of them run now, {:.1} s. {}",
        took.as_secs_f64(),
        output::summary(&made.cells)
    ))
    .or_run()
}

/// Whether a figure shows the course of single runs, which the lab does not keep.
fn has_courses(study: &Study) -> bool {
    let mut figures = study.figures().iter();
    figures.any(|figure| figure.kind == FigureKind::TimeSequence)
}

/// Writes the report of the results in `out` to `folder`.
fn report(
    loaded: &Loaded,
    results: &Results,
    made: &Made,
    (out, folder): (&Path, &Path),
) -> Result<(), Failure> {
    let study = &loaded.study;
    let lines = study
        .figures()
        .iter()
        .map(|figure| lines_of(study, figure, &results.samples))
        .collect::<Result<Vec<_>, _>>()
        .map_err(blame)?;
    let figures: Vec<Drawn<'_>> = study
        .figures()
        .iter()
        .zip(&lines)
        .map(|(figure, lines)| Drawn::new(study, figure, lines))
        .collect();
    let graphs = time_sequences::graphs(study, out)?;
    let page = StudyReport {
        study,
        cells: &made.cells,
        statements: &made.statements,
        figures: &figures,
        graphs: &graphs,
        points: results.points,
    };
    let html = page.to_html().or_run()?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))
        .or_run()?;
    let file = folder.join("index.html");
    write(&file, &html).or_run()?;
    let save = |name: &str, text: &str| {
        let name: String = name.chars().map(plain).collect();
        write(&folder.join(format!("figure-{name}.svg")), text).or_run()
    };
    for figure in &figures {
        save(figure.name, &svg(figure))?;
    }
    for graph in &graphs {
        save(graph.name, &graph.svg)?;
    }
    terminal::say(&format!("report: {}", file.display()));
    Ok(())
}

fn lines_of(study: &Study, figure: &Figure, samples: &Samples) -> Result<Vec<Line>, StudyError> {
    match study.engine() {
        Engine::Simulator => lines(study, figure, samples, &time_sequence),
        Engine::Lab => lines(study, figure, samples, &|_: &Scenario| {
            Err("the lab keeps no course of single runs for figures: leave out --report".to_owned())
        }),
    }
}

/// Percent of the cross traffic's transfers of at most ten segments, where a statement asks for it.
fn small_share(study: &Study) -> Option<f64> {
    let asked = study
        .statements()
        .iter()
        .any(|one| one.measure == SMALL_SHARE);
    let sizes = asked.then(|| sizes(study.base())).flatten()?;
    Some(share_within(&sizes, 10.0))
}

/// What may stand in the name of a file.
const fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '-' }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| {
        let path = path.display();
        format!("cannot write `{path}`; the results are kept, give another file and run again")
    })
}

fn blame(error: StudyError) -> Failure {
    match error {
        StudyError::Problems(problems) => Failure::Mistakes(problems),
        StudyError::Interrupted { .. } => {
            terminal::say(&error.to_string());
            Failure::Interrupted
        }
        StudyError::Write { .. }
        | StudyError::Point { .. }
        | StudyError::Failed { .. }
        | StudyError::Lost { .. }
        | StudyError::Row(_) => Failure::Run(error.into()),
        StudyError::Read { .. }
        | StudyError::Values { .. }
        | StudyError::Profile { .. }
        | StudyError::Traffic(_)
        | StudyError::TooMany { .. }
        | StudyError::Busy(_)
        | StudyError::Taken(_)
        | StudyError::Foreign { .. }
        | StudyError::ForeignShard { .. }
        | StudyError::NoShard(_)
        | StudyError::NoResults(_)
        | StudyError::Unfinished { .. }
        | StudyError::ReadShard { .. } => Failure::Usage(error.into()),
    }
}
