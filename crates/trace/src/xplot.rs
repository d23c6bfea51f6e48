//! Graphs for xplot (Shepard, MIT), in the colours and signs of tcptrace.

use crate::{Connection, Flags, Kind, Side, Stream};
use bentpipe_base::Instant;
use std::fmt;

/// Writes one kind of graph.
type Draw = fn(&Stream, &mut fmt::Formatter<'_>) -> fmt::Result;

/// A graph: its file's text is what it displays, drawn as it is written.
pub struct Graph<'a> {
    /// The name of its file.
    pub name: String,
    title: String,
    axis: &'static str,
    draw: Draw,
    stream: &'a Stream,
}

impl fmt::Display for Graph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, axis, .. } = self;
        write!(
            f,
            "timeval unsigned\ntitle\n{title}\nxlabel\ntime\nylabel\n{axis}\n"
        )?;
        (self.draw)(self.stream, f)?;
        f.write_str("go\n")
    }
}

/// The graphs of what the end on `side` of `connection` sent: time-sequence (`tsg`), round-trip times (`rtt`), outstanding
/// bytes (`owin`) and throughput (`tput`).
pub fn xplot<'a>(
    connection: &Connection,
    stream: &'a Stream,
    side: Side,
    (from, to): (&str, &str),
) -> [Graph<'a>; 4] {
    let (a, b) = match side {
        Side::A => (connection.a, connection.b),
        Side::B => (connection.b, connection.a),
    };
    let graphs: [(&str, &str, &str, Draw); 4] = [
        (
            "tsg",
            "time sequence graph",
            "sequence offset",
            time_sequence,
        ),
        ("rtt", "rtt samples", "rtt (ms)", round_trips),
        (
            "owin",
            "outstanding data",
            "outstanding data (bytes)",
            outstanding,
        ),
        ("tput", "throughput", "thruput (bytes/sec)", throughput),
    ];
    graphs.map(|(end, title, axis, draw)| Graph {
        name: format!("{from}2{to}_{end}.xpl"),
        title: format!("{a}_==>_{b} ({title})"),
        axis,
        draw,
        stream,
    })
}

struct Time(Instant);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos() / 1_000;
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

fn time_sequence(stream: &Stream, text: &mut fmt::Formatter<'_>) -> fmt::Result {
    // The axis is unsigned: what came before the first segment that was seen is at its foot.
    let place = |place: u64| stream.relative(place).max(0);
    for mark in &stream.segments {
        let (at, start) = (Time(mark.at), place(mark.start));
        let end = place(mark.start + u64::from(mark.length));
        let colour = match mark.kind {
            Kind::Again => "red",
            _ => "white",
        };
        writeln!(text, "{colour}")?;
        for (flag, name) in [
            (Flags::SYN, "SYN"),
            (Flags::FIN, "FIN"),
            (Flags::RST, "RST_OUT"),
        ] {
            if mark.flags.has(flag) {
                writeln!(
                    text,
                    "orange\ndiamond {at} {end}\natext {at} {end}\n{name}\n{colour}"
                )?;
            }
        }
        if mark.length == 0 {
            continue;
        }
        writeln!(text, "darrow {at} {start}\nline {at} {start} {at} {end}")?;
        match mark.flags.has(Flags::PSH) {
            true => writeln!(text, "white\ndiamond {at} {end}")?,
            false => writeln!(text, "uarrow {at} {end}")?,
        }
        let sign = match mark.kind {
            Kind::Again => "red\natext",
            Kind::OutOfOrder => "pink\natext",
            Kind::Probe => "orange\nbtext",
            Kind::New | Kind::Nothing => "",
        };
        let letter = match mark.kind {
            Kind::Again => "R",
            Kind::OutOfOrder => "O",
            _ => "P",
        };
        if !sign.is_empty() {
            writeln!(text, "{sign} {at} {end}\n{letter}")?;
        }
        if mark.flags.has(Flags::URG) {
            writeln!(text, "red\natext {at} {end}\nU")?;
        }
    }
    acknowledgements(stream, text)?;
    writeln!(text, "purple")?;
    for sack in &stream.sacks {
        let (at, start, end) = (Time(sack.at), place(sack.start), place(sack.end));
        writeln!(
            text,
            "line {at} {start} {at} {end}\nhtick {at} {start}\nhtick {at} {end}"
        )?;
    }
    Ok(())
}

/// The line of what is acknowledged, and that of the window above it.
fn acknowledgements(stream: &Stream, text: &mut fmt::Formatter<'_>) -> fmt::Result {
    let place = |place: u64| stream.relative(place).max(0);
    for pair in stream.acks.windows(2) {
        let [before, after] = pair else { continue };
        let (then, now) = (Time(before.at), Time(after.at));
        let lines = [
            ("green", place(before.place), place(after.place)),
            (
                "yellow",
                place(before.place + u64::from(before.window)),
                place(after.place + u64::from(after.window)),
            ),
        ];
        for (colour, low, high) in lines {
            writeln!(text, "{colour}\nline {then} {low} {now} {low}")?;
            match low == high {
                true => writeln!(
                    text,
                    "{} {now} {low}",
                    if colour == "green" { "dtick" } else { "utick" }
                )?,
                false => writeln!(text, "line {now} {low} {now} {high}")?,
            }
        }
        if after.window == 0 {
            let low = place(after.place);
            writeln!(text, "white\natext {now} {low}\nZ")?;
        }
    }
    Ok(())
}

fn points(
    text: &mut fmt::Formatter<'_>,
    points: impl Iterator<Item = (Instant, u64)>,
) -> fmt::Result {
    let mut before = None;
    writeln!(text, "red")?;
    for (at, value) in points {
        let at = Time(at);
        writeln!(text, "dot {at} {value}")?;
        if let Some((then, last)) = before {
            writeln!(text, "line {then} {last} {at} {value}")?;
        }
        before = Some((at, value));
    }
    Ok(())
}

fn round_trips(stream: &Stream, text: &mut fmt::Formatter<'_>) -> fmt::Result {
    let samples = stream.acks.iter().filter(|mark| mark.sample > 0);
    points(
        text,
        samples.map(|mark| (mark.at, u64::from(mark.sample) / 1_000_000)),
    )
}

fn outstanding(stream: &Stream, text: &mut fmt::Formatter<'_>) -> fmt::Result {
    let data = stream.segments.iter().filter(|mark| mark.length > 0);
    points(text, data.map(|mark| (mark.at, mark.outstanding.into())))
}

/// Over ten segments each, as tcptrace does it.
fn throughput(stream: &Stream, text: &mut fmt::Formatter<'_>) -> fmt::Result {
    let data: Vec<_> = stream
        .segments
        .iter()
        .filter(|mark| mark.length > 0)
        .collect();
    let spans = data.windows(11).step_by(10).filter_map(|span| {
        let (first, last) = (span.first()?, span.last()?);
        let bytes: u64 = span[1..].iter().map(|mark| u64::from(mark.length)).sum();
        let nanos = last.at.nanos_since(first.at);
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1));
        Some((last.at, u64::try_from(rate).unwrap_or(u64::MAX)))
    });
    points(text, spans.collect::<Vec<_>>().into_iter())
}
