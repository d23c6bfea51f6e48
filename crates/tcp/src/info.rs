//! What a connection measures of itself: counters since its beginning, and the sender's figures now, as `tcp_info` of
//! Linux has them.

use bentpipe_cc::Phase;
use std::time::Duration;

/// Counts since the connection began. Data segments are those with payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, all kinds.
    pub segments_sent: u64,
    /// Segments received, all kinds.
    pub segments_received: u64,
    /// Of these, segments that header prediction took.
    pub predicted: u64,
    /// Data segments sent, retransmissions included.
    pub data_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes acknowledged.
    pub bytes_acked: u64,
    /// Data segments sent again.
    pub retransmitted: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmits: recoveries entered without a timeout.
    pub recoveries: u64,
    /// Segments received that a queue had marked (CE, RFC 3168).
    pub marks: u64,
    /// Reductions of the window for marks that the peer echoed.
    pub mark_reductions: u64,
    /// Reductions of the window that were taken back (D-SACK, F-RTO).
    pub undone: u64,
    /// Tail loss probes sent (RFC 8985).
    pub loss_probes: u64,
    /// SNACKs received that named bytes in flight.
    pub snacks: u64,
    /// SNACKs sent.
    pub snacks_sent: u64,
    /// Times that the link was taken for out.
    pub outages: u64,
    /// Probes of a link that is out.
    pub link_probes: u64,
    /// Duplicate acknowledgements received.
    pub dupacks: u64,
    /// Data segments received, duplicates included.
    pub data_received: u64,
    /// Payload bytes handed over in order.
    pub bytes_delivered: u64,
    /// Data segments received that held nothing new.
    pub duplicates: u64,
    /// Data segments received beyond a gap.
    pub out_of_order: u64,
    /// Segments dropped by PAWS (RFC 7323, section 5).
    pub paws: u64,
    /// Challenge acknowledgements sent (RFC 5961).
    pub challenges: u64,
    /// Segments without data from outside the window that were not answered, for one was a moment before (Linux
    /// `TCPACKSkippedSeq`).
    pub acks_skipped: u64,
    /// Probes of a zero window sent.
    pub window_probes: u64,
    /// Keep-alive probes sent.
    pub keep_alives: u64,
}

/// The sender's inner figures at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Congestion window, in segments.
    pub cwnd: f64,
    /// Slow-start threshold, in segments; `None`: none yet.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission timeout, with its backoff.
    pub rto: Duration,
    /// Payload bytes sent and not acknowledged cumulatively.
    pub flight: u64,
    /// Bytes written and not yet sent.
    pub unsent: u64,
    /// The peer's window, in bytes.
    pub peer_window: u64,
    /// Payload rate that sending is paced at, in bits a second.
    pub pacing: Option<u64>,
    /// The state of loss recovery.
    pub phase: Phase,
}
