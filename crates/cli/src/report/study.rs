//! The report of a study: one HTML file with its tables and figures, which loads nothing.

use super::UPLOT;
use super::figure::{Drawn, summary};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Engine, TableKind};
use bentpipe_study::{Cell, Judged};
use serde::Serialize;

const PAGE: &str = include_str!("../../../../web/study.html");
/// Marks in [`PAGE`] besides uPlot's, and what takes their place.
const PARTS: [(&str, &str); 3] = [
    ("{{report.css}}", include_str!("../../../../web/report.css")),
    ("{{study.js}}", include_str!("../../../../web/study.js")),
    ("{{figures.js}}", include_str!("../../../../web/figures.js")),
];

/// What the report shows.
pub(crate) struct StudyReport<'a> {
    pub(crate) study: &'a Study,
    pub(crate) cells: &'a [Cell],
    /// Its statements, put to the test.
    pub(crate) statements: &'a [Judged],
    /// Its figures.
    pub(crate) figures: &'a [Drawn<'a>],
    /// How many points were run.
    pub(crate) points: u64,
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
            scenario: study.base().to_toml(),
        }
    }
}
