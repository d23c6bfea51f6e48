use super::{bar, publish, show, table};
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use bentpipe_bench::sim::{self as bench, Options, Report, SimBenchError};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

/// Options of `bench sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds in which every subject has its turn; six or more give intervals
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Only these runs: loss-free, 1e-7, loss-free-snoop, 1e-7-snoop, spoofing-200
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    runs: Vec<String>,
    /// Two pairs of short runs: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Write the figures to FILE, one object a run and subject
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// ns-2's program
    #[arg(long, value_name = "PATH", default_value = "ns")]
    ns2: PathBuf,
    /// The C++ compiler for our ns-3 program
    #[arg(long, value_name = "PATH", default_value = "g++")]
    compiler: PathBuf,
}

/// Runs the comparison and prints its table.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::on_signals().or_usage()?;
    let options = Options {
        pairs: usize::from(args.pairs),
        runs: args.runs.clone(),
        quick: args.quick,
        ns2: args.ns2.clone(),
        compiler: args.compiler.clone(),
        cancel: stop.flag(),
        ..Options::default()
    };
    let report = measure(&options)?;
    let tables = [table(report.header(), report.table(), 2)];
    publish(&tables, report.notes(), args.json.as_deref(), |path| {
        report.write_json(path)
    })
}

fn measure(options: &Options) -> Result<Report, Failure> {
    let bar = stderr().is_terminal().then(bar);
    let report = bench::run(options, &mut |progress| {
        let title = format!(
            "{}, {}, pair {}",
            progress.run, progress.subject, progress.pair
        );
        show(bar.as_ref(), progress.done, progress.total, title);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    report.map_err(|error| match error {
        SimBenchError::Cancelled => Failure::Interrupted,
        SimBenchError::NoSuchRun { .. }
        | SimBenchError::NoBentpipe(_)
        | SimBenchError::Scratch { .. } => Failure::Usage(error.into()),
        error => Failure::Run(error.into()),
    })
}
