//! What the figures of a study show, for Python to draw: the same lines and layers that reports draw.

use bentpipe_study::{Drawn, Line};
use bentpipe_trace::{Layer, Marks, TimeSequence};
use pyo3::prelude::*;

/// Label, x, y, lower and upper edge of a line.
type Columns = (String, Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>);

/// A figure: its fields by name.
#[derive(IntoPyObject)]
pub(crate) struct Figure {
    name: String,
    heading: String,
    x: String,
    ticks: Vec<String>,
    log: bool,
    y: String,
    band: String,
    zoom: Option<f64>,
    lines: Vec<Columns>,
}

impl From<Drawn<'_>> for Figure {
    fn from(drawn: Drawn<'_>) -> Self {
        let Drawn {
            name,
            heading,
            x,
            ticks,
            log,
            y,
            band,
            zoom,
            lines,
        } = drawn;
        let lines = lines.iter().cloned().map(|line| {
            let Line {
                label,
                x,
                y,
                low,
                high,
            } = line;
            (label, x, y, low, high)
        });
        Self {
            name: name.to_owned(),
            heading,
            x,
            ticks,
            log,
            y,
            band: band.to_owned(),
            zoom,
            lines: lines.collect(),
        }
    }
}

/// A time-sequence graph: its fields by name.
#[derive(IntoPyObject)]
pub(crate) struct Graph {
    name: String,
    heading: String,
    sender: String,
    receiver: String,
    seconds: (f64, f64),
    bytes: (f64, f64),
    /// Name, colour, form and columns of each layer.
    layers: Vec<(&'static str, &'static str, &'static str, Vec<Vec<f64>>)>,
}

impl Graph {
    pub(crate) fn new(name: &str, heading: &str, graph: TimeSequence) -> Self {
        let layers = graph.layers.into_iter().map(|layer| {
            let Layer {
                name,
                colour,
                marks,
            } = layer;
            let (form, columns) = columns(&marks);
            (name, colour, form, columns)
        });
        Self {
            name: name.to_owned(),
            heading: heading.to_owned(),
            sender: graph.from.to_string(),
            receiver: graph.to.to_string(),
            seconds: (graph.seconds.start, graph.seconds.end),
            bytes: (graph.bytes.start, graph.bytes.end),
            layers: layers.collect(),
        }
    }
}

/// The form of `marks`, and their times and places.
fn columns(marks: &Marks) -> (&'static str, Vec<Vec<f64>>) {
    let pairs = |marks: &[(f64, f64)]| {
        let (times, places) = marks.iter().copied().unzip();
        vec![times, places]
    };
    match marks {
        Marks::Steps(marks) => ("steps", pairs(marks)),
        Marks::Points(marks) => ("points", pairs(marks)),
        Marks::Strokes(marks) => {
            let column = |of: fn(&(f64, f64, f64)) -> f64| marks.iter().map(of).collect();
            let columns = vec![column(|it| it.0), column(|it| it.1), column(|it| it.2)];
            ("strokes", columns)
        }
    }
}
