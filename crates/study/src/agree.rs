//! When a mean of ours agrees with one of a reference.

/// Samples of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// How many; at least 1.
    pub n: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with n - 1; 0 for one sample.
    pub sd: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Stats {
    /// The statistics of `samples`; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        let (first, rest) = samples.split_first()?;
        let mean = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let fold = |pick: fn(f64, f64) -> f64| rest.iter().copied().fold(*first, pick);
        // Equal samples have no spread, whatever rounding makes of their mean.
        let (min, max) = (fold(f64::min), fold(f64::max));
        let sd = if min == max {
            0.0
        } else {
            (squares / (n - 1) as f64).sqrt()
        };
        Some(Self {
            n: n as u64,
            mean,
            sd,
            min,
            max,
        })
    }
}

/// What another simulator has for a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation, with n - 1.
    pub sd: f64,
    /// Its number of runs.
    pub n: u64,
}

/// Fewest seeds of ours that are judged.
const LEAST: u64 = 20;

/// |ours - theirs| <= 2 sqrt(se_ours^2 + se_theirs^2) + 3% of theirs; where neither side has any
/// spread, within 0.5%. `None` with fewer seeds than [`LEAST`]: our spread is not known well enough.
pub(crate) fn agrees(ours: &Stats, theirs: &Reference) -> Option<bool> {
    let difference = (ours.mean - theirs.mean).abs();
    if ours.sd == 0.0 && theirs.sd == 0.0 {
        return Some(difference <= 0.005 * theirs.mean.abs());
    }
    if ours.n < LEAST {
        return None;
    }
    let square = |sd: f64, n: u64| sd * sd / n as f64;
    let error = (square(ours.sd, ours.n) + square(theirs.sd, theirs.n)).sqrt();
    Some(difference <= 2.0 * error + 0.03 * theirs.mean.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_samples() {
        // 2, 4, 4, 4, 5, 5, 7, 9: sum of squares 32, so sd^2 = 32 / 7.
        let stats = Stats::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(
            (stats.n, stats.mean, stats.min, stats.max),
            (8, 5.0, 2.0, 9.0)
        );
        assert!((stats.sd - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Stats::of(&[0.1, 0.1, 0.1]).unwrap().sd, 0.0);
        assert_eq!(Stats::of(&[]), None);
    }

    #[test]
    fn the_rule_at_its_edges() {
        let ours = |mean, sd, n| Stats {
            n,
            mean,
            sd,
            min: mean,
            max: mean,
        };
        let theirs = |sd, n| Reference {
            mean: 1000.0,
            sd,
            n,
        };
        // se = 3 and 4, so 2 * 5 + 30 = 40.
        assert_eq!(
            agrees(&ours(1040.0, 30.0, 100), &theirs(40.0, 100)),
            Some(true)
        );
        assert_eq!(
            agrees(&ours(1040.1, 30.0, 100), &theirs(40.0, 100)),
            Some(false)
        );
        assert_eq!(
            agrees(&ours(959.9, 30.0, 100), &theirs(40.0, 100)),
            Some(false)
        );
        // Without randomness 0.5%.
        assert_eq!(agrees(&ours(1005.0, 0.0, 1), &theirs(0.0, 1)), Some(true));
        assert_eq!(agrees(&ours(1005.1, 0.0, 1), &theirs(0.0, 1)), Some(false));
        assert_eq!(agrees(&ours(1000.0, 9.0, 19), &theirs(5.0, 20)), None);
        assert_eq!(agrees(&ours(1000.0, 9.0, 20), &theirs(5.0, 20)), Some(true));
    }
}
