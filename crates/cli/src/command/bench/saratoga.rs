use super::{bar, publish, show, table};
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use anyhow::anyhow;
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_bench::saratoga::{self as bench, Options, Report, SaratogaBenchError};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

/// Options of `bench saratoga`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds in which every subject has its turn; six or more give intervals
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// The file's size; it is in memory twice
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    size: Bytes,
    /// The rate that our sender is told: more than the machine can
    #[arg(long, value_name = "RATE", default_value = "100Gbit/s")]
    rate: Rate,
    /// Packets lost, each way; with it ours is measured alone
    #[arg(long, value_name = "SHARE", default_value = "0")]
    loss: Probability,
    /// Octets of a packet; only the default is judged
    #[arg(long, value_name = "OCTETS", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_000))]
    mtu: u32,
    /// Two pairs of short measurements: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Write the figures to FILE, one object a subject
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// iperf3's program
    #[arg(long, value_name = "PATH", default_value = "iperf3")]
    iperf3: PathBuf,
}

/// Runs the comparison and prints its table.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::on_signals().or_usage()?;
    let options = Options {
        pairs: usize::from(args.pairs),
        size: args.size,
        rate: args.rate,
        loss: args.loss,
        mtu: args.mtu,
        quick: args.quick,
        iperf3: args.iperf3.clone(),
        cancel: stop.flag(),
        ..Options::default()
    };
    let report = measure(&options)?;
    let tables = [table(report.header(), report.table(), 1)];
    publish(&tables, report.notes(), args.json.as_deref(), |path| {
        report.write_json(path)
    })?;
    let missed: Vec<&str> = report.missed().map(|entry| entry.subject).collect();
    if missed.is_empty() || args.mtu != Options::default().mtu {
        Ok(())
    } else {
        Err(anyhow!("below the target against {}", missed.join(", "))).or_run()
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
        SaratogaBenchError::Cancelled => Failure::Interrupted,
        SaratogaBenchError::Missing(_)
        | SaratogaBenchError::NoBentpipe(_)
        | SaratogaBenchError::Netns(_)
        | SaratogaBenchError::Nft(_)
        | SaratogaBenchError::Files { .. } => Failure::Usage(error.into()),
        error => Failure::Run(error.into()),
    })
}
