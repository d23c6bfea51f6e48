use super::{bar, publish, show, table};
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use anyhow::anyhow;
use bentpipe_bench::packet::{self as bench, Options, PacketBenchError, Report};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

/// Options of `bench packet`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds in which every subject has its turn; six or more give intervals
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Two pairs of short measurements: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Leave out gateways, which snoop or speak SCPS-TP, beside plain forwarding
    #[arg(long)]
    without_gateways: bool,
    /// Write the figures to FILE, one object a figure and subject
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The example `smoltcp`, which `make bench-packet` builds
    #[arg(
        long,
        value_name = "PATH",
        default_value = "target/release/examples/smoltcp"
    )]
    smoltcp: PathBuf,
}

/// Runs the comparison and prints its table.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::on_signals().or_usage()?;
    let options = Options {
        pairs: usize::from(args.pairs),
        quick: args.quick,
        without_gateways: args.without_gateways,
        smoltcp: args.smoltcp.clone(),
        cancel: stop.flag(),
        ..Options::default()
    };
    let report = measure(&options)?;
    let tables = [table(report.header(), report.table(), 3)];
    publish(&tables, report.notes(), args.json.as_deref(), |path| {
        report.write_json(path)
    })?;
    let missed: Vec<_> = report
        .missed()
        .map(|entry| format!("{} of {}", entry.figure, entry.subject))
        .collect();
    if missed.is_empty() || args.quick {
        Ok(())
    } else {
        Err(anyhow!("short of the goal: {}", missed.join(", "))).or_run()
    }
}

fn measure(options: &Options) -> Result<Report, Failure> {
    let bar = stderr().is_terminal().then(bar);
    let report = bench::run(options, &mut |progress| {
        let title = format!("{}, pair {}", progress.subject, progress.pair);
        show(bar.as_ref(), progress.done, progress.total, title);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    report.map_err(|error| match error {
        error if error.is_cancelled() => Failure::Interrupted,
        PacketBenchError::Missing(_)
        | PacketBenchError::Netns(_)
        | PacketBenchError::Tun(_)
        | PacketBenchError::Rival(_) => Failure::Usage(error.into()),
        error => Failure::Run(error.into()),
    })
}
