//! What papers say in words, put to the test: one figure of ours and one of the reference for each.

use crate::agree::Reference;
use crate::beside::ReferenceValues;
use crate::cells::admits;
use crate::points::{Place, Points, change, references};
use crate::samples::Samples;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Bound, Filter, SEED, SMALL_SHARE, Statement, TableKind, Take};
use serde::Serialize;
use std::collections::BTreeMap;

/// A statement, put to the test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Its name.
    pub statement: String,
    /// The paper's words.
    pub text: String,
    /// Where the paper says so.
    pub place: String,
    /// For which value of the axis that it is checked along, as `axis value`.
    pub model: Option<String>,
    /// The check in words: what is taken, and what it must be.
    pub check: String,
    /// Our figure; `None` where nothing was run that it could be taken of.
    pub ours: Option<f64>,
    /// Between which values it lies, by the 95% confidence intervals of the points.
    pub range: Option<[f64; 2]>,
    /// The points that it is taken of.
    pub points: usize,
    /// Whether it is what the statement says; `None` where the range says both.
    pub holds: Option<bool>,
    /// The reference's figure, of those of the points that it has.
    pub reference: Option<f64>,
    /// How many these are.
    pub reference_points: usize,
    /// Whether it holds there, by its means alone.
    pub reference_holds: Option<bool>,
    /// Why it holds or not.
    pub why: Option<String>,
}

/// Puts every statement of `study` to the test. `small_share`: share of the cross traffic's transfers
/// of at most ten segments, in percent, where it is known.
pub fn judge(
    study: &Study,
    samples: &Samples,
    beside: &ReferenceValues,
    small_share: Option<f64>,
) -> Vec<Judged> {
    let judge = Judge {
        study,
        points: Points::new(study, samples, &Filter::new()),
        references: references(study, beside),
        small_share,
    };
    study
        .statements()
        .iter()
        .flat_map(|one| judge.all(one))
        .collect()
}

struct Judge<'a> {
    study: &'a Study,
    points: Points<'a>,
    references: BTreeMap<(String, Place), Reference>,
    small_share: Option<f64>,
}

/// A value of one point.
struct Sample {
    /// The number that its label is on the axis that is gone along.
    at: Option<f64>,
    value: f64,
    /// Half of its 95% confidence interval.
    half: f64,
    /// Standard deviation in percent of the mean.
    spread: f64,
}

impl Judge<'_> {
    /// Checks the statement once, or once for each value of an axis.
    fn all(&self, one: &Statement) -> Vec<Judged> {
        let Some(axis) = one.each else {
            return vec![self.one(one, None)];
        };
        let labels = self.study.axes()[axis]
            .labels()
            .filter(|label| admits(&one.filter, axis, label));
        labels
            .map(|label| self.one(one, Some((axis, label))))
            .collect()
    }

    fn one(&self, one: &Statement, model: Option<(usize, String)>) -> Judged {
        let (ours, theirs) = if one.measure == SMALL_SHARE {
            let share = self.small_share.map(|share| (Figure::exact(share), 1));
            (share, None)
        } else {
            let places = self.places(one, model.as_ref());
            let ours = places.iter().filter_map(|place| self.our(place, one));
            let theirs = places.iter().filter_map(|place| self.their(place, one));
            let [ours, theirs] = [ours.collect::<Vec<_>>(), theirs.collect()];
            (taken(one.take, &ours), taken(one.take, &theirs))
        };
        let model =
            model.map(|(axis, label)| format!("{} {label}", self.study.axes()[axis].name()));
        Judged {
            statement: one.id.clone(),
            text: one.text.clone(),
            place: one.place.clone(),
            model,
            check: check(self.study, one),
            ours: ours.map(|(figure, _)| figure.value),
            range: ours.map(|(figure, _)| [figure.low, figure.high]),
            points: ours.map_or(0, |(_, points)| points),
            holds: ours.and_then(|(figure, _)| figure.verdict(&one.holds)),
            reference: theirs.map(|(figure, _)| figure.value),
            reference_points: theirs.map_or(0, |(_, points)| points),
            reference_holds: theirs.map(|(figure, _)| one.holds.admits(figure.value)),
            why: one.why.clone(),
        }
    }

    /// The points that count, in the order of the axis that is gone along, those of the two sides of a
    /// contrast as one.
    fn places(&self, one: &Statement, model: Option<&(usize, String)>) -> Vec<Place> {
        let side = one.shows.contrast();
        let axes = self.study.axes();
        let counts = |place: &&Place| {
            let label = |axis: usize| axes[axis].label(place[axis]);
            let own = model.is_none_or(|(axis, own)| label(*axis) == *own);
            let first = side.is_none_or(|side| label(side.axis) == side.from);
            // A mean over the seeds is what counts.
            let mut chosen = one.filter.keys().filter(|axis| axes[**axis].name() != SEED);
            own && first && chosen.all(|axis| admits(&one.filter, *axis, &label(*axis)))
        };
        let mut places: Vec<Place> = self.points.places().filter(counts).cloned().collect();
        if let Some(along) = along(one.take) {
            places.sort_by_key(|place| place[along]);
        }
        places
    }

    fn our(&self, place: &Place, one: &Statement) -> Option<Sample> {
        let value = match &one.against {
            None => self.points.value(place, &one.measure, &one.shows)?,
            Some(other) => self.points.excess(place, &one.measure, other, &one.shows)?,
        };
        let deviation = value.error * (value.n as f64).sqrt();
        value.mean.is_finite().then(|| Sample {
            at: self.number(place, one.take),
            value: value.mean,
            half: value.half(),
            spread: 100.0 * deviation / value.mean.abs(),
        })
    }

    /// The number that the label of `place` is on the axis that `take` goes along.
    fn number(&self, place: &Place, take: Take) -> Option<f64> {
        let axis = along(take)?;
        self.study.axes()[axis].label(place[axis]).parse().ok()
    }

    fn their(&self, place: &Place, one: &Statement) -> Option<Sample> {
        let (mut mean, spread) = self.known(place, &one.measure, &one.shows)?;
        if let Some(other) = &one.against {
            let (other, _) = self.known(place, other, &one.shows)?;
            mean = match one.shows {
                TableKind::Value => 100.0 * (mean - other) / other,
                _ => mean - other,
            };
        }
        mean.is_finite().then(|| Sample {
            at: self.number(place, one.take),
            value: mean,
            half: 0.0,
            spread,
        })
    }

    /// The reference's value and spread in percent.
    fn known(&self, place: &Place, measure: &str, shows: &TableKind) -> Option<(f64, f64)> {
        let at = |place: Place| self.references.get(&(measure.to_owned(), place));
        match shows.contrast() {
            None => {
                let known = at(place.clone())?;
                Some((known.mean, 100.0 * known.sd / known.mean.abs()))
            }
            Some(contrast) => {
                let side =
                    |label: &str| Some(at(self.points.with(place, contrast.axis, label)?)?.mean);
                let (from, to) = (side(&contrast.from)?, side(&contrast.to)?);
                Some((change(shows, from, to), 0.0))
            }
        }
    }
}

/// The figure of all `samples`, and how many these are.
fn taken(take: Take, samples: &[Sample]) -> Option<(Figure, usize)> {
    let figure = Figure::of(take, samples)?;
    figure.value.is_finite().then_some((figure, samples.len()))
}

/// Number of the axis that `take` goes along.
const fn along(take: Take) -> Option<usize> {
    match take {
        Take::First { along, .. } | Take::Dip { along } | Take::Trend { along } => Some(along),
        _ => None,
    }
}

/// One figure of many values, and between what it lies by their confidence intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figure {
    value: f64,
    low: f64,
    high: f64,
}

impl Figure {
    const fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    fn about(value: f64, half: f64) -> Self {
        Self {
            value,
            low: value - half,
            high: value + half,
        }
    }

    /// `samples` in the order of the axis that `take` goes along.
    fn of(take: Take, samples: &[Sample]) -> Option<Self> {
        // An extreme has the confidence interval of the point where it lies.
        let extreme = |better: fn(f64, f64) -> bool, size: fn(f64) -> f64| {
            let best = samples.iter().reduce(|best, one| {
                if better(size(one.value), size(best.value)) {
                    one
                } else {
                    best
                }
            })?;
            Some(Self::about(size(best.value), best.half))
        };
        match take {
            Take::Least => extreme(|a, b| a < b, |value| value),
            Take::Greatest => extreme(|a, b| a > b, |value| value),
            Take::Largest => extreme(|a, b| a > b, f64::abs),
            Take::Mean => {
                let count = samples.len() as f64;
                let mean = samples.iter().map(|sample| sample.value).sum::<f64>() / count;
                // The intervals are added as if the points were independent.
                let squares = samples.iter().map(|sample| sample.half.powi(2));
                let half = squares.sum::<f64>().sqrt() / count;
                (!samples.is_empty()).then(|| Self::about(mean, half))
            }
            Take::Spread => {
                let spreads = samples.iter().map(|sample| sample.spread);
                spreads.reduce(f64::max).map(Self::exact)
            }
            Take::First { when, .. } => {
                let first = |sign: f64| {
                    let mut found = samples.iter();
                    let found =
                        found.find(|sample| when.admits(sample.value + sign * sample.half))?;
                    found.at
                };
                let value: f64 = first(0.0)?;
                let others = [first(-1.0), first(1.0)];
                // If the condition may hold nowhere, the figure has no upper bound.
                let others = others.map(|other| other.unwrap_or(f64::INFINITY));
                Some(Self {
                    value,
                    low: others.into_iter().fold(value, f64::min),
                    high: others.into_iter().fold(value, f64::max),
                })
            }
            Take::Dip { .. } => dip(samples),
            Take::Trend { .. } => trend(samples),
        }
    }

    /// Whether it is what `bound` says; `None` where it may or may not be.
    fn verdict(&self, bound: &Bound) -> Option<bool> {
        let holds = bound.admits(self.value);
        let sure = [self.low, self.high].map(|end| bound.admits(end) == holds);
        (sure == [true, true]).then_some(holds)
    }
}

/// How far the deepest point lies below the lower of the highest points on its two sides, within both
/// intervals; `None` for fewer than three.
fn dip(samples: &[Sample]) -> Option<Figure> {
    let highest = |side: &[Sample]| {
        let side = side.iter().map(|sample| (sample.value, sample.half));
        side.reduce(|best, one| if one.0 > best.0 { one } else { best })
    };
    let depth = |at: usize| {
        let (left, right) = (highest(&samples[..at])?, highest(&samples[at + 1..])?);
        let shore = if left.0 < right.0 { left } else { right };
        let bottom = &samples[at];
        Some(Figure::about(
            shore.0 - bottom.value,
            shore.1.hypot(bottom.half),
        ))
    };
    let deepest = (0..samples.len())
        .filter_map(depth)
        .reduce(|deepest, one| {
            if one.value > deepest.value {
                one
            } else {
                deepest
            }
        })?;
    Some(if deepest.value > 0.0 {
        deepest
    } else {
        Figure::exact(0.0)
    })
}

/// Kendall's tau-a: rising pairs less falling ones, over all pairs; pairs whose intervals overlap may
/// be either. `None` for fewer than three.
fn trend(samples: &[Sample]) -> Option<Figure> {
    if samples.len() < 3 {
        return None;
    }
    let (mut sum, mut low, mut high, mut count) = (0, 0, 0, 0);
    for (at, first) in samples.iter().enumerate() {
        for later in &samples[at + 1..] {
            let rise = later.value - first.value;
            let sign = i32::from(rise > 0.0) - i32::from(rise < 0.0);
            let open = i32::from(rise.abs() <= first.half.hypot(later.half) && later.half > 0.0);
            sum += sign;
            low += if open == 1 { -1 } else { sign };
            high += if open == 1 { 1 } else { sign };
            count += 1;
        }
    }
    let share = |sum: i32| f64::from(sum) / f64::from(count);
    Some(Figure {
        value: share(sum),
        low: share(low),
        high: share(high),
    })
}

/// The check in words.
fn check(study: &Study, one: &Statement) -> String {
    let axis = |number: usize| study.axes()[number].name();
    let mut what = one.measure.clone();
    if let Some(contrast) = one.shows.contrast() {
        let unit = match one.shows {
            TableKind::Percent(_) => "% change",
            _ => "change",
        };
        what = format!("{unit} of {what} from {} to {}", contrast.from, contrast.to);
    }
    if let Some(other) = &one.against {
        what = match one.shows {
            TableKind::Value => format!("% by which {what} exceeds {other}"),
            _ => format!("{what} less that of {other}"),
        };
    }
    let bound: &Bound = &one.holds;
    match one.take {
        Take::Least => format!("least {what} {bound}"),
        Take::Greatest => format!("greatest {what} {bound}"),
        Take::Mean => format!("mean {what} {bound}"),
        Take::Largest => format!("largest |{what}| {bound}"),
        Take::Spread => format!("greatest sd of {what}, % of its mean, {bound}"),
        Take::First { along, when } => {
            format!("first {} with {what} {when}: {bound}", axis(along))
        }
        Take::Dip { along } => format!("deepest dip of {what} along {} {bound}", axis(along)),
        Take::Trend { along } => format!("rank correlation of {what} with {} {bound}", axis(along)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[(f64, f64)]) -> Vec<Sample> {
        let numbered = values.iter().enumerate();
        let sample = |(at, (value, half)): (usize, &(f64, f64))| Sample {
            at: Some(at as f64),
            value: *value,
            half: *half,
            spread: 0.0,
        };
        numbered.map(sample).collect()
    }

    fn exact(values: &[f64]) -> Vec<Sample> {
        samples(&values.iter().map(|value| (*value, 0.0)).collect::<Vec<_>>())
    }

    #[test]
    fn dips_and_trends_of_known_rows() {
        let dip = |values: &[f64]| dip(&exact(values)).map(|figure| figure.value);
        let trend = |values: &[f64]| trend(&exact(values)).map(|figure| figure.value);
        // Shores 5 and 7; the lowest between them is 2.
        assert_eq!(dip(&[1.0, 5.0, 2.0, 4.0, 7.0]), Some(3.0));
        assert_eq!(dip(&[1.0, 2.0, 3.0]), Some(0.0), "no second shore");
        assert_eq!(dip(&[1.0, 2.0]), None);
        assert_eq!(trend(&[1.0, 2.0, 5.0]), Some(1.0));
        assert_eq!(trend(&[3.0, 2.0, 1.0, 0.0]), Some(-1.0));
        // Of 6 pairs 4 rise, 1 falls, 1 is a tie.
        assert_eq!(trend(&[1.0, 3.0, 2.0, 3.0]), Some(0.5));
        assert_eq!(trend(&[1.0, 2.0]), None);
    }

    #[test]
    fn what_noise_may_have_made_is_not_resolved() {
        // The same dip of 6 points within intervals of 1 and of 5 points: sqrt(50) is more than 6.
        let at_least = Bound::AtLeast(2.0);
        let dipped = |half| dip(&samples(&[(50.0, half), (44.0, half), (51.0, half)])).unwrap();
        assert_eq!(dipped(1.0).verdict(&at_least), Some(true));
        assert_eq!(dipped(5.0).value, 6.0);
        assert_eq!(dipped(5.0).verdict(&at_least), None);
        // A least of 19 within 2 points of 20.
        let least = Figure::of(Take::Least, &samples(&[(30.0, 9.0), (19.0, 2.0)])).unwrap();
        assert_eq!((least.low, least.high), (17.0, 21.0));
        assert_eq!(least.verdict(&Bound::AtMost(20.0)), None);
        assert_eq!(least.verdict(&Bound::AtMost(22.0)), Some(true));
        assert_eq!(least.verdict(&Bound::AtLeast(22.0)), Some(false));
        // The second and third may be either way round.
        let rising = samples(&[(1.0, 0.1), (5.0, 1.0), (5.5, 1.0)]);
        let rising = trend(&rising).unwrap();
        assert_eq!(
            (rising.value, rising.low, rising.high),
            (1.0, 1.0 / 3.0, 1.0)
        );
        assert_eq!(rising.verdict(&Bound::AtLeast(0.8)), None);
        // 0.9 and 1.1 drops, each within 0.3, at 300 and 400 packets: the first of 1 may be 300.
        let take = Take::First {
            along: 0,
            when: Bound::AtLeast(1.0),
        };
        let first = Figure::of(take, &samples(&[(0.0, 0.0), (0.9, 0.3), (1.5, 0.3)])).unwrap();
        assert_eq!((first.value, first.low, first.high), (2.0, 1.0, 2.0));
    }
}
