//! From samples to the cells of tables.

use crate::agree::{Reference, agrees};
use crate::beside::ReferenceValues;
use crate::points::{Place, Points, cell_place, change};
use crate::samples::Samples;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Contrast, Filter, TableKind, TableSpec};
use serde::Serialize;

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
    /// Half the width of the mean's 95% confidence interval (Student's t); 0 for one run.
    pub half: Option<f64>,
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
pub fn cells(study: &Study, samples: &Samples, beside: &ReferenceValues) -> Vec<Cell> {
    let table = |spec| {
        let maker = Maker {
            study,
            beside,
            spec,
            points: Points::of_table(study, samples, spec),
        };
        maker.cells()
    };
    study.tables().iter().flat_map(table).collect()
}

struct Maker<'a> {
    study: &'a Study,
    beside: &'a ReferenceValues,
    spec: &'a TableSpec,
    points: Points<'a>,
}

impl Maker<'_> {
    fn cells(&self) -> Vec<Cell> {
        let labels = |axis: usize| -> Vec<String> {
            let labels = self.study.axes()[axis].labels();
            labels
                .filter(|label| admits(&self.spec.filter, axis, label))
                .collect()
        };
        let (down, across) = (labels(self.spec.rows), labels(self.spec.columns));
        let pairs = down
            .iter()
            .flat_map(|row| across.iter().map(move |column| (row, column)));
        pairs.map(|(row, column)| self.cell(row, column)).collect()
    }

    fn cell(&self, row: &str, column: &str) -> Cell {
        let spec = self.spec;
        let place = cell_place(self.study, spec, row, column);
        let value = place
            .as_ref()
            .and_then(|place| self.points.value(place, &spec.measure, &spec.kind));
        let (runs, reference, agrees) = match spec.kind.contrast() {
            None => self.plain(place.as_ref(), row, column),
            Some(contrast) => self.contrasted(contrast, place.as_ref(), row, column),
        };
        Cell {
            table: spec.name.clone(),
            row: row.to_owned(),
            column: column.to_owned(),
            mean: value.map(|value| value.mean),
            half: value.map(|value| value.half()),
            min: value.map(|value| value.min),
            max: value.map(|value| value.max),
            n: value.map_or(0, |value| value.n),
            otherwise: value
                .is_none()
                .then(|| self.mean(place.as_ref(), spec.otherwise.as_deref()))
                .flatten(),
            within: self.mean(place.as_ref(), spec.within.as_deref()),
            runs,
            paper: self.beside.paper.get(&place_of(spec, row, column)).copied(),
            reference,
            agrees,
        }
    }

    /// How many runs there are, the reference, and whether ours agrees.
    fn plain(
        &self,
        place: Option<&Place>,
        row: &str,
        column: &str,
    ) -> (u64, Option<f64>, Option<bool>) {
        let theirs = self.reference(self.spec, row, column);
        let ours = place.and_then(|place| self.points.stats(place, &self.spec.measure));
        let agrees = ours
            .zip(theirs)
            .and_then(|(ours, theirs)| agrees(&ours, &theirs));
        (self.runs(place), theirs.map(|theirs| theirs.mean), agrees)
    }

    /// The cell of a change, from one point to another.
    fn contrasted(
        &self,
        contrast: &Contrast,
        place: Option<&Place>,
        row: &str,
        column: &str,
    ) -> (u64, Option<f64>, Option<bool>) {
        let sides = [&contrast.from, &contrast.to].map(|side| {
            let place = place.and_then(|place| self.points.with(place, contrast.axis, side));
            let ours = place
                .as_ref()
                .and_then(|place| self.points.stats(place, &self.spec.measure));
            let theirs = self
                .counterpart(contrast.axis, side)
                .and_then(|table| self.reference(table, row, column));
            (self.runs(place.as_ref()), ours, theirs)
        });
        let [from, to] = &sides;
        let agreement = sides
            .each_ref()
            .map(|(_, ours, theirs)| agrees(ours.as_ref()?, theirs.as_ref()?));
        let theirs = from.2.zip(to.2);
        (
            from.0.max(to.0),
            theirs.map(|(from, to)| change(&self.spec.kind, from.mean, to.mean)),
            agreement[0].zip(agreement[1]).map(|(from, to)| from && to),
        )
    }

    /// The mean of a measure that stands beside plain values.
    fn mean(&self, place: Option<&Place>, measure: Option<&str>) -> Option<f64> {
        let stats = self.points.stats(place?, measure?)?;
        (self.spec.kind == TableKind::Value).then_some(stats.mean)
    }

    fn runs(&self, place: Option<&Place>) -> u64 {
        place.map_or(0, |place| {
            self.points.covered(place, &self.spec.measure).1 as u64
        })
    }

    fn reference(&self, spec: &TableSpec, row: &str, column: &str) -> Option<Reference> {
        self.beside
            .reference
            .get(&place_of(spec, row, column))
            .copied()
    }

    /// The table of plain values that one side of a contrast is taken from.
    fn counterpart(&self, axis: usize, side: &str) -> Option<&TableSpec> {
        let spec = self.spec;
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

fn place_of(spec: &TableSpec, row: &str, column: &str) -> (String, String, String) {
    (spec.name.clone(), row.to_owned(), column.to_owned())
}

/// Whether `label` of axis number `axis` counts.
pub(crate) fn admits(filter: &Filter, axis: usize, label: &str) -> bool {
    filter
        .get(&axis)
        .is_none_or(|labels| labels.iter().any(|one| one == label))
}
