use serde::{Serialize, Serializer};
use std::time::Duration;

/// Buckets a power of two: the bound of a bucket exceeds what is in it by 1/16 at most.
const STEPS: u64 = 16;
/// Values below this have a bucket each.
const EXACT: u64 = 2 * STEPS;

/// Counts of durations in buckets of logarithmic width, from a nanosecond to centuries.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

/// What a histogram of lateness comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// How many were measured.
    pub count: u64,
    /// The mean.
    #[serde(rename = "mean_ms", serialize_with = "milliseconds")]
    pub mean: Duration,
    /// Half are not later than this.
    #[serde(rename = "p50_ms", serialize_with = "milliseconds")]
    pub p50: Duration,
    /// 99% are not later than this.
    #[serde(rename = "p99_ms", serialize_with = "milliseconds")]
    pub p99: Duration,
    /// The latest.
    #[serde(rename = "max_ms", serialize_with = "milliseconds")]
    pub max: Duration,
}

pub(super) fn milliseconds<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(time.as_secs_f64() * 1e3)
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; bucket(u64::MAX) + 1],
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts `value`.
    pub fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// The value that a `share` (in [0, 1]) of all does not exceed, rounded up by 1/16 at most and
    /// never beyond the largest; zero when nothing was counted.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let bound = found.map_or(self.max, upper_bound).min(self.max);
        Duration::from_nanos(bound)
    }

    /// Its summary.
    pub fn lateness(&self) -> Lateness {
        let mean = self.sum / u128::from(self.count.max(1));
        Lateness {
            count: self.count,
            mean: Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)),
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            max: Duration::from_nanos(self.max),
        }
    }
}

/// The bucket of `nanos`: for larger values the exponent and the four bits below the first.
fn bucket(nanos: u64) -> usize {
    if nanos < EXACT {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEPS.ilog2();
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The largest value in bucket `index`.
fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < EXACT {
        return index;
    }
    let shift = index / STEPS - 1;
    let first = (index % STEPS + STEPS) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        assert_eq!(upper_bound(bucket(u64::MAX)), u64::MAX);
        let mut edge = 0u64;
        for index in 0..bucket(u64::MAX) {
            assert_eq!(bucket(edge), index, "{edge}");
            let last = upper_bound(index);
            assert_eq!(bucket(last), index, "{last}");
            assert!(last - edge <= edge / STEPS, "{edge} to {last}");
            edge = last + 1;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.lateness(), Lateness::default());
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (share, micros) in [(0.5, 500u64), (0.99, 990), (1.0, 1000), (0.0, 1)] {
            let value = histogram.quantile(share).as_nanos() as u64;
            let exact = micros * 1000;
            assert!(
                (exact..=exact + exact / STEPS).contains(&value),
                "{share}: {value}"
            );
        }
        let lateness = histogram.lateness();
        assert_eq!(lateness.max, Duration::from_micros(1000));
        assert_eq!(lateness.mean, Duration::from_nanos(500_500));
        assert_eq!(lateness.count, 1000);
    }

    #[test]
    fn the_extremes_are_counted() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::ZERO);
        histogram.record(Duration::MAX);
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        assert_eq!(histogram.quantile(1.0), Duration::from_nanos(u64::MAX));
    }
}
