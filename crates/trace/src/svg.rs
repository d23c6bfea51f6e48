//! A time-sequence graph as an SVG file.

use crate::{Connection, Layer, Marks, Side, Stream, TimeSequence};
use std::fmt::Write;
use std::ops::Range;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 82.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 84.0;

/// The time-sequence graph of what the end on `side` of `connection` sent, in the given seconds since its first packet;
/// `None`: in all of them. What falls on one column of a fine grid is one line: the file stays small, however many
/// segments there are.
pub fn svg(
    connection: &Connection,
    stream: &Stream,
    side: Side,
    seconds: Option<Range<f64>>,
) -> String {
    let graph = TimeSequence::new(connection, stream, side, seconds);
    let TimeSequence { from, to, .. } = graph;
    let frame = Frame::new(&graph);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"600\">Time-sequence graph of {from} to {to}</text>\n\
         <text x=\"16\" y=\"43\" font-size=\"11\" fill=\"#55616e\">bytes of the stream, against seconds since the first packet</text>\n"
    );
    // Writing to a String cannot fail.
    let _ = frame.axes(&mut text);
    for (index, layer) in graph.layers.iter().enumerate() {
        let Layer {
            name,
            colour,
            marks,
        } = layer;
        let path = frame.path(marks);
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
    seconds: Range<f64>,
    low: f64,
    high: f64,
}

impl Frame {
    fn new(graph: &TimeSequence) -> Self {
        let Range { start, end } = graph.bytes;
        Self {
            seconds: graph.seconds.clone(),
            low: start,
            high: end + (end - start) * 0.06,
        }
    }

    fn x(&self, seconds: f64) -> f64 {
        let share = (seconds - self.seconds.start) / (self.seconds.end - self.seconds.start);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    /// Windows may reach far beyond what was sent: what is above the picture is at its edge.
    fn y(&self, place: f64) -> f64 {
        let share = (place - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, text: &mut String) -> std::fmt::Result {
        let (foot, line) = (HEIGHT - BOTTOM, "stroke=\"#dde2e8\"");
        for seconds in ticks(self.seconds.start, self.seconds.end) {
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

    fn path(&self, marks: &Marks) -> String {
        match marks {
            Marks::Steps(marks) => self.steps(marks),
            Marks::Strokes(marks) => self.strokes(marks),
            Marks::Points(marks) => {
                let mut path = String::new();
                for (seconds, place) in marks.iter().take(2000) {
                    let (x, y) = (self.x(*seconds), self.y(*place));
                    let _ = write!(path, "M{:.1} {y:.1}l4 -4l4 4l-4 4z", x - 4.0);
                }
                path
            }
        }
    }

    /// A vertical stroke each; those of one column that touch are one.
    fn strokes(&self, marks: &[(f64, f64, f64)]) -> String {
        let mut path = String::new();
        let mut open: Option<(f64, f64, f64)> = None;
        let mut draw = |(x, low, high): (f64, f64, f64)| {
            // A stroke of no length would not be seen.
            let high = if low - high < 1.0 { low - 1.0 } else { high };
            let _ = write!(path, "M{x:.1} {low:.1}V{high:.1}");
        };
        for &(seconds, start, end) in marks {
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
    fn steps(&self, marks: &[(f64, f64)]) -> String {
        let mut path = String::new();
        let mut last: Option<(f64, f64)> = None;
        for &(seconds, place) in marks {
            let (x, y) = ((self.x(seconds) * 4.0).round() / 4.0, self.y(place));
            let _ = match last {
                None => write!(path, "M{x:.2} {y:.1}"),
                Some((_, before)) if (before - y).abs() < 0.05 => continue,
                Some((at, _)) if at == x => write!(path, "V{y:.1}"),
                Some(_) => write!(path, "H{x:.2}V{y:.1}"),
            };
            last = Some((x, y));
        }
        if last.is_some() {
            // What was last is so until the picture ends.
            let _ = write!(path, "H{:.2}", self.x(self.seconds.end));
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
