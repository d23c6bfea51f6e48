//! What is measured of a run: here of one of the simulator; the lab takes those that it can see.

use crate::row::Measures;
use bentpipe_base::{Bytes, Rate};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{FlowOutcome, LinkOutcome, Options, Outcome};
use core::time::Duration;

/// One measure by name.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// As tables name it.
    pub name: &'static str,
    /// What it is and its unit, in one line.
    pub summary: &'static str,
    /// Its value; `None` where it has no meaning.
    pub of: fn(&Outcome) -> Option<f64>,
}

/// All of them.
pub const MEASURES: &[Measure] = &[
    Measure {
        name: "segments",
        summary: "full segments received in order, all flows together",
        of: |run| Some(sum(run, |flow| flow.segments as f64)),
    },
    Measure {
        name: "goodput",
        summary: "payload received in order, all flows together, in Mbit/s",
        of: |run| Some(sum(run, |flow| flow.goodput.mbps())),
    },
    Measure {
        name: "jain",
        summary: "Jain's index of the flows' goodput, from 1/n (one has all) to 1 (all have alike)",
        of: jain,
    },
    Measure {
        name: "retransmitted",
        summary: "share of the sent payload that was sent again by the senders, in percent",
        of: |run| {
            let sent = sum(run, |flow| flow.source.bytes_sent as f64);
            let again = sum(run, |flow| flow.source.bytes_retransmitted as f64);
            (sent > 0.0).then(|| 100.0 * again / sent)
        },
    },
    Measure {
        name: "timeouts",
        summary: "expiries of the senders' retransmission timers",
        of: |run| Some(sum(run, |flow| flow.source.timeouts as f64)),
    },
    Measure {
        name: "recoveries",
        summary: "fast retransmits: recoveries that the senders entered without a timeout",
        of: |run| Some(sum(run, |flow| flow.source.recoveries as f64)),
    },
    Measure {
        name: "completion",
        summary: "time until the last byte of the last flow was received, in seconds",
        of: |run| {
            let times: Option<Vec<_>> = run.flows.iter().map(|flow| flow.completion).collect();
            times?.into_iter().max().map(|last| last.as_secs_f64())
        },
    },
    Measure {
        name: "target",
        summary: "1.02 times the bytes over the limit of their path, and four round trips, in seconds",
        of: |run| {
            let times = run.flows.iter().map(|flow| {
                let FlowOutcome {
                    size,
                    limit,
                    round_trip,
                    ..
                } = flow;
                target((*size)?, (*limit)?, *round_trip)
            });
            greatest(times)
        },
    },
    Measure {
        name: "of_target",
        summary: "the longest completion of a flow as a share of its target",
        of: |run| {
            let shares = run.flows.iter().map(|flow| {
                let FlowOutcome {
                    size,
                    limit,
                    round_trip,
                    ..
                } = flow;
                let target = target((*size)?, (*limit)?, *round_trip)?;
                Some(flow.completion?.as_secs_f64() / target)
            });
            greatest(shares)
        },
    },
    Measure {
        name: "of_limit",
        summary: "goodput as a share of what no TCP can exceed on the path, the least of the flows, in percent",
        of: |run| {
            let shares = run
                .flows
                .iter()
                .map(|flow| share(flow.goodput, flow.limit?));
            least(shares)
        },
    },
    Measure {
        name: "queueing",
        summary: "by how much the senders' smoothed round-trip time exceeds propagation, in ms: the mean of the flows at their end, in the lab of the whole time but its first 5 s",
        of: |run| {
            let delays = run.flows.iter().filter_map(|flow| {
                let srtt = flow.gauges.srtt?;
                Some(1e3 * srtt.saturating_sub(flow.round_trip).as_secs_f64())
            });
            mean(delays)
        },
    },
    Measure {
        name: "srtt",
        summary: "the senders' smoothed round-trip time at the end, their mean, in ms",
        of: |run| {
            let times = run.flows.iter().filter_map(|flow| flow.gauges.srtt);
            mean(times.map(|time| 1e3 * time.as_secs_f64()))
        },
    },
    Measure {
        name: "local",
        summary: "segments that proxies sent again themselves",
        of: |run| counted(run, "retransmitted"),
    },
    Measure {
        name: "suppressed",
        summary: "duplicate acknowledgements that proxies kept from the senders",
        of: |run| counted(run, "suppressed"),
    },
    Measure {
        name: "dropped",
        summary: "packets dropped by queues, all links together",
        of: |run| {
            Some(
                run.links
                    .iter()
                    .map(|link| link.counters.refused as f64)
                    .sum(),
            )
        },
    },
    Measure {
        name: "corrupted",
        summary: "packets corrupted or lost on the way, all links together",
        of: |run| {
            let links = run.links.iter();
            let hit = links.map(|link| (link.counters.corrupted + link.counters.lost) as f64);
            Some(hit.sum())
        },
    },
    Measure {
        name: "kbps_sender",
        summary: "throughput at the sender, in kbit/s",
        of: |run| kbps(run, |flow| flow.acknowledged),
    },
    Measure {
        name: "kbps_receiver",
        summary: "throughput at the receiver, in kbit/s",
        of: |run| kbps(run, |flow| flow.final_ack),
    },
    Measure {
        name: "drops_internet",
        summary: "data segments dropped by queues of the link `internet`",
        of: |run| data_drops(run, "internet"),
    },
    Measure {
        name: "drops_satellite",
        summary: "data segments dropped by queues of the link `satellite`",
        of: |run| data_drops(run, "satellite"),
    },
    Measure {
        name: "bottleneck_drop_rate",
        summary: "share of packets that queues of the link `internet` dropped, in percent",
        of: bottleneck,
    },
    Measure {
        name: "lateness",
        summary: "how late the lab's emulators were, 99th percentile of the worst, in ms; 0 here",
        of: |_| Some(0.0),
    },
    Measure {
        name: "held_max_kB",
        summary: "most that a split held at once, in kB",
        of: |run| counted(run, "most_held").map(|bytes| bytes / 1000.0),
    },
];

/// Runs `scenario` in the simulator and measures everything.
///
/// # Errors
/// What the simulator cannot run, in words.
pub fn simulate(scenario: &Scenario) -> Result<Measures, String> {
    let outcome = bentpipe_sim::run(scenario, &Options::default()).map_err(|e| e.to_string())?;
    let values = MEASURES.iter().filter_map(|measure| {
        let value = (measure.of)(&outcome)?;
        Some((measure.name.to_owned(), value))
    });
    Ok(values.collect())
}

/// The greatest of `values`; `None` where one is missing.
pub fn greatest(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.try_fold(0.0, |last, value| Some(f64::max(last, value?)))
}

/// The least of `values`; `None` of none, and where one is missing.
pub fn least(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = values.next()??;
    values.try_fold(first, |least, value| Some(f64::min(least, value?)))
}

/// The mean of `values`; `None` of none.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// `goodput` in percent of `limit`.
pub fn share(goodput: Rate, limit: Rate) -> Option<f64> {
    (limit.bits_per_sec() > 0).then(|| 100.0 * goodput.mbps() / limit.mbps())
}

/// What a transfer of `size` may take: 1.02 times its time at `limit`, and four of `round_trip`; in seconds.
pub fn target(size: Bytes, limit: Rate, round_trip: Duration) -> Option<f64> {
    let limit = limit.bits_per_sec() as f64;
    (limit > 0.0).then(|| 1.02 * size.bits() as f64 / limit + 4.0 * round_trip.as_secs_f64())
}

fn sum(run: &Outcome, of: fn(&FlowOutcome) -> f64) -> f64 {
    run.flows.iter().map(of).sum()
}

/// What proxies call `name`; `None` without a proxy.
fn counted(run: &Outcome, name: &str) -> Option<f64> {
    let counters = run.peps.iter().flat_map(|pep| &pep.counters);
    let own = counters.filter(|(known, _)| *known == name);
    let own: Vec<f64> = own.map(|(_, count)| *count as f64).collect();
    (!own.is_empty()).then(|| own.iter().sum())
}

/// Payload received over what `time` tells, from the flow's start, all flows together; `None` when one has no such time, or nothing
/// was sent: a set-up alone has no throughput.
fn kbps(run: &Outcome, time: fn(&FlowOutcome) -> Option<Duration>) -> Option<f64> {
    let rates = run.flows.iter().map(|flow| {
        let bits = 8.0 * flow.received.0 as f64;
        let rate = bits / time(flow)?.as_secs_f64() / 1e3;
        (bits > 0.0 && rate.is_finite()).then_some(rate)
    });
    rates.sum()
}

/// Both directions of the link called `name`; none without such a link.
fn directions<'a>(run: &'a Outcome, name: &'a str) -> impl Iterator<Item = &'a LinkOutcome> {
    run.links.iter().filter(move |line| line.link == name)
}

/// Data segments of the scenario's own flows, not of cross traffic.
fn data_drops(run: &Outcome, link: &str) -> Option<f64> {
    let drops = directions(run, link).map(|line| line.refused_data);
    drops
        .reduce(|both, one| both + one)
        .map(|drops| drops as f64)
}

/// Offered is what went over the link and what was dropped; both directions, as ns-2's monitors of the
/// reference count. Packets that still wait at the end are in neither.
fn bottleneck(run: &Outcome) -> Option<f64> {
    let counts = || directions(run, "internet").map(|line| line.counters);
    let dropped: u64 = counts().map(|of| of.refused).sum();
    let offered: u64 = counts().map(|of| of.refused + of.packets).sum();
    (offered > 0).then(|| 100.0 * dropped as f64 / offered as f64)
}

/// (sum x)^2 / (n sum x^2), of goodputs (Jain, Chiu and Hawe, 1984).
fn jain(run: &Outcome) -> Option<f64> {
    let sum = sum(run, |flow| flow.goodput.mbps());
    let squares: f64 = run
        .flows
        .iter()
        .map(|flow| flow.goodput.mbps().powi(2))
        .sum();
    (squares > 0.0).then(|| sum * sum / (run.flows.len() as f64 * squares))
}
