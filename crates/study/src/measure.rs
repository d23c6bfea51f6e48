//! What is measured of a run of the simulator.

use crate::row::Measures;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{FlowOutcome, Options, Outcome};

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
        name: "srtt",
        summary: "the senders' smoothed round-trip time at the end, their mean, in ms",
        of: |run| {
            let times = run.flows.iter().filter_map(|flow| flow.gauges.srtt);
            let times: Vec<f64> = times.map(|time| 1e3 * time.as_secs_f64()).collect();
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
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
