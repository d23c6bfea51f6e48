//! Medians, and what a handful of pairs says about a ratio.
//!
//! The interval is the one that belongs to Wilcoxon's signed-rank test on the logarithms of the
//! paired ratios (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd ed., 3.1 to
//! 3.3): the estimate is the median of all Walsh averages (Hodges and Lehmann), the bounds are the
//! k-th smallest and the k-th largest of them, k from the exact null distribution. It asks of the
//! noise only that it strikes both subjects of a pair alike, and one disturbed pair in seven does
//! not decide it. On logarithms the ratio ours/theirs and its reciprocal say the same. Fewer than
//! six pairs cannot carry 95%.

/// A paired ratio with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Hodges–Lehmann estimate of ours/theirs.
    pub(super) estimate: f64,
    /// The 95% interval; `None` under six pairs.
    pub(super) interval: Option<(f64, f64)>,
}

/// The median; `None` of nothing.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if !odd.is_multiple_of(2) => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The ratio of `ours[i]` to `theirs[i]` over all pairs; `None` when there is no pair, or a value
/// that has no logarithm.
pub(super) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect();
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let mut walsh: Vec<f64> = (0..logs.len())
        .flat_map(|i| (i..logs.len()).map(move |j| (i, j)))
        .map(|(i, j)| f64::midpoint(logs[i], logs[j]))
        .collect();
    walsh.sort_by(f64::total_cmp);
    let interval = rank_of_bound(logs.len())
        .map(|rank| (walsh[rank - 1].exp(), walsh[walsh.len() - rank].exp()));
    Some(Ratio {
        estimate: median(&walsh)?.exp(),
        interval,
    })
}

/// The greatest k with 2 P(W <= k - 1) <= 5% for the signed-rank statistic W of `pairs` pairs.
fn rank_of_bound(pairs: usize) -> Option<usize> {
    // Beyond 60 pairs the counts no longer fit an f64 exactly; nobody runs that many.
    let pairs = pairs.min(60);
    let most = pairs * (pairs + 1) / 2;
    // Ways to reach each sum of a subset of the ranks 1..=pairs.
    let mut ways = vec![0.0_f64; most + 1];
    ways[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let allowed = 0.025 * 2.0_f64.powi(pairs as i32);
    let mut below = 0.0;
    let rank = ways
        .iter()
        .take_while(|count| {
            below += **count;
            below <= allowed
        })
        .count();
    (rank > 0).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_published_table() {
        // Hollander and Wolfe, table A.4: the largest W with a two-sided tail of at most 5% is
        // 0, 2, 3, 5, 8, 10 for 6 to 11 pairs, 52 for 20; the bound's rank is one more.
        let table = [(6, 1), (7, 3), (8, 4), (9, 6), (10, 9), (11, 11), (20, 53)];
        for (pairs, rank) in table {
            assert_eq!(rank_of_bound(pairs), Some(rank), "{pairs} pairs");
        }
        assert_eq!(rank_of_bound(5), None);
        assert_eq!(rank_of_bound(0), None);
    }

    #[test]
    fn a_steady_ratio_is_found_and_one_outlier_does_not_decide() {
        let theirs = [10.0, 11.0, 9.0, 10.0, 12.0, 10.0, 8.0];
        let mut ours: Vec<f64> = theirs.iter().map(|value| value * 1.1).collect();
        let steady = ratio(&ours, &theirs).unwrap();
        let (low, high) = steady.interval.unwrap();
        assert!((steady.estimate - 1.1).abs() < 1e-9);
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9);
        ours[3] = 1.0;
        let struck = ratio(&ours, &theirs).unwrap();
        let (low, high) = struck.interval.unwrap();
        assert!((struck.estimate - 1.1).abs() < 1e-9, "{struck:?}");
        assert!(low < 1.0 && (high - 1.1).abs() < 1e-9, "{struck:?}");
    }

    #[test]
    fn the_reciprocal_is_the_mirror_image() {
        let a = [3.0, 4.0, 5.0, 4.5, 3.5, 4.2, 4.4];
        let b = [4.0, 4.0, 4.1, 4.4, 3.9, 4.0, 4.6];
        let (forth, back) = (ratio(&a, &b).unwrap(), ratio(&b, &a).unwrap());
        assert!((forth.estimate * back.estimate - 1.0).abs() < 1e-12);
        let ((low, _), (_, high)) = (forth.interval.unwrap(), back.interval.unwrap());
        assert!((low * high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_has_no_ratio_is_none() {
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
        assert_eq!(ratio(&[1.0], &[0.0]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
