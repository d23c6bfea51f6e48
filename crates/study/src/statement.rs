//! What papers say in words, put to the test: one figure of ours and one of the reference for each.

use crate::agree::Reference;
use crate::beside::Beside;
use crate::cells::admits;
use crate::points::{Place, Points, change, references, with};
use crate::row::Row;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Bound, SMALL_SHARE, Statement, TableKind, Take};
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
    /// The points that it is taken of.
    pub points: usize,
    /// Whether it is what the statement says.
    pub holds: Option<bool>,
    /// The reference's figure, of those of the points that it has.
    pub reference: Option<f64>,
    /// How many these are.
    pub reference_points: usize,
    /// Whether it holds there.
    pub reference_holds: Option<bool>,
    /// Why it holds or not.
    pub why: Option<String>,
}

/// Puts every statement of `study` to the test. `small_share`: share of the cross traffic's transfers
/// of at most ten segments, in percent, where it is known.
pub fn judge(
    study: &Study,
    rows: &[Row],
    beside: &Beside,
    small_share: Option<f64>,
) -> Vec<Judged> {
    let judge = Judge {
        study,
        points: Points::new(study, rows),
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
    place: Place,
    value: f64,
    /// Standard deviation in percent of the mean.
    spread: f64,
}

impl Judge<'_> {
    /// Once, or once for each value of an axis.
    fn all(&self, one: &Statement) -> Vec<Judged> {
        let Some(axis) = one.each else {
            return vec![self.one(one, None)];
        };
        let labels = self.study.axes()[axis].labels();
        let labels = labels.filter(|label| admits(&one.filter, axis, label));
        labels
            .map(|label| self.one(one, Some((axis, label))))
            .collect()
    }

    fn one(&self, one: &Statement, model: Option<(usize, String)>) -> Judged {
        let (ours, theirs) = if one.measure == SMALL_SHARE {
            let share = self.small_share.map(|share| (share, 1));
            (share, None)
        } else {
            let places = self.places(one, model.as_ref());
            let ours = self.taken(one, &places, |place, measure| {
                self.our(place, measure, &one.shows)
            });
            let theirs = self.taken(one, &places, |place, measure| {
                self.their(place, measure, &one.shows)
            });
            (ours, theirs)
        };
        let holds =
            |figure: Option<(f64, usize)>| figure.map(|(figure, _)| one.holds.admits(figure));
        let model =
            model.map(|(axis, label)| format!("{} {label}", self.study.axes()[axis].name()));
        Judged {
            statement: one.id.clone(),
            text: one.text.clone(),
            place: one.place.clone(),
            model,
            check: check(self.study, one),
            ours: ours.map(|(figure, _)| figure),
            points: ours.map_or(0, |(_, points)| points),
            holds: holds(ours),
            reference: theirs.map(|(figure, _)| figure),
            reference_points: theirs.map_or(0, |(_, points)| points),
            reference_holds: holds(theirs),
            why: one.why.clone(),
        }
    }

    /// The points that count, those of the two sides of a contrast as one.
    fn places(&self, one: &Statement, model: Option<&(usize, String)>) -> Vec<Place> {
        let side = one.shows.contrast();
        let counts = |place: &&Place| {
            let mut labels = place.iter().enumerate();
            let own = model.is_none_or(|(axis, label)| place[*axis] == *label);
            let first = side.is_none_or(|side| place[side.axis] == side.from);
            // The label of the seeds is "": a mean over them is what counts.
            own && first
                && labels.all(|(axis, label)| label.is_empty() || admits(&one.filter, axis, label))
        };
        self.points.places().filter(counts).cloned().collect()
    }

    /// Value and spread in percent.
    fn our(&self, place: &Place, measure: &str, shows: &TableKind) -> Option<(f64, f64)> {
        let value = self.points.value(place, measure, shows)?;
        let deviation = value.error * (value.n as f64).sqrt();
        Some((value.mean, 100.0 * deviation / value.mean.abs()))
    }

    fn their(&self, place: &Place, measure: &str, shows: &TableKind) -> Option<(f64, f64)> {
        let at = |place: Place| self.references.get(&(measure.to_owned(), place));
        match shows.contrast() {
            None => {
                let known = at(place.clone())?;
                Some((known.mean, 100.0 * known.sd / known.mean.abs()))
            }
            Some(contrast) => {
                let side = |label: &str| Some(at(with(place, contrast.axis, label))?.mean);
                let (from, to) = (side(&contrast.from)?, side(&contrast.to)?);
                Some((change(shows, from, to), 0.0))
            }
        }
    }

    /// The figure of all `places` that have a value, and how many these are.
    fn taken(
        &self,
        one: &Statement,
        places: &[Place],
        value: impl Fn(&Place, &str) -> Option<(f64, f64)>,
    ) -> Option<(f64, usize)> {
        let sample = |place: &Place| {
            let (mean, spread) = value(place, &one.measure)?;
            let mean = match &one.against {
                None => mean,
                Some(other) => {
                    let (other, _) = value(place, other)?;
                    match one.shows {
                        TableKind::Value => 100.0 * (mean - other) / other,
                        _ => mean - other,
                    }
                }
            };
            mean.is_finite().then(|| Sample {
                place: place.clone(),
                value: mean,
                spread,
            })
        };
        let samples: Vec<Sample> = places.iter().filter_map(sample).collect();
        let figure = self.figure(one.take, &samples)?;
        figure.is_finite().then_some((figure, samples.len()))
    }

    fn figure(&self, take: Take, samples: &[Sample]) -> Option<f64> {
        let values = || samples.iter().map(|sample| sample.value);
        match take {
            Take::Least => values().reduce(f64::min),
            Take::Greatest => values().reduce(f64::max),
            Take::Mean => {
                (!samples.is_empty()).then(|| values().sum::<f64>() / samples.len() as f64)
            }
            Take::Largest => values().map(f64::abs).reduce(f64::max),
            Take::Spread => samples.iter().map(|sample| sample.spread).reduce(f64::max),
            Take::First { along, when } => {
                let ordered = self.ordered(along, samples);
                let first = ordered.iter().find(|sample| when.admits(sample.value))?;
                first.place[along].parse().ok()
            }
            Take::Dip { along } => {
                let ordered = self.ordered(along, samples);
                dip(&ordered
                    .iter()
                    .map(|sample| sample.value)
                    .collect::<Vec<_>>())
            }
            Take::Trend { along } => {
                let ordered = self.ordered(along, samples);
                trend(
                    &ordered
                        .iter()
                        .map(|sample| sample.value)
                        .collect::<Vec<_>>(),
                )
            }
        }
    }

    /// In the order of the values of an axis.
    fn ordered<'s>(&self, along: usize, samples: &'s [Sample]) -> Vec<&'s Sample> {
        let axis = &self.study.axes()[along];
        let mut ordered: Vec<&Sample> = samples.iter().collect();
        ordered.sort_by_cached_key(|sample| axis.position(&sample.place[along]));
        ordered
    }
}

/// How far the deepest point lies below the lower of the highest points on its two sides; `None` for
/// fewer than three.
fn dip(values: &[f64]) -> Option<f64> {
    let highest = |side: &[f64]| side.iter().copied().reduce(f64::max);
    let depth = |at: usize| {
        let (left, right) = (highest(&values[..at])?, highest(&values[at + 1..])?);
        Some(left.min(right) - values[at])
    };
    let deepest = (0..values.len()).filter_map(depth).reduce(f64::max)?;
    Some(deepest.max(0.0))
}

/// Kendall's tau-a: rising pairs less falling ones, over all pairs; `None` for fewer than three.
fn trend(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let pairs = values.iter().enumerate().flat_map(|(at, first)| {
        values[at + 1..]
            .iter()
            .map(move |later| i32::from(later > first) - i32::from(later < first))
    });
    let (sum, count) = pairs.fold((0, 0), |(sum, count), one| (sum + one, count + 1));
    Some(f64::from(sum) / f64::from(count))
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

    #[test]
    fn dips_and_trends_of_known_rows() {
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
}
