//! BBR version 3: N. Cardwell, I. Swett, J. Beshay, "BBR Congestion Control", draft-ietf-ccwg-bbr-06 (July 2026).
//!
//! Builds a model of the path from delivery rate samples, round-trip times and losses, and sends by it: at the rate that
//! the path delivers, with little more in flight than it holds.
//!
//! ```text
//! bw      = min(max_bw, bw_shortterm)             [segments/s]  max_bw: of the last two ProbeBW cycles
//! bdp     = bw * min_rtt                          [segments]    min_rtt: of the last 10 s
//! pacing  = pacing_gain * bw * 0.99               [segments/s]
//! cwnd    = cwnd_gain * bdp + extra_acked         [segments]    at least max(3 quanta, 4)
//!           bounded by inflight_longterm (the volume above which probing met 2% loss; in CRUISE and ProbeRTT 15%
//!           less), and by inflight_shortterm
//! a round trip with loss outside of probing:      bw_shortterm       = max(bw_latest, 0.7 bw_shortterm)
//!                                                 inflight_shortterm = max(inflight_latest, 0.7 inflight_shortterm)
//! state:  Startup  Drain  DOWN  CRUISE  REFILL  UP    ProbeRTT
//! pacing  2.77     0.5    0.9   1       1       1.25  1
//! cwnd    2        2      2     2       2       2.25  0.5
//! ```
//!
//! The model is in `model.rs`, the cycle of ProbeBW in `probe_bw.rs`; functions carry the draft's names.
//!
//! Deviations: volumes are counted in segments; the ranges lost in a round trip of Startup are counted as
//! acknowledgements that told of a loss (as Linux' BBR does); without SACK the sender names no lost segment, so the
//! beginning of a recovery stands for it; what an undo restores is saved where a recovery begins, not again at each
//! round trip with loss (as Linux' BBR does: a probe that loss has ended would be forgotten); the random waits are
//! drawn from a hash of the time and the volume delivered, so that equal runs are equal; the round-trip time is of the
//! segment acknowledged last. Marks of ECN are not part of the draft's version 3, and are not heeded.

mod model;
mod probe_bw;

use crate::delivery::{Delivery, LostSegment, RateSample};
use crate::{Ack, Congestion, Gauge, Phase, Signal, Window};
use bentpipe_base::{Instant, Rate};
use model::Model;
use probe_bw::Cycle;
pub(crate) use probe_bw::hash;
use std::time::Duration;

const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
/// The share by which pacing stays below `bw`, so that a queue drains.
const PACING_MARGIN: f64 = 0.01;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// BBR.MinPipeCwnd, in segments.
const MIN_PIPE_CWND: u32 = 4;
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Loss in this many acknowledgements of one round trip ends Startup, if it is above the threshold.
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// Where nothing is known of the round-trip time.
const NOMINAL_RTT: Duration = Duration::from_millis(1);
const QUANTUM_TIME: f64 = 1e-3;
const QUANTUM_MAX_BYTES: f64 = 65_536.0;
const QUANTUM_MIN: f64 = 2.0;
/// No bound: of volumes, in segments.
const UNBOUNDED: u32 = u32::MAX;
const CWND_MAX: f64 = (1 << 30) as f64;

/// BBR.state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Sends faster than before to see what the path carries (IsProbingBW).
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => 0.9,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
            Self::Up => 1.25,
        }
    }

    fn cwnd_gain(self) -> f64 {
        match self {
            Self::Up => 2.25,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }
}

/// Looks for a plateau of the delivery rate while the flow accelerates.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    /// BBR.full_bw: the rate that the next one is compared with.
    bw: f64,
    /// Round trips without much growth.
    count: u32,
    /// The pipe is full, since this search began (BBR.full_bw_now).
    now: bool,
    /// It was full at least once (BBR.full_bw_reached).
    reached: bool,
}

impl FullPipe {
    /// ResetFullBW, with the rate to compare with.
    fn reset(&mut self, bw: f64) {
        *self = Self {
            bw,
            count: 0,
            now: false,
            reached: self.reached,
        };
    }

    /// CheckFullBWReached, at the beginning of a round trip that nothing but the network limited.
    fn check(&mut self, rate: f64) {
        if self.now {
            return;
        }
        if rate >= self.bw * 1.25 {
            self.reset(rate);
            return;
        }
        self.count += 1;
        self.now = self.count >= 3;
        self.reached |= self.now;
    }
}

/// What is restored when a loss turns out to have been none.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    /// The state that a loss has ended.
    state: Option<State>,
    bw_shortterm: f64,
    inflight_shortterm: u32,
    inflight_longterm: u32,
}

/// What one acknowledgement gives the state machine.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    ack: &'a Ack,
    delivery: &'a Delivery,
    sample: &'a RateSample,
    /// RS.delivery_rate, in segments a second; 0 where there is none.
    rate: f64,
    in_flight: u32,
    cwnd: u32,
}

/// BBR's state.
#[derive(Clone, Copy, Debug)]
pub struct Bbr {
    state: State,
    model: Model,
    full_pipe: FullPipe,
    cycle: Cycle,
    drain_start_round: u64,
    /// Acknowledgements of this round trip that told of a loss.
    loss_events: u32,
    /// When ProbeRTT may end; `None`: the flight is not small enough yet.
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    /// The window before a recovery or ProbeRTT (BBR.prior_cwnd).
    prior_cwnd: u32,
    undo: Undo,
    /// The state of loss recovery.
    phase: Phase,
    /// A recovery has begun of which the sender has named no lost segment yet.
    unnamed_loss: bool,
    initial_cwnd: u32,
    /// A round-trip time was known when the pacing rate was set.
    seen_rtt: bool,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            state: State::Startup,
            model: Model::default(),
            full_pipe: FullPipe::default(),
            cycle: Cycle::default(),
            drain_start_round: 0,
            loss_events: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            prior_cwnd: 0,
            undo: Undo::default(),
            phase: Phase::Open,
            unnamed_loss: false,
            initial_cwnd: 10,
            seen_rtt: false,
        }
    }
}

/// The pacing rate of `segments` a second; never nothing.
pub(crate) fn payload_rate(window: &Window, segments: f64) -> Rate {
    let bits = segments * window.mss.0 as f64 * 8.0;
    Rate::from_bits_per_sec(bits.clamp(8.0, 1e15) as u64)
}

impl Bbr {
    /// UpdateModelAndState.
    fn update_model_and_state(&mut self, arrival: &Arrival<'_>, window: &mut Window) {
        let model = &mut self.model;
        model.update_latest_delivery_signals(arrival);
        model.update_max_bw(arrival);
        self.cycle.count_round(self.model.round_start);
        self.adapt_lower_bounds(arrival);
        self.model
            .update_ack_aggregation(arrival, self.full_pipe.reached);
        if self.model.round_start && !arrival.sample.app_limited {
            self.full_pipe.check(arrival.rate);
        }
        self.check_startup_done();
        self.check_drain_done(arrival);
        self.update_probe_bw_cycle_phase(arrival);
        self.model.update_min_rtt(arrival);
        self.check_probe_rtt(arrival, window);
        self.model.advance_latest_delivery_signals(arrival);
        self.model.bound_bw();
    }

    /// UpdateCongestionSignals, second half: at the end of a round trip with loss the lower bounds follow what is
    /// delivered, unless the flow is probing.
    fn adapt_lower_bounds(&mut self, arrival: &Arrival<'_>) {
        if arrival.ack.lost > 0 {
            self.loss_events = self.loss_events.saturating_add(1);
        }
        if !self.model.loss_round_start {
            return;
        }
        if !self.state.is_probing() && self.model.loss_in_round {
            self.model.reduce_lower_bounds(arrival.cwnd);
        }
        self.check_startup_high_loss(arrival);
        self.loss_events = 0;
        self.model.loss_in_round = false;
    }

    /// CheckStartupHighLoss.
    fn check_startup_high_loss(&mut self, arrival: &Arrival<'_>) {
        let many = self.loss_events >= STARTUP_FULL_LOSS_COUNT;
        let high = model::is_inflight_too_high(arrival.sample.lost, arrival.sample.tx_in_flight);
        let recovering = arrival.ack.phase == Phase::Recovery;
        if self.full_pipe.reached || !(many && high && recovering) {
            return;
        }
        self.leave_startup_for_loss(arrival.cwnd);
    }

    fn leave_startup_for_loss(&mut self, cwnd: u32) {
        self.undo.state = Some(State::Startup);
        self.full_pipe.reached = true;
        let bdp = self.model.bdp(1.0, self.initial_cwnd);
        let latest = self.model.inflight_latest.min(u64::from(cwnd)) as u32;
        self.model.inflight_longterm = bdp.max(latest).max(MIN_PIPE_CWND);
    }

    /// CheckStartupDone.
    fn check_startup_done(&mut self) {
        if self.state == State::Startup && self.full_pipe.reached {
            self.state = State::Drain;
            self.drain_start_round = self.model.round_count;
        }
    }

    /// CheckDrainDone.
    fn check_drain_done(&mut self, arrival: &Arrival<'_>) {
        let drained = arrival.in_flight <= self.inflight(1.0);
        let late = self.model.round_count > self.drain_start_round + 3;
        if self.state == State::Drain && (drained || late) {
            self.start_probe_bw_down(arrival.ack.now);
        }
    }

    /// QuantizationBudget.
    fn quantization_budget(&self, inflight: u32) -> u32 {
        let budget = (3.0 * self.model.send_quantum).ceil() as u32;
        let extra = if self.state == State::Up { 2 } else { 0 };
        inflight.max(budget).max(MIN_PIPE_CWND) + extra
    }

    /// Inflight: the volume of `gain` bandwidth-delay products.
    fn inflight(&self, gain: f64) -> u32 {
        self.quantization_budget(self.model.bdp(gain, self.initial_cwnd))
    }

    /// ProbeRTTCwnd.
    fn probe_rtt_cwnd(&self) -> u32 {
        let half = self.model.bdp(PROBE_RTT_CWND_GAIN, self.initial_cwnd);
        half.max(MIN_PIPE_CWND)
    }

    /// CheckProbeRTT.
    fn check_probe_rtt(&mut self, arrival: &Arrival<'_>, window: &mut Window) {
        let due = self.model.probe_rtt_expired && !self.idle_restart;
        if self.state != State::ProbeRtt && due {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.cycle.stop_probing();
            self.model.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(arrival, window);
        }
        if arrival.delivery.newly > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT; that samples are app-limited meanwhile is told by [`Congestion::holds_back`].
    fn handle_probe_rtt(&mut self, arrival: &Arrival<'_>, window: &mut Window) {
        if self.probe_rtt_done.is_none() {
            if arrival.in_flight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done = Some(arrival.ack.now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.model.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.model.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(window, arrival.ack.now);
        }
    }

    /// CheckProbeRTTDone.
    fn check_probe_rtt_done(&mut self, window: &mut Window, now: Instant) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.model.probe_rtt_min_at = now;
        self.restore_cwnd(window);
        self.model.reset_short_term();
        if self.full_pipe.reached {
            self.start_probe_bw_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// SaveCwnd.
    fn save_cwnd(&mut self, window: &Window) {
        let recovering = matches!(self.phase, Phase::Recovery | Phase::Loss);
        self.prior_cwnd = if recovering || self.state == State::ProbeRtt {
            self.prior_cwnd.max(window.cwnd)
        } else {
            window.cwnd
        };
    }

    /// RestoreCwnd.
    fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
    }

    /// SaveStateUponLoss, when a recovery begins; the window apart.
    fn save_state_upon_loss(&mut self) {
        self.undo = Undo {
            state: None,
            bw_shortterm: self.model.bw_shortterm,
            inflight_shortterm: self.model.inflight_shortterm,
            inflight_longterm: self.model.inflight_longterm,
        };
    }

    /// UpdateControlParameters; `newly` segments were delivered.
    fn update_control_parameters(&mut self, window: &mut Window, delivery: &Delivery) {
        self.set_pacing_rate(window, self.state.pacing_gain());
        let bytes = window
            .pacing
            .map_or(0.0, |rate| rate.bytes_per_sec() as f64);
        let mss = window.mss.0.max(1) as f64;
        let quantum = (bytes * QUANTUM_TIME).min(QUANTUM_MAX_BYTES) / mss;
        self.model.send_quantum = quantum.max(QUANTUM_MIN);
        self.set_cwnd(window, delivery.newly, delivery.total);
    }

    /// SetPacingRateWithGain.
    fn set_pacing_rate(&self, window: &mut Window, gain: f64) {
        let segments = gain * self.model.bw * (1.0 - PACING_MARGIN);
        let rate = payload_rate(window, segments);
        if self.full_pipe.reached || window.pacing.is_none_or(|now| rate > now) {
            window.pacing = Some(rate);
        }
    }

    /// SetCwnd.
    fn set_cwnd(&mut self, window: &mut Window, newly: u32, total: u64) {
        let bdp = self.model.bdp(self.state.cwnd_gain(), self.initial_cwnd);
        let max_inflight = self.quantization_budget(bdp.saturating_add(self.model.extra_acked()));
        let grown = window.cwnd.saturating_add(newly);
        if self.full_pipe.reached {
            window.cwnd = grown.min(max_inflight);
        } else if window.cwnd < max_inflight || total < u64::from(self.initial_cwnd) {
            window.cwnd = grown;
        }
        window.cwnd = window.cwnd.clamp(MIN_PIPE_CWND, CWND_MAX as u32);
        if self.state == State::ProbeRtt {
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model(window);
    }

    /// BoundCwndForModel.
    fn bound_cwnd_for_model(&self, window: &mut Window) {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.model.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.model.inflight_with_headroom(),
            State::Startup | State::Drain => UNBOUNDED,
        };
        let cap = cap.min(self.model.inflight_shortterm).max(MIN_PIPE_CWND);
        window.cwnd = window.cwnd.min(cap);
    }

    /// InitPacingRate.
    fn init_pacing_rate(&mut self, window: &mut Window, rtt: Option<Duration>) {
        self.seen_rtt = rtt.is_some_and(|rtt| !rtt.is_zero());
        let rtt = rtt.filter(|rtt| !rtt.is_zero()).unwrap_or(NOMINAL_RTT);
        let bw = f64::from(self.initial_cwnd) / rtt.as_secs_f64();
        window.pacing = Some(payload_rate(window, STARTUP_PACING_GAIN * bw));
    }
}

impl Congestion for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn samples_deliveries(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn init(&mut self, window: &mut Window, now: Instant, rtt: Option<Duration>) {
        *self = Self {
            initial_cwnd: window.cwnd.clamp(1, CWND_MAX as u32),
            ..Self::default()
        };
        self.model.begin(now, rtt);
        self.init_pacing_rate(window, rtt);
    }

    fn on_lost(&mut self, window: &Window, lost: &LostSegment) {
        self.unnamed_loss = false;
        self.model.now = lost.now;
        self.model.note_loss(lost.delivered);
        if self.cycle.is_probe_sample && model::is_inflight_too_high(lost.lost, lost.tx_in_flight) {
            self.handle_inflight_too_high(window, model::inflight_at_loss(lost), lost.app_limited);
        }
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        window.cwnd = window.cwnd.max(1);
        let Some(delivery) = &ack.delivery else {
            return;
        };
        self.model.delivered = delivery.total;
        self.model.now = ack.now;
        if !self.seen_rtt && ack.srtt.is_some() {
            self.init_pacing_rate(window, ack.srtt);
        }
        if std::mem::take(&mut self.unnamed_loss) {
            self.lost_without_sack(window);
        }
        if let Some(sample) = &delivery.sample {
            let arrival = Arrival {
                ack,
                delivery,
                sample,
                rate: delivery.rate(sample).unwrap_or(0.0),
                in_flight: window.in_flight,
                cwnd: window.cwnd,
            };
            self.update_model_and_state(&arrival, window);
        }
        self.update_control_parameters(window, delivery);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.save_cwnd(window);
        self.save_state_upon_loss();
        window.ssthresh
    }

    fn on_phase(&mut self, window: &mut Window, phase: Phase) {
        let recovers = |phase| matches!(phase, Phase::Recovery | Phase::Loss);
        let was = std::mem::replace(&mut self.phase, phase);
        if phase == Phase::Recovery && !recovers(was) {
            self.unnamed_loss = true;
        } else if recovers(was) && !recovers(phase) {
            self.unnamed_loss = false;
            self.restore_cwnd(window);
            self.set_cwnd(window, 0, self.model.delivered);
        }
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, now: Instant) {
        if signal == Signal::Timeout {
            self.model.note_loss(self.model.delivered);
        }
        // HandleRestartFromIdle.
        if signal != Signal::Start {
            return;
        }
        self.idle_restart = true;
        self.model.restart_aggregation(now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(window, 1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(window, now);
        }
    }

    /// HandleSpuriousLossDetection.
    fn undo(&mut self, window: &Window, _prior: u32) -> u32 {
        let model = &mut self.model;
        model.loss_in_round = false;
        self.full_pipe.reset(0.0);
        model.bw_shortterm = model.bw_shortterm.max(self.undo.bw_shortterm);
        model.inflight_shortterm = model.inflight_shortterm.max(self.undo.inflight_shortterm);
        model.inflight_longterm = model.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
        window.cwnd.max(self.prior_cwnd)
    }

    fn gauges(&self) -> Vec<Gauge> {
        let model = &self.model;
        let bounded = |volume: u32| (volume != UNBOUNDED).then_some(f64::from(volume));
        let mut gauges = vec![
            ("state", f64::from(self.state as u8)),
            ("bw_segments_per_s", model.bw),
            ("max_bw_segments_per_s", model.max_bw()),
            ("pacing_gain", self.state.pacing_gain()),
            ("cwnd_gain", self.state.cwnd_gain()),
        ];
        let rtt = model.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
        gauges.extend(rtt.map(|rtt| ("min_rtt_ms", rtt)));
        let hi = bounded(model.inflight_longterm);
        gauges.extend(hi.map(|volume| ("inflight_hi_segments", volume)));
        let lo = bounded(model.inflight_shortterm);
        gauges.extend(lo.map(|volume| ("inflight_lo_segments", volume)));
        gauges
    }
}

impl Bbr {
    /// A recovery began whose lost segment the sender could not name: it has no SACK.
    fn lost_without_sack(&mut self, window: &Window) {
        self.model.note_loss(self.model.delivered);
        if self.state == State::Startup && !self.full_pipe.reached {
            self.leave_startup_for_loss(window.cwnd);
        } else if self.cycle.is_probe_sample {
            self.handle_inflight_too_high(window, window.in_flight, false);
        }
    }
}
