//! Measures of proxies: of all together, or of the one that is named.

use crate::run::Run;

/// Whether a proxy of this name is among those that are asked for.
pub(crate) type Chosen<'c> = &'c dyn Fn(&str) -> bool;

/// What a splitting gateway's TCP retransmitted towards the receivers, and its carrier over the link where that is not among it, and what a
/// Snoop agent sent again from its cache, upon acknowledgements and by its timer.
pub(crate) fn local(run: &Run, chosen: Chosen<'_>) -> Option<f64> {
    let legs = run
        .flows
        .iter()
        .flat_map(|flow| &flow.gateways)
        .filter(|leg| chosen(&leg.gateway));
    let legs = sum(legs.map(|leg| leg.segments_again));
    let others = ["retransmitted", "timeouts", "carrier_sent_again"];
    let others = others.map(|name| counted(run, chosen, name));
    others.into_iter().chain([legs]).flatten().reduce(add)
}

pub(crate) fn suppressed(run: &Run, chosen: Chosen<'_>) -> Option<f64> {
    counted(run, chosen, "suppressed")
}

pub(crate) fn held_max_kb(run: &Run, chosen: Chosen<'_>) -> Option<f64> {
    Some(counted(run, chosen, "most_held")? / 1e3)
}

/// The sum of what the proxies call `name`; `None` where none has such a counter.
fn counted(run: &Run, chosen: Chosen<'_>, name: &str) -> Option<f64> {
    let proxies = run.proxies.iter().filter(|proxy| chosen(&proxy.name));
    let counters = proxies.flat_map(|proxy| &proxy.counters);
    let own = counters.filter(|(known, _)| *known == name);
    sum(own.map(|(_, count)| *count))
}

/// Their sum; `None` of none.
fn sum(counts: impl Iterator<Item = u64>) -> Option<f64> {
    counts.map(|count| count as f64).reduce(add)
}

fn add(a: f64, b: f64) -> f64 {
    a + b
}
