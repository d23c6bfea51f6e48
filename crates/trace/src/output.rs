//! The counts as text, JSON and CSV.

use crate::expert::limits_as_json;
use crate::{Connection, MEASURES, Side, Trace, Value};
use serde_json::{Map, json};
use std::fmt::Write;

impl Value {
    fn printed(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Real(figure, decimals) => format!("{figure:.decimals$}"),
            Self::Text(words) => words.clone(),
            Self::Absent => "NA".to_owned(),
        }
    }
}

/// Letters of the ends of connection number `index`, from 0, as tcptrace gives them: a and b, c and d, ... z, aa.
pub fn letters(index: usize) -> (String, String) {
    (letter(2 * index), letter(2 * index + 1))
}

fn letter(mut index: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'a' + (index % 26) as u8));
        if index < 26 {
            return letters.iter().rev().collect();
        }
        index = index / 26 - 1;
    }
}

fn state(connection: &Connection) -> &'static str {
    match (connection.is_reset(), connection.is_complete()) {
        (true, true) => "complete, reset",
        (true, false) => "reset",
        (false, true) => "complete",
        (false, false) => "",
    }
}

/// `index` and connection of each that `chosen` names, counted from 1; of all when it is empty.
pub(crate) fn of<'a>(
    trace: &'a Trace,
    chosen: &'a [usize],
) -> impl Iterator<Item = (usize, &'a Connection)> + Clone {
    let all = trace.connections().iter().enumerate();
    all.filter(|(index, _)| chosen.is_empty() || chosen.contains(&(index + 1)))
}

/// A line each connection: ends, packets, bytes, retransmissions, round-trip time, throughput and state.
pub fn brief(trace: &Trace, chosen: &[usize]) -> String {
    let mut rows = vec![
        [
            "",
            "connection",
            "",
            "pkts>",
            "<pkts",
            "bytes>",
            "<bytes",
            "rexmt>",
            "<rexmt",
            "RTT ms>",
            "<RTT ms",
            "seconds",
            "",
        ]
        .map(str::to_owned),
    ];
    for (index, connection) in of(trace, chosen) {
        let (a, b) = letters(index);
        let (from, back) = (&connection.a2b, &connection.b2a);
        let rtt = |one: &crate::Direction| match one.rtt.samples.count {
            0 => "-".to_owned(),
            _ => format!("{:.1}", one.rtt.samples.mean() / 1e6),
        };
        rows.push([
            format!("{}:", index + 1),
            format!("{} - {}", connection.a, connection.b),
            format!("({a}2{b})"),
            from.packets.to_string(),
            back.packets.to_string(),
            from.unique_bytes.to_string(),
            back.unique_bytes.to_string(),
            from.retransmitted_packets.to_string(),
            back.retransmitted_packets.to_string(),
            rtt(from),
            rtt(back),
            format!("{:.3}", connection.elapsed() as f64 / 1e9),
            state(connection).to_owned(),
        ]);
    }
    aligned(&rows)
}

/// Columns of `rows`: names to the left, figures to the right.
fn aligned(rows: &[[String; 13]]) -> String {
    let mut text = String::new();
    let widths: Vec<usize> = (0..13)
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            1 | 2 | 12 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line: Vec<String> = cells.collect();
        text.push_str(line.join(" ").trim_end());
        text.push('\n');
    }
    text
}

/// Every count of each connection, as `tcptrace -l -r` lays them out.
pub fn long(trace: &Trace, chosen: &[usize]) -> String {
    let mut text = String::new();
    for (index, connection) in of(trace, chosen) {
        if !text.is_empty() {
            text.push_str("================================\n");
        }
        // Writing to a String cannot fail.
        let _ = one_long(&mut text, index, connection);
    }
    text
}

fn one_long(text: &mut String, index: usize, connection: &Connection) -> std::fmt::Result {
    let (a, b) = letters(index);
    writeln!(text, "TCP connection {}:", index + 1)?;
    writeln!(text, "\thost {:<4}      {}", format!("{a}:"), connection.a)?;
    writeln!(text, "\thost {:<4}      {}", format!("{b}:"), connection.b)?;
    let complete = match (connection.is_reset(), connection.is_complete()) {
        (true, _) => "RESET",
        (false, true) => "yes",
        (false, false) => "no",
    };
    let (syns, fins) = (
        connection.ends(|one| one.syns),
        connection.ends(|one| one.fins),
    );
    match connection.is_complete() {
        true => writeln!(text, "\tcomplete conn: {complete}")?,
        false => writeln!(
            text,
            "\tcomplete conn: {complete}\t(SYNs: {syns})  (FINs: {fins})"
        )?,
    }
    writeln!(text, "\tfirst packet:  {}", Seconds(connection.first))?;
    writeln!(text, "\tlast packet:   {}", Seconds(connection.last))?;
    writeln!(
        text,
        "\telapsed time:  {:.6} s",
        connection.elapsed() as f64 / 1e9
    )?;
    writeln!(text, "\ttotal packets: {}", connection.packets())?;
    writeln!(text, "   {:<37}{b}->{a}:", format!("{a}->{b}:"))?;
    for measure in MEASURES {
        for (side, end) in [(Side::A, ""), (Side::B, "\n")] {
            let value = (measure.value)(connection, connection.direction(side));
            let unit = match value {
                Value::Absent => "",
                _ => measure.unit,
            };
            let label = format!("{}:", measure.label);
            write!(
                text,
                "     {label:<18} {:>9} {unit:<5}{end}",
                value.printed()
            )?;
        }
    }
    Ok(())
}

/// Seconds since 1970 with all their decimals, which a float has not.
struct Seconds(bentpipe_base::Instant);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

/// One JSON object with everything.
pub fn json(trace: &Trace, chosen: &[usize]) -> String {
    json_object(trace, chosen, false)
}

/// The same, and what held each direction back (`limits`), if the series of the connections were kept.
pub fn json_with_limits(trace: &Trace, chosen: &[usize]) -> String {
    json_object(trace, chosen, true)
}

fn json_object(trace: &Trace, chosen: &[usize], limits: bool) -> String {
    let side = |connection: &Connection, side: Side| {
        let values = MEASURES.iter().map(|measure| {
            let value = (measure.value)(connection, connection.direction(side));
            (measure.key.to_owned(), json!(value))
        });
        values.collect::<Map<_, _>>()
    };
    let connections = of(trace, chosen).map(|(index, connection)| {
        let mut object = json!({
            "number": index + 1,
            "host_a": connection.a.ip(),
            "port_a": connection.a.port(),
            "host_b": connection.b.ip(),
            "port_b": connection.b.port(),
            "complete": connection.is_complete(),
            "reset": connection.is_reset(),
            "first_packet": Seconds(connection.first).to_string(),
            "last_packet": Seconds(connection.last).to_string(),
            "elapsed_s": connection.elapsed() as f64 / 1e9,
            "a2b": side(connection, Side::A),
            "b2a": side(connection, Side::B),
        });
        if let Some(series) = trace.series(index).filter(|_| limits) {
            object["limits"] = limits_as_json(connection, series);
        }
        object
    });
    let skipped = trace.skipped();
    let whole = json!({
        "packets": trace.packets(),
        "tcp_packets": trace.segments(),
        "skipped": {
            "other": skipped.other,
            "fragments": skipped.fragments,
            "too_short": skipped.too_short,
            "malformed": skipped.malformed,
            "unknown_links": skipped.unknown_links.values().sum::<u64>(),
        },
        "warnings": trace.warnings(),
        "connections": connections.collect::<Vec<_>>(),
    });
    format!("{whole:#}")
}

/// A line each connection, the names of the columns as tcptrace's `--csv` makes them: `total_packets_a2b`.
pub fn csv(trace: &Trace, chosen: &[usize]) -> String {
    let mut text = String::from("conn_#,host_a,host_b,port_a,port_b,first_packet,last_packet");
    for measure in MEASURES {
        let _ = write!(text, ",{0}_a2b,{0}_b2a", measure.key);
    }
    text.push('\n');
    for (index, connection) in of(trace, chosen) {
        let (a, b) = (connection.a, connection.b);
        let (first, last) = (Seconds(connection.first), Seconds(connection.last));
        let ends = format!("{},{},{},{}", a.ip(), b.ip(), a.port(), b.port());
        let _ = write!(text, "{},{ends},{first},{last}", index + 1);
        for measure in MEASURES {
            for side in [Side::A, Side::B] {
                let value = (measure.value)(connection, connection.direction(side));
                let _ = write!(text, ",{}", value.printed());
            }
        }
        text.push('\n');
    }
    text
}
