//! The report of a comparison: one HTML file with its table and the congestion windows of both
//! sides, which loads nothing.

use bentpipe_report::Part;
use bentpipe_study::Comparison;
use serde::Serialize;

const PAGE: &str = include_str!("../../../../../web/compare.html");
const SCRIPTS: [Part; 1] = [(
    "{{compare.js}}",
    include_str!("../../../../../web/compare.js"),
)];

/// What the report shows.
pub(crate) struct CompareReport<'a> {
    pub(crate) name: &'a str,
    pub(crate) rows: &'a [Comparison],
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
    row: &'a Comparison,
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
        bentpipe_report::page(PAGE, &SCRIPTS, &page)
    }
}
