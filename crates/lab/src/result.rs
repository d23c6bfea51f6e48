//! The result of a run in the lab.

use crate::emulator::{self, Report};
use bentpipe_outcome::{Engine, Flow, Proxy, Run, Sample, SimplexLink, Traffic};
use bentpipe_scenario::Scenario;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A run that came to its end, for better or worse.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// What was run, where, under which settings.
    pub manifest: Manifest,
    pub(crate) unfit: Vec<String>,
    pub(crate) measured: Measured,
}

impl RunResult {
    /// What was measured.
    ///
    /// # Errors
    /// The reasons why it is no result: an emulator fell behind, or dropped what the link would not
    /// have dropped.
    pub fn measured(&self) -> Result<&Measured, &[String]> {
        match self.unfit.as_slice() {
            [] => Ok(&self.measured),
            reasons => Err(reasons),
        }
    }

    /// What was measured, fit for use or not: for diagnosis.
    pub fn measured_anyway(&self) -> &Measured {
        &self.measured
    }
}

/// What was run, where, under which settings.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The scenario, complete: it runs again as it is.
    pub scenario: String,
    /// Its name.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Version of this program.
    pub version: &'static str,
    /// Release of the kernel.
    pub kernel: String,
    /// Processors that the run could use.
    pub processors: usize,
    /// When the run began.
    pub started: SystemTime,
    /// Settings read back in each node's namespace, by node and sysctl.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// What each gateway said on standard error, the last lines, by gateway.
    pub gateways: BTreeMap<String, String>,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// In the order of the scenario.
    pub flows: Vec<Flow>,
    /// By flow, then by point, then in the order of time.
    pub samples: Vec<Sample>,
    /// What the emulators say, by link.
    pub links: BTreeMap<String, Report>,
    /// What each gateway counted, by its own names; empty for one that did not say.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
    /// What the scenario's cross traffic did, if it has any.
    pub traffic: Option<Traffic>,
}

impl Measured {
    /// As both engines tell it; `scenario` is what was run.
    pub fn outcome(&self, scenario: &Scenario) -> Run {
        let links = self.links.iter().flat_map(|(name, report)| {
            let ends = scenario.links.get(name).map(|link| &link.ends);
            let end = |end: usize| ends.map_or_else(String::new, |ends| ends[end].clone());
            [(0, &report.from_a), (1, &report.from_b)]
                .map(|(from, way)| simplex_link(name, [end(from), end(1 - from)], way))
        });
        let reports = || self.links.values();
        // Links that are not emulated have no report.
        let flows = self.flows.iter().map(|flow| flow.elapsed);
        let elapsed = reports().map(|report| report.elapsed).chain(flows);
        let p99 = reports().map(|report| report.lateness.p99);
        Run {
            engine: Engine::Kernel,
            scenario: scenario.name.clone(),
            seed: scenario.seed,
            elapsed: elapsed.max().unwrap_or_default(),
            flows: self.flows.clone(),
            samples: self.samples.clone(),
            links: links.collect(),
            proxies: self.proxies(),
            traffic: self.traffic,
            lateness: p99.max().unwrap_or_default(),
        }
    }

    /// What the Snoop agent and the carrier of each gateway, and each end of a leg over QUIC, did for all flows together, their counters called as in the
    /// simulator. What a split's sockets sent is told with the flows.
    fn proxies(&self) -> Vec<Proxy> {
        let proxies = self.counters.iter().filter_map(|(name, counted)| {
            let of = |(own, simulated)| (simulated, counted.get(own).copied().unwrap_or_default());
            let mut counters: Vec<(&'static str, u64)> = SNOOP.map(of).into();
            // A gateway without an agent has seen none of its packets, and one without a carrier no connection of its.
            if counters.iter().all(|(_, count)| *count == 0) {
                counters.clear();
            }
            let carrier = CARRIER.map(of);
            if carrier.iter().any(|(_, count)| *count > 0) {
                counters.extend(carrier);
            }
            let pair = PAIR.iter();
            counters.extend(pair.filter_map(|(own, name)| Some((*name, *counted.get(*own)?))));
            (!counters.is_empty()).then(|| Proxy {
                name: name.clone(),
                counters,
            })
        });
        proxies.collect()
    }
}

/// What a gateway calls the counters of its carrier, and what the simulator does, where what was sent again is told with the flows.
const CARRIER: [(&str, &str); 6] = [
    ("carried", "scps"),
    ("carried_plain", "plain"),
    ("carrier_sent_again", "carrier_sent_again"),
    ("carrier_snacks", "snacks"),
    ("carrier_snacks_sent", "snacks_sent"),
    ("carrier_outages", "outages"),
];

/// What the near end of a leg over QUIC and its far end call their counters, and what both are called in virtual time.
const PAIR: [(&str, &str); 8] = [
    ("tunnels_opened", "tunnels"),
    ("tunnels_fec_repairs", "fec_repairs"),
    ("tunnels_fec_recovered", "fec_recovered"),
    ("tunnels_fec_unrepaired", "fec_unrepaired"),
    ("opened", "tunnels"),
    ("fec_repairs", "fec_repairs"),
    ("fec_recovered", "fec_recovered"),
    ("fec_unrepaired", "fec_unrepaired"),
];

/// What a gateway calls the counters of its Snoop agent, and what the simulator does.
const SNOOP: [(&str, &str); 9] = [
    ("snoop_cached", "cached"),
    ("snoop_uncached", "uncached"),
    ("snoop_retransmitted", "retransmitted"),
    ("snoop_timeouts", "timeouts"),
    ("snoop_suppressed", "suppressed"),
    ("snoop_unread", "unread"),
    ("snoop_unwatched", "unwatched"),
    ("snoop_evicted", "evicted"),
    ("snoop_given_up", "given_up"),
];

/// A packet that still waited at the end has not begun its way.
fn simplex_link(link: &str, [from, to]: [String; 2], way: &emulator::Traffic) -> SimplexLink {
    let packets = way
        .packets_in
        .saturating_sub(way.dropped_queue + way.dropped_before_queue + way.waiting_packets);
    SimplexLink {
        link: link.to_owned(),
        from,
        to,
        packets,
        corrupted: way.dropped_corrupted,
        lost: way.dropped_lost,
        struck_before_queue: way.dropped_before_queue,
        refused: way.dropped_queue,
        refused_data: None,
        marked: way.marked,
        waited: way.wait_mean.mul_f64(packets as f64),
        longest_queue: None,
    }
}
