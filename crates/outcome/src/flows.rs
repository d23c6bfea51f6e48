//! Measures of flows: of all together, or of the one that is named.

use crate::run::{Flow, Mean};
use crate::sums::{self, greatest, least, percent};
use core::time::Duration;

pub(crate) fn jain(flows: &[&Flow]) -> Option<f64> {
    let goodputs = flows.iter().map(|flow| flow.goodput().mbps());
    sums::jain(&goodputs.collect::<Vec<f64>>())
}

pub(crate) fn segments(flows: &[&Flow]) -> Option<f64> {
    let segments = flows.iter().map(|flow| flow.segments.map(|it| it as f64));
    segments.sum()
}

pub(crate) fn goodput(flows: &[&Flow]) -> Option<f64> {
    Some(sum(flows, |flow| flow.goodput().mbps()))
}

pub(crate) fn retransmitted(flows: &[&Flow]) -> Option<f64> {
    let again = seen(flows, |flow| flow.sent_again.map(|it| it.0))?;
    percent(again, seen(flows, |flow| flow.sent.map(|it| it.0))?)
}

pub(crate) fn timeouts(flows: &[&Flow]) -> Option<f64> {
    seen(flows, |flow| flow.timeouts)
}

pub(crate) fn recoveries(flows: &[&Flow]) -> Option<f64> {
    seen(flows, |flow| flow.recoveries)
}

pub(crate) fn completion(flows: &[&Flow]) -> Option<f64> {
    let times: Option<Vec<Duration>> = flows.iter().map(|flow| flow.completion).collect();
    times?.into_iter().max().map(|last| last.as_secs_f64())
}

pub(crate) fn target(flows: &[&Flow]) -> Option<f64> {
    greatest(flows.iter().map(|flow| allowance(flow)))
}

pub(crate) fn of_target(flows: &[&Flow]) -> Option<f64> {
    let share = |flow: &&Flow| Some(flow.completion?.as_secs_f64() / allowance(flow)?);
    greatest(flows.iter().map(share))
}

pub(crate) fn of_limit(flows: &[&Flow]) -> Option<f64> {
    let share = |flow: &&Flow| percent(flow.goodput().mbps(), flow.limit?.mbps());
    least(flows.iter().map(share))
}

/// The mean of the flows that have a smoothed round-trip time.
pub(crate) fn queueing(flows: &[&Flow]) -> Option<f64> {
    let excess: Mean = flows
        .iter()
        .filter_map(|flow| Some(flow.srtt?.saturating_sub(flow.round_trip)))
        .map(|time| 1e3 * time.as_secs_f64())
        .collect();
    excess.value()
}

pub(crate) fn mean_queueing(flows: &[&Flow]) -> Option<f64> {
    Mean::of(flows.iter().map(|flow| flow.queueing)).value()
}

pub(crate) fn srtt(flows: &[&Flow]) -> Option<f64> {
    let times: Mean = flows
        .iter()
        .filter_map(|flow| flow.srtt)
        .map(|time| 1e3 * time.as_secs_f64())
        .collect();
    times.value()
}

/// The time in ms within which a share of the answers came: the one of that rank (nearest-rank percentile).
pub(crate) fn response(flows: &[&Flow], share: f64) -> Option<f64> {
    let mut times: Vec<Duration> = flows
        .iter()
        .flat_map(|flow| flow.responses.iter().copied())
        .collect();
    times.sort_unstable();
    let rank = (share * times.len() as f64).ceil() as usize;
    let time = times.get(rank.max(1) - 1)?;
    Some(1e3 * time.as_secs_f64())
}

pub(crate) fn kbps_sender(flows: &[&Flow]) -> Option<f64> {
    kbps(flows, |flow| flow.acknowledged)
}

pub(crate) fn kbps_receiver(flows: &[&Flow]) -> Option<f64> {
    kbps(flows, |flow| flow.final_ack)
}

fn sum(flows: &[&Flow], of: fn(&Flow) -> f64) -> f64 {
    flows.iter().map(|flow| of(flow)).sum()
}

/// The sum over the flows of which it is known; `None` where it is of none.
fn seen(flows: &[&Flow], of: fn(&Flow) -> Option<u64>) -> Option<f64> {
    let known = flows.iter().filter_map(|flow| of(flow));
    known.map(|count| count as f64).reduce(|sum, own| sum + own)
}

/// The time in seconds that a transfer may take to count as undisturbed: 1.02 times its time at the path's limit, plus
/// four round trips.
fn allowance(flow: &Flow) -> Option<f64> {
    let limit = flow.limit?.bits_per_sec() as f64;
    let bits = flow.size?.bits() as f64;
    (limit > 0.0).then(|| 1.02 * bits / limit + 4.0 * flow.round_trip.as_secs_f64())
}

/// Payload received over what `time` tells; `None` when a flow has no such time, or nothing was sent: a set-up alone
/// has no throughput.
fn kbps(flows: &[&Flow], time: fn(&Flow) -> Option<Duration>) -> Option<f64> {
    let rates = flows.iter().map(|flow| {
        let bits = 8.0 * flow.received.0 as f64;
        let rate = bits / time(flow)?.as_secs_f64() / 1e3;
        (bits > 0.0 && rate.is_finite()).then_some(rate)
    });
    rates.sum()
}
