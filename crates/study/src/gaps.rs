//! Measures that some runs of a point have and others have not: means are then taken over the rest.

use crate::points::Points;
use crate::row::Row;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{FigureKind, SMALL_SHARE};
use std::collections::BTreeSet;

/// A measure that is missing in some runs of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The measure.
    pub measure: String,
    /// The label of the point on each axis; that of the seeds is "".
    pub labels: Vec<String>,
    /// How many runs have it.
    pub n: usize,
    /// Of how many.
    pub runs: usize,
}

/// The gaps of all measures that tables, figures and statements of `study` are made of. A measure
/// that no run of a point has is none: it has no meaning there.
pub fn gaps(study: &Study, rows: &[Row]) -> Vec<Gap> {
    let points = Points::new(study, rows);
    let mut gaps = Vec::new();
    for measure in used(study) {
        for place in points.places() {
            let (n, runs) = points.covered(place, measure);
            if n > 0 && n < runs {
                gaps.push(Gap {
                    measure: measure.to_owned(),
                    labels: place.clone(),
                    n,
                    runs,
                });
            }
        }
    }
    gaps
}

fn used(study: &Study) -> BTreeSet<&str> {
    let tables = study.tables().iter().map(|spec| &spec.measure);
    let figures = study
        .figures()
        .iter()
        .filter_map(|figure| match &figure.kind {
            FigureKind::Lines(spec) => Some(&spec.measures),
            _ => None,
        });
    let statements = study.statements().iter();
    let statements = statements.flat_map(|one| [Some(&one.measure), one.against.as_ref()]);
    let all = tables
        .chain(figures.flatten())
        .chain(statements.flatten())
        .map(String::as_str);
    all.filter(|measure| *measure != SMALL_SHARE).collect()
}
