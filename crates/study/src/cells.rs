//! From rows to the cells of tables.

use crate::agree::{Reference, Stats, agrees};
use crate::beside::Beside;
use crate::row::Row;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Contrast, Filter, SEED, TableKind, TableSpec};
use serde::Serialize;
use std::collections::BTreeMap;

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The table's name.
    pub table: String,
    /// The row's label.
    pub row: String,
    /// The column's label.
    pub column: String,
    /// Mean over the seeds; of a percentage, that of the means. `None` without samples.
    pub mean: Option<f64>,
    /// Least of the seeds.
    pub min: Option<f64>,
    /// Greatest of the seeds.
    pub max: Option<f64>,
    /// Where none has the measure: the mean of what the table shows otherwise.
    pub otherwise: Option<f64>,
    /// What the mean should not exceed.
    pub within: Option<f64>,
    /// How many runs have the measure; of a change, on both sides.
    pub n: u64,
    /// How many runs there are: where they are more than `n`, the mean is that of the rest.
    pub runs: u64,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The reference's mean.
    pub reference: Option<f64>,
    /// Whether the mean agrees with the reference's; of a difference or a percentage, whether both
    /// means that it is made of do.
    pub agrees: Option<bool>,
}

/// The cells of all tables, row by row.
pub fn cells(study: &Study, rows: &[Row], beside: &Beside) -> Vec<Cell> {
    let maker = Maker {
        study,
        beside,
        seed: study.axes().iter().position(|axis| axis.name() == SEED),
    };
    study
        .tables()
        .iter()
        .flat_map(|spec| maker.table(spec, rows))
        .collect()
}

struct Maker<'a> {
    study: &'a Study,
    beside: &'a Beside,
    /// Number of the axis of seeds.
    seed: Option<usize>,
}

/// Samples of one measure by row label, column label and label of the contrast (or "").
type Samples<'r> = BTreeMap<(&'r str, &'r str, &'r str), Seeds<'r>>;

/// The runs of one place.
#[derive(Default)]
struct Seeds<'r> {
    /// How many.
    runs: u64,
    /// The measure of those that have it, by seed.
    values: BTreeMap<&'r str, f64>,
}

impl Maker<'_> {
    fn table(&self, spec: &TableSpec, rows: &[Row]) -> Vec<Cell> {
        let contrast = spec.kind.contrast();
        let samples = |measure: &str| self.samples(spec, contrast, rows, measure);
        let beside = |measure: &Option<String>| measure.as_deref().map(&samples);
        let (otherwise, within) = (beside(&spec.otherwise), beside(&spec.within));
        let samples = samples(&spec.measure);
        let labels = |axis: usize| -> Vec<String> {
            let labels = self.study.axes()[axis].labels();
            labels
                .filter(|label| admits(&spec.filter, axis, label))
                .collect()
        };
        let (down, across) = (labels(spec.rows), labels(spec.columns));
        let pairs = down
            .iter()
            .flat_map(|row| across.iter().map(move |column| (row, column)));
        pairs
            .map(|(row, column)| match contrast {
                None => {
                    let mean = |beside: &Option<Samples<'_>>| {
                        let stats = stats(beside.as_ref()?, (row, column, ""));
                        stats.map(|stats| stats.mean)
                    };
                    let cell = self.value(spec, &samples, row, column);
                    Cell {
                        otherwise: mean(&otherwise).filter(|_| cell.mean.is_none()),
                        within: mean(&within),
                        ..cell
                    }
                }
                Some(contrast) => self.contrasted(spec, contrast, &samples, row, column),
            })
            .collect()
    }

    fn samples<'r>(
        &self,
        spec: &TableSpec,
        contrast: Option<&Contrast>,
        rows: &'r [Row],
        measure: &str,
    ) -> Samples<'r> {
        let mut samples = Samples::new();
        for row in rows {
            let mut labels = row.labels.iter().enumerate();
            let counts = labels.all(|(axis, label)| admits(&spec.filter, axis, label));
            if !counts {
                continue;
            }
            let at = |axis: usize| row.labels[axis].as_str();
            let side = contrast.map_or("", |contrast| at(contrast.axis));
            let seed = self.seed.map_or("", at);
            let cell = samples
                .entry((at(spec.rows), at(spec.columns), side))
                .or_default();
            cell.runs += 1;
            if let Some(value) = row.measures.get(measure) {
                cell.values.insert(seed, *value);
            }
        }
        samples
    }

    fn value(&self, spec: &TableSpec, samples: &Samples<'_>, row: &str, column: &str) -> Cell {
        let stats = stats(samples, (row, column, ""));
        let reference = self.reference(spec, row, column);
        let agrees = stats
            .as_ref()
            .zip(reference)
            .and_then(|(ours, theirs)| agrees(ours, &theirs));
        Cell {
            runs: samples
                .get(&(row, column, ""))
                .map_or(0, |seeds| seeds.runs),
            reference: reference.map(|reference| reference.mean),
            agrees,
            ..self.cell(spec, row, column, stats.as_ref())
        }
    }

    fn contrasted(
        &self,
        spec: &TableSpec,
        contrast: &Contrast,
        samples: &Samples<'_>,
        row: &str,
        column: &str,
    ) -> Cell {
        let percent = matches!(spec.kind, TableKind::Percent(_));
        let change = |from: f64, to: f64| match percent {
            true => 100.0 * (to - from) / from,
            false => to - from,
        };
        let sides = [&contrast.from, &contrast.to].map(|side| (row, column, side.as_str()));
        let by_seed = |place| samples.get(&place).map(|seeds| &seeds.values);
        let runs = sides.map(|place| samples.get(&place).map_or(0, |seeds| seeds.runs));
        let pairs: Vec<f64> = by_seed(sides[0])
            .into_iter()
            .flatten()
            .filter_map(|(seed, from)| Some(change(*from, *by_seed(sides[1])?.get(seed)?)))
            .collect();
        let ours = sides.map(|place| stats(samples, place));
        let theirs = [&contrast.from, &contrast.to].map(|side| {
            let counterpart = self.counterpart(spec, contrast.axis, side)?;
            self.reference(counterpart, row, column)
        });
        let agreement = |at: usize| agrees(ours[at].as_ref()?, theirs[at].as_ref()?);
        let mean = |means: [Option<f64>; 2]| Some(change(means[0]?, means[1]?));
        let cell = self.cell(spec, row, column, Stats::of(&pairs).as_ref());
        Cell {
            mean: cell.mean.and(mean(
                [0, 1].map(|at| ours[at].as_ref().map(|ours| ours.mean)),
            )),
            reference: mean([0, 1].map(|at| theirs[at].map(|theirs| theirs.mean))),
            agrees: agreement(0).zip(agreement(1)).map(|(from, to)| from && to),
            runs: runs[0].max(runs[1]),
            ..cell
        }
    }

    fn cell(&self, spec: &TableSpec, row: &str, column: &str, stats: Option<&Stats>) -> Cell {
        Cell {
            table: spec.name.clone(),
            row: row.to_owned(),
            column: column.to_owned(),
            mean: stats.map(|stats| stats.mean),
            min: stats.map(|stats| stats.min),
            max: stats.map(|stats| stats.max),
            n: stats.map_or(0, |stats| stats.n),
            otherwise: None,
            within: None,
            runs: 0,
            paper: self.beside.paper.get(&place(spec, row, column)).copied(),
            reference: None,
            agrees: None,
        }
    }

    fn reference(&self, spec: &TableSpec, row: &str, column: &str) -> Option<Reference> {
        self.beside
            .reference
            .get(&place(spec, row, column))
            .copied()
    }

    /// The table of plain values that one side of a contrast is taken from.
    fn counterpart(&self, spec: &TableSpec, axis: usize, side: &str) -> Option<&TableSpec> {
        self.study.tables().iter().find(|other| {
            other.kind == TableKind::Value
                && (other.rows, other.columns) == (spec.rows, spec.columns)
                && other.measure == spec.measure
                && other
                    .filter
                    .get(&axis)
                    .is_some_and(|labels| labels == &[side])
                && self.alike(spec, other, axis)
        })
    }

    /// Whether two tables fix every axis that is neither laid out nor `contrast` at the same values.
    fn alike(&self, spec: &TableSpec, other: &TableSpec, contrast: usize) -> bool {
        let free = [spec.rows, spec.columns, contrast];
        let mut fixed = (0..self.study.axes().len()).filter(|axis| !free.contains(axis));
        fixed.all(|axis| spec.filter.get(&axis) == other.filter.get(&axis))
    }
}

fn stats(samples: &Samples<'_>, place: (&str, &str, &str)) -> Option<Stats> {
    let samples: Vec<f64> = samples.get(&place)?.values.values().copied().collect();
    Stats::of(&samples)
}

fn place(spec: &TableSpec, row: &str, column: &str) -> (String, String, String) {
    (spec.name.clone(), row.to_owned(), column.to_owned())
}

/// Whether `label` of axis number `axis` counts.
pub(crate) fn admits(filter: &Filter, axis: usize, label: &str) -> bool {
    filter
        .get(&axis)
        .is_none_or(|labels| labels.iter().any(|one| one == label))
}
