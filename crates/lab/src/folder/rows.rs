//! The rows of a run's tables: every column named with its unit.

use crate::result::{FlowResult, Outcome, Point, Sample, TrafficResult};
use bentpipe_base::Rate;
use bentpipe_os::tcp::Info;
use serde::Serialize;
use std::time::Duration;

/// A flow.
#[derive(Serialize)]
pub(super) struct FlowRow<'a> {
    flow: &'a str,
    /// `finished`, `cut off` or `failed`.
    outcome: &'static str,
    why: &'a str,
    congestion_control: &'a str,
    connect_s: Option<f64>,
    completion_s: Option<f64>,
    acknowledged_s: Option<f64>,
    elapsed_s: f64,
    received_bytes: u64,
    goodput_mbps: f64,
    limit_mbps: Option<f64>,
    share_of_limit: Option<f64>,
    /// Share of the payload that was sent again.
    retransmitted: Option<f64>,
}

impl<'a> From<&'a FlowResult> for FlowRow<'a> {
    fn from(flow: &'a FlowResult) -> Self {
        let (outcome, why) = match &flow.outcome {
            Outcome::Finished => ("finished", ""),
            Outcome::CutOff => ("cut off", ""),
            Outcome::Failed(why) => ("failed", why.as_str()),
        };
        let seconds = |time: Duration| time.as_secs_f64();
        Self {
            flow: &flow.name,
            outcome,
            why,
            congestion_control: &flow.congestion_control,
            connect_s: flow.connect.map(seconds),
            completion_s: flow.completion.map(seconds),
            acknowledged_s: flow.acknowledged.map(seconds),
            elapsed_s: seconds(flow.elapsed),
            received_bytes: flow.received.0,
            goodput_mbps: flow.goodput.mbps(),
            limit_mbps: flow.limit.map(Rate::mbps),
            share_of_limit: flow.share(),
            retransmitted: flow.retransmitted(),
        }
    }
}

/// What cross traffic did.
#[derive(Serialize)]
pub(super) struct TrafficRow {
    finished: u64,
    broken: u64,
    received_bytes: u64,
}

impl From<TrafficResult> for TrafficRow {
    fn from(traffic: TrafficResult) -> Self {
        Self {
            finished: traffic.finished,
            broken: traffic.broken,
            received_bytes: traffic.received.0,
        }
    }
}

/// A sample; the state of TCP is empty at receivers.
#[derive(Serialize)]
pub(super) struct SampleRow<'a> {
    flow: &'a str,
    /// `receiver`, `sender`, or the name of a gateway.
    point: &'a str,
    /// Since connect().
    at_s: f64,
    /// Received, or acknowledged.
    bytes: u64,
    cwnd_segments: Option<u32>,
    ssthresh_segments: Option<u32>,
    in_flight_segments: Option<u32>,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    retransmitted_segments: Option<u32>,
    delivery_mbps: Option<f64>,
    pacing_mbps: Option<f64>,
    recovery_state: Option<u8>,
}

impl<'a> SampleRow<'a> {
    pub(super) fn new(sample: &'a Sample, flow: &'a str) -> Self {
        let tcp = sample.tcp.as_ref();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        // The kernel's "none yet" and "not paced" are no numbers.
        let ssthresh = |info: &Info| (info.ssthresh < i32::MAX as u32).then_some(info.ssthresh);
        let paced = |info: &Info| {
            let rate = info.pacing_rate;
            (rate.bits_per_sec() < u64::MAX).then(|| rate.mbps())
        };
        Self {
            flow,
            point: match &sample.point {
                Point::Receiver => "receiver",
                Point::Sender => "sender",
                Point::Gateway(name) => name,
            },
            at_s: sample.at.as_secs_f64(),
            bytes: sample.bytes.0,
            cwnd_segments: tcp.map(|info| info.cwnd),
            ssthresh_segments: tcp.and_then(ssthresh),
            in_flight_segments: tcp.map(|info| info.unacked),
            rtt_ms: tcp.map(|info| millis(info.rtt)),
            min_rtt_ms: tcp.map(|info| millis(info.min_rtt)),
            retransmitted_segments: tcp.map(|info| info.total_retrans),
            delivery_mbps: tcp.map(|info| info.delivery_rate.mbps()),
            pacing_mbps: tcp.and_then(paced),
            recovery_state: tcp.map(|info| info.ca_state),
        }
    }
}
