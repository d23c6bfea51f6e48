//! A figure as it is drawn, whoever draws it: lines, and the words and places of its axes.

use crate::figure::Line;
use bentpipe_outcome::{Measure, find};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Band, Figure, FigureKind, Scale, TableKind};
use serde::Serialize;

/// The colours of lines, which differ in lightness too; after the last they begin again, dashed, and then dotted.
pub const COLOURS: [&str; 8] = [
    "#1d4fd1", "#c8452f", "#2c8a3d", "#a0449a", "#a67c00", "#1690b8", "#7b848e", "#16202b",
];

/// Lines and what stands around them.
#[derive(Debug, Serialize)]
pub struct Drawn<'a> {
    /// Its name in the study.
    pub name: &'a str,
    /// "Figure 6. " and its title; the title alone where its name is no number of a figure.
    pub heading: String,
    /// What the x axis is.
    pub x: String,
    /// Labels of the x axis; none where it is of numbers.
    pub ticks: Vec<String>,
    /// Whether the x axis is logarithmic.
    pub log: bool,
    /// What the y axis is.
    pub y: String,
    /// What is drawn around the lines, if anything.
    pub band: &'static str,
    /// Up to where a second panel enlarges.
    pub zoom: Option<f64>,
    /// The lines.
    pub lines: &'a [Line],
}

impl<'a> Drawn<'a> {
    /// `figure` of `study` with its `lines`.
    pub fn new(study: &'a Study, figure: &'a Figure, lines: &'a [Line]) -> Self {
        let drawn = Self {
            name: &figure.name,
            heading: if figure.name.starts_with(|c: char| c.is_ascii_digit()) {
                format!("Figure {}. {}", figure.name, figure.title)
            } else {
                figure.title.clone()
            },
            x: "time (s)".to_owned(),
            ticks: Vec::new(),
            log: false,
            y: "segments received in order".to_owned(),
            band: "",
            zoom: None,
            lines,
        };
        match &figure.kind {
            FigureKind::TimeSequence => drawn,
            FigureKind::Sizes => Self {
                x: "size of a transfer (segments of 1460 bytes)".to_owned(),
                y: "transfers of at most this size, in percent".to_owned(),
                log: true,
                ..drawn
            },
            FigureKind::Lines(spec) => {
                let axis = &study.axes()[spec.x];
                let chosen = figure.filter.get(&spec.x);
                let admits = |label: &String| chosen.is_none_or(|some| some.contains(label));
                let ticks = match spec.scale {
                    Scale::Category => axis.labels().filter(admits).collect(),
                    _ => Vec::new(),
                };
                Self {
                    x: axis.name().to_owned(),
                    ticks,
                    log: spec.scale == Scale::Log,
                    y: shown(&spec.shows, &summaries(&spec.measures)),
                    band: match spec.band {
                        Band::Nothing => "",
                        Band::Range => "shaded: least to greatest of the seeds",
                        Band::Interval => "shaded: 95% confidence interval of the mean",
                    },
                    zoom: spec.zoom,
                    ..drawn
                }
            }
        }
    }
}

fn shown(shows: &TableKind, measured: &str) -> String {
    match shows {
        TableKind::Value => measured.to_owned(),
        TableKind::Difference(contrast) => {
            let (from, to) = (&contrast.from, &contrast.to);
            format!("{to} less {from}: {measured}")
        }
        TableKind::Percent(contrast) => {
            let (from, to) = (&contrast.from, &contrast.to);
            format!("{to} against {from}, difference in percent: {measured}")
        }
    }
}

/// What a measure is, in one line.
pub fn summary(measure: &str) -> String {
    summaries(&[measure])
}

/// What the measures of a figure are; one that is taken of several flows, links or proxies is told once.
fn summaries<M: AsRef<str>>(measures: &[M]) -> String {
    let mut grouped: Vec<(String, Vec<String>)> = Vec::new();
    for measure in measures.iter().map(AsRef::as_ref) {
        let (what, one) = match find(measure) {
            Ok(named) => {
                let Measure { unit, summary, .. } = named.measure;
                let unit = if unit.is_empty() {
                    String::new()
                } else {
                    format!(", in {unit}")
                };
                let one = named.one.map(|one| format!("`{one}`"));
                (format!("{summary}{unit}"), one)
            }
            Err(_) => (measure.to_owned(), None),
        };
        match grouped.iter_mut().find(|(same, _)| *same == what) {
            Some((_, of)) => of.extend(one),
            None => grouped.push((what, one.into_iter().collect())),
        }
    }
    let words = grouped.into_iter().map(|(what, of)| {
        if of.is_empty() {
            what
        } else {
            format!("{what}, of {}", of.join(", "))
        }
    });
    words.collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_of_several_is_told_once() {
        let each = ["goodput(a)", "goodput(b)", "jain"];
        let summed = summaries(&each);
        assert!(summed.contains(", in Mbit/s, of `a`, `b` / "), "{summed}");
        assert_eq!(summed.matches("received in order").count(), 1, "{summed}");
        assert_eq!(summary("no such thing"), "no such thing");
    }
}
