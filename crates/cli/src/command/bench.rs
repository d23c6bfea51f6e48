//! `bentpipe bench`: our programs against their rivals.

mod packet;
mod saratoga;
mod sim;

use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_bench::gateway::{self as bench, BenchError, Options, Report, Subject};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Kernel forwarding, HAProxy and our gateway in turn on one path
    #[command(after_help = "\
Examples:
  bentpipe bench gateway                                  everything, about eight minutes
  bentpipe bench gateway --figures goodput,cpu --pairs 9  some figures, more pairs
  bentpipe bench gateway --subjects bentpipe,bentpipe-past-chains --figures goodput,cpu,proxy_cpu,connects
                                                          what it costs to go past input and output chains
  bentpipe bench gateway --subjects bentpipe-twice,bentpipe-quic
                                                          two gateways in a row: the kernel's TCP between them, and QUIC
  bentpipe bench gateway --json bench/gateway.json        also as JSON")]
    Gateway(Args),
    /// ns-2, ns-3 and our simulator in turn on one simulated link
    #[command(after_help = "\
Examples:
  bentpipe bench sim                                   everything, about three minutes
  bentpipe bench sim --runs loss-free,1e-7 --pairs 9   some runs, more pairs
  bentpipe bench sim --json bench/sim.json             also as JSON")]
    Sim(sim::Args),
    /// Our files by Saratoga, iperf3 over UDP and over TCP in turn on one wire
    #[command(after_help = "\
Examples:
  bentpipe bench saratoga                                        about a minute
  bentpipe bench saratoga --json bench/saratoga.json             also as JSON
  bentpipe bench saratoga --size 4GiB --loss 10% --pairs 1       ours alone: memory under loss")]
    Saratoga(saratoga::Args),
    /// Our TCP in user space, smoltcp's and the kernel's in turn over TUN; Snoop and SCPS-TP in gateways; the host half alone
    #[command(after_help = "\
Examples:
  bentpipe bench packet                               two minutes
  bentpipe bench packet --json bench/packet.json      also as JSON
  bentpipe bench packet --without-gateways --pairs 9  our TCP alone, more pairs")]
    Packet(packet::Args),
}

/// Options of `bench gateway`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds in which every subject has its turn; six or more give intervals
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Only figures of these names, or whose names begin so
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    figures: Vec<String>,
    /// Only these take part [default: kernel, haproxy, haproxy-splice-auto, bentpipe and bentpipe-early]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Subject::ALL.map(Subject::name)).map(subject))]
    subjects: Vec<Subject>,
    /// Two pairs of short measurements: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Write the figures to FILE, one object a figure and subject
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// HAProxy's program
    #[arg(long, value_name = "PATH", default_value = "haproxy")]
    haproxy: PathBuf,
}

/// Runs the comparison and prints its table.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Gateway(args) => gateway(args),
        Command::Sim(args) => sim::run(args),
        Command::Saratoga(args) => saratoga::run(args),
        Command::Packet(args) => packet::run(args),
    }
}

fn gateway(args: &Args) -> Result<(), Failure> {
    let stop = Stop::on_signals().or_usage()?;
    let options = Options {
        pairs: usize::from(args.pairs),
        figures: args.figures.clone(),
        subjects: match &args.subjects[..] {
            [] => Subject::usual(),
            // In the order of the table, each once.
            some => Subject::ALL
                .into_iter()
                .filter(|one| some.contains(one))
                .collect(),
        },
        quick: args.quick,
        haproxy: args.haproxy.clone(),
        cancel: stop.flag(),
        ..Options::default()
    };
    let report = measure(&options, &stop)?;
    let mut tables = vec![table(report.header(), report.table(), 3)];
    let compared = report.comparisons();
    if !compared.is_empty() {
        let header = Report::COMPARISON_HEADER.map(str::to_owned).to_vec();
        tables.push(table(header, compared, 3));
    }
    publish(&tables, report.notes(), args.json.as_deref(), |path| {
        report.write_json(path)
    })?;
    verdict(&report, args.quick)
}

/// The subject of a name that was found among all.
fn subject(name: String) -> Subject {
    Subject::named(&name).expect("the name is one of them")
}

fn measure(options: &Options, stop: &Stop) -> Result<Report, Failure> {
    let bar = stderr().is_terminal().then(bar);
    let report = bench::run(options, &mut |progress| {
        let title = format!(
            "{}, {}, pair {}",
            progress.figure,
            progress.subject.name(),
            progress.pair
        );
        show(bar.as_ref(), progress.done, progress.total, title);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    // Whatever an interrupted measurement stumbled over, the interruption was the cause.
    report.map_err(|error| {
        if stop.asked() {
            Failure::Interrupted
        } else {
            blame(error)
        }
    })
}

/// Whose fault an error of the bench is: what the machine lacks is the caller's.
fn blame(error: BenchError) -> Failure {
    match error {
        error if error.is_cancelled() => Failure::Interrupted,
        BenchError::NoSuchFigure { .. }
        | BenchError::Missing(_)
        | BenchError::NoHaproxy { .. }
        | BenchError::NoBentpipe { .. }
        | BenchError::Descriptors { .. }
        | BenchError::Netns(_)
        | BenchError::Nft { .. } => Failure::Usage(error.into()),
        error => Failure::Run(error.into()),
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32.cyan/dim} {pos}/{len} · {eta} left · {msg}")
        .expect("the template is well-formed")
        .progress_chars("━╸─");
    let bar = ProgressBar::new(0).with_style(style);
    terminal::attach(&bar);
    bar
}

/// Shows how far a comparison is and what is measured now.
fn show(bar: Option<&ProgressBar>, done: usize, total: usize, title: String) {
    match bar {
        Some(bar) => {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(title);
        }
        None => tracing::info!("{done}/{total}: {title}"),
    }
}

/// A table whose columns from `first` on are numbers.
fn table(header: Vec<String>, rows: Vec<Vec<String>>, first: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Prints what was found, and writes it to `json`, if there is such a place, by `write`.
fn publish(
    tables: &[String],
    notes: &[String],
    json: Option<&Path>,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Failure> {
    for line in tables.iter().chain(notes) {
        terminal::print(line).or_run()?;
    }
    let Some(path) = json else {
        return Ok(());
    };
    write(path)
        .with_context(|| format!("cannot write `{}`", path.display()))
        .or_usage()
}

/// A figure on the wrong side fails the bench; two quick pairs decide nothing.
fn verdict(report: &Report, quick: bool) -> Result<(), Failure> {
    let wrong: Vec<&str> = report.wrong_side().map(|entry| entry.figure).collect();
    if quick || wrong.is_empty() {
        return Ok(());
    }
    let figures = wrong.join(", ");
    Err(Failure::Run(anyhow!(
        "ours is wholly on the wrong side of what is asked in {figures}"
    )))
}
