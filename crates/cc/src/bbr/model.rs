//! BBR's model of the path: draft-ietf-ccwg-bbr-06, section 5.5.

use super::{Arrival, PROBE_RTT_INTERVAL, UNBOUNDED};
use crate::delivery::LostSegment;
use crate::windowed_max::WindowedMax;
use bentpipe_base::Instant;
use std::time::Duration;

/// BBR.LossThresh: the loss in a round trip of probing that is too much.
const LOSS_THRESHOLD: f64 = 0.02;
/// What a round trip with loss leaves at least.
const BETA: f64 = 0.7;
/// Part of inflight_longterm that is left to others.
const HEADROOM: f64 = 0.15;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// Round trips that extra_acked is remembered for.
const EXTRA_ACKED_ROUNDS: u64 = 10;
const VOLUME_MAX: f64 = (1 << 30) as f64;

/// IsInflightTooHigh: whether of `tx_in_flight` segments in flight the `lost` are too many.
pub(super) fn is_inflight_too_high(lost: u32, tx_in_flight: u32) -> bool {
    f64::from(lost) > f64::from(tx_in_flight) * LOSS_THRESHOLD
}

/// InflightAtLoss: the volume in flight at which the loss became too much. A segment is no burst, so its part that
/// would still have fitted is less than one segment.
pub(super) fn inflight_at_loss(lost: &LostSegment) -> u32 {
    let before = f64::from(lost.tx_in_flight.saturating_sub(1));
    let lost_before = f64::from(lost.lost.saturating_sub(1));
    let prefix = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
    (before + prefix.clamp(0.0, 1.0)) as u32
}

/// The model. Rates are in segments a second, volumes in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// When the sender last told of anything.
    pub(super) now: Instant,
    /// C.delivered, as of the last acknowledgement.
    pub(super) delivered: u64,
    next_round_delivered: u64,
    pub(super) round_count: u64,
    pub(super) round_start: bool,
    /// The most that was delivered in the ProbeBW cycle before this one, and in this one.
    bw_of_cycles: [f64; 2],
    pub(super) bw_shortterm: f64,
    /// BBR.bw: what the flow may send.
    pub(super) bw: f64,
    pub(super) min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    /// The least of late, for the schedule of ProbeRTT.
    probe_rtt_min: Option<Duration>,
    pub(super) probe_rtt_min_at: Instant,
    pub(super) probe_rtt_expired: bool,
    pub(super) inflight_longterm: u32,
    pub(super) inflight_shortterm: u32,
    /// The most delivered in the round trip under way.
    bw_latest: f64,
    pub(super) inflight_latest: u64,
    pub(super) loss_in_round: bool,
    loss_round_delivered: u64,
    pub(super) loss_round_start: bool,
    extra_acked: WindowedMax,
    extra_acked_start: Instant,
    extra_acked_delivered: f64,
    /// C.send_quantum, in segments.
    pub(super) send_quantum: f64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            now: Instant::ZERO,
            delivered: 0,
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            bw_of_cycles: [0.0; 2],
            bw_shortterm: f64::INFINITY,
            bw: 0.0,
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: None,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            inflight_longterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            bw_latest: 0.0,
            inflight_latest: 0,
            loss_in_round: false,
            loss_round_delivered: 0,
            loss_round_start: false,
            extra_acked: WindowedMax::default(),
            extra_acked_start: Instant::ZERO,
            extra_acked_delivered: 0.0,
            send_quantum: super::QUANTUM_MIN,
        }
    }
}

impl Model {
    /// The connection starts; its handshake took `rtt`, if that is known.
    pub(super) fn begin(&mut self, now: Instant, rtt: Option<Duration>) {
        self.now = now;
        self.min_rtt = rtt.filter(|rtt| !rtt.is_zero());
        self.probe_rtt_min = self.min_rtt;
        self.min_rtt_at = now;
        self.probe_rtt_min_at = now;
        self.extra_acked_start = now;
    }

    /// The most that the path was seen to carry (BBR.max_bw).
    pub(super) fn max_bw(&self) -> f64 {
        self.bw_of_cycles[0].max(self.bw_of_cycles[1])
    }

    /// BDPMultiple, rounded up; `initial_cwnd` while no round-trip time is known.
    pub(super) fn bdp(&self, gain: f64, initial_cwnd: u32) -> u32 {
        let Some(rtt) = self.min_rtt else {
            return initial_cwnd;
        };
        (gain * self.bw * rtt.as_secs_f64())
            .ceil()
            .clamp(0.0, VOLUME_MAX) as u32
    }

    /// BBR.extra_acked.
    pub(super) fn extra_acked(&self) -> u32 {
        self.extra_acked.get().clamp(0.0, VOLUME_MAX) as u32
    }

    /// StartRound.
    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// UpdateLatestDeliverySignals.
    pub(super) fn update_latest_delivery_signals(&mut self, arrival: &Arrival<'_>) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(arrival.rate);
        let delivered = arrival.delivery.delivered(arrival.sample);
        self.inflight_latest = self.inflight_latest.max(delivered);
        if arrival.sample.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = self.delivered;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_delivery_signals(&mut self, arrival: &Arrival<'_>) {
        if self.loss_round_start {
            self.bw_latest = arrival.rate;
            self.inflight_latest = arrival.delivery.delivered(arrival.sample);
        }
    }

    /// ResetCongestionSignals.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0;
    }

    /// UpdateMaxBw, with UpdateRound.
    pub(super) fn update_max_bw(&mut self, arrival: &Arrival<'_>) {
        self.round_start = arrival.sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
        }
        let rate = arrival.rate;
        if rate > 0.0 && (rate >= self.max_bw() || !arrival.sample.app_limited) {
            self.bw_of_cycles[1] = self.bw_of_cycles[1].max(rate);
        }
    }

    /// AdvanceMaxBwFilter: a cycle without a sample leaves what was known.
    pub(super) fn advance_max_bw_filter(&mut self) {
        if self.bw_of_cycles[1] > 0.0 {
            self.bw_of_cycles = [self.bw_of_cycles[1], 0.0];
        }
    }

    /// NoteLoss.
    pub(super) fn note_loss(&mut self, delivered: u64) {
        if !self.loss_in_round {
            self.loss_round_delivered = delivered;
        }
        self.loss_in_round = true;
    }

    /// InitLowerBounds and LossLowerBounds.
    pub(super) fn reduce_lower_bounds(&mut self, cwnd: u32) {
        if self.bw_shortterm.is_infinite() {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm == UNBOUNDED {
            self.inflight_shortterm = cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        let least = (BETA * f64::from(self.inflight_shortterm)) as u32;
        let latest = self.inflight_latest.min(u64::from(UNBOUNDED - 1)) as u32;
        self.inflight_shortterm = latest.max(least);
    }

    /// ResetShortTermModel.
    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// BoundBWForModel.
    pub(super) fn bound_bw(&mut self) {
        self.bw = self.max_bw().min(self.bw_shortterm);
    }

    /// UpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, arrival: &Arrival<'_>) {
        let now = arrival.ack.now;
        self.probe_rtt_expired = now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = arrival.ack.rtt.filter(|rtt| !rtt.is_zero())
            && (self.probe_rtt_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min = Some(rtt);
            self.probe_rtt_min_at = now;
        }
        let expired = now > self.min_rtt_at + MIN_RTT_FILTER;
        let Some(least) = self.probe_rtt_min else {
            return;
        };
        if expired || self.min_rtt.is_none_or(|known| least < known) {
            self.min_rtt = Some(least);
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// UpdateACKAggregation.
    pub(super) fn update_ack_aggregation(&mut self, arrival: &Arrival<'_>, full: bool) {
        let now = arrival.ack.now;
        let interval = now.since(self.extra_acked_start).as_secs_f64();
        let mut expected = self.bw * interval;
        if self.extra_acked_delivered <= expected {
            self.restart_aggregation(now);
            expected = 0.0;
        }
        self.extra_acked_delivered += f64::from(arrival.delivery.newly);
        let extra = (self.extra_acked_delivered - expected).min(f64::from(arrival.cwnd));
        let rounds = if full { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked.update(rounds, self.round_count, extra);
    }

    /// The interval of [`Self::update_ack_aggregation`] begins anew.
    pub(super) fn restart_aggregation(&mut self, now: Instant) {
        self.extra_acked_delivered = 0.0;
        self.extra_acked_start = now;
    }

    /// InflightWithHeadroom.
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = (HEADROOM * f64::from(self.inflight_longterm)).max(1.0) as u32;
        let rest = self.inflight_longterm.saturating_sub(headroom);
        rest.max(super::MIN_PIPE_CWND)
    }

    /// BBR.Beta times `volume`.
    pub(super) fn beta(volume: u32) -> u32 {
        (BETA * f64::from(volume)) as u32
    }
}
