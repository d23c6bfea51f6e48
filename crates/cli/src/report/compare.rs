//! The report of a comparison: one HTML file with its table and the congestion windows of both
//! sides, which loads nothing.

use super::UPLOT;
use crate::command::compare::Row;
use serde::Serialize;

const PAGE: &str = include_str!("../../../../web/compare.html");
/// Marks in [`PAGE`] besides uPlot's, and what takes their place.
const PARTS: [(&str, &str); 2] = [
    ("{{report.css}}", include_str!("../../../../web/report.css")),
    ("{{compare.js}}", include_str!("../../../../web/compare.js")),
];

/// What the report shows.
pub(crate) struct CompareReport<'a> {
    pub(crate) name: &'a str,
    pub(crate) rows: &'a [Row],
    /// Name and value of what a reader needs to judge or repeat the figures.
    pub(crate) manifest: Vec<(String, String)>,
    /// The first case, every default written out.
    pub(crate) scenario: String,
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    rows: Vec<PageRow<'a>>,
    manifest: &'a [(String, String)],
    scenario: &'a str,
}

#[derive(Serialize)]
struct PageRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    /// The windows of each run, ten a second.
    cwnd: [&'a [Vec<u32>]; 2],
}

impl CompareReport<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// When a figure is not a number.
    pub(crate) fn to_html(&self) -> serde_json::Result<String> {
        let rows = self.rows.iter().map(|row| PageRow {
            row,
            cwnd: [&row.lab.cwnd, &row.simulator.cwnd],
        });
        let page = Page {
            name: self.name,
            rows: rows.collect(),
            manifest: &self.manifest,
            scenario: &self.scenario,
        };
        // A `<` inside the data could end its script element.
        let data = serde_json::to_string(&page)?.replace('<', "\\u003c");
        let parts = PARTS.iter().chain(&UPLOT);
        let filled = parts.fold(PAGE.to_owned(), |page, (mark, part)| {
            page.replace(mark, part)
        });
        Ok(filled.replace("{{data}}", &data))
    }
}
