//! What a run found.

use crate::json;
use crate::sample::Sample;
use bentpipe_base::{Bytes, Rate};
use core::time::Duration;
use serde::Serialize;

/// What ran a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The simulator, in virtual time.
    #[default]
    Simulator,
    /// The lab: kernel TCP over emulated links.
    Kernel,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// What ran it.
    pub engine: Engine,
    /// The scenario's name.
    pub scenario: String,
    /// The seed that it ran with.
    pub seed: u64,
    /// From its start to its end.
    #[serde(rename = "elapsed_s", serialize_with = "json::seconds")]
    pub elapsed: Duration,
    /// In the order of the scenario; cross traffic is not among them.
    #[serde(serialize_with = "json::flows")]
    pub flows: Vec<Flow>,
    /// The course of the flows: by flow, then by point, then in the order of time. It is not in the JSON.
    #[serde(skip)]
    pub samples: Vec<Sample>,
    /// By name of the link: first the direction that leaves its first end, then the other.
    pub links: Vec<SimplexLink>,
    /// By name.
    pub proxies: Vec<Proxy>,
    /// What cross traffic did; `None` where the scenario has none, or in the simulator, which does not count it.
    pub traffic: Option<Traffic>,
    /// How late the emulators were: the 99th percentile of the worst; zero in virtual time.
    #[serde(rename = "lateness_ms", serialize_with = "json::ms")]
    pub lateness: Duration,
}

/// What cross traffic did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Transfers that arrived whole.
    pub finished: u64,
    /// Transfers whose connection could not be made, or broke.
    pub broken: u64,
    /// Payload that arrived, of those under way at the end, too.
    #[serde(rename = "received_bytes", serialize_with = "json::bytes")]
    pub received: Bytes,
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.finished += other.finished;
        self.broken += other.broken;
        self.received += other.received;
    }
}

/// How a flow ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "why", rename_all = "lowercase")]
pub enum End {
    /// All bytes arrived, or its time passed.
    #[default]
    Finished,
    /// The run's time limit came first.
    #[serde(rename = "cut off")]
    CutOff,
    /// Its connection failed, for this reason.
    Failed(String),
}

/// What one TCP of a gateway sent of a flow towards its receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leg {
    /// The gateway's name.
    pub gateway: String,
    /// Payload sent, retransmissions included.
    #[serde(rename = "sent_bytes", serialize_with = "json::bytes")]
    pub sent: Bytes,
    /// The part of it that was retransmitted.
    #[serde(rename = "sent_again_bytes", serialize_with = "json::bytes")]
    pub sent_again: Bytes,
    /// Segments that it retransmitted.
    pub segments_again: u64,
}

/// What became of a flow. Times are from its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
    /// The congestion control of the sender; empty where it is not known.
    #[serde(rename = "congestion_control")]
    pub control: String,
    /// The sender's loss recovery; `None` on the kernel, which has one.
    pub recovery: Option<&'static str>,
    /// What it was to send; `None` for one that lasts a time.
    #[serde(rename = "size_bytes", serialize_with = "json::maybe_bytes")]
    pub size: Option<Bytes>,
    /// Propagation there and back.
    #[serde(rename = "round_trip_s", serialize_with = "json::seconds")]
    pub round_trip: Duration,
    /// The goodput that no TCP can exceed on its path; `None` where nothing limits the rate.
    #[serde(rename = "limit_mbps", serialize_with = "json::maybe_mbps")]
    pub limit: Option<Rate>,
    /// Payload that its receiver got in order.
    #[serde(rename = "received_bytes", serialize_with = "json::bytes")]
    pub received: Bytes,
    /// Payload of a full segment; `None` where nobody saw segments. It is not in the JSON.
    #[serde(skip)]
    pub mss: Option<Bytes>,
    /// What was received in full segments, a last short one counted whole; `None` where nobody saw segments.
    pub segments: Option<u64>,
    /// Until the connection was established at the end that opened it.
    #[serde(rename = "connect_s", serialize_with = "json::maybe_seconds")]
    pub connect: Option<Duration>,
    /// Until its end: the last byte at the receiver, the end of its time, or the cut; of a flow that failed, until the
    /// last byte that did arrive.
    #[serde(rename = "elapsed_s", serialize_with = "json::seconds")]
    pub elapsed: Duration,
    /// Until the last byte was at the receiver, where there is a last one.
    #[serde(rename = "completion_s", serialize_with = "json::maybe_seconds")]
    pub completion: Option<Duration>,
    /// Until the sender knew that all had arrived.
    #[serde(rename = "acknowledged_s", serialize_with = "json::maybe_seconds")]
    pub acknowledged: Option<Duration>,
    /// Until the receiver sent its last acknowledgement; `None` in the lab, which does not see that one.
    #[serde(rename = "final_ack_s", serialize_with = "json::maybe_seconds")]
    pub final_ack: Option<Duration>,
    /// Payload that the sender sent, retransmissions included; `None` where nobody saw it.
    #[serde(rename = "sent_bytes", serialize_with = "json::maybe_bytes")]
    pub sent: Option<Bytes>,
    /// The part of it that was retransmitted.
    #[serde(rename = "sent_again_bytes", serialize_with = "json::maybe_bytes")]
    pub sent_again: Option<Bytes>,
    /// Segments that the sender's TCP retransmitted; `None` of a sender that has none.
    pub segments_again: Option<u64>,
    /// What each gateway that splits it sent towards the receiver, by name of the gateway.
    pub gateways: Vec<Leg>,
    /// Expiries of the retransmission timer of the sender's TCP; `None` of a sender that has none.
    pub timeouts: Option<u64>,
    /// Recoveries that the sender entered without a timeout; `None` where nobody saw them.
    pub recoveries: Option<u64>,
    /// The sender's smoothed round-trip time at the end.
    #[serde(rename = "srtt_ms", serialize_with = "json::maybe_ms")]
    pub srtt: Option<Duration>,
    /// By how much the sender's smoothed round-trip time exceeded `round_trip`, in milliseconds: a sample each
    /// [`Flow::SAMPLED`], those of the first [`Flow::START`] left out.
    #[serde(rename = "mean_queueing_ms", serialize_with = "json::mean")]
    pub queueing: Mean,
    /// The sender's congestion window at the end, in segments.
    #[serde(rename = "cwnd_segments")]
    pub cwnd: Option<f64>,
    /// The sender's slow-start threshold at the end, in segments; `None` where none is set.
    #[serde(rename = "ssthresh_segments")]
    pub ssthresh: Option<f64>,
    /// Of a request-response flow, of each request that was answered whole: the time from its first byte until the
    /// answer's last one was read.
    #[serde(
        rename = "responses_ms",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "json::all_ms"
    )]
    pub responses: Vec<Duration>,
}

impl Flow {
    /// Between two samples of `queueing`.
    pub const SAMPLED: Duration = Duration::from_millis(100);

    /// The first part of a flow, whose samples do not count for `queueing`.
    pub const START: Duration = Duration::from_secs(5);

    /// Payload received over the time until the last byte was at the receiver or, of a flow without a last one, until
    /// its end; 0 where that took no time.
    pub fn goodput(&self) -> Rate {
        let seconds = self.completion.unwrap_or(self.elapsed).as_secs_f64();
        if seconds > 0.0 {
            Rate::from_bits_per_sec((self.received.bits() as f64 / seconds) as u64)
        } else {
            Rate::default()
        }
    }

    /// Goodput as a share of the limit.
    pub fn share(&self) -> Option<f64> {
        Some(self.goodput().mbps() / self.limit?.mbps())
    }

    /// The share of its payload that the source sent again; as a percentage of all flows it is the measure `retransmitted`.
    pub fn source_retransmitted(&self) -> Option<f64> {
        self.most_of(|by| by.is_none())
    }

    /// The share of its payload that a gateway sent again, of the one that repeated most.
    pub fn gateway_retransmitted(&self) -> Option<f64> {
        self.most_of(|by| by.is_some())
    }

    /// The greater of the two: of all TCPs that sent the flow's data on its way, the one that repeated most.
    pub fn most_retransmitted(&self) -> Option<f64> {
        self.most_of(|_| true)
    }

    fn most_of(&self, whose: impl Fn(Option<&str>) -> bool) -> Option<f64> {
        let shares = self.retransmitted().filter(|(by, _)| whose(*by));
        shares.map(|(_, share)| share).max_by(f64::total_cmp)
    }

    /// The share of payload that was retransmitted, for each TCP that sent this flow's data on its way: the source, as
    /// `None`, and gateways by name. A TCP that sent nothing is left out.
    pub fn retransmitted(&self) -> impl Iterator<Item = (Option<&str>, f64)> {
        let gateways = self
            .gateways
            .iter()
            .map(|leg| (Some(leg.gateway.as_str()), leg.sent, leg.sent_again));
        let source = self
            .sent
            .zip(self.sent_again)
            .map(|(sent, again)| (None, sent, again));
        let all = source.into_iter().chain(gateways);
        all.filter(|(_, sent, _)| sent.0 > 0)
            .map(|(by, sent, again)| (by, again.0 as f64 / sent.0 as f64))
    }
}

/// The mean of figures, as their sum and count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// Their sum.
    pub sum: f64,
    /// How many.
    pub count: u32,
}

impl Mean {
    /// The mean; `None` where there are no figures.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }

    /// The mean of the figures of `all` together.
    pub fn of(all: impl IntoIterator<Item = Self>) -> Self {
        let all = all.into_iter();
        all.fold(Self::default(), |so_far, own| Self {
            sum: so_far.sum + own.sum,
            count: so_far.count + own.count,
        })
    }
}

impl FromIterator<f64> for Mean {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        let all = figures.into_iter();
        all.fold(Self::default(), |so_far, figure| Self {
            sum: so_far.sum + figure,
            count: so_far.count + 1,
        })
    }
}

/// What happened on one direction of a link (a simplex link, as ns-2 says).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimplexLink {
    /// The link's name.
    pub link: String,
    /// The node that the direction leaves.
    pub from: String,
    /// The node that it reaches.
    pub to: String,
    /// Packets that began their way over the link.
    pub packets: u64,
    /// Packets among these that were corrupted by bit errors.
    pub corrupted: u64,
    /// Packets among these that the channel lost.
    pub lost: u64,
    /// Packets that a channel before the queue struck; they never came to the queue.
    pub struck_before_queue: u64,
    /// Packets for which the queue had no room.
    pub refused: u64,
    /// Data segments among these, of the scenario's flows without cross traffic; `None` where the engine does not tell
    /// them apart.
    pub refused_data: Option<u64>,
    /// Packets that the queue marked in place of dropping them (ECN, RFC 3168).
    pub marked: u64,
    /// The sum of the times that packets waited in the queue.
    #[serde(rename = "waited_s", serialize_with = "json::seconds")]
    pub waited: Duration,
    /// Most packets that waited at once, the one being sent not counted; `None` where nobody watched.
    #[serde(rename = "longest_queue_packets")]
    pub longest_queue: Option<u64>,
}

impl SimplexLink {
    /// Packets that waited in the queue, on average over a run of `elapsed`.
    pub fn mean_queue(&self, elapsed: Duration) -> Option<f64> {
        little(self.waited.as_secs_f64(), elapsed)
    }
}

/// Little's law: the sum of the waits over the time.
pub(crate) fn little(waited: f64, elapsed: Duration) -> Option<f64> {
    let elapsed = elapsed.as_secs_f64();
    (elapsed > 0.0).then(|| waited / elapsed)
}

/// What a proxy counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proxy {
    /// Its name; in the lab that of the gateway.
    pub name: String,
    /// Its counts by name.
    #[serde(serialize_with = "json::counters")]
    pub counters: Vec<(&'static str, u64)>,
}
