//! The report of a study: one HTML file with its tables and figures, which loads nothing.

use super::UPLOT;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Figure, FigureKind, TableKind};
use bentpipe_study::{Cell, Line, MEASURES};
use serde::Serialize;

const PAGE: &str = include_str!("../../../../web/study.html");
/// Marks in [`PAGE`] besides uPlot's, and what takes their place.
const PARTS: [(&str, &str); 2] = [
    ("{{report.css}}", include_str!("../../../../web/report.css")),
    ("{{study.js}}", include_str!("../../../../web/study.js")),
];

/// What the report shows.
pub(crate) struct StudyReport<'a> {
    pub(crate) study: &'a Study,
    pub(crate) cells: &'a [Cell],
    /// The lines of each figure of the study.
    pub(crate) figures: &'a [Vec<Line>],
    /// How many points were run.
    pub(crate) points: usize,
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    version: &'static str,
    points: usize,
    axes: Vec<(&'a str, String)>,
    tables: Vec<PageTable<'a>>,
    figures: Vec<PageFigure<'a>>,
    scenario: String,
}

#[derive(Serialize)]
struct PageTable<'a> {
    name: &'a str,
    title: &'a str,
    measure: &'a str,
    percent: bool,
    cells: Vec<&'a Cell>,
}

#[derive(Serialize)]
struct PageFigure<'a> {
    name: &'a str,
    title: &'a str,
    x: String,
    /// Labels of the x axis; none where it is time.
    ticks: Vec<String>,
    y: &'a str,
    lines: &'a [Line],
}

impl StudyReport<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// When a figure is not a number.
    pub(crate) fn to_html(&self) -> serde_json::Result<String> {
        // A `<` inside the data could end its script element.
        let data = serde_json::to_string(&self.page())?.replace('<', "\\u003c");
        let parts = PARTS.iter().chain(&UPLOT);
        let filled = parts.fold(PAGE.to_owned(), |page, (mark, part)| {
            page.replace(mark, part)
        });
        Ok(filled.replace("{{data}}", &data))
    }

    fn page(&self) -> Page<'_> {
        let study = self.study;
        let axes = study.axes().iter().map(|axis| {
            let labels: Vec<String> = axis.labels().take(30).collect();
            let more = if axis.len() > 30 { ", …" } else { "" };
            (axis.name(), format!("{}{more}", labels.join(", ")))
        });
        let tables = study.tables().iter().map(|spec| PageTable {
            name: &spec.name,
            title: &spec.title,
            measure: summary(&spec.measure),
            percent: matches!(spec.kind, TableKind::Percent(_)),
            cells: self
                .cells
                .iter()
                .filter(|cell| cell.table == spec.name)
                .collect(),
        });
        let figures = study.figures().iter().zip(self.figures);
        Page {
            name: &study.base().name,
            version: env!("CARGO_PKG_VERSION"),
            points: self.points,
            axes: axes.collect(),
            tables: tables.collect(),
            figures: figures
                .map(|(figure, lines)| self.figure(figure, lines))
                .collect(),
            scenario: study.base().to_toml(),
        }
    }

    fn figure<'a>(&'a self, figure: &'a Figure, lines: &'a [Line]) -> PageFigure<'a> {
        let (x, ticks, y) = match &figure.kind {
            FigureKind::TimeSequence => {
                let y = "segments received in order";
                ("time (s)".to_owned(), Vec::new(), y)
            }
            FigureKind::Lines { x, measure } => {
                let axis = &self.study.axes()[*x];
                let chosen = figure.filter.get(x);
                let admits = |label: &String| chosen.is_none_or(|some| some.contains(label));
                let ticks = axis.labels().filter(admits).collect();
                (axis.name().to_owned(), ticks, summary(measure))
            }
        };
        PageFigure {
            name: &figure.name,
            title: &figure.title,
            x,
            ticks,
            y,
            lines,
        }
    }
}

fn summary(measure: &str) -> &str {
    let known = MEASURES.iter().find(|known| known.name == measure);
    known.map_or(measure, |known| known.summary)
}
