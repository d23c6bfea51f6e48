//! The counts as text, JSON and CSV, written as they are made: a capture may have a hundred thousand connections.

use crate::expert::limits_as_json;
use crate::{Connection, MEASURES, Side, Trace, Value};
use serde::{Serialize, Serializer};
use serde_json::{Map, json};
use std::fmt::{self, Write};
use std::io;

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
///
/// # Errors
/// What `out` gives.
pub fn brief(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    let rows = || {
        let connections = of(trace, chosen);
        std::iter::once(HEAD.map(str::to_owned)).chain(connections.map(row))
    };
    let mut widths = [0; COLUMNS];
    for row in rows() {
        for (width, cell) in widths.iter_mut().zip(&row) {
            *width = cell.len().max(*width);
        }
    }
    rows().try_for_each(|row| writeln!(out, "{}", aligned(&row, &widths)))
}

const COLUMNS: usize = 13;
const HEAD: [&str; COLUMNS] = [
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
];

fn row((index, connection): (usize, &Connection)) -> [String; COLUMNS] {
    let (a, b) = letters(index);
    let (from, back) = (&connection.a2b, &connection.b2a);
    let rtt = |one: &crate::Direction| match one.rtt.samples.count {
        0 => "-".to_owned(),
        _ => format!("{:.1}", one.rtt.samples.mean() / 1e6),
    };
    [
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
    ]
}

/// The cells of `row`: names to the left, figures to the right.
fn aligned(row: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cells = cells.map(|(column, (cell, width))| match column {
        1 | 2 | 12 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    let line = cells.collect::<Vec<_>>().join(" ");
    line.trim_end().to_owned()
}

/// Every count of each connection, as `tcptrace -l -r` lays them out.
///
/// # Errors
/// What `out` gives.
pub fn long(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    for (place, (index, connection)) in of(trace, chosen).enumerate() {
        if place > 0 {
            writeln!(out, "================================")?;
        }
        one_long(out, index, connection)?;
    }
    Ok(())
}

fn one_long(text: &mut dyn Write, index: usize, connection: &Connection) -> fmt::Result {
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
///
/// # Errors
/// What `out` gives.
pub fn json(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    json_object(out, trace, chosen, false)
}

/// The same, and what held each direction back (`limits`), if the series of the connections were kept.
///
/// # Errors
/// What `out` gives.
pub fn json_with_limits(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    json_object(out, trace, chosen, true)
}

fn json_object(out: &mut dyn Write, trace: &Trace, chosen: &[usize], limits: bool) -> fmt::Result {
    let skipped = trace.skipped();
    let whole = Whole {
        packets: trace.packets(),
        tcp_packets: trace.segments(),
        skipped: json!({
            "other": skipped.other,
            "fragments": skipped.fragments,
            "too_short": skipped.too_short,
            "malformed": skipped.malformed,
            "unknown_links": skipped.unknown_links.values().sum::<u64>(),
        }),
        warnings: trace.warnings(),
        connections: InTurn {
            trace,
            chosen,
            limits,
        },
    };
    serde_json::to_writer_pretty(Text(out), &whole).map_err(|_| fmt::Error)?;
    writeln!(out)
}

#[derive(Serialize)]
struct Whole<'a> {
    packets: u64,
    tcp_packets: u64,
    skipped: serde_json::Value,
    warnings: Vec<String>,
    connections: InTurn<'a>,
}

/// Connections, each of which is made when it is written.
struct InTurn<'a> {
    trace: &'a Trace,
    chosen: &'a [usize],
    limits: bool,
}

impl Serialize for InTurn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = |(index, connection)| {
            let mut object = connection_object(index, connection);
            if let Some(series) = self.trace.series(index).filter(|_| self.limits) {
                object["limits"] = limits_as_json(connection, series);
            }
            object
        };
        serializer.collect_seq(of(self.trace, self.chosen).map(object))
    }
}

fn connection_object(index: usize, connection: &Connection) -> serde_json::Value {
    let side = |side: Side| {
        let values = MEASURES.iter().map(|measure| {
            let value = (measure.value)(connection, connection.direction(side));
            (measure.key.to_owned(), json!(value))
        });
        values.collect::<Map<_, _>>()
    };
    json!({
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
        "a2b": side(Side::A),
        "b2a": side(Side::B),
    })
}

/// Takes bytes that are text, as JSON is.
struct Text<'a>(&'a mut dyn Write);

impl io::Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line each connection, the names of the columns as tcptrace's `--csv` makes them: `total_packets_a2b`.
///
/// # Errors
/// What `out` gives.
pub fn csv(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    write!(
        out,
        "conn_#,host_a,host_b,port_a,port_b,first_packet,last_packet"
    )?;
    for measure in MEASURES {
        write!(out, ",{0}_a2b,{0}_b2a", measure.key)?;
    }
    writeln!(out)?;
    for (index, connection) in of(trace, chosen) {
        let (a, b) = (connection.a, connection.b);
        let (first, last) = (Seconds(connection.first), Seconds(connection.last));
        let ends = format!("{},{},{},{}", a.ip(), b.ip(), a.port(), b.port());
        write!(out, "{},{ends},{first},{last}", index + 1)?;
        for measure in MEASURES {
            for side in [Side::A, Side::B] {
                let value = (measure.value)(connection, connection.direction(side));
                write!(out, ",{}", value.printed())?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
