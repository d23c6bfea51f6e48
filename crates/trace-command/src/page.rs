//! The page with the graphs: its data are columns of numbers in base64, which a browser reads at once, a million
//! segments too.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bentpipe_report::Part;
use bentpipe_trace::{Connection, Flags, Kind, MEASURES, Series, Side, Stream, Value, letters};
use serde::Serialize;

const PAGE: &str = include_str!("../../../web/trace.html");
const SCRIPTS: [Part; 2] = [
    ("{{levels.js}}", include_str!("../../../web/levels.js")),
    ("{{trace.js}}", include_str!("../../../web/trace.js")),
];

/// The whole page: `title`, and each connection with its number, from 0.
///
/// # Errors
/// When a figure is not a number.
pub(crate) fn page(
    title: &str,
    connections: &[(usize, &Connection, &Series)],
) -> serde_json::Result<String> {
    let data = Page {
        title,
        version: env!("CARGO_PKG_VERSION"),
        connections: connections.iter().map(PageConnection::new).collect(),
    };
    bentpipe_report::page(PAGE, &SCRIPTS, &data)
}

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    version: &'static str,
    connections: Vec<PageConnection>,
}

#[derive(Serialize)]
struct PageConnection {
    number: usize,
    a: String,
    b: String,
    letters: (String, String),
    seconds: f64,
    /// Label and unit, and the value of both directions.
    counts: Vec<(&'static str, &'static str, Value, Value)>,
    streams: [PageStream; 2],
}

/// Columns in base64: little-endian, of the type that trace.js says.
#[derive(Serialize)]
struct PageStream {
    segments: SegmentColumns,
    acks: AckColumns,
    sacks: SackColumns,
}

#[derive(Serialize)]
struct SegmentColumns {
    time: String,
    start: String,
    length: String,
    outstanding: String,
    kind: String,
    flags: String,
}

#[derive(Serialize)]
struct AckColumns {
    time: String,
    place: String,
    window: String,
    rtt: String,
    duplicate: String,
}

#[derive(Serialize)]
struct SackColumns {
    time: String,
    start: String,
    end: String,
}

impl PageConnection {
    fn new((index, connection, series): &(usize, &Connection, &Series)) -> Self {
        let counts = MEASURES.iter().map(|measure| {
            let value = |side| (measure.value)(connection, connection.direction(side));
            (measure.label, measure.unit, value(Side::A), value(Side::B))
        });
        Self {
            number: index + 1,
            a: connection.a.to_string(),
            b: connection.b.to_string(),
            letters: letters(*index),
            seconds: connection.elapsed() as f64 / 1e9,
            counts: counts.collect(),
            streams: [Side::A, Side::B].map(|side| stream(connection, series.stream(side))),
        }
    }
}

fn stream(connection: &Connection, stream: &Stream) -> PageStream {
    let seconds = |at: bentpipe_trace::Instant| at.nanos_since(connection.first) as f64 / 1e9;
    let place = |place: u64| stream.relative(place) as f64;
    let (segments, acks, sacks) = (&stream.segments, &stream.acks, &stream.sacks);
    PageStream {
        segments: SegmentColumns {
            time: floats(segments.iter().map(|mark| seconds(mark.at))),
            start: floats(segments.iter().map(|mark| place(mark.start))),
            length: words(segments.iter().map(|mark| mark.length)),
            outstanding: words(segments.iter().map(|mark| mark.outstanding)),
            kind: bytes(segments.iter().map(|mark| match mark.kind {
                Kind::Nothing => 0,
                Kind::New => 1,
                Kind::Again => 2,
                Kind::OutOfOrder => 3,
                Kind::Probe => 4,
            })),
            flags: bytes(segments.iter().map(|mark| mark.flags.0 & shown())),
        },
        acks: AckColumns {
            time: floats(acks.iter().map(|mark| seconds(mark.at))),
            place: floats(acks.iter().map(|mark| place(mark.place))),
            window: words(acks.iter().map(|mark| mark.window)),
            rtt: words(acks.iter().map(|mark| mark.sample)),
            duplicate: bytes(acks.iter().map(|mark| mark.duplicate.into())),
        },
        sacks: SackColumns {
            time: floats(sacks.iter().map(|mark| seconds(mark.at))),
            start: floats(sacks.iter().map(|mark| place(mark.start))),
            end: floats(sacks.iter().map(|mark| place(mark.end))),
        },
    }
}

/// The flags that have a sign of their own.
fn shown() -> u8 {
    [Flags::FIN, Flags::SYN, Flags::RST, Flags::PSH, Flags::URG]
        .iter()
        .map(|flag| flag.0)
        .sum()
}

fn floats(values: impl Iterator<Item = f64>) -> String {
    BASE64_STANDARD.encode(values.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
}

fn words(values: impl Iterator<Item = u32>) -> String {
    BASE64_STANDARD.encode(values.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
}

fn bytes(values: impl Iterator<Item = u8>) -> String {
    BASE64_STANDARD.encode(values.collect::<Vec<u8>>())
}
