//! Measures that some runs of a point have and others have not: means are then taken over the rest.

use crate::points::{Place, Points};
use crate::samples::{Samples, used};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Filter, SEED};

/// A measure that is missing in some runs of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The measure.
    pub measure: String,
    /// The label of the point on each axis; that of the seeds is "".
    pub labels: Vec<String>,
    /// How many runs have it.
    pub n: usize,
    /// How many runs there are.
    pub runs: usize,
}

/// The gaps of all measures that tables, figures and statements of `study` are made of. A measure
/// that no run of a point has is none: it has no meaning there.
pub fn gaps(study: &Study, samples: &Samples) -> Vec<Gap> {
    let points = Points::new(study, samples, &Filter::new());
    let mut gaps = Vec::new();
    for measure in used(study) {
        for place in points.places() {
            let (n, runs) = points.covered(place, measure);
            if n > 0 && n < runs {
                gaps.push(Gap {
                    measure: measure.to_owned(),
                    labels: labels(study, place),
                    n,
                    runs,
                });
            }
        }
    }
    gaps
}

fn labels(study: &Study, place: &Place) -> Vec<String> {
    let axes = study.axes().iter().zip(place);
    axes.map(|(axis, at)| match axis.name() {
        SEED => String::new(),
        _ => axis.label(*at),
    })
    .collect()
}
