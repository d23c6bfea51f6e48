//! Figures as SVG files: one panel, or two where a part is enlarged; a legend below.

use crate::wrapped;
use bentpipe_study::{COLOURS, Drawn, Line};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 72.0;
const PANEL: f64 = 320.0;
const AXIS: f64 = 52.0;
/// Height of a line of labels.
const LINE: f64 = 14.0;
/// Width of a character of them, about.
const CHARACTER: f64 = 6.8;
/// Height of a line of the legend.
const ROW: f64 = 20.0;
/// Points of a line up to which each has a dot.
const DOTS: usize = 60;

/// The whole file.
pub fn svg(figure: &Drawn<'_>) -> String {
    let panels = 1 + usize::from(figure.zoom.is_some());
    let shown: Vec<(usize, &Line)> = figure.lines.iter().enumerate().collect();
    let rows = shown.len().div_ceil(2).max(1);
    let panel_height = PANEL + AXIS + (tick_lines(figure) - 1) as f64 * LINE;
    let legend = TOP + panels as f64 * panel_height + 14.0;
    let height = legend + rows as f64 * ROW + 10.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    label(
        &mut text,
        16.0,
        24.0,
        "start\" font-size=\"15\" font-weight=\"600",
        &figure.heading,
    );
    let small = "start\" font-size=\"11\" fill=\"#55616e";
    label(&mut text, 16.0, 43.0, small, &figure.y);
    label(&mut text, 16.0, 59.0, small, figure.band);
    if figure.lines.iter().all(|line| line.x.is_empty()) {
        label(
            &mut text,
            WIDTH / 2.0,
            TOP + 60.0,
            "middle",
            "No point of this figure was run.",
        );
        text.push_str("</svg>\n");
        return text;
    }
    panel(&mut text, figure, TOP, None);
    if let Some(zoom) = figure.zoom {
        panel(&mut text, figure, TOP + panel_height, Some(zoom));
    }
    for (at, line) in shown {
        let x = LEFT + (at % 2) as f64 * (WIDTH - LEFT) / 2.0;
        let y = legend + (at / 2) as f64 * ROW;
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {}/>",
            x + 26.0,
            stroke(at)
        );
        label(&mut text, x + 34.0, y + 4.0, "start", &line.label);
    }
    text.push_str("</svg>\n");
    text
}

/// How line number `at` is drawn.
fn stroke(at: usize) -> String {
    let dash = match at / COLOURS.len() {
        0 => "",
        1 => " stroke-dasharray=\"6 4\"",
        _ => " stroke-dasharray=\"2 3\"",
    };
    format!(
        "stroke=\"{}\" stroke-width=\"1.8\" fill=\"none\"{dash}",
        COLOURS[at % COLOURS.len()]
    )
}

/// Text at a place; `anchor` may bring further attributes.
fn label(text: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// From values to places on one panel.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
    top: f64,
}

impl Frame {
    /// The frame that holds all points up to `limit`.
    fn new(figure: &Drawn<'_>, top: f64, limit: Option<f64>) -> Self {
        let log = figure.log && limit.is_none();
        let inside = |x: &f64| limit.is_none_or(|limit| *x <= limit);
        let mut x = (f64::INFINITY, f64::NEG_INFINITY);
        let mut y = (0.0f64, 0.0f64);
        for line in figure.lines {
            for (at, place) in line.x.iter().enumerate().filter(|(_, x)| inside(x)) {
                x = (x.0.min(*place), x.1.max(*place));
                let edges = [line.y.get(at), line.low.get(at), line.high.get(at)];
                for edge in edges.into_iter().flatten() {
                    y = (y.0.min(*edge), y.1.max(*edge));
                }
            }
        }
        if !log {
            x.0 = x.0.min(0.0);
        }
        if !figure.ticks.is_empty() {
            // Half a slot at both ends, for the labels.
            x = (-0.5, figure.ticks.len() as f64 - 0.5);
        }
        let wider = |(low, high): (f64, f64)| {
            if high > low {
                (low, high)
            } else {
                (low, low + 1.0)
            }
        };
        let margin = 0.04 * (y.1 - y.0);
        let low = if y.0 < 0.0 { y.0 - margin } else { 0.0 };
        Self {
            x: wider(x),
            y: wider((low, y.1 + margin)),
            log,
            top,
        }
    }

    fn at_x(&self, x: f64) -> f64 {
        let (low, high) = self.x;
        let share = if self.log {
            (x / low).ln() / (high / low).ln()
        } else {
            (x - low) / (high - low)
        };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn at_y(&self, y: f64) -> f64 {
        let (low, high) = self.y;
        self.top + PANEL - (y - low) / (high - low) * PANEL
    }

    fn holds(&self, x: f64) -> bool {
        (self.x.0..=self.x.1).contains(&x)
    }
}

fn panel(text: &mut String, figure: &Drawn<'_>, top: f64, limit: Option<f64>) {
    let frame = Frame::new(figure, top, limit);
    let (right, bottom) = (WIDTH - RIGHT, top + PANEL);
    for tick in round(frame.y.0, frame.y.1) {
        let y = frame.at_y(tick);
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dde2e8\"/>"
        );
        label(text, LEFT - 7.0, y + 4.0, "end", &number(tick));
    }
    for (tick, words) in ticks(figure, &frame) {
        let x = frame.at_x(tick);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"#55616e\"/>",
            bottom + 5.0
        );
        for (at, line) in words.lines().enumerate() {
            let y = bottom + 18.0 + at as f64 * LINE;
            label(text, x, y, "middle", line);
        }
    }
    let zero = frame.at_y(0.0);
    let _ = writeln!(
        text,
        "<path d=\"M{LEFT} {top}V{bottom}H{right}\" stroke=\"#55616e\" fill=\"none\"/>"
    );
    let _ = writeln!(
        text,
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{zero:.1}\" y2=\"{zero:.1}\" stroke=\"#55616e\"/>"
    );
    let more = limit.map_or_else(String::new, |limit| format!(", enlarged up to {limit}"));
    let name = format!("{}{more}", figure.x);
    label(
        text,
        f64::midpoint(LEFT, right),
        bottom + 37.0 + (tick_lines(figure) - 1) as f64 * LINE,
        "middle",
        &name,
    );
    for (at, line) in figure.lines.iter().enumerate() {
        drawn(text, &frame, at, line);
    }
}

fn drawn(text: &mut String, frame: &Frame, number: usize, line: &Line) {
    let inside: Vec<usize> = (0..line.x.len())
        .filter(|at| frame.holds(line.x[*at]))
        .collect();
    let path = |values: &[f64], order: &[usize]| {
        let points = order.iter().filter_map(|at| {
            let y = frame.at_y(*values.get(*at)?);
            Some(format!("{:.1},{y:.1}", frame.at_x(line.x[*at])))
        });
        points.collect::<Vec<_>>().join(" ")
    };
    if !line.low.is_empty() {
        let back: Vec<usize> = inside.iter().rev().copied().collect();
        let (low, high) = (path(&line.low, &inside), path(&line.high, &back));
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(
            text,
            "<polygon points=\"{low} {high}\" fill=\"{colour}\" fill-opacity=\"0.14\"/>"
        );
    }
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" {}/>",
        path(&line.y, &inside),
        stroke(number)
    );
    if inside.len() <= DOTS {
        for at in inside {
            let (x, y) = (frame.at_x(line.x[at]), frame.at_y(line.y[at]));
            let colour = COLOURS[number % COLOURS.len()];
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.2\" fill=\"{colour}\"/>"
            );
        }
    }
}

/// Labels of an axis of categories, at most 16 of them, in lines as wide as their slots.
fn categories(figure: &Drawn<'_>) -> Vec<(f64, String)> {
    let step = figure.ticks.len().div_ceil(16).max(1);
    let slot = step as f64 * (WIDTH - LEFT - RIGHT) / figure.ticks.len().max(1) as f64;
    let most = (slot / CHARACTER) as usize;
    let some = figure.ticks.iter().enumerate().step_by(step);
    let lines = |words: &str| {
        if words.chars().count() > most {
            wrapped(&words.replace(", ", ",\n"), most)
        } else {
            words.to_owned()
        }
    };
    some.map(|(at, words)| (at as f64, lines(words))).collect()
}

/// Lines of the labels along the x axis.
fn tick_lines(figure: &Drawn<'_>) -> usize {
    let lines = categories(figure).into_iter();
    lines
        .map(|(_, words)| words.lines().count())
        .max()
        .unwrap_or(1)
}

/// Places and words along the x axis.
fn ticks(figure: &Drawn<'_>, frame: &Frame) -> Vec<(f64, String)> {
    if !figure.ticks.is_empty() {
        return categories(figure);
    }
    let (low, high) = frame.x;
    let places = if frame.log {
        decades(low, high)
    } else {
        round(low, high)
    };
    places
        .into_iter()
        .map(|tick| (tick, number(tick)))
        .collect()
}

/// 1, 2 and 5 of each power of ten within; of many decades the powers alone.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 4 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let all =
        (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|tick| (low..=high * 1.000_001).contains(tick))
        .collect()
}

/// About six round numbers from `low` to `high`.
fn round(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|step| *step >= raw * 0.999)
        .unwrap_or(power * 10.0);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|at| at as f64 * step).collect()
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{}M", value / 1e6),
        large if large >= 1e4 => format!("{}k", value / 1e3),
        // To a millionth of the step, so that 0.30000000000000004 is 0.3.
        _ => format!("{}", (value * 1e6).round() / 1e6 + 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(lines: &[Line], zoom: Option<f64>) -> String {
        svg(&Drawn {
            name: "6",
            heading: "Figure 6. a < b & c".into(),
            x: "packets".into(),
            ticks: Vec::new(),
            log: false,
            y: "gain".into(),
            band: "",
            zoom,
            lines,
        })
    }

    #[test]
    fn a_line_stands_where_its_values_are() {
        let line = Line {
            x: vec![0.0, 50.0, 100.0],
            y: vec![0.0, 100.0, 50.0],
            ..Line::new("one".into())
        };
        let text = figure(std::slice::from_ref(&line), Some(50.0));
        // The frame is 678 wide from 64, and 320 high down to 392; its top is 104% of the greatest.
        let top = 392.0 - 320.0 / 1.04;
        let path = format!(
            "64.0,392.0 403.0,{top:.1} 742.0,{:.1}",
            392.0 - 160.0 / 1.04
        );
        assert!(text.contains(&path), "{path}\n{text}");
        assert_eq!(
            text.matches("<polyline").count(),
            2,
            "the whole and the part"
        );
        assert!(text.contains("a &lt; b &amp; c") && text.contains("enlarged up to 50"));
        // The part: its second point at the right edge, its third not there.
        let (left, right) = (
            TOP + PANEL + AXIS + PANEL,
            TOP + PANEL + AXIS + PANEL - 320.0 / 1.04,
        );
        assert!(
            text.contains(&format!("points=\"64.0,{left:.1} 742.0,{right:.1}\"")),
            "{text}"
        );
    }

    #[test]
    fn labels_of_categories_stay_in_their_slots() {
        let ticks: Vec<String> = ["0.75", "1.5", "6"]
            .iter()
            .flat_map(|rate| [20, 69, 150].map(|delay| format!("{rate} Mb/s, {delay} ms")))
            .collect();
        let line = Line {
            x: (0..9).map(f64::from).collect(),
            y: vec![1.0; 9],
            ..Line::new("one".into())
        };
        let drawn = Drawn {
            name: "receiver",
            heading: String::new(),
            x: "internet".into(),
            ticks,
            log: false,
            y: String::new(),
            band: "",
            zoom: None,
            lines: std::slice::from_ref(&line),
        };
        let slot = (WIDTH - LEFT - RIGHT) / 9.0;
        let labels = categories(&drawn);
        assert_eq!(labels[0].1, "0.75 Mb/s,\n20 ms");
        for line in labels.iter().flat_map(|(_, words)| words.lines()) {
            assert!(line.len() as f64 * CHARACTER <= slot, "{line}");
        }
        let frame = Frame::new(&drawn, TOP, None);
        assert!(frame.at_x(8.0) + slot / 2.0 <= WIDTH - RIGHT + 0.1);
        assert!(svg(&drawn).contains(">20 ms</text>"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(round(0.0, 104.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(round(-30.0, 260.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(decades(1.0, 50.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(number(0.1 + 0.2), "0.3");
        assert_eq!(number(20_000.0), "20k");
    }

    #[test]
    fn without_a_point_it_says_so() {
        let text = figure(&[Line::new("one".into())], None);
        assert!(text.contains("No point of this figure"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
