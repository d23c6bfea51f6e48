//! What a run found, on the terminal and as JSON: the same of either engine.

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_outcome::{End, Flow, Run, SimplexLink};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::fs;
use std::path::Path;

/// Prints the tables unless it is to be `quiet`, or to `json` all figures (`-`: to stdout, in place of the tables), and
/// fails when a flow did.
pub(super) fn report(run: &Run, json: Option<&Path>, quiet: bool) -> Result<(), Failure> {
    let text = || serde_json::to_string_pretty(&run.document()).or_run();
    match json {
        Some(path) if path == Path::new("-") => terminal::print(&text()?).or_run()?,
        _ if quiet => {}
        _ => {
            terminal::print(&flows(run).to_string()).or_run()?;
            terminal::print(&links(run).to_string()).or_run()?;
            if let Some(traffic) = &run.traffic {
                let line = format!(
                    "Cross traffic: {} transfers whole, {} broken, {:.3} MB",
                    traffic.finished,
                    traffic.broken,
                    traffic.received.0 as f64 / 1e6
                );
                terminal::print(&line).or_run()?;
            }
        }
    }
    if let Some(path) = json.filter(|path| *path != Path::new("-")) {
        fs::write(path, text()? + "\n")
            .with_context(|| format!("cannot write `{}`", path.display()))
            .or_usage()?;
    }
    let broken = run.flows.iter().find_map(|flow| match &flow.end {
        End::Failed(why) => Some(anyhow!("flow `{}` failed: {why}", flow.name)),
        End::Finished | End::CutOff => None,
    });
    broken.map_or(Ok(()), |error| Err(Failure::Run(error)))
}

fn flows(run: &Run) -> Table {
    let mut table = table([
        "flow",
        "control",
        "received",
        "goodput",
        "of limit",
        "sent again",
        "timeouts",
        "time",
    ]);
    for flow in &run.flows {
        let control = match flow.recovery {
            Some(recovery) => format!("{}/{recovery}", flow.control),
            None => flow.control.clone(),
        };
        let share = flow.share();
        table.add_row([
            flow.name.clone(),
            control,
            format!("{:.3} MB", flow.received.0 as f64 / 1e6),
            format!("{:.3} Mb/s", flow.goodput().mbps()),
            share.map_or("—".into(), |share| format!("{:.1}%", share * 100.0)),
            sent_again(flow),
            flow.timeouts.map_or("—".into(), |it| it.to_string()),
            time(flow),
        ]);
    }
    right(&mut table, 2);
    table
}

/// By the source, and by each gateway under its name.
fn sent_again(flow: &Flow) -> String {
    let shares: Vec<String> = flow
        .retransmitted()
        .map(|(by, share)| {
            let by = by.map_or(String::new(), |gateway| format!("{gateway} "));
            format!("{by}{:.2}%", share * 100.0)
        })
        .collect();
    if shares.is_empty() {
        return "—".into();
    }
    shares.join(", ")
}

fn time(flow: &Flow) -> String {
    match (&flow.end, flow.completion) {
        (End::Finished, Some(time)) => format!("{:.2} s", time.as_secs_f64()),
        (End::Finished, None) => format!("{:.0} s", flow.elapsed.as_secs_f64()),
        (End::CutOff, _) => format!(">{:.0} s", flow.elapsed.as_secs_f64()),
        (End::Failed(_), _) => "failed".into(),
    }
}

fn links(run: &Run) -> Table {
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
    for link in &run.links {
        let mean = link.mean_queue(run.elapsed);
        let longest = link.longest_queue;
        table.add_row([
            link.link.clone(),
            format!("{} → {}", link.from, link.to),
            link.packets.to_string(),
            link.refused.to_string(),
            link.corrupted.to_string(),
            lost(link),
            mean.map_or("—".into(), |mean| format!("{mean:.1}")),
            longest.map_or("—".into(), |longest| longest.to_string()),
        ]);
    }
    right(&mut table, 2);
    table
}

/// On the way, and before the queue where errors stand there.
fn lost(link: &SimplexLink) -> String {
    match link.struck_before_queue {
        0 => link.lost.to_string(),
        struck => format!("{} + {struck} before the queue", link.lost),
    }
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
