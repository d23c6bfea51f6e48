//! The rows of a run's tables: every column named with its unit.

use bentpipe_base::Rate;
use bentpipe_outcome::{End, Flow, Point, Sample};
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
    source_retransmitted_share: Option<f64>,
    gateway_retransmitted_share: Option<f64>,
}

impl<'a> From<&'a Flow> for FlowRow<'a> {
    fn from(flow: &'a Flow) -> Self {
        let (outcome, why) = match &flow.end {
            End::Finished => ("finished", ""),
            End::CutOff => ("cut off", ""),
            End::Failed(why) => ("failed", why.as_str()),
        };
        let seconds = |time: Duration| time.as_secs_f64();
        Self {
            flow: &flow.name,
            outcome,
            why,
            congestion_control: &flow.control,
            connect_s: flow.connect.map(seconds),
            completion_s: flow.completion.map(seconds),
            acknowledged_s: flow.acknowledged.map(seconds),
            elapsed_s: seconds(flow.elapsed),
            received_bytes: flow.received.0,
            goodput_mbps: flow.goodput().mbps(),
            limit_mbps: flow.limit.map(Rate::mbps),
            share_of_limit: flow.share(),
            source_retransmitted_share: flow.source_retransmitted(),
            gateway_retransmitted_share: flow.gateway_retransmitted(),
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
    cwnd_segments: Option<u64>,
    ssthresh_segments: Option<u64>,
    in_flight_segments: Option<u64>,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    retransmitted_segments: Option<u64>,
    delivery_mbps: Option<f64>,
    pacing_mbps: Option<f64>,
    recovery_state: Option<u8>,
}

impl<'a> SampleRow<'a> {
    pub(super) fn new(sample: &'a Sample, flow: &'a str) -> Self {
        let tcp = sample.tcp.as_ref();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            flow,
            point: match &sample.point {
                Point::Receiver => "receiver",
                Point::Sender => "sender",
                Point::Gateway(name) => name,
            },
            at_s: sample.at.as_secs_f64(),
            bytes: sample.bytes.0,
            cwnd_segments: tcp.map(|tcp| tcp.cwnd as u64),
            ssthresh_segments: tcp.and_then(|tcp| tcp.ssthresh).map(|it| it as u64),
            in_flight_segments: tcp.and_then(|tcp| tcp.in_flight),
            rtt_ms: tcp.and_then(|tcp| tcp.srtt).map(millis),
            min_rtt_ms: tcp.and_then(|tcp| tcp.min_rtt).map(millis),
            retransmitted_segments: tcp.map(|tcp| tcp.retransmitted),
            delivery_mbps: tcp.and_then(|tcp| tcp.delivery_rate).map(Rate::mbps),
            pacing_mbps: tcp.and_then(|tcp| tcp.pacing_rate).map(Rate::mbps),
            recovery_state: tcp.and_then(|tcp| tcp.recovery_state),
        }
    }
}
