//! `bentpipe traffic`: profiles of cross traffic, apart from any simulation.

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_base::{Bytes, read_text};
use bentpipe_scenario::{Scenario, Traffic};
use bentpipe_traffic::{Kind, Model, Profile};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What traffic to make.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Draw a profile of FTP transfers, for simulator and lab to replay
    #[command(after_help = "\
Examples:
  bentpipe traffic ftp --flows 50 --seed 1 -o profile.csv
  bentpipe traffic ftp --flows 50 --model reference --largest 1000000

A scenario replays it with: [traffic] profile = \"profile.csv\", between = [\"h3\", \"h4\"]. Sizes are
log-normal as Paxson found; their parameters are ours (see docs/traffic.md).")]
    Ftp(Ftp),
}

/// Options of `traffic ftp`; those of the model are as the model has them where not given.
#[derive(Debug, clap::Args)]
pub(crate) struct Ftp {
    /// How many transfers go on side by side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    flows: u64,
    /// Seed of every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where parameters come from: `ftp`, ours, or `reference`, those of the ns-2 runs
    #[arg(long, value_name = "NAME", default_value = "ftp", value_parser = kind())]
    model: Kind,
    /// Mean of log2 of the bytes
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    log2_mean: Option<f64>,
    /// Standard deviation of log2 of the bytes
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    log2_sd: Option<f64>,
    /// Share of transfers in the Pareto tail; 0: none
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    tail_share: Option<f64>,
    /// Exponent of the tail
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    tail_alpha: Option<f64>,
    /// No transfer has more bytes
    #[arg(long, value_name = "BYTES")]
    largest: Option<u64>,
    /// Mean gap between starts, in seconds
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    start_gap: Option<f64>,
    /// Mean pause between a transfer and the next of its flow, in seconds
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    idle: Option<f64>,
    /// Write the profile to FILE [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Ftp(args) = command;
    let model = model(args).or_usage()?;
    // At most 10,000.
    let profile = Profile::draw(model, args.flows as usize, args.seed);
    match &args.output {
        None => terminal::print(profile.to_string().trim_end()).or_run(),
        Some(path) => fs::write(path, profile.to_string())
            .with_context(|| format!("cannot write the profile `{}`", path.display()))
            .or_usage(),
    }
}

/// Reads the name of a model; its help lists the names.
fn kind() -> impl TypedValueParser<Value = Kind> {
    let names = PossibleValuesParser::new(Kind::ALL.map(Kind::name));
    names.try_map(|name| Kind::find(&name).ok_or("no model has that name"))
}

fn model(args: &Ftp) -> anyhow::Result<Model> {
    let stock = Model::of(args.model);
    let model = Model {
        log2_mean: args.log2_mean.unwrap_or(stock.log2_mean),
        log2_sd: args.log2_sd.unwrap_or(stock.log2_sd),
        tail_share: args.tail_share.unwrap_or(stock.tail_share),
        tail_alpha: args.tail_alpha.unwrap_or(stock.tail_alpha),
        largest: args.largest.map_or(stock.largest, Bytes),
        start_gap: seconds("--start-gap", args.start_gap, stock.start_gap)?,
        idle: seconds("--idle", args.idle, stock.idle)?,
        ..stock
    };
    model.check()?;
    Ok(model)
}

fn seconds(option: &str, said: Option<f64>, stock: Duration) -> anyhow::Result<Duration> {
    let Some(number) = said else {
        return Ok(stock);
    };
    let time = Duration::try_from_secs_f64(number).ok();
    time.filter(|time| *time <= Duration::from_secs(86_400))
        .ok_or_else(|| anyhow!("{option} is {number}; give seconds from 0 to 86400"))
}

/// Reads the profile that the traffic of `scenario` names, from beside the scenario's `file`.
pub(crate) fn load(scenario: &mut Scenario, file: &Path) -> anyhow::Result<()> {
    let length = scenario.time_limit;
    let Some(traffic) = &mut scenario.traffic else {
        return Ok(());
    };
    let Some(path) = Traffic::file(traffic).map(|name| file.with_file_name(name)) else {
        return Ok(());
    };
    let text = File::open(&path).and_then(read_text).with_context(|| {
        let path = path.display();
        format!("cannot read the profile `{path}`; make it with `bentpipe traffic ftp -o {path}`")
    })?;
    traffic.load(&text, length)?;
    Ok(())
}
