//! A time-sequence graph as an SVG file.

use crate::{Connection, Flags, Kind, Side, Stream};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 82.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 84.0;

/// What is drawn, from the back to the front: its colour, and what the legend calls it.
const KINDS: [(&str, &str); 7] = [
    ("#1690b8", "window"),
    ("#2c8a3d", "acknowledged"),
    ("#16202b", "segments"),
    ("#a0449a", "SACK blocks"),
    ("#a67c00", "out of order"),
    ("#c8452f", "retransmissions"),
    ("#1d4fd1", "SYN, FIN, RST"),
];

/// The time-sequence graph of what the end on `side` of `connection` sent. What falls on one column of a fine grid is
/// one line: the file stays small, however many segments there are.
pub fn svg(connection: &Connection, stream: &Stream, side: Side) -> String {
    let (a, b) = match side {
        Side::A => (connection.a, connection.b),
        Side::B => (connection.b, connection.a),
    };
    let frame = Frame::new(connection, stream);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"600\">Time-sequence graph of {a} to {b}</text>\n\
         <text x=\"16\" y=\"43\" font-size=\"11\" fill=\"#55616e\">bytes of the stream, against seconds since the first packet</text>\n"
    );
    // Writing to a String cannot fail.
    let _ = frame.axes(&mut text);
    for (index, (colour, name)) in KINDS.iter().enumerate() {
        let path = frame.path(connection, stream, index);
        let width = if *name == "retransmissions" { 2.4 } else { 1.2 };
        let fill = format!("fill=\"none\" stroke-width=\"{width}\"");
        let _ = writeln!(text, "<path d=\"{path}\" stroke=\"{colour}\" {fill}/>");
        let x = LEFT + index as f64 * 116.0;
        let y = HEIGHT - 14.0;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
            y - 6.0,
            x + 17.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// From times and places to the picture.
struct Frame {
    seconds: f64,
    low: f64,
    high: f64,
}

impl Frame {
    fn new(connection: &Connection, stream: &Stream) -> Self {
        let mut frame = Self {
            seconds: (connection.elapsed() as f64 / 1e9).max(1e-6),
            low: 0.0,
            high: 1.0,
        };
        let ends = stream.segments.iter().map(|mark| {
            let start = stream.relative(mark.start) as f64;
            (start, start + f64::from(mark.length))
        });
        for (start, end) in ends {
            frame.low = frame.low.min(start);
            frame.high = frame.high.max(end);
        }
        frame.high += (frame.high - frame.low) * 0.06;
        frame
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    /// Windows may reach far beyond what was sent: what is above the picture is at its edge.
    fn y(&self, place: f64) -> f64 {
        let share = (place - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, text: &mut String) -> std::fmt::Result {
        let (foot, line) = (HEIGHT - BOTTOM, "stroke=\"#dde2e8\"");
        for seconds in ticks(0.0, self.seconds) {
            let x = self.x(seconds);
            writeln!(
                text,
                "<path d=\"M{x:.1} {TOP}V{foot}\" {line}/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                foot + 18.0,
                tidy(seconds)
            )?;
        }
        for place in ticks(self.low, self.high) {
            let y = self.y(place);
            writeln!(
                text,
                "<path d=\"M{LEFT} {y:.1}H{}\" {line}/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                tidy(place)
            )?;
        }
        Ok(())
    }

    fn path(&self, connection: &Connection, stream: &Stream, kind: usize) -> String {
        let seconds = |at: bentpipe_base::Instant| at.nanos_since(connection.first) as f64 / 1e9;
        let place = |place: u64| stream.relative(place) as f64;
        let of = |wanted: fn(&crate::SegmentMark) -> bool| {
            let chosen = stream.segments.iter().filter(move |mark| wanted(mark));
            chosen.map(|mark| {
                let start = place(mark.start);
                (seconds(mark.at), start, start + f64::from(mark.length))
            })
        };
        match kind {
            0 => self.steps(stream.acks.iter().map(|mark| {
                let window = f64::from(mark.window);
                (seconds(mark.at), place(mark.place) + window)
            })),
            1 => {
                let acks = stream.acks.iter();
                self.steps(acks.map(|mark| (seconds(mark.at), place(mark.place))))
            }
            2 => self.strokes(of(|mark| {
                matches!(mark.kind, Kind::New | Kind::Probe) && mark.length > 0
            })),
            3 => {
                let sacks = stream.sacks.iter();
                self.strokes(
                    sacks.map(|mark| (seconds(mark.at), place(mark.start), place(mark.end))),
                )
            }
            4 => self.strokes(of(|mark| mark.kind == Kind::OutOfOrder)),
            5 => self.strokes(of(|mark| mark.kind == Kind::Again)),
            _ => {
                let ends = [Flags::SYN, Flags::FIN, Flags::RST];
                let marks = stream.segments.iter();
                let marks = marks.filter(|mark| ends.iter().any(|flag| mark.flags.has(*flag)));
                let mut path = String::new();
                for mark in marks.take(2000) {
                    let end = place(mark.start) + f64::from(mark.length);
                    let (x, y) = (self.x(seconds(mark.at)), self.y(end));
                    let _ = write!(path, "M{:.1} {y:.1}l4 -4l4 4l-4 4z", x - 4.0);
                }
                path
            }
        }
    }

    /// A vertical stroke each; those of one column that touch are one.
    fn strokes(&self, marks: impl Iterator<Item = (f64, f64, f64)>) -> String {
        let mut path = String::new();
        let mut open: Option<(f64, f64, f64)> = None;
        let mut draw = |(x, low, high): (f64, f64, f64)| {
            // A stroke of no length would not be seen.
            let high = if low - high < 1.0 { low - 1.0 } else { high };
            let _ = write!(path, "M{x:.1} {low:.1}V{high:.1}");
        };
        for (seconds, start, end) in marks {
            let x = (self.x(seconds) * 4.0).round() / 4.0;
            let (low, high) = (self.y(start), self.y(end));
            open = match open {
                Some((at, from, to)) if at == x && low >= to - 1.0 && high <= from + 1.0 => {
                    Some((x, from.max(low), to.min(high)))
                }
                other => {
                    if let Some(stroke) = other {
                        draw(stroke);
                    }
                    Some((x, low, high))
                }
            };
        }
        if let Some(stroke) = open {
            draw(stroke);
        }
        path
    }

    /// A line that stays until the next mark; one corner a column.
    fn steps(&self, marks: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        let mut last: Option<(f64, f64)> = None;
        for (seconds, place) in marks {
            let (x, y) = ((self.x(seconds) * 4.0).round() / 4.0, self.y(place));
            let _ = match last {
                None => write!(path, "M{x:.2} {y:.1}"),
                Some((_, before)) if (before - y).abs() < 0.05 => continue,
                Some((at, _)) if at == x => write!(path, "V{y:.1}"),
                Some(_) => write!(path, "H{x:.2}V{y:.1}"),
            };
            last = Some((x, y));
        }
        path
    }
}

/// Five to ten round numbers between `low` and `high`.
fn ticks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let rough = (high - low) / 8.0;
    let unit = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let factor = factors.into_iter().find(|factor| factor * unit >= rough);
    let step = factor.unwrap_or(10.0) * unit;
    let first = (low / step).ceil() as i64;
    (first..first + 12)
        .map(move |tick| tick as f64 * step)
        .filter(move |tick| *tick <= high)
}

/// 1500000 as 1.5M.
fn tidy(value: f64) -> String {
    let round = |value: f64| {
        let text = format!("{value:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        size if size >= 1e9 => format!("{}G", round(value / 1e9)),
        size if size >= 1e6 => format!("{}M", round(value / 1e6)),
        size if size >= 1e4 => format!("{}k", round(value / 1e3)),
        _ => round(value),
    }
}
