//! The demo's report: one HTML file that loads nothing.

#[cfg(test)]
mod tests;

use crate::plan::{
    self, CUTOFF, Cell, DELAY, LINK_RATE, LOSSES, Measure, Mode, REPEATS, Selection,
};
use crate::results::{Outcome, Row, Times, paused};
use bentpipe_report::Part;
use serde::Serialize;

const PAGE: &str = include_str!("../../../web/report.html");
const SCRIPTS: [Part; 2] = [
    ("{{report.js}}", include_str!("../../../web/report.js")),
    ("{{charts.js}}", include_str!("../../../web/charts.js")),
];

/// What the report shows.
pub struct Report<'a> {
    /// What was asked for.
    pub selection: &'a Selection,
    /// The rows, as [`crate::results::rows`] gives them.
    pub rows: &'a [Row],
    /// Every run.
    pub outcomes: &'a [Outcome],
    /// Name and value of what a reader needs to judge or repeat the figures.
    pub manifest: Vec<(String, String)>,
    /// How to repeat one run, in a sentence.
    pub rerun: String,
}

#[derive(Serialize)]
struct Page<'a> {
    setting: Setting,
    rows: Vec<PageRow<'a>>,
    manifest: &'a [(String, String)],
    runs: Vec<Run>,
    rerun: &'a str,
    failures: Vec<&'a str>,
}

#[derive(Serialize)]
struct Setting {
    rate_mbps: f64,
    rtt_ms: u128,
    queue: String,
    bulk_s: u64,
    cutoff_s: u64,
    repeats: u64,
    losses: Vec<f64>,
    limits: Vec<f64>,
}

#[derive(Serialize)]
struct PageRow<'a> {
    key: &'a str,
    label: &'a str,
    short: &'a str,
    mode: Mode,
    ours: bool,
    cells: Vec<PageCell<'a>>,
}

#[derive(Serialize)]
#[allow(non_snake_case, reason = "the page uses the names of the JSON file")]
struct PageCell<'a> {
    goodput: Option<f64>,
    share: Option<f64>,
    most_retransmitted: Option<f64>,
    t_100kB: &'a Times,
    t_2MB: &'a Times,
    series: &'a [f64],
    host_paused_ms: Option<f64>,
    not_run: &'a [Measure],
}

#[derive(Serialize)]
struct Run {
    name: String,
    seed: u64,
    result: String,
    most_retransmitted: Option<f64>,
    lateness_ms: Option<f64>,
    attempts: u32,
}

impl Report<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// When a figure is not a number.
    pub fn to_html(&self) -> serde_json::Result<String> {
        bentpipe_report::page(PAGE, &SCRIPTS, &self.page())
    }

    fn page(&self) -> Page<'_> {
        let losses = plan::losses(self.selection);
        let mut runs: Vec<Run> = self.outcomes.iter().map(Run::from).collect();
        runs.sort_by(|a, b| a.name.cmp(&b.name));
        Page {
            setting: Setting {
                rate_mbps: LINK_RATE.mbps(),
                rtt_ms: 2 * DELAY.as_millis(),
                queue: LINK_RATE.over(2 * DELAY).to_string(),
                bulk_s: plan::bulk(self.selection).as_secs(),
                cutoff_s: CUTOFF.as_secs(),
                repeats: if self.selection.quick { 1 } else { REPEATS },
                losses: losses.iter().map(|loss| LOSSES[*loss]).collect(),
                limits: losses.iter().map(|loss| Cell::limit_mbps(*loss)).collect(),
            },
            rows: plan::variants(self.selection)
                .into_iter()
                .map(|variant| PageRow {
                    key: variant.key,
                    label: variant.label,
                    short: variant.short,
                    mode: variant.mode,
                    ours: variant.ours(),
                    cells: self
                        .rows
                        .iter()
                        .filter(|row| row.variant == variant)
                        .map(PageCell::from)
                        .collect(),
                })
                .collect(),
            manifest: &self.manifest,
            runs,
            rerun: &self.rerun,
            failures: self
                .rows
                .iter()
                .flat_map(|row| &row.failed)
                .map(String::as_str)
                .collect(),
        }
    }
}

impl<'a> From<&'a Row> for PageCell<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            goodput: row.goodput_mbps,
            share: row.share(),
            most_retransmitted: row.most_retransmitted,
            t_100kB: &row.small,
            t_2MB: &row.large,
            series: &row.series,
            host_paused_ms: row.host_paused_ms,
            not_run: &row.not_run,
        }
    }
}

impl From<&Outcome> for Run {
    fn from(outcome: &Outcome) -> Self {
        let figures = outcome.result.as_ref().ok();
        let mark = figures.and_then(|run| Some(format!(" ({})", paused(run.host_paused_ms?))));
        let result = match (&outcome.result, outcome.cell.measure.size()) {
            (Err(why), _) => why.clone(),
            (Ok(run), None) => format!("{:.2} Mb/s", run.goodput_mbps),
            (Ok(run), Some(_)) => run
                .completion_s
                .map_or("cut off".into(), |seconds| format!("{seconds:.2} s")),
        };
        Self {
            name: outcome.cell.name(),
            seed: outcome.cell.seed,
            result: result + &mark.unwrap_or_default(),
            most_retransmitted: figures.and_then(|run| run.most_retransmitted),
            lateness_ms: figures.and_then(|run| run.lateness_ms),
            attempts: outcome.attempts,
        }
    }
}
