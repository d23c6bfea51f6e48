//! How large the transfers of the cross traffic are.

use crate::figure::Line;
use bentpipe_base::Stream;
use bentpipe_scenario::Scenario;

/// How many transfers are drawn.
const DRAWN: usize = 20_000;
/// Payload of a segment of the spoofing paper, in bytes.
const SEGMENT: f64 = 1460.0;
/// How many points a line has at most.
const POINTS: usize = 400;

/// The sizes of the cross traffic's transfers, in segments of 1460 bytes, in order: 20 000 drawn from
/// its model by the scenario's seed. `None` without cross traffic.
pub fn sizes(scenario: &Scenario) -> Option<Vec<f64>> {
    let profile = scenario.traffic.as_ref()?.profile(scenario.seed).ok()?;
    let mut chance = Stream::new(scenario.seed, "sizes");
    let drawn = (0..DRAWN).map(|_| (profile.model.size(&mut chance).0 as f64 / SEGMENT).ceil());
    let mut sizes: Vec<f64> = drawn.collect();
    sizes.sort_by(f64::total_cmp);
    Some(sizes)
}

/// Percent of `sizes`, which are in order, that are at most `limit`.
pub fn share_within(sizes: &[f64], limit: f64) -> f64 {
    let within = sizes.partition_point(|size| *size <= limit);
    100.0 * within as f64 / sizes.len().max(1) as f64
}

/// The cumulative distribution of `sizes`, which are in order.
pub(crate) fn distribution(sizes: &[f64]) -> Line {
    let step = sizes.len().div_ceil(POINTS).max(1);
    let mut x: Vec<f64> = sizes
        .iter()
        .copied()
        .step_by(step)
        .chain(sizes.last().copied())
        .collect();
    x.dedup();
    x.retain(|size| *size > 0.0);
    let y = x.iter().map(|size| share_within(sizes, *size)).collect();
    Line {
        x,
        y,
        ..Line::new("our cross traffic".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_known_sizes() {
        let sizes = [1.0, 1.0, 2.0, 10.0, 11.0];
        assert_eq!(share_within(&sizes, 10.0), 80.0);
        let line = distribution(&sizes);
        assert_eq!(
            (line.x, line.y),
            (vec![1.0, 2.0, 10.0, 11.0], vec![40.0, 60.0, 80.0, 100.0])
        );
    }
}
