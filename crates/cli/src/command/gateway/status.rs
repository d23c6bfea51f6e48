//! `bentpipe gateway status`: a running gateway for people, once or every second.

use super::At;
use super::status_lines::optional_lines;
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::Context;
use bentpipe_gateway::protocol::{self, Request};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

/// How often `--watch` looks.
const TICK: Duration = Duration::from_secs(1);
/// Rates over more seconds than this say little of now: they are asked for again after a [`TICK`].
const STALE: f64 = 5.0;

/// Options of `gateway status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    /// Show it again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Everything as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Shows what `args` ask for.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::on_signals().or_usage()?;
    let mut status = ask(args)?;
    if !args.watch && is_stale(&status) {
        thread::sleep(TICK);
        status = ask(args)?;
    }
    loop {
        let text = if args.json {
            status.to_string()
        } else {
            page(&status)
        };
        let clear = if args.watch && !args.json && std::io::stdout().is_terminal() {
            "\x1b[H\x1b[2J"
        } else {
            ""
        };
        let is_read = terminal::show(&format!("{clear}{text}")).or_run()?;
        if !is_read {
            return Ok(());
        }
        let until = Instant::now() + TICK;
        while args.watch && !stop.asked() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        if !args.watch || stop.asked() {
            return Ok(());
        }
        status = ask(args)?;
    }
}

fn ask(args: &Args) -> Result<Value, Failure> {
    let At { control, config } = &args.at;
    let mut answer = protocol::ask_by(control, config.as_deref(), &Request::Status).or_run()?;
    let status = answer.get_mut("status").map(Value::take);
    status
        .context("the gateway's answer has no status: is it of another version?")
        .or_run()
}

/// Whether there are flows whose rates are over so long a time that they say little of now.
fn is_stale(status: &Value) -> bool {
    status.pointer("/busiest/0").is_some() && number(status, "/rates_over") > STALE
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

/// A number of bytes with three digits or so.
fn bytes(count: f64) -> String {
    let (unit, size) = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]
        .into_iter()
        .find(|(_, size)| count >= *size)
        .unwrap_or(("B", 1.0));
    match count / size {
        value if unit == "B" || value >= 100.0 => format!("{value:.0} {unit}"),
        value => format!("{value:.1} {unit}"),
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", whole % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

fn page(status: &Value) -> String {
    let mut page = format!(
        "bentpipe {}, process {}, up {}: {}\n",
        text(status, "/version"),
        number(status, "/pid"),
        duration(number(status, "/uptime")),
        match text(status, "/limit") {
            "" => text(status, "/admission").to_owned(),
            limit => format!("{} (limit of {limit})", text(status, "/admission")),
        },
    );
    let lacks = status["lacks"].as_array().into_iter().flatten();
    page.extend(
        lacks
            .filter_map(Value::as_str)
            .map(|lack| format!("lacks    {lack}\n")),
    );
    let flow = |state: &str| number(status, &format!("/flows/{state}"));
    let counter = |name: &str| number(status, &format!("/counters/{name}"));
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "flows    {} of {}: {} dialling, {} established, {} half-closed; {} closing",
        flow("open"),
        number(status, "/limits/flows"),
        flow("dialling"),
        flow("established"),
        flow("half_closed"),
        flow("closing"),
    );
    let _ = writeln!(
        page,
        "buffers  {} of {}",
        bytes(number(status, "/buffered")),
        bytes(number(status, "/limits/buffered")),
    );
    let _ = writeln!(
        page,
        "carried  {} to the satellite, {} to the ground",
        bytes(counter("bytes_to_sat")),
        bytes(counter("bytes_to_lan")),
    );
    page += &optional_lines(status);
    // Whatever else has happened, in the order of the names.
    let others = status
        .pointer("/counters")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| {
            let counts = !name.starts_with("bytes_") && value.as_f64() > Some(0.0);
            counts.then(|| format!("{} {value}", name.replace('_', " ")))
        });
    let _ = writeln!(page, "so far   {}", others.collect::<Vec<_>>().join(", "));
    let unsplit = status
        .pointer("/unsplit")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|one| {
            let count = number(one, "/bytes");
            (count > 0.0).then(|| format!("{} {}", text(one, "/reason"), bytes(count)))
        });
    let _ = writeln!(
        page,
        "unsplit  {}\n",
        unsplit.collect::<Vec<_>>().join(", ")
    );
    page + &legs(status) + "\n\n" + &busiest(status)
}

fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn legs(status: &Value) -> String {
    let header = [
        "LEG",
        "INTERFACE",
        "CONTROL",
        "RATE",
        "CONNECTIONS",
        "RTT ms",
        "MAX",
        "SENT AGAIN",
        "WAITING",
    ];
    let mut table = table(&header, 3);
    for leg in ["lan", "sat"] {
        let of = |key: &str| number(status, &format!("/{leg}/{key}"));
        let control = text(status, &format!("/{leg}/congestion_control"));
        let rate = match of("rate") {
            0.0 => "unknown".to_owned(),
            rate => format!("{} Mbit/s", rate / 1e6),
        };
        table.add_row([
            leg.to_owned(),
            text(status, &format!("/{leg}/interface")).to_owned(),
            if control.is_empty() {
                "the kernel's"
            } else {
                control
            }
            .to_owned(),
            rate,
            of("connections").to_string(),
            milliseconds(of("rtt_median")),
            milliseconds(of("rtt_max")),
            of("retransmitted").to_string(),
            bytes(of("waiting")),
        ]);
    }
    table.trim_fmt()
}

fn busiest(status: &Value) -> String {
    let flows = status
        .pointer("/busiest")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if flows.is_empty() {
        return "no flow stands".to_owned();
    }
    let header = [
        "GROUND",
        "SATELLITE",
        "TO SAT/s",
        "TO LAN/s",
        "TO SAT",
        "TO LAN",
        "RTT lan/sat ms",
        "SENT AGAIN lan/sat",
    ];
    let mut table = table(&header, 2);
    for flow in flows {
        let of = |key: &str| number(flow, &format!("/{key}"));
        table.add_row([
            text(flow, "/lan_host").to_owned(),
            text(flow, "/sat_host").to_owned(),
            bytes(of("to_sat_rate")),
            bytes(of("to_lan_rate")),
            bytes(of("to_sat")),
            bytes(of("to_lan")),
            format!(
                "{}/{}",
                milliseconds(of("lan/rtt")),
                milliseconds(of("sat/rtt"))
            ),
            format!("{}/{}", of("lan/retransmitted"), of("sat/retransmitted")),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_short() {
        let shown = [0.0, 999.0, 1500.0, 123_456.0, 5e6, 2.34e12].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.5 kB", "123 kB", "5.0 MB", "2340 GB"]
        );
        let shown = [5.9, 65.0, 7_300.0, 200_000.0].map(duration);
        assert_eq!(shown, ["5 s", "1 min 5 s", "2 h 1 min", "2 d 7 h"]);
    }

    #[test]
    fn rates_over_a_long_time_are_asked_for_again() {
        let stale = |status: Value| is_stale(&status);
        assert!(stale(json!({ "rates_over": 60.0, "busiest": [{}] })));
        assert!(!stale(json!({ "rates_over": 1.0, "busiest": [{}] })));
        assert!(!stale(json!({ "rates_over": 60.0, "busiest": [] })));
    }

    #[test]
    fn the_first_line_tells_uptime_and_admission_apart() {
        let status = json!({ "version": "1", "pid": 7, "uptime": 65.0, "admission": "bypassed" });
        let page = page(&status);
        assert!(
            page.starts_with("bentpipe 1, process 7, up 1 min 5 s: bypassed\n"),
            "{page}"
        );
    }

    #[test]
    fn what_an_older_gateway_does_not_say_is_left_out() {
        let page =
            page(&json!({ "admission": "serving", "counters": { "refused": 3, "reset": 0 } }));
        assert!(
            page.contains("serving") && page.contains("so far   refused 3\n"),
            "{page}"
        );
        assert!(page.ends_with("no flow stands"), "{page}");
    }
}
