//! The measured values by point, each over the seeds of one combination of axis values.

use crate::agree::{Reference, Stats};
use crate::beside::ReferenceValues;
use crate::samples::Samples;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Axis, Contrast, Filter, SEED, TableKind, TableSpec};
use std::collections::BTreeMap;

/// The number of a point's value on each axis; that of the seeds is 0.
pub(crate) type Place = Vec<u64>;

/// Values by seed.
type Seeds = BTreeMap<u64, f64>;

/// The runs of each point.
pub(crate) struct Points<'r> {
    study: &'r Study,
    samples: &'r Samples,
    /// By point: seed, and number of the run.
    by: BTreeMap<Place, Vec<(u64, u64)>>,
}

/// A value over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    /// The mean; of a percentage that of the means.
    pub(crate) mean: f64,
    /// The least of the seeds.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// Standard error of the mean.
    pub(crate) error: f64,
    /// How many seeds.
    pub(crate) n: u64,
}

impl Value {
    /// Half the width of the 95% confidence interval of the mean; 0 for one seed.
    pub(crate) fn half(&self) -> f64 {
        self.error * quantile(self.n.saturating_sub(1))
    }
}

/// The 97.5% quantile of Student's t with `df` degrees of freedom, to 0.2%.
pub(crate) fn quantile(df: u64) -> f64 {
    const FIRST: [f64; 6] = [0.0, 12.706, 4.303, 3.182, 2.776, 2.571];
    let first = usize::try_from(df).ok().and_then(|df| FIRST.get(df));
    // Cornish and Fisher's expansion about the normal quantile 1.959964.
    let n = df as f64;
    first
        .copied()
        .unwrap_or(1.959_964 + 2.3724 / n + 2.8225 / (n * n) + 2.56 / (n * n * n))
}

impl<'r> Points<'r> {
    /// The points that `filter` admits.
    pub(crate) fn new(study: &'r Study, samples: &'r Samples, filter: &Filter) -> Self {
        let seed = study.axes().iter().position(|axis| axis.name() == SEED);
        Self::over(seed, study, samples, filter)
    }

    /// The points of a table, which may lay its seeds out.
    pub(crate) fn of_table(study: &'r Study, samples: &'r Samples, spec: &TableSpec) -> Self {
        let seed = study
            .axes()
            .iter()
            .position(|axis| axis.name() == SEED)
            .filter(|seed| ![spec.rows, spec.columns].contains(seed));
        Self::over(seed, study, samples, &spec.filter)
    }

    /// Those that `filter` admits, each over all values of axis number `seed`.
    fn over(seed: Option<usize>, study: &'r Study, samples: &'r Samples, filter: &Filter) -> Self {
        let number = |axis: &Axis, labels: &[String]| -> Vec<u64> {
            labels
                .iter()
                .filter_map(|label| axis.position(label))
                .collect()
        };
        let allowed: Vec<(usize, Vec<u64>)> = { filter.iter() }
            .map(|(axis, labels)| (*axis, number(&study.axes()[*axis], labels)))
            .collect();
        let mut by: BTreeMap<Place, Vec<_>> = BTreeMap::new();
        for run in 0..study.len() {
            let mut place = study.choice(run);
            if allowed
                .iter()
                .all(|(axis, some)| some.contains(&place[*axis]))
            {
                let own = seed.map_or(0, |seed| std::mem::take(&mut place[seed]));
                by.entry(place).or_default().push((own, run));
            }
        }
        Self { study, samples, by }
    }

    /// Every point.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.by.keys()
    }

    /// `measure` at `place`, or how it changes there; `None` without samples.
    pub(crate) fn value(&self, place: &Place, measure: &str, shows: &TableKind) -> Option<Value> {
        let Some(contrast) = shows.contrast() else {
            return plain(&self.stats(place, measure)?);
        };
        let sides = self.sides(place, measure, contrast);
        let pairs = sides.pairs.values();
        let values: Vec<f64> = pairs.map(|(from, to)| change(shows, *from, *to)).collect();
        let changes = Stats::of(&values)?;
        let influence = influence(shows, &sides).into_values().collect::<Vec<_>>();
        Some(Value {
            mean: change(shows, sides.from, sides.to),
            error: error(&influence),
            ..plain(&changes)?
        })
    }

    /// By how much `measure` exceeds `other` at `place`: in percent of it, or as a plain difference for a change. Both
    /// are taken of the same runs, so that noise that they share cancels out.
    pub(crate) fn excess(
        &self,
        place: &Place,
        measure: &str,
        other: &str,
        shows: &TableKind,
    ) -> Option<Value> {
        let (own, against) = (
            self.value(place, measure, shows)?,
            self.value(place, other, shows)?,
        );
        let (own_by, against_by) = (
            self.influence(place, measure, shows),
            self.influence(place, other, shows),
        );
        let (mean, ratio, scale) = match shows {
            TableKind::Value => {
                let ratio = own.mean / against.mean;
                (100.0 * (ratio - 1.0), ratio, 100.0 / against.mean)
            }
            _ => (own.mean - against.mean, 1.0, 1.0),
        };
        let both: Vec<f64> = own_by
            .iter()
            .filter_map(|(seed, own)| Some(scale * (own - ratio * against_by.get(seed)?)))
            .collect();
        Some(Value {
            mean,
            error: error(&both),
            n: both.len() as u64,
            ..own
        })
    }

    fn influence(&self, place: &Place, measure: &str, shows: &TableKind) -> Seeds {
        match shows.contrast() {
            Some(contrast) => influence(shows, &self.sides(place, measure, contrast)),
            None => {
                let samples = self.samples(place, measure);
                let mean = samples.values().sum::<f64>() / samples.len().max(1) as f64;
                samples
                    .into_iter()
                    .map(|(seed, value)| (seed, value - mean))
                    .collect()
            }
        }
    }

    fn sides(&self, place: &Place, measure: &str, contrast: &Contrast) -> Sides {
        let side = |label: &String| {
            let place = self.with(place, contrast.axis, label);
            place.map_or_else(Seeds::new, |place| self.samples(&place, measure))
        };
        let (from, to) = (side(&contrast.from), side(&contrast.to));
        let mean = |side: &Seeds| side.values().sum::<f64>() / side.len().max(1) as f64;
        let (mean_from, mean_to) = (mean(&from), mean(&to));
        let pairs = from
            .into_iter()
            .filter_map(|(seed, from)| Some((seed, (from, *to.get(&seed)?))));
        Sides {
            from: mean_from,
            to: mean_to,
            pairs: pairs.collect(),
        }
    }

    /// `place` with the value `label` on one axis.
    pub(crate) fn with(&self, place: &Place, axis: usize, label: &str) -> Option<Place> {
        with(self.study, place, axis, label)
    }

    fn samples(&self, place: &Place, measure: &str) -> Seeds {
        let runs = self.by.get(place).into_iter().flatten();
        let values = runs.filter_map(|(seed, run)| Some((*seed, self.samples.get(measure, *run)?)));
        values.collect()
    }

    /// `measure` at `place` over the seeds; `None` without samples.
    pub(crate) fn stats(&self, place: &Place, measure: &str) -> Option<Stats> {
        let samples = self.samples(place, measure).into_values();
        Stats::of(&samples.collect::<Vec<_>>())
    }

    /// How many runs have `measure` at `place`, and how many runs there are.
    pub(crate) fn covered(&self, place: &Place, measure: &str) -> (usize, usize) {
        let runs = self.by.get(place).map_or(0, Vec::len);
        (self.samples(place, measure).len(), runs)
    }
}

/// The two sides of a contrast: their means, and their values in the runs that have both.
struct Sides {
    from: f64,
    to: f64,
    pairs: BTreeMap<u64, (f64, f64)>,
}

/// How far each run pulls a change of means: the same seed brings both sides the same cross traffic.
/// Of a ratio R = to / from it is the residual to - R from, over the mean of `from` (Cochran,
/// Sampling Techniques, 1977, section 6.4).
fn influence(shows: &TableKind, sides: &Sides) -> Seeds {
    let (ratio, scale) = match shows {
        TableKind::Percent(_) => (sides.to / sides.from, 100.0 / sides.from.abs()),
        _ => (1.0, 1.0),
    };
    let pairs = sides.pairs.iter();
    pairs
        .map(|(seed, (from, to))| (*seed, scale * (to - ratio * from)))
        .collect()
}

/// Standard error of the mean of what pulls it.
fn error(influence: &[f64]) -> f64 {
    Stats::of(influence).map_or(0.0, |stats| stats.sd / (stats.n as f64).sqrt())
}

fn plain(stats: &Stats) -> Option<Value> {
    (stats.n > 0).then(|| Value {
        mean: stats.mean,
        min: stats.min,
        max: stats.max,
        error: stats.sd / (stats.n as f64).sqrt(),
        n: stats.n,
    })
}

/// From one value to another, as `shows` says.
pub(crate) fn change(shows: &TableKind, from: f64, to: f64) -> f64 {
    match shows {
        TableKind::Percent(_) => 100.0 * (to - from) / from,
        _ => to - from,
    }
}

/// `place` with the value `label` on one axis; `None` if that has none of this name.
pub(crate) fn with(study: &Study, place: &Place, axis: usize, label: &str) -> Option<Place> {
    let mut place = place.clone();
    place[axis] = study.axes()[axis].position(label)?;
    Some(place)
}

/// The point of a cell of `spec`; the side of a contrast is open.
pub(crate) fn cell_place(
    study: &Study,
    spec: &TableSpec,
    row: &str,
    column: &str,
) -> Option<Place> {
    let number = |(number, axis): (usize, &Axis)| match number {
        rows if rows == spec.rows => axis.position(row),
        columns if columns == spec.columns => axis.position(column),
        _ if axis.name() == SEED => Some(0),
        _ => match spec.filter.get(&number).map(Vec::as_slice) {
            Some([only]) => axis.position(only),
            Some(_) => None,
            None => Some(0),
        },
    };
    study.axes().iter().enumerate().map(number).collect()
}

/// What a reference has, by measure and point: its cells of plain values, whatever table they are in.
pub(crate) fn references(
    study: &Study,
    beside: &ReferenceValues,
) -> BTreeMap<(String, Place), Reference> {
    let tables: BTreeMap<_, _> = { study.tables().iter() }
        .filter(|spec| spec.kind == TableKind::Value)
        .map(|spec| (spec.name.as_str(), spec))
        .collect();
    let cells = beside
        .reference
        .iter()
        .filter_map(|((table, row, column), reference)| {
            let spec = tables.get(table.as_str())?;
            let place = cell_place(study, spec, row, column)?;
            Some(((spec.measure.clone(), place), *reference))
        });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_both_sides_alike_is_no_error_of_their_ratio() {
        let shows = TableKind::Percent(Contrast {
            axis: 0,
            from: "a".into(),
            to: "b".into(),
        });
        let of = |first: (f64, f64), second: (f64, f64), from, to| {
            let pairs = [(1, first), (2, second)].into();
            let sides = Sides { from, to, pairs };
            error(&influence(&shows, &sides).into_values().collect::<Vec<_>>())
        };
        assert!(of((100.0, 150.0), (120.0, 180.0), 110.0, 165.0).abs() < 1e-9);
        // R = 1.2, residuals -10 and 10, of standard deviation 10 sqrt 2: 10 over 100.
        let apart = of((100.0, 110.0), (100.0, 130.0), 100.0, 120.0);
        assert!((apart - 10.0).abs() < 1e-9, "{apart}");
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (df, table) in [
            (1, 12.706),
            (5, 2.571),
            (6, 2.447),
            (9, 2.262),
            (29, 2.045),
            (120, 1.980),
        ] {
            let off = (quantile(df) / table - 1.0).abs();
            assert!(off < 2e-3, "{df}: {}", quantile(df));
        }
    }
}
