//! Measures of links, both directions together: of all links, or of the one that is named.

use crate::run::{Run, SimplexLink, little};
use crate::sums::percent;

pub(crate) fn dropped(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    Some(sum(links, |link| link.refused))
}

pub(crate) fn drops(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    let drops = links
        .iter()
        .map(|link| link.refused_data.map(|it| it as f64));
    drops.sum()
}

/// The share of offered packets that the queue dropped. Offered are packets that went over the link and those that were
/// dropped, as ns-2's monitors count; packets that still wait at the end are in neither.
pub(crate) fn drop_rate(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    let dropped = sum(links, |link| link.refused);
    percent(dropped, dropped + sum(links, |link| link.packets))
}

pub(crate) fn corrupted(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    Some(sum(links, damaged))
}

pub(crate) fn errors_before_queue(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    Some(sum(links, |link| link.struck_before_queue))
}

pub(crate) fn marks(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    Some(sum(links, |link| link.marked))
}

pub(crate) fn delivered(_: &Run, links: &[&SimplexLink]) -> Option<f64> {
    Some(sum(links, |link| {
        link.packets.saturating_sub(damaged(link))
    }))
}

/// Packets that began their way and did not end it.
fn damaged(link: &SimplexLink) -> u64 {
    link.corrupted.saturating_add(link.lost)
}

pub(crate) fn mean_queue(run: &Run, links: &[&SimplexLink]) -> Option<f64> {
    little(
        links.iter().map(|link| link.waited.as_secs_f64()).sum(),
        run.elapsed,
    )
}

/// Counts of packets fit a float.
fn sum(links: &[&SimplexLink], of: fn(&SimplexLink) -> u64) -> f64 {
    links.iter().map(|link| of(link) as f64).sum()
}
