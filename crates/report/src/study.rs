//! The report of a study: one HTML file with its tables and figures, which loads nothing.

use crate::Part;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Engine, TableKind};
use bentpipe_study::{Cell, Drawn, Judged, summary};
use serde::Serialize;

const PAGE: &str = include_str!("../../../web/study.html");
const SCRIPTS: [Part; 2] = [
    ("{{study.js}}", include_str!("../../../web/study.js")),
    (
        "{{sheet.js}}",
        include_str!(concat!(env!("OUT_DIR"), "/sheet.js")),
    ),
];

/// What the report shows.
pub struct StudyReport<'a> {
    /// The study.
    pub study: &'a Study,
    /// The cells of its tables.
    pub cells: &'a [Cell],
    /// Its statements, put to the test.
    pub statements: &'a [Judged],
    /// Its figures.
    pub figures: &'a [Drawn<'a>],
    /// Its time-sequence graphs.
    pub graphs: &'a [Graph<'a>],
    /// How many points were run.
    pub points: u64,
}

/// A graph that is drawn already.
#[derive(Serialize)]
pub struct Graph<'a> {
    /// Its name in the study.
    pub name: &'a str,
    /// Its heading.
    pub title: &'a str,
    /// The drawing.
    pub svg: String,
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    version: &'static str,
    points: u64,
    /// Run on the kernel rather than simulated.
    lab: bool,
    axes: Vec<(&'a str, String)>,
    tables: Vec<PageTable<'a>>,
    statements: &'a [Judged],
    figures: &'a [Drawn<'a>],
    graphs: &'a [Graph<'a>],
    scenario: String,
}

#[derive(Serialize)]
struct PageTable<'a> {
    name: &'a str,
    title: &'a str,
    measure: String,
    percent: bool,
    cells: Vec<&'a Cell>,
}

impl StudyReport<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// When a figure is not a number.
    pub fn to_html(&self) -> serde_json::Result<String> {
        crate::page(PAGE, &SCRIPTS, &self.page())
    }

    fn page(&self) -> Page<'_> {
        let study = self.study;
        let axes = study.axes().iter().map(|axis| {
            let labels: Vec<String> = axis.labels().take(30).collect();
            let more = if axis.len() > 30 { " · …" } else { "" };
            (axis.name(), format!("{}{more}", labels.join(" · ")))
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
        Page {
            name: &study.base().name,
            version: env!("CARGO_PKG_VERSION"),
            points: self.points,
            lab: study.engine() == Engine::Lab,
            axes: axes.collect(),
            tables: tables.collect(),
            statements: self.statements,
            figures: self.figures,
            graphs: self.graphs,
            scenario: study.base().to_toml(),
        }
    }
}
