//! The state of a flow at one place and time: what time series are made of.

use bentpipe_base::{Bytes, Rate};
use core::time::Duration;

/// The state of a flow at one place and time. The lab takes one at each place every [`Flow::SAMPLED`](crate::Flow::SAMPLED);
/// the simulator whenever something changed, if samples are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Index of the flow.
    pub flow: usize,
    /// Where.
    pub point: Point,
    /// When, from the flow's start.
    pub at: Duration,
    /// Payload received in order so far; at senders, payload acknowledged so far.
    pub bytes: Bytes,
    /// The state of the sending TCP; `None` at receivers.
    pub tcp: Option<TcpState>,
}

/// Where a sample was taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// At the receiver.
    Receiver,
    /// At the sender.
    Sender,
    /// At a gateway: its TCP towards the receiver.
    Gateway(String),
}

/// The state of a sending TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpState {
    /// Congestion window, in segments.
    pub cwnd: f64,
    /// Slow-start threshold, in segments; `None`: none is set.
    pub ssthresh: Option<f64>,
    /// Segments sent and not acknowledged.
    pub in_flight: Option<u64>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The smallest round-trip time; `None` where nobody asks for it.
    pub min_rtt: Option<Duration>,
    /// Segments retransmitted since the start.
    pub retransmitted: u64,
    /// Rate of delivery, as measured last.
    pub delivery_rate: Option<Rate>,
    /// Rate that sending is paced at; `None`: it is not.
    pub pacing_rate: Option<Rate>,
    /// The kernel's recovery state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub recovery_state: Option<u8>,
}
