//! How large transfers are and what time lies between them.
//!
//! Two models, both with a log-normal body: log2 of the bytes is normal with a mean and a standard
//! deviation. That form for FTP data connections is Paxson's ("Empirically-Derived Analytic Models
//! of Wide-Area TCP Connections", 1994), and so is a Pareto law for the largest of what FTP moves
//! (Paxson and Floyd, "Wide-Area Traffic: The Failure of Poisson Modeling", 1995). No number here is
//! theirs: they vary from site to site, and no table of them was at hand. Where the numbers come from:
//!
//! - `ftp`: working defaults of ours, Paxson-style;
//! - `reference`: the cross traffic of the ns-2 script that this simulator is compared with.
//!
//! Deviations of both from Paxson: no sessions and no bursts of connections, since the paper that
//! they serve keeps a fixed number of flows going; no control connections; directions alternate.

use bentpipe_base::{Bytes, Stream};
use core::time::Duration;
use thiserror::Error;

/// Which model the defaults are those of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Paxson-style FTP with a Pareto tail.
    #[default]
    Ftp,
    /// As in the ns-2 reference runs.
    Reference,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ftp, Self::Reference];

    /// As scenarios and profiles write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Reference => "reference",
        }
    }

    /// The kind called `name`.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A model of transfers and all its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Where it comes from.
    pub kind: Kind,
    /// Mean of log2 of the bytes.
    pub log2_mean: f64,
    /// Standard deviation of log2 of the bytes.
    pub log2_sd: f64,
    /// Share of the transfers, the largest ones, that follow a Pareto law in place of the body;
    /// 0 for none.
    pub tail_share: f64,
    /// Exponent of that law.
    pub tail_alpha: f64,
    /// No transfer is larger. Near a tail exponent of 1 the mean size is made by this bound.
    pub largest: Bytes,
    /// Sizes are rounded up to a multiple of this.
    pub unit: Bytes,
    /// Mean of the exponential gaps between the starts of the first transfers: a Poisson process.
    pub start_gap: Duration,
    /// Mean of the exponential pause between the end of a transfer and the next of its flow.
    pub idle: Duration,
    /// What is added to every pause.
    pub settle: Duration,
}

/// Why a model cannot be drawn from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}; give {expected}")]
pub struct ModelError {
    /// What is wrong.
    pub what: &'static str,
    /// What would be right.
    pub expected: &'static str,
}

impl Model {
    /// Paxson-style FTP transfers: median 2.9 kB, the largest 5% Pareto with exponent 1.06, at most
    /// 2 GB; pauses of 45 s in the mean, as in the reference.
    pub const fn ftp() -> Self {
        Self {
            kind: Kind::Ftp,
            log2_mean: 11.5,
            log2_sd: 3.5,
            tail_share: 0.05,
            tail_alpha: 1.06,
            largest: Bytes(2_000_000_000),
            unit: Bytes(1),
            start_gap: Duration::from_millis(25),
            idle: Duration::from_secs(45),
            settle: Duration::ZERO,
        }
    }

    /// The cross traffic of the ns-2 reference runs: 2^N(12, 4) bytes, at most 10 MB, in whole
    /// segments of 1460 bytes; pauses of 0.6 s and 45 s more in the mean.
    pub const fn reference() -> Self {
        Self {
            kind: Kind::Reference,
            log2_mean: 12.0,
            log2_sd: 4.0,
            tail_share: 0.0,
            tail_alpha: 1.0,
            largest: Bytes(10_000_000),
            unit: Bytes(1_460),
            start_gap: Duration::from_millis(25),
            idle: Duration::from_secs(45),
            settle: Duration::from_millis(600),
        }
    }

    /// The defaults of `kind`.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Ftp => Self::ftp(),
            Kind::Reference => Self::reference(),
        }
    }

    /// Whether it can be drawn from.
    ///
    /// # Errors
    /// The first parameter that makes no sense.
    pub fn check(&self) -> Result<(), ModelError> {
        let wrong = |what, expected| Err(ModelError { what, expected });
        if !self.log2_mean.is_finite() || self.log2_mean.abs() > 64.0 {
            return wrong("a `log2-mean` beyond 64", "one such as 11.5");
        }
        if !(0.0..=64.0).contains(&self.log2_sd) {
            return wrong(
                "a `log2-sd` that is negative or beyond 64",
                "one such as 3.5",
            );
        }
        if !(0.0..1.0).contains(&self.tail_share) {
            return wrong(
                "a `tail-share` outside 0 to 1",
                "0 for no tail, or such as 0.05",
            );
        }
        if self.tail_share > 0.0 && !(self.tail_alpha > 0.0 && self.tail_alpha.is_finite()) {
            return wrong("a `tail-alpha` that is not positive", "one such as 1.06");
        }
        if self.largest == Bytes(0) || self.unit == Bytes(0) {
            return wrong("a `largest` or `unit` of no bytes", "at least 1");
        }
        Ok(())
    }

    /// The size from which on the Pareto law holds, in bytes: the quantile of the body that leaves
    /// `tail_share` above it.
    pub fn tail_start(&self) -> f64 {
        (self.log2_mean + self.log2_sd * quantile(1.0 - self.tail_share)).exp2()
    }

    /// Draws the size of a transfer, at least one byte.
    pub fn size(&self, chance: &mut Stream) -> Bytes {
        let tail = self.tail_share > 0.0 && chance.uniform() < self.tail_share;
        let bytes = if tail {
            // 1 - uniform is in (0, 1].
            self.tail_start() * (1.0 - chance.uniform()).powf(-1.0 / self.tail_alpha)
        } else {
            self.body(chance)
        };
        let bytes = bytes.min(self.largest.0 as f64).ceil().max(1.0) as u64;
        Bytes(bytes.div_ceil(self.unit.0).saturating_mul(self.unit.0))
    }

    /// Draws from the body below the tail, if there is one.
    fn body(&self, chance: &mut Stream) -> f64 {
        let most = if self.tail_share > 0.0 {
            self.tail_start()
        } else {
            f64::INFINITY
        };
        loop {
            let bytes = (self.log2_mean + self.log2_sd * normal(chance)).exp2();
            // With a tail of less than everything, a draw below it comes soon.
            if bytes <= most {
                return bytes;
            }
        }
    }

    /// Draws the gap between two starts.
    pub fn gap(&self, chance: &mut Stream) -> Duration {
        exponential(self.start_gap, chance)
    }

    /// Draws the pause between the end of a transfer and the start of the next.
    pub fn pause(&self, chance: &mut Stream) -> Duration {
        self.settle + exponential(self.idle, chance)
    }
}

fn exponential(mean: Duration, chance: &mut Stream) -> Duration {
    mean.mul_f64(-(-chance.uniform()).ln_1p())
}

/// A standard normal draw (Box and Muller).
fn normal(chance: &mut Stream) -> f64 {
    let radius = (-2.0 * (-chance.uniform()).ln_1p()).sqrt();
    radius * (core::f64::consts::TAU * chance.uniform()).cos()
}

/// The standard normal distribution: the chance of a value up to `x`, within 1.2e-7 (Press et al.,
/// "Numerical Recipes", `erfcc`).
pub(crate) fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / core::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * z);
    const COEFFICIENTS: [f64; 10] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let series = COEFFICIENTS.iter().fold(0.0, |sum, c| sum * t + c);
    let above = 0.5 * t * (series - z * z).exp();
    if x >= 0.0 { 1.0 - above } else { above }
}

/// The inverse of [`normal_cdf`], by halving.
fn quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if normal_cdf(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(model: &Model, count: usize) -> Vec<f64> {
        let mut chance = Stream::new(1, "sizes");
        let draws = (0..count).map(|_| model.size(&mut chance).0 as f64);
        let mut sizes: Vec<f64> = draws.collect();
        sizes.sort_by(f64::total_cmp);
        sizes
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (share, z) in [(0.5, 0.0), (0.95, 1.644_854), (0.975, 1.959_964)] {
            assert!((quantile(share) - z).abs() < 1e-5, "{share}");
        }
    }

    /// Kolmogorov and Smirnov: the largest distance of the distribution of `sizes` from the log-normal
    /// of `model`, its tail left out, times sqrt(n): 1.63 is passed by 1 in 100.
    fn distance(sizes: &[f64], model: &Model) -> f64 {
        let n = sizes.len() as f64;
        let mut farthest = 0.0f64;
        for (i, size) in sizes.iter().enumerate() {
            // Sizes of a few bytes are rounded up and stand for a range; so does the tail.
            if *size < 256.0 || *size >= model.tail_start().min(9e6) {
                continue;
            }
            let share = normal_cdf((size.log2() - model.log2_mean) / model.log2_sd);
            farthest = farthest.max((share - (i as f64 + 0.5) / n).abs());
        }
        farthest * n.sqrt()
    }

    #[test]
    fn the_body_is_log_normal() {
        for model in [Model::ftp(), Model::reference()] {
            let model = Model {
                unit: Bytes(1),
                ..model
            };
            let sizes = sizes(&model, 20_000);
            let right = distance(&sizes, &model);
            assert!(right > 0.0, "nothing compared");
            assert!(right < 1.63, "{:?}: {right}", model.kind);
            // The test sees a mean that is 3% off, or a deviation that is 6% off.
            let mean = Model {
                log2_mean: 1.03 * model.log2_mean,
                ..model
            };
            let wide = Model {
                log2_sd: 1.06 * model.log2_sd,
                ..model
            };
            for wrong in [mean, wide] {
                let far = distance(&sizes, &wrong);
                assert!(far > 1.63, "{wrong:?}: {far}");
            }
        }
    }

    /// Hill's estimate of the tail's exponent over the largest 2%: standard error alpha / sqrt(1000).
    fn hill(model: &Model) -> f64 {
        let model = Model {
            largest: Bytes(u64::MAX >> 12),
            ..*model
        };
        let sizes = sizes(&model, 50_000);
        let k = 1_000;
        let threshold = sizes[sizes.len() - k - 1];
        let largest = sizes[sizes.len() - k..].iter();
        k as f64 / largest.map(|x| (x / threshold).ln()).sum::<f64>()
    }

    #[test]
    fn the_tail_has_its_exponent() {
        let model = Model::ftp();
        let error = model.tail_alpha / 1e3f64.sqrt();
        let alpha = hill(&model);
        assert!((alpha - model.tail_alpha).abs() < 3.0 * error, "{alpha}");
        // The estimate sees an exponent that is a fifth off.
        let light = Model {
            tail_alpha: 1.2 * model.tail_alpha,
            ..model
        };
        let alpha = hill(&light);
        assert!((alpha - model.tail_alpha).abs() > 3.0 * error, "{alpha}");
    }

    #[test]
    fn the_tail_has_its_share_and_the_bound_holds() {
        let model = Model::ftp();
        let sizes = sizes(&model, 50_000);
        let tail = sizes
            .iter()
            .filter(|size| **size > model.tail_start())
            .count();
        // Binomial: 2500, standard deviation 49.
        assert!((2_350..2_650).contains(&tail), "{tail}");
        assert!(sizes.iter().all(|size| (1.0..=2e9).contains(size)));
        // 2^(11.5 + 3.5 * 1.645): 156 kB.
        assert!(
            (model.tail_start() - 156_600.0).abs() < 1_000.0,
            "{}",
            model.tail_start()
        );
    }

    #[test]
    fn reference_sizes_are_whole_segments() {
        let sizes = sizes(&Model::reference(), 1_000);
        assert!(
            sizes
                .iter()
                .all(|size| size % 1_460.0 == 0.0 && *size >= 1_460.0)
        );
        // 10 MB rounded up.
        assert!(sizes.iter().all(|size| *size <= 10_001_000.0));
    }

    #[test]
    fn pauses_have_their_mean() {
        let mut chance = Stream::new(1, "pauses");
        let model = Model::reference();
        let mean = (0..20_000)
            .map(|_| model.pause(&mut chance).as_secs_f64())
            .sum::<f64>()
            / 2e4;
        // Standard error 45 / sqrt(20000) = 0.32.
        assert!((mean - 45.6).abs() < 1.0, "{mean}");
    }

    #[test]
    fn nonsense_is_refused() {
        let nonsense = [
            Model {
                log2_mean: f64::NAN,
                ..Model::ftp()
            },
            Model {
                log2_sd: -1.0,
                ..Model::ftp()
            },
            Model {
                tail_share: 1.0,
                ..Model::ftp()
            },
            Model {
                tail_alpha: 0.0,
                ..Model::ftp()
            },
            Model {
                largest: Bytes(0),
                ..Model::ftp()
            },
        ];
        assert!(nonsense.iter().all(|model| model.check().is_err()));
        assert!(
            Kind::ALL
                .iter()
                .all(|kind| Model::of(*kind).check().is_ok())
        );
    }
}
