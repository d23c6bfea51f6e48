//! Holds the values of the measures that tables, figures and statements name.

use crate::row::Measures;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{FigureKind, SMALL_SHARE};
use std::collections::{BTreeMap, BTreeSet, TryReserveError};

/// The values of each measure that a study's tables, figures and statements name, by the number of the
/// point. It takes eight bytes a point and measure, and nothing else that grows with the points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// NaN where the point has none.
    columns: BTreeMap<String, Vec<f64>>,
}

impl Samples {
    /// Without a value yet.
    ///
    /// # Errors
    /// The study has more points than memory can hold values of.
    pub fn new(study: &Study) -> Result<Self, TryReserveError> {
        let points = usize::try_from(study.len()).unwrap_or(usize::MAX);
        let mut columns = BTreeMap::new();
        for measure in named(study) {
            let mut values = Vec::new();
            values.try_reserve_exact(points)?;
            values.resize(points, f64::NAN);
            columns.insert(measure.to_owned(), values);
        }
        Ok(Self { columns })
    }

    /// Takes what point number `index` brought; of more points than the study has, nothing.
    pub fn put(&mut self, index: u64, measures: &Measures) {
        for (measure, values) in &mut self.columns {
            let value = measures.get(measure).copied().flatten();
            if let Some(place) = values.get_mut(index as usize) {
                *place = value.filter(|value| value.is_finite()).unwrap_or(f64::NAN);
            }
        }
    }

    /// `measure` at point number `index`.
    pub(crate) fn get(&self, measure: &str, index: u64) -> Option<f64> {
        let value = self.columns.get(measure)?.get(index as usize)?;
        Some(*value).filter(|value| value.is_finite())
    }
}

/// All measures that `study` names.
fn named(study: &Study) -> BTreeSet<&str> {
    used(study).union(&beside(study)).copied().collect()
}

/// Measures of single flows, links and proxies that `study` names, such as `goodput(download)`: beside the measures of the
/// whole they are taken of every run.
pub fn single(study: &Study) -> Vec<String> {
    let named = named(study).into_iter();
    named
        .filter(|name| name.ends_with(')'))
        .map(str::to_owned)
        .collect()
}

/// What tables show beside their measures.
fn beside(study: &Study) -> BTreeSet<&str> {
    let tables = study.tables().iter();
    let beside = tables.flat_map(|spec| [spec.otherwise.as_deref(), spec.within.as_deref()]);
    beside.flatten().collect()
}

/// The measures that tables, figures and statements of `study` name.
pub(crate) fn used(study: &Study) -> BTreeSet<&str> {
    let tables = study.tables().iter().map(|spec| &spec.measure);
    let figures = study
        .figures()
        .iter()
        .filter_map(|figure| match &figure.kind {
            FigureKind::Lines(spec) => Some(&spec.measures),
            _ => None,
        });
    let statements = study
        .statements()
        .iter()
        .flat_map(|one| [Some(&one.measure), one.against.as_ref()]);
    let all = tables
        .chain(figures.flatten())
        .chain(statements.flatten())
        .map(String::as_str);
    all.filter(|measure| *measure != SMALL_SHARE).collect()
}
