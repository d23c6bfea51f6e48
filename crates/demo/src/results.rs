//! From runs to rows: medians, shares, and the rows as JSON.

use crate::plan::{self, Cell, LOSSES, Measure, Mode, Selection, Variant};
use serde::Serialize;

/// What a run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Bytes received over the whole time of a bulk transfer, in Mb/s.
    pub goodput_mbps: f64,
    /// Seconds from connect() to the last byte; `None` when cut off.
    pub completion_s: Option<f64>,
    /// [`Flow::most_retransmitted`](bentpipe_outcome::Flow::most_retransmitted) of the bulk transfer.
    pub most_retransmitted: Option<f64>,
    /// 99th percentile of the emulator's lateness, in milliseconds.
    pub lateness_ms: Option<f64>,
    /// How long the host paused, in milliseconds, where that was too long to trust the figures: every try was
    /// disturbed so.
    pub host_paused_ms: Option<f64>,
    /// Received in each second, in Mb/s.
    pub series: Vec<f64>,
}

/// A run of the demo that ended, one way or the other.
pub type Outcome = bentpipe_lab::pool::Outcome<Cell, Figures>;

/// What stands for a run that there was no time for.
pub fn not_run(cell: &Cell) -> Outcome {
    Outcome {
        cell: cell.clone(),
        result: Err("not run: time".to_owned()),
        attempts: 0,
    }
}

/// The time of a short transfer over its repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The median in seconds; `None` when that run was cut off, or nothing was measured.
    pub median: Option<f64>,
    /// Whether the median run was cut off.
    pub cut: bool,
    /// Every run in the order of its seed; `None` when cut off.
    pub all: Vec<Option<f64>>,
    /// Whether a run failed: its time is not among `all`.
    pub failed: bool,
    /// How long the host paused, in milliseconds, in the run whose time is the median.
    pub host_paused_ms: Option<f64>,
}

impl Times {
    /// The times of all `runs` that did not fail. A run that was cut off counts as the longest; of an even number
    /// the slower middle one is taken, so that the median is always a run that happened. Runs in which the
    /// host paused count where there is no other.
    fn new<'a>(runs: impl Iterator<Item = &'a Figures>, failed: bool) -> Self {
        let runs: Vec<&Figures> = runs.collect();
        let key = |run: &&&Figures| run.completion_s.unwrap_or(f64::INFINITY);
        let calm = |run: &&&Figures| run.host_paused_ms.is_none();
        let any_calm = runs.iter().any(|run| calm(&run));
        let mut sorted: Vec<_> = runs.iter().filter(|run| !any_calm || calm(run)).collect();
        sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let middle = sorted.get(sorted.len() / 2);
        Self {
            median: middle.and_then(|run| run.completion_s),
            cut: middle.is_some_and(|run| run.completion_s.is_none()),
            host_paused_ms: middle.and_then(|run| run.host_paused_ms),
            all: runs.iter().map(|run| run.completion_s).collect(),
            failed,
        }
    }
}

/// One row at one loss rate.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which row.
    pub variant: &'static Variant,
    /// Index into [`LOSSES`].
    pub loss: usize,
    /// The goodput of the bulk transfer, in Mb/s; `None` when it failed.
    pub goodput_mbps: Option<f64>,
    /// The share of the bulk transfer that was sent again, by whoever sent most again.
    pub most_retransmitted: Option<f64>,
    /// The bulk transfer second by second, in Mb/s.
    pub series: Vec<f64>,
    /// The time for 100 kB.
    pub small: Times,
    /// The time for 2 MB.
    pub large: Times,
    /// How long the host paused in the bulk transfer, in milliseconds, where that was too long.
    pub host_paused_ms: Option<f64>,
    /// What failed, in words.
    pub failed: Vec<String>,
    /// What there was no time for.
    pub not_run: Vec<Measure>,
}

impl Row {
    /// Cells of the row whose figures are of runs in which the host paused: name and milliseconds.
    pub fn paused(&self) -> impl Iterator<Item = (Measure, f64)> {
        let cells = [
            (Measure::Bulk, self.host_paused_ms),
            (Measure::Small, self.small.host_paused_ms),
            (Measure::Large, self.large.host_paused_ms),
        ];
        let paused = |(measure, pause): (Measure, Option<f64>)| Some((measure, pause?));
        cells.into_iter().filter_map(paused)
    }

    /// The goodput that no TCP can exceed here, in Mb/s.
    pub fn limit_mbps(&self) -> f64 {
        Cell::limit_mbps(self.loss)
    }

    /// Goodput as a share of the limit.
    pub fn share(&self) -> Option<f64> {
        self.goodput_mbps.map(|goodput| goodput / self.limit_mbps())
    }
}

/// The rows of `selection` from all `outcomes`: by loss rate, then in the order of the table.
pub fn rows(selection: &Selection, outcomes: &[Outcome]) -> Vec<Row> {
    let variants = plan::variants(selection);
    plan::losses(selection)
        .into_iter()
        .flat_map(|loss| {
            variants
                .iter()
                .map(move |variant| row(variant, loss, outcomes))
        })
        .collect()
}

fn row(variant: &'static Variant, loss: usize, outcomes: &[Outcome]) -> Row {
    let mut mine: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.cell.variant == variant && outcome.cell.loss == loss)
        .collect();
    mine.sort_by_key(|outcome| (outcome.cell.measure, outcome.cell.seed));
    let figures = |measure| {
        mine.iter()
            .filter(move |outcome| outcome.cell.measure == measure)
            .filter_map(|outcome| outcome.result.as_ref().ok())
    };
    let times = |measure| {
        let mut runs = mine.iter().filter(|run| run.cell.measure == measure);
        let failed = runs.any(|run| run.result.is_err() && run.attempts > 0);
        Times::new(figures(measure), failed)
    };
    let bulk = figures(Measure::Bulk).next();
    let failure = |outcome: &&Outcome| {
        let why = outcome
            .result
            .as_ref()
            .err()
            .filter(|_| outcome.attempts > 0)?;
        Some(format!("{}: {why}", outcome.cell.title()))
    };
    Row {
        variant,
        loss,
        goodput_mbps: bulk.map(|run| run.goodput_mbps),
        most_retransmitted: bulk.and_then(|run| run.most_retransmitted),
        series: bulk.map(|run| run.series.clone()).unwrap_or_default(),
        small: times(Measure::Small),
        large: times(Measure::Large),
        host_paused_ms: bulk.and_then(|run| run.host_paused_ms),
        failed: mine.iter().filter_map(failure).collect(),
        not_run: mine
            .iter()
            .filter(|run| run.attempts == 0)
            .map(|run| run.cell.measure)
            .collect(),
    }
}

/// What is said of a run whose figures a pause of the host disturbed, in milliseconds.
pub fn paused(pause_ms: f64) -> String {
    format!("host paused {pause_ms:.0} ms")
}

/// One row as `--json` writes it.
#[derive(Serialize)]
#[allow(
    non_snake_case,
    reason = "the names of the JSON keys carry the unit prefixes k and M"
)]
struct Line<'a> {
    mode: Mode,
    cc: &'a str,
    loss: f64,
    stock_buffers: bool,
    goodput_mbps: Option<f64>,
    limit_mbps: f64,
    t_100kB_s: Option<f64>,
    t_2MB_s: Option<f64>,
    share: Option<f64>,
    most_retransmitted: Option<f64>,
    t_100kB_cut: bool,
    t_2MB_cut: bool,
    t_100kB_all_s: Vec<Option<f64>>,
    t_2MB_all_s: Vec<Option<f64>>,
    goodput_host_paused_ms: Option<f64>,
    t_100kB_host_paused_ms: Option<f64>,
    t_2MB_host_paused_ms: Option<f64>,
    failed: &'a [String],
    not_run: &'a [Measure],
}

impl<'a> From<&'a Row> for Line<'a> {
    fn from(row: &'a Row) -> Self {
        let all = |times: &Times| times.all.iter().map(|time| time.map(rounded)).collect();
        Self {
            mode: row.variant.mode,
            cc: row.variant.cc,
            loss: LOSSES[row.loss],
            stock_buffers: row.variant.stock_buffers,
            goodput_mbps: row.goodput_mbps.map(rounded),
            limit_mbps: rounded(row.limit_mbps()),
            t_100kB_s: row.small.median.map(rounded),
            t_2MB_s: row.large.median.map(rounded),
            share: row.share().map(rounded),
            most_retransmitted: row.most_retransmitted.map(rounded),
            t_100kB_cut: row.small.cut,
            t_2MB_cut: row.large.cut,
            t_100kB_all_s: all(&row.small),
            t_2MB_all_s: all(&row.large),
            goodput_host_paused_ms: row.host_paused_ms.map(rounded),
            t_100kB_host_paused_ms: row.small.host_paused_ms.map(rounded),
            t_2MB_host_paused_ms: row.large.host_paused_ms.map(rounded),
            failed: &row.failed,
            not_run: &row.not_run,
        }
    }
}

/// To four decimals: the rest is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The rows as a JSON array, one object a row and line.
///
/// Keys: `mode` ("end-to-end" or "split"), `cc` (name in the kernel), `loss` (0 to 1),
/// `stock_buffers`, `goodput_mbps` (null when the run failed), `limit_mbps`, `t_100kB_s` and
/// `t_2MB_s` (median seconds, null when that run was cut off or failed; `t_100kB_cut` and
/// `t_2MB_cut` are true when cut off), `share` of the limit, `most_retransmitted` (the share
/// of the bulk transfer's bytes that the TCP which repeated most on their way sent again, the source's or the gateway's), `t_100kB_all_s` and `t_2MB_all_s` (every run by its seed from 1; null when
/// cut off), `goodput_host_paused_ms` and the like (how long the host paused in that run, null where it did not
/// matter), `failed` (what went wrong, in words), `not_run` (which of `goodput`, `t_100kB` and `t_2MB` there was no time for).
pub fn to_json(rows: &[Row]) -> serde_json::Result<String> {
    let lines: serde_json::Result<Vec<String>> = rows
        .iter()
        .map(|row| serde_json::to_string(&Line::from(row)))
        .collect();
    Ok(format!("[\n{}\n]\n", lines?.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn ended(cell: Cell, result: Result<Figures, String>) -> Outcome {
        Outcome {
            cell,
            result,
            attempts: 1,
        }
    }

    #[test]
    fn the_median_is_a_run_that_happened_and_a_cut_one_counts_as_longest() {
        let of = |times: &[Option<f64>], failed| {
            let runs: Vec<Figures> = times.iter().map(|time| timed(*time, None)).collect();
            Times::new(runs.iter(), failed)
        };
        let times = of(&[Some(3.0), None, Some(2.0)], false);
        assert_eq!((times.median, times.cut), (Some(3.0), false));
        let times = of(&[None, Some(2.0), None], false);
        assert_eq!((times.median, times.cut), (None, true));
        let times = of(&[], true);
        assert_eq!((times.median, times.cut), (None, false));
        let times = of(&[Some(1.0), Some(2.0)], true);
        assert_eq!(times.median, Some(2.0));
    }

    fn timed(completion_s: Option<f64>, host_paused_ms: Option<f64>) -> Figures {
        Figures {
            completion_s,
            host_paused_ms,
            ..Figures::default()
        }
    }

    #[test]
    fn a_run_in_which_the_host_paused_counts_where_there_is_no_other() {
        let calm = timed(Some(2.0), None);
        let paused = [timed(Some(9.0), Some(92.0)), timed(Some(8.0), Some(60.0))];
        let times = Times::new(paused.iter().chain([&calm]), false);
        assert_eq!((times.median, times.host_paused_ms), (Some(2.0), None));
        let times = Times::new(paused.iter(), false);
        assert_eq!(
            (times.median, times.host_paused_ms),
            (Some(9.0), Some(92.0))
        );
    }

    #[test]
    fn rows_carry_the_promised_keys_and_a_failed_run_is_null() {
        let selection = Selection {
            only: vec!["split-rate".into()],
            quick: false,
        };
        let outcomes: Vec<Outcome> = plan::groups(&selection)
            .concat()
            .into_iter()
            .map(|cell| {
                if cell.measure == Measure::Bulk && cell.loss == 2 {
                    return ended(cell, Err("the emulator fell behind".into()));
                }
                let completion_s = (cell.measure != Measure::Large).then_some(1.25);
                let figures = Figures {
                    goodput_mbps: 9.37,
                    completion_s,
                    ..Figures::default()
                };
                ended(cell, Ok(figures))
            })
            .collect();
        let text = to_json(&rows(&selection, &outcomes)).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let lines = json.as_array().unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["mode"], "split");
        assert_eq!(lines[0]["cc"], "bentpipe_rate");
        assert_eq!(lines[0]["goodput_mbps"], 9.37);
        assert_eq!(lines[0]["t_100kB_s"], 1.25);
        assert_eq!(lines[0]["t_2MB_s"], Value::Null);
        assert_eq!(lines[0]["t_2MB_cut"], true);
        assert_eq!(lines[1]["loss"], 0.01);
        assert_eq!(lines[1]["stock_buffers"], false);
        assert_eq!(lines[2]["goodput_mbps"], Value::Null);
        assert!(
            lines[2]["failed"][0]
                .as_str()
                .unwrap()
                .contains("5% loss, bulk: the emulator")
        );
    }
}
