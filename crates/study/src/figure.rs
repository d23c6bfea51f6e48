//! The lines of figures.

use crate::StudyError;
use crate::cells::admits;
use crate::points::{Place, Points, Value};
use crate::samples::Samples;
use crate::sizes::{distribution, sizes};
use crate::trace::{Trace, traced};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Axis, Band, Figure, FigureKind, Lines, SEED, Scale};
use serde::Serialize;

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its values on the axes of the lines, and its measure where there are several.
    pub label: String,
    /// Time in seconds, the number that a label is, or the number of a value on the x axis.
    pub x: Vec<f64>,
    /// Segments, or the mean of the measure.
    pub y: Vec<f64>,
    /// The lower edge of what is drawn around it; empty where nothing is.
    pub low: Vec<f64>,
    /// The upper edge.
    pub high: Vec<f64>,
}

impl Line {
    /// Without any point.
    pub const fn new(label: String) -> Self {
        Self {
            label,
            x: Vec::new(),
            y: Vec::new(),
            low: Vec::new(),
            high: Vec::new(),
        }
    }
}

/// The lines of `figure`. A time-sequence figure runs its points again, by `trace`.
///
/// # Errors
/// A point that cannot be run.
pub fn lines(
    study: &Study,
    figure: &Figure,
    samples: &Samples,
    trace: &Trace<'_>,
) -> Result<Vec<Line>, StudyError> {
    let combinations = combinations(study, figure);
    match &figure.kind {
        FigureKind::Sizes => {
            let sizes = sizes(study.base());
            Ok(sizes.iter().map(|sizes| distribution(sizes)).collect())
        }
        FigureKind::TimeSequence => {
            let run = |chosen: Vec<(usize, String)>| {
                let label = label(study, &chosen);
                traced(study, figure, &chosen, label, trace)
            };
            combinations.into_iter().map(run).collect()
        }
        FigureKind::Lines(spec) => {
            let points = Points::new(study, samples, &figure.filter);
            let maker = Maker {
                study,
                figure,
                spec,
                points,
            };
            let all = combinations.iter().flat_map(|chosen| {
                spec.measures
                    .iter()
                    .map(|measure| maker.line(chosen, measure))
            });
            Ok(all.collect())
        }
    }
}

/// One value of each axis of the lines, every combination.
fn combinations(study: &Study, figure: &Figure) -> Vec<Vec<(usize, String)>> {
    figure.series.iter().fold(vec![Vec::new()], |all, axis| {
        let labels = labels(study, figure, *axis);
        let longer = all.iter().flat_map(|chosen: &Vec<(usize, String)>| {
            labels.iter().map(move |label| {
                let own = (*axis, label.clone());
                chosen.iter().cloned().chain([own]).collect()
            })
        });
        longer.collect()
    })
}

/// A number is said with its axis: "1 flow", "50 flows".
fn label(study: &Study, chosen: &[(usize, String)]) -> String {
    let labels = chosen.iter().map(|(axis, label)| {
        let name = study.axes()[*axis].name();
        match label.as_str() {
            "1" => format!("1 {}", name.strip_suffix('s').unwrap_or(name)),
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{label} {name}"),
            _ => label.clone(),
        }
    });
    labels.collect::<Vec<_>>().join(", ")
}

/// The labels of axis number `axis` that count.
fn labels(study: &Study, figure: &Figure, axis: usize) -> Vec<String> {
    let labels = study.axes()[axis].labels();
    labels
        .filter(|label| admits(&figure.filter, axis, label))
        .collect()
}

struct Maker<'a> {
    study: &'a Study,
    figure: &'a Figure,
    spec: &'a Lines,
    points: Points<'a>,
}

impl Maker<'_> {
    fn line(&self, chosen: &[(usize, String)], measure: &str) -> Line {
        let mut name = label(self.study, chosen);
        if self.spec.measures.len() > 1 {
            let before = if name.is_empty() { "" } else { ", " };
            name = format!("{name}{before}{measure}");
        }
        let mut line = Line::new(name);
        let Some(place) = self.place(chosen) else {
            return line;
        };
        for (number, at) in labels(self.study, self.figure, self.spec.x)
            .into_iter()
            .enumerate()
        {
            let x = match self.spec.scale {
                Scale::Category => Some(number as f64),
                Scale::Linear => at.parse().ok(),
                Scale::Log => at.parse().ok().filter(|x| *x > 0.0),
            };
            let value = self
                .points
                .with(&place, self.spec.x, &at)
                .and_then(|place| self.points.value(&place, measure, &self.spec.shows));
            if let Some((x, value)) = x.zip(value).filter(|(_, value)| value.mean.is_finite()) {
                line.x.push(x);
                self.push(&mut line, &value);
            }
        }
        line
    }

    fn push(&self, line: &mut Line, value: &Value) {
        line.y.push(value.mean);
        match self.spec.band {
            Band::Nothing => {}
            Band::Range => {
                line.low.push(value.min);
                line.high.push(value.max);
            }
            Band::Interval => {
                line.low.push(value.mean - value.half());
                line.high.push(value.mean + value.half());
            }
        }
    }

    /// The point of a line before its x is known; `None` where an axis has no value that counts.
    fn place(&self, chosen: &[(usize, String)]) -> Option<Place> {
        let number = |(number, axis): (usize, &Axis)| {
            let own = chosen.iter().find(|(series, _)| *series == number);
            let first = || labels(self.study, self.figure, number).into_iter().next();
            match own {
                _ if axis.name() == SEED => Some(0),
                Some((_, label)) => axis.position(label),
                None => axis.position(&first()?),
            }
        };
        self.study.axes().iter().enumerate().map(number).collect()
    }
}
