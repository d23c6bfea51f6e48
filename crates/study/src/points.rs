//! What was measured, by point: over the seeds of one combination of values.

use crate::agree::{Reference, Stats};
use crate::beside::Beside;
use crate::row::{Measures, Row};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Contrast, SEED, TableKind};
use std::collections::BTreeMap;

/// The label of a point on each axis; that of the seeds is "".
pub(crate) type Place = Vec<String>;

/// Rows by point and seed.
pub(crate) struct Points<'r> {
    by: BTreeMap<Place, BTreeMap<&'r str, &'r Measures>>,
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
fn quantile(df: u64) -> f64 {
    const FIRST: [f64; 6] = [0.0, 12.706, 4.303, 3.182, 2.776, 2.571];
    let first = usize::try_from(df).ok().and_then(|df| FIRST.get(df));
    // Cornish and Fisher's expansion about the normal quantile 1.959964.
    let n = df as f64;
    first
        .copied()
        .unwrap_or(1.959_964 + 2.3724 / n + 2.8225 / (n * n) + 2.56 / (n * n * n))
}

impl<'r> Points<'r> {
    pub(crate) fn new(study: &Study, rows: &'r [Row]) -> Self {
        let seed = study.axes().iter().position(|axis| axis.name() == SEED);
        let mut by: BTreeMap<Place, BTreeMap<_, _>> = BTreeMap::new();
        for row in rows {
            let mut place = row.labels.clone();
            let own = seed.map_or("", |seed| {
                place[seed].clear();
                row.labels[seed].as_str()
            });
            by.entry(place).or_default().insert(own, &row.measures);
        }
        Self { by }
    }

    /// Every point.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.by.keys()
    }

    /// `measure` at `place`, or how it changes there; `None` without samples.
    pub(crate) fn value(&self, place: &Place, measure: &str, shows: &TableKind) -> Option<Value> {
        let Some(contrast) = shows.contrast() else {
            return plain(&Stats::of(
                &self
                    .samples(place, measure)
                    .into_values()
                    .collect::<Vec<_>>(),
            )?);
        };
        let sides = self.sides(place, measure, contrast);
        let changes = sides.pairs.values();
        let changes = changes.map(|(from, to)| change(shows, *from, *to));
        let changes = Stats::of(&changes.collect::<Vec<_>>())?;
        let influence = influence(shows, &sides).into_values().collect::<Vec<_>>();
        Some(Value {
            mean: change(shows, sides.from, sides.to),
            error: error(&influence),
            ..plain(&changes)?
        })
    }

    /// By how much `measure` exceeds `other` at `place`: in percent of it, of a change as it is. The
    /// runs bring both, so that what moves both alike is no error.
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
        let both = own_by
            .iter()
            .filter_map(|(seed, own)| Some(scale * (own - ratio * against_by.get(seed)?)));
        let both: Vec<f64> = both.collect();
        Some(Value {
            mean,
            error: error(&both),
            n: both.len() as u64,
            ..own
        })
    }

    fn influence(&self, place: &Place, measure: &str, shows: &TableKind) -> BTreeMap<&'r str, f64> {
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

    fn sides(&self, place: &Place, measure: &str, contrast: &Contrast) -> Sides<'r> {
        let side = |label: &String| self.samples(&with(place, contrast.axis, label), measure);
        let (from, to) = (side(&contrast.from), side(&contrast.to));
        let mean =
            |side: &BTreeMap<&str, f64>| side.values().sum::<f64>() / side.len().max(1) as f64;
        let (mean_from, mean_to) = (mean(&from), mean(&to));
        let pairs = from.into_iter();
        let pairs = pairs.filter_map(|(seed, from)| Some((seed, (from, *to.get(seed)?))));
        Sides {
            from: mean_from,
            to: mean_to,
            pairs: pairs.collect(),
        }
    }

    /// Samples by seed.
    fn samples(&self, place: &Place, measure: &str) -> BTreeMap<&'r str, f64> {
        let seeds = self.by.get(place).into_iter().flatten();
        let samples = seeds.filter_map(|(seed, measures)| Some((*seed, *measures.get(measure)?)));
        samples.filter(|(_, value)| value.is_finite()).collect()
    }

    /// How many runs have `measure` at `place`, and how many runs there are.
    pub(crate) fn covered(&self, place: &Place, measure: &str) -> (usize, usize) {
        let runs = self.by.get(place).map_or(0, BTreeMap::len);
        (self.samples(place, measure).len(), runs)
    }
}

/// The two sides of a contrast: their means, and their values in the runs that have both.
struct Sides<'r> {
    from: f64,
    to: f64,
    pairs: BTreeMap<&'r str, (f64, f64)>,
}

/// How far each run pulls a change of means: the same seed brings both sides the same cross traffic.
/// Of a ratio R = to / from it is the residual to - R from, over the mean of `from` (Cochran,
/// Sampling Techniques, 1977, section 6.4).
fn influence<'r>(shows: &TableKind, sides: &Sides<'r>) -> BTreeMap<&'r str, f64> {
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

/// `place` with another label on one axis.
pub(crate) fn with(place: &Place, axis: usize, label: &str) -> Place {
    let mut place = place.clone();
    label.clone_into(&mut place[axis]);
    place
}

/// What a reference has, by measure and point: its cells of plain values, whatever table they are in.
pub(crate) fn references(study: &Study, beside: &Beside) -> BTreeMap<(String, Place), Reference> {
    let tables = study
        .tables()
        .iter()
        .filter(|spec| spec.kind == TableKind::Value);
    let tables = tables.map(|spec| (spec.name.as_str(), spec));
    let tables: BTreeMap<_, _> = tables.collect();
    let cells = beside
        .reference
        .iter()
        .filter_map(|((table, row, column), reference)| {
            let spec = tables.get(table.as_str())?;
            let label = |(number, axis): (usize, &bentpipe_scenario::study::Axis)| {
                if number == spec.rows {
                    return Some(row.clone());
                }
                if number == spec.columns {
                    return Some(column.clone());
                }
                if axis.name() == SEED {
                    return Some(String::new());
                }
                match spec.filter.get(&number).map(Vec::as_slice) {
                    Some([only]) => Some(only.clone()),
                    Some(_) => None,
                    None => axis.labels().next(),
                }
            };
            let place: Option<Place> = study.axes().iter().enumerate().map(label).collect();
            Some(((spec.measure.clone(), place?), *reference))
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
            let pairs = [("1", first), ("2", second)].into();
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
