//! What a sender measures of deliveries, for controls that model the path: the delivery rate samples of
//! draft-ietf-ccwg-bbr-06, section 4.1 (before: Y. Cheng, N. Cardwell et al., draft-cheng-iccrg-delivery-rate-estimation),
//! counted in segments.

use bentpipe_base::Instant;
use std::time::Duration;

/// What one acknowledgement told of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Segments known to have arrived since the connection began (C.delivered), this acknowledgement included.
    pub total: u64,
    /// Segments that this acknowledgement newly told to have arrived, cumulatively or by SACK (RS.newly_acked).
    pub newly: u32,
    /// Segments in flight before it.
    pub prior_in_flight: u32,
    /// The congestion window was full at some time in the last round trip (C.is_cwnd_limited). A sender that waits for
    /// its pacer alone is not limited by the window.
    pub cwnd_full: bool,
    /// The sample of the newly delivered segment that was sent last; `None` where none was delivered, or it is not certain
    /// which transmission arrived.
    pub sample: Option<RateSample>,
}

/// A delivery rate sample (RS): from the state that the sender noted when it sent the segment that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Segments that had been delivered when it was sent (P.delivered).
    pub prior_delivered: u64,
    /// The longer of the times in which the segments since then were sent and were acknowledged; `None` where it is
    /// shorter than the least round-trip time, so that the rate would be too high.
    pub interval: Option<Duration>,
    /// The application, not the network, was what limited the sender (P.is_app_limited).
    pub app_limited: bool,
    /// Segments in flight just after it was sent, itself included (P.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments found lost since it was sent (C.lost - P.lost).
    pub lost: u32,
}

impl Delivery {
    /// Segments delivered since the sampled one was sent (RS.delivered).
    pub(crate) fn delivered(&self, sample: &RateSample) -> u64 {
        self.total.saturating_sub(sample.prior_delivered)
    }

    /// The delivery rate, in segments a second; `None` where the interval is not reliable.
    pub fn rate(&self, sample: &RateSample) -> Option<f64> {
        let seconds = sample.interval?.as_secs_f64();
        (seconds > 0.0).then(|| self.delivered(sample) as f64 / seconds)
    }
}

/// A segment that was just found lost, with what the sender noted when it sent it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSegment {
    /// When it was found lost.
    pub now: Instant,
    /// Segments delivered so far (C.delivered).
    pub delivered: u64,
    /// Segments in flight just after it was sent, itself included (P.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments found lost since it was sent, itself included (C.lost - P.lost).
    pub lost: u32,
    /// The application was what limited the sender as it was sent (P.is_app_limited).
    pub app_limited: bool,
}
