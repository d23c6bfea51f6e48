//! What a run brings.

use crate::emulator::{Report, Traffic};
use bentpipe_base::{Bytes, Rate};
use bentpipe_os::tcp::Info;
use bentpipe_outcome::{Line, Proxy, Run, Samples};
use bentpipe_scenario::Scenario;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

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
    pub flows: Vec<FlowResult>,
    /// In the order of flows, then points, then time.
    pub samples: Vec<Sample>,
    /// What the emulators say, by link.
    pub links: BTreeMap<String, Report>,
    /// What the scenario's cross traffic did, if it has any.
    pub traffic: Option<TrafficResult>,
}

/// What cross traffic did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficResult {
    /// Transfers that arrived whole.
    pub finished: u64,
    /// Transfers whose connection could not be made, or broke.
    pub broken: u64,
    /// Payload that arrived, of those under way at the end, too.
    pub received: Bytes,
}

impl TrafficResult {
    pub(crate) fn add(&mut self, other: Self) {
        self.finished += other.finished;
        self.broken += other.broken;
        self.received += other.received;
    }
}

/// What a flow's delay is not judged by: its beginning.
const START: Duration = Duration::from_secs(5);

impl Measured {
    /// As both engines tell it; `scenario` is what was run.
    pub fn outcome(&self, scenario: &Scenario) -> Run {
        let flows = self.flows.iter().enumerate();
        let lines = self.links.iter().flat_map(|(name, report)| {
            let ends = scenario.links.get(name).map(|link| &link.ends);
            let from = |end: usize| ends.map_or_else(String::new, |ends| ends[end].clone());
            [(0, &report.from_a), (1, &report.from_b)].map(|(end, way)| line(name, from(end), way))
        });
        let reports = || self.links.values();
        let p99 = reports().map(|report| report.lateness.p99);
        Run {
            elapsed: reports()
                .map(|report| report.elapsed)
                .max()
                .unwrap_or_default(),
            flows: flows
                .map(|(index, flow)| flow.outcome(self.queueing(index)))
                .collect(),
            lines: lines.collect(),
            proxies: self.proxies(),
            lateness: p99.max().unwrap_or_default(),
        }
    }

    /// By how much the sender's smoothed round-trip time exceeded propagation, sample by sample, in ms.
    fn queueing(&self, flow: usize) -> Samples {
        let round_trip = self
            .flows
            .get(flow)
            .map_or(Duration::ZERO, |it| it.round_trip);
        let own = self
            .samples
            .iter()
            .filter(|sample| sample.flow == flow && sample.point == Point::Sender);
        let delays = own.filter_map(|sample| {
            let srtt = sample.tcp.filter(|_| sample.at > START)?.rtt;
            Some(1e3 * srtt.saturating_sub(round_trip).as_secs_f64())
        });
        delays.collect()
    }

    /// What each gateway's TCP sent again, all flows together.
    fn proxies(&self) -> Vec<Proxy> {
        let mut again: BTreeMap<&String, u64> = BTreeMap::new();
        for (gateway, tcp) in self.flows.iter().flat_map(|flow| &flow.legs) {
            *again.entry(gateway).or_default() += u64::from(tcp.total_retrans);
        }
        let proxies = again.into_iter().map(|(name, count)| Proxy {
            name: name.clone(),
            counters: vec![("retransmitted", count)],
        });
        proxies.collect()
    }
}

impl FlowResult {
    fn outcome(&self, queueing: Samples) -> bentpipe_outcome::Flow {
        bentpipe_outcome::Flow {
            name: self.name.clone(),
            size: self.size,
            round_trip: self.round_trip,
            limit: self.limit,
            received: self.received,
            segments: None,
            goodput: self.goodput,
            completion: self.completion,
            acknowledged: self.acknowledged,
            final_ack: self.completion,
            sent: self.sender.map_or(Bytes(0), |tcp| tcp.bytes_sent),
            sent_again: self.sender.map_or(Bytes(0), |tcp| tcp.bytes_retrans),
            timeouts: self.sender.map_or(0, |tcp| tcp.total_rto.into()),
            recoveries: None,
            srtt: self.sender.map(|tcp| tcp.rtt),
            queueing,
        }
    }
}

/// A packet that still waited at the end has not begun its way.
fn line(link: &str, from: String, way: &Traffic) -> Line {
    let packets = way
        .packets_in
        .saturating_sub(way.dropped_queue + way.waiting_packets);
    Line {
        link: link.to_owned(),
        from,
        packets,
        corrupted: way.dropped_corrupted,
        lost: way.dropped_lost,
        refused: way.dropped_queue,
        refused_data: None,
        waited: way.wait_mean.mul_f64(packets as f64),
    }
}

/// What became of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes arrived, or its time passed; every byte received was right.
    Finished,
    /// The run's time limit came first; what was received until then was right.
    CutOff,
    /// It broke; why.
    Failed(String),
}

/// The figures of one flow.
#[derive(Clone, Debug)]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// What it is to send; `None` for one that lasts a time.
    pub size: Option<Bytes>,
    /// Propagation there and back.
    pub round_trip: Duration,
    /// What became of it.
    pub outcome: Outcome,
    /// Congestion control of the sending socket, as the kernel calls it.
    pub congestion_control: String,
    /// From connect() to the established connection, at the opener.
    pub connect: Option<Duration>,
    /// From connect() to the last byte at the receiver, if all bytes came; `None` for a flow that
    /// lasts a time.
    pub completion: Option<Duration>,
    /// From connect() until the sender's TCP had everything acknowledged, to the millisecond;
    /// `None` for a flow that lasts a time. A gateway that splits acknowledges before the receiver.
    pub acknowledged: Option<Duration>,
    /// From connect() to its end: the last byte, the end of its time, or the cut.
    pub elapsed: Duration,
    /// Payload that arrived.
    pub received: Bytes,
    /// `received` over `elapsed`.
    pub goodput: Rate,
    /// What no TCP can exceed on the flow's path; `None` where nothing limits the rate.
    pub limit: Option<Rate>,
    /// The last state of the sender's TCP.
    pub sender: Option<Info>,
    /// The last state of each gateway's TCP towards the receiver, by gateway.
    pub legs: BTreeMap<String, Info>,
}

impl FlowResult {
    /// Goodput as a share of the limit.
    pub fn share(&self) -> Option<f64> {
        Some(self.goodput.mbps() / self.limit?.mbps())
    }

    /// The share of payload bytes that were sent again: of all the TCPs that sent this flow on its
    /// way (the sender's, and on a split path the gateways'), that of the one that repeated most.
    pub fn retransmitted(&self) -> Option<f64> {
        let infos = self.legs.values().chain(&self.sender);
        let sending = infos.filter(|info| info.bytes_sent.0 > 0);
        sending
            .map(|info| info.bytes_retrans.0 as f64 / info.bytes_sent.0 as f64)
            .max_by(f64::total_cmp)
    }
}

/// Where a sample was taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// At the receiver: bytes received.
    Receiver,
    /// At the sender: the state of its TCP.
    Sender,
    /// At a gateway: the state of its TCP towards the receiver.
    Gateway(String),
}

/// The state of a flow at one place and time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Index of the flow.
    pub flow: usize,
    /// Where.
    pub point: Point,
    /// When, from connect().
    pub at: Duration,
    /// Payload received so far; at senders, payload acknowledged so far.
    pub bytes: Bytes,
    /// The state of the sending TCP.
    pub tcp: Option<Info>,
}
