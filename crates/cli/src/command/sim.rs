//! `bentpipe sim`: scenarios in virtual time.

use super::traffic;
use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Captures, FlowOutcome, Options, Outcome, Series, Status};
use bentpipe_tcp::Cause;
use clap::Subcommand;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to do in the simulator.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the scenario in FILE in virtual time and print what each flow achieved
    #[command(after_help = "\
Examples:
  bentpipe sim run scenarios/geo.toml
  bentpipe sim run scenarios/geo.toml --seed 7 --json - | jq .flows
  bentpipe sim run scenarios/geo.toml --trace out --pcap out

Needs no rights and no network. The same file and seed give the same results, bit for bit.")]
    Run(Run),
}

/// Options of `sim run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The scenario, a TOML file
    file: PathBuf,
    /// Seed of every draw of chance [default: the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Turn every packet into bytes and back at every hop; results are the same
    #[arg(long)]
    wire: bool,
    /// Write a capture of each end of each link to DIR/LINK-NODE.pcapng
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write time and segment number of each flow, at its source and receiver, to DIR/FLOW.csv
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Write all figures to FILE; `-`: to stdout, in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Run(args) = command;
    let name = args.file.display().to_string();
    let text = fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read the scenario `{name}`; give the path of a TOML file"))
        .or_usage()?;
    let mut scenario = super::parse(&name, &text)?;
    traffic::load(&mut scenario, &args.file).or_usage()?;
    for warning in bentpipe_sim::warnings(&scenario).or_usage()? {
        terminal::say(&format!("warning: {warning}"));
    }
    let outcome = simulate(&scenario, args)?;
    report(&outcome, args)
}

fn simulate(scenario: &Scenario, args: &Run) -> Result<Outcome, Failure> {
    let options = Options {
        seed: args.seed,
        wire: args.wire,
        last: true,
    };
    if args.pcap.is_none() && args.trace.is_none() {
        return bentpipe_sim::run(scenario, &options).or_usage();
    }
    let captures = args
        .pcap
        .as_deref()
        .map(|folder| captures(scenario, folder));
    let captures = captures.transpose().or_usage()?;
    let series = args.trace.is_some().then(|| Series::new(scenario));
    let observed = bentpipe_sim::observe(scenario, &options, (series, captures));
    let (outcome, (series, captures)) = observed.or_usage()?;
    if let Some(captures) = captures {
        captures
            .finish()
            .context("cannot write the captures")
            .or_usage()?;
    }
    if let Some((folder, series)) = args.trace.as_deref().zip(series) {
        traces(folder, &outcome, &series).or_usage()?;
    }
    Ok(outcome)
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))
}

fn captures(scenario: &Scenario, folder: &Path) -> anyhow::Result<Captures<BufWriter<File>>> {
    make(folder)?;
    let open = |link: &str, node: &str| {
        let path = folder.join(format!("{link}-{node}.pcapng"));
        File::create(path).map(BufWriter::new)
    };
    Captures::new(scenario, open)
        .with_context(|| format!("cannot write captures to `{}`", folder.display()))
}

/// One file a flow: what its source sent and its receiver got, in the order of time.
fn traces(folder: &Path, outcome: &Outcome, series: &Series) -> anyhow::Result<()> {
    make(folder)?;
    for (flow, points) in outcome.flows.iter().zip(series.flows()) {
        let mut rows: Vec<_> = points
            .sent
            .iter()
            .map(|sent| {
                let event = if sent.again { "sent again" } else { "sent" };
                (sent.at, event, sent.end)
            })
            .collect();
        rows.extend(points.received.iter().map(|p| (p.at, "received", p.bytes)));
        rows.sort_by_key(|(at, ..)| *at);
        let mut text = String::from("time_s,event,segment\n");
        for (at, event, bytes) in rows {
            let segment = bytes.div_ceil(flow.mss.0.max(1));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{},{event},{segment}", at.as_secs_f64());
        }
        let path = folder.join(format!("{}.csv", flow.name));
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Prints the tables or the JSON, and fails when a flow did.
fn report(outcome: &Outcome, args: &Run) -> Result<(), Failure> {
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        let figures = serde_json::to_string_pretty(&figures(outcome)).or_run()?;
        terminal::print(&figures).or_run()?;
    } else {
        terminal::print(&flows(outcome).to_string()).or_run()?;
        terminal::print(&links(outcome).to_string()).or_run()?;
    }
    if let Some(path) = args.json.as_deref().filter(|_| !to_stdout) {
        fs::write(path, format!("{:#}\n", figures(outcome)))
            .with_context(|| format!("cannot write `{}`", path.display()))
            .or_usage()?;
    }
    let broken = outcome.flows.iter().find_map(|flow| match flow.status {
        Status::Broken(cause) => Some(anyhow!("flow `{}` failed: {}", flow.name, why(cause))),
        Status::Damaged => Some(anyhow!("flow `{}` received wrong bytes", flow.name)),
        Status::Finished | Status::CutOff => None,
    });
    broken.map_or(Ok(()), |error| Err(Failure::Run(error)))
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Reset => "the other side reset the connection",
        Cause::Refused => "the other side refused the connection",
        Cause::TimedOut => "what it sent was never acknowledged",
        Cause::Local => "its application gave up",
    }
}

fn flows(outcome: &Outcome) -> Table {
    let mut table = table([
        "flow",
        "control",
        "received",
        "segments",
        "goodput",
        "of limit",
        "sent again",
        "timeouts",
        "time",
    ]);
    let percent = |share: Option<f64>, digits| {
        share.map_or("—".into(), |s| format!("{:.digits$}%", s * 100.0))
    };
    for flow in &outcome.flows {
        table.add_row([
            flow.name.clone(),
            format!("{}/{}", flow.control, flow.recovery),
            format!("{:.3} MB", flow.received.0 as f64 / 1e6),
            flow.segments.to_string(),
            format!("{:.3} Mb/s", flow.goodput.mbps()),
            percent(flow.share(), 1),
            percent(flow.retransmitted(), 2),
            flow.source.timeouts.to_string(),
            time(flow),
        ]);
    }
    right(&mut table, 2);
    table
}

fn time(flow: &FlowOutcome) -> String {
    match (flow.status, flow.completion) {
        (Status::Finished, Some(time)) => format!("{:.2} s", time.as_secs_f64()),
        (Status::Finished, None) => format!("{:.0} s", flow.elapsed.as_secs_f64()),
        (Status::CutOff, _) => format!(">{:.0} s", flow.elapsed.as_secs_f64()),
        (Status::Broken(_) | Status::Damaged, _) => "failed".into(),
    }
}

fn links(outcome: &Outcome) -> Table {
    let mut table = table([
        "link",
        "way",
        "packets",
        "refused",
        "corrupted",
        "lost",
        "queue mean",
        "queue max",
    ]);
    for link in &outcome.links {
        let counters = &link.counters;
        table.add_row([
            link.link.clone(),
            format!("{} → {}", link.from, link.to),
            counters.packets.to_string(),
            counters.refused.to_string(),
            counters.corrupted.to_string(),
            counters.lost.to_string(),
            format!("{:.1}", counters.mean_queue(outcome.elapsed)),
            counters.longest_queue.to_string(),
        ]);
    }
    right(&mut table, 2);
    table
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

/// Sets the columns from `first` on to the right.
fn right(table: &mut Table, first: usize) {
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Everything that was counted.
fn figures(outcome: &Outcome) -> Value {
    json!({
        "scenario": outcome.name,
        "seed": outcome.seed,
        "elapsed_s": outcome.elapsed.as_secs_f64(),
        "flows": outcome.flows.iter().map(flow_figures).collect::<Vec<_>>(),
        "links": outcome.links.iter().map(|link| {
            let counters = &link.counters;
            json!({
                "link": link.link,
                "from": link.from,
                "to": link.to,
                "packets": counters.packets,
                "bytes": counters.bytes.0,
                "refused": counters.refused,
                "refused_data": link.refused_data,
                "corrupted": counters.corrupted,
                "lost": counters.lost,
                "queue_mean": counters.mean_queue(outcome.elapsed),
                "queue_max": counters.longest_queue,
            })
        }).collect::<Vec<_>>(),
        "peps": outcome.peps.iter().map(|pep| {
            let counters = pep.counters.iter().map(|(name, count)| ((*name).to_owned(), json!(count)));
            json!({ "pep": pep.name, "counters": Value::Object(counters.collect()) })
        }).collect::<Vec<_>>(),
    })
}

/// The keys of `lab run --json` under their names, and more.
fn flow_figures(flow: &FlowOutcome) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let outcome = match flow.status {
        Status::Finished => "finished",
        Status::CutOff => "cut off",
        Status::Broken(_) | Status::Damaged => "failed",
    };
    json!({
        "flow": flow.name,
        "outcome": outcome,
        "cc": flow.control,
        "recovery": flow.recovery,
        "received_bytes": flow.received.0,
        "segments": flow.segments,
        "goodput_mbps": flow.goodput.mbps(),
        "limit_mbps": flow.limit.map(|limit| limit.mbps()),
        "connect_s": seconds(flow.connect),
        "completion_s": seconds(flow.completion),
        "acknowledged_s": seconds(flow.acknowledged),
        "final_ack_s": seconds(flow.final_ack),
        "elapsed_s": flow.elapsed.as_secs_f64(),
        "retransmitted": flow.retransmitted(),
        "retransmitted_segments": flow.source.retransmitted,
        "timeouts": flow.source.timeouts,
        "recoveries": flow.source.recoveries,
        "cwnd_segments": flow.gauges.cwnd,
        "ssthresh_segments": flow.gauges.ssthresh,
    })
}
