//! Sums, means and extremes of which parts may be missing.

/// The greatest of `values`; 0 of none, `None` where one is missing.
pub(crate) fn greatest(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.try_fold(0.0, |last, value| Some(f64::max(last, value?)))
}

/// The least of `values`; `None` of none, and where one is missing.
pub(crate) fn least(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = values.next()??;
    values.try_fold(first, |least, value| Some(f64::min(least, value?)))
}

/// `part` in percent of `whole`; `None` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| 100.0 * part / whole)
}
