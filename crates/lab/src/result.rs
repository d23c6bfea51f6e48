//! What a run brings.

use crate::emulator::Report;
use bentpipe_base::{Bytes, Rate};
use bentpipe_os::tcp::Info;
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
