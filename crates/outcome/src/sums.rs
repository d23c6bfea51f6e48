//! Sums, extremes and indices, of which parts may be missing.

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

/// Jain's index of `shares`, (sum x)^2 / (n sum x^2): 1 where all have alike, 1/n where one has all; `None` where nobody has
/// anything (Jain, Chiu and Hawe, 1984, equation 1).
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index_is_one_among_equals_and_one_nth_for_one() {
        assert_eq!(jain(&[3.0; 7]), Some(1.0));
        assert_eq!(jain(&[0.0, 5.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0; 3]), None);
    }
}
