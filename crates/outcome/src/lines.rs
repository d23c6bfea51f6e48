//! Measures of links, both directions together: of all links, or of the one that is named.

use crate::run::{Line, Run, little};
use crate::sums::percent;

pub(crate) fn dropped(_: &Run, lines: &[&Line]) -> Option<f64> {
    Some(sum(lines, |line| line.refused))
}

pub(crate) fn drops(_: &Run, lines: &[&Line]) -> Option<f64> {
    let drops = lines
        .iter()
        .map(|line| line.refused_data.map(|it| it as f64));
    drops.sum()
}

/// Offered is what went over the link and what was dropped, as ns-2's monitors count it. Packets that still wait at
/// the end are in neither.
pub(crate) fn drop_rate(_: &Run, lines: &[&Line]) -> Option<f64> {
    let dropped = sum(lines, |line| line.refused);
    percent(dropped, dropped + sum(lines, |line| line.packets))
}

pub(crate) fn corrupted(_: &Run, lines: &[&Line]) -> Option<f64> {
    Some(sum(lines, damaged))
}

pub(crate) fn delivered(_: &Run, lines: &[&Line]) -> Option<f64> {
    Some(sum(lines, |line| {
        line.packets.saturating_sub(damaged(line))
    }))
}

/// Packets that began their way and did not end it.
fn damaged(line: &Line) -> u64 {
    line.corrupted.saturating_add(line.lost)
}

pub(crate) fn mean_queue(run: &Run, lines: &[&Line]) -> Option<f64> {
    little(
        lines.iter().map(|line| line.waited.as_secs_f64()).sum(),
        run.elapsed,
    )
}

/// Counts of packets fit a float.
fn sum(lines: &[&Line], of: fn(&Line) -> u64) -> f64 {
    lines.iter().map(|line| of(line) as f64).sum()
}
