//! The page with the graphs: its data are columns of numbers in base64, which a browser reads at once, a million
//! segments too. Each column is made as it is written, so that one is in memory at a time.

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use bentpipe_report::Part;
use bentpipe_trace::{Connection, Flags, Kind, MEASURES, Series, Side, Stream, Value, letters};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

const PAGE: &str = include_str!("../../../web/trace.html");
const SCRIPTS: [Part; 2] = [
    ("{{levels.js}}", include_str!("../../../web/levels.js")),
    ("{{trace.js}}", include_str!("../../../web/trace.js")),
];

/// Writes the whole page to `out`: `title`, and each connection with its number, from 0.
///
/// # Errors
/// When a figure is not a number, or what `out` gives.
pub(crate) fn write<W: Write>(
    out: &mut W,
    title: &str,
    connections: &[(usize, &Connection, &Series)],
) -> io::Result<()> {
    let data = Page {
        title,
        version: env!("CARGO_PKG_VERSION"),
        connections: connections.iter().map(PageConnection::new).collect(),
    };
    bentpipe_report::write_page(out, PAGE, &SCRIPTS, &data)
}

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    version: &'static str,
    connections: Vec<PageConnection<'a>>,
}

#[derive(Serialize)]
struct PageConnection<'a> {
    number: usize,
    a: String,
    b: String,
    letters: (String, String),
    seconds: f64,
    /// Label and unit, and the value of both directions.
    counts: Vec<(&'static str, &'static str, Value, Value)>,
    streams: [PageStream<'a>; 2],
}

/// A column in base64: little-endian, of the type that trace.js says.
struct Column<'a>(Box<dyn Fn() -> Vec<u8> + 'a>);

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&(self.0)(), &BASE64_STANDARD))
    }
}

#[derive(Serialize)]
struct PageStream<'a> {
    segments: SegmentColumns<'a>,
    acks: AckColumns<'a>,
    sacks: SackColumns<'a>,
}

#[derive(Serialize)]
struct SegmentColumns<'a> {
    time: Column<'a>,
    start: Column<'a>,
    length: Column<'a>,
    outstanding: Column<'a>,
    kind: Column<'a>,
    flags: Column<'a>,
}

#[derive(Serialize)]
struct AckColumns<'a> {
    time: Column<'a>,
    place: Column<'a>,
    window: Column<'a>,
    rtt: Column<'a>,
    duplicate: Column<'a>,
}

#[derive(Serialize)]
struct SackColumns<'a> {
    time: Column<'a>,
    start: Column<'a>,
    end: Column<'a>,
}

impl<'a> PageConnection<'a> {
    fn new((index, connection, series): &(usize, &'a Connection, &'a Series)) -> Self {
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

fn stream<'a>(connection: &'a Connection, stream: &'a Stream) -> PageStream<'a> {
    let seconds = move |at: bentpipe_trace::Instant| at.nanos_since(connection.first) as f64 / 1e9;
    let place = move |place: u64| stream.relative(place) as f64;
    let (segments, acks, sacks) = (&stream.segments, &stream.acks, &stream.sacks);
    PageStream {
        segments: SegmentColumns {
            time: floats(segments, move |mark| seconds(mark.at)),
            start: floats(segments, move |mark| place(mark.start)),
            length: words(segments, |mark| mark.length),
            outstanding: words(segments, |mark| mark.outstanding),
            kind: bytes(segments, |mark| match mark.kind {
                Kind::Nothing => 0,
                Kind::New => 1,
                Kind::Again => 2,
                Kind::OutOfOrder => 3,
                Kind::Probe => 4,
            }),
            flags: bytes(segments, |mark| mark.flags.0 & shown()),
        },
        acks: AckColumns {
            time: floats(acks, move |mark| seconds(mark.at)),
            place: floats(acks, move |mark| place(mark.place)),
            window: words(acks, |mark| mark.window),
            rtt: words(acks, |mark| mark.sample),
            duplicate: bytes(acks, |mark| mark.duplicate.into()),
        },
        sacks: SackColumns {
            time: floats(sacks, move |mark| seconds(mark.at)),
            start: floats(sacks, move |mark| place(mark.start)),
            end: floats(sacks, move |mark| place(mark.end)),
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

fn floats<'a, M>(marks: &'a [M], value: impl Fn(&M) -> f64 + 'a) -> Column<'a> {
    numbers(marks, move |mark| value(mark).to_le_bytes())
}

fn words<'a, M>(marks: &'a [M], value: impl Fn(&M) -> u32 + 'a) -> Column<'a> {
    numbers(marks, move |mark| value(mark).to_le_bytes())
}

fn numbers<'a, M, const N: usize>(
    marks: &'a [M],
    octets: impl Fn(&M) -> [u8; N] + 'a,
) -> Column<'a> {
    Column(Box::new(move || marks.iter().flat_map(&octets).collect()))
}

fn bytes<'a, M>(marks: &'a [M], value: impl Fn(&M) -> u8 + 'a) -> Column<'a> {
    Column(Box::new(move || marks.iter().map(&value).collect()))
}
