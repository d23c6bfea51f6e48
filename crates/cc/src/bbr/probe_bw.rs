//! The cycle of ProbeBW: draft-ietf-ccwg-bbr-06, section 5.3.3.

use super::{Arrival, Bbr, State, UNBOUNDED};
use crate::Window;
use crate::bbr::model::{self, Model};
use bentpipe_base::Instant;
use std::time::Duration;

/// Round trips after which a flow probes again at the latest, so that Reno keeps its part.
const RENO_ROUNDS: u32 = 63;
/// Doublings of the growth of inflight_longterm.
const PROBE_UP_ROUNDS_MAX: u32 = 30;

/// What the acknowledgements that arrive tell of: BBR.ack_phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AckPhase {
    /// Nothing about a probe.
    #[default]
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    /// The probe is over, its feedback is not.
    ProbeStopping,
}

/// Where the flow is in the cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    ack_phase: AckPhase,
    /// The samples are of a phase that probes (BBR.is_bw_probe_sample).
    pub(super) is_probe_sample: bool,
    /// When this cycle began (BBR.cycle_stamp).
    began: Instant,
    /// How long it waits at most before it probes.
    wait: Duration,
    rounds_since_up: u32,
    up_rounds: u32,
    up_acked: u32,
    /// Segments acknowledged for each by which inflight_longterm grows.
    acked_per_increase: u32,
    prev_too_high: bool,
    prev_precautionary: bool,
}

impl Cycle {
    pub(super) fn count_round(&mut self, round_start: bool) {
        let rounds = u32::from(round_start);
        self.rounds_since_up = self.rounds_since_up.saturating_add(rounds);
    }

    pub(super) fn stop_probing(&mut self) {
        self.ack_phase = AckPhase::ProbeStopping;
    }

    /// PickProbeWait.
    fn pick_wait(&mut self, now: Instant, delivered: u64) {
        let random = hash(now.as_nanos() ^ delivered.rotate_left(32));
        self.rounds_since_up = (random & 1) as u32;
        // The upper 32 bits are a part of a second.
        let part = Duration::from_nanos(((random >> 32) * 1_000_000_000) >> 32);
        self.wait = Duration::from_secs(2) + part;
    }

    /// RaiseInflightLongtermSlope.
    fn raise_slope(&mut self, cwnd: u32) {
        self.acked_per_increase = (cwnd >> self.up_rounds).max(1);
        self.up_rounds = (self.up_rounds + 1).min(PROBE_UP_ROUNDS_MAX);
    }
}

/// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub(crate) fn hash(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Bbr {
    /// StartProbeBW_DOWN.
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.model.reset_congestion_signals();
        self.cycle.acked_per_increase = UNBOUNDED;
        self.cycle.pick_wait(now, self.model.delivered);
        self.cycle.began = now;
        self.cycle.stop_probing();
        self.model.start_round();
        self.state = State::Down;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.model.reset_short_term();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.prev_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round();
        self.state = State::Refill;
    }

    /// StartProbeBW_UP.
    fn start_probe_bw_up(&mut self, arrival: &Arrival<'_>) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.model.start_round();
        self.full_pipe.reset(arrival.rate);
        self.state = State::Up;
        self.cycle.raise_slope(arrival.cwnd);
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, arrival: &Arrival<'_>) {
        if !self.full_pipe.reached || self.adapt_long_term_model(arrival) {
            return;
        }
        let state = self.state;
        match state {
            State::Down if self.is_time_to_probe_bw(arrival) => self.start_probe_bw_refill(),
            State::Down if self.is_time_to_cruise(arrival) => self.state = State::Cruise,
            State::Cruise if self.is_time_to_probe_bw(arrival) => self.start_probe_bw_refill(),
            State::Refill if self.model.round_start => {
                self.cycle.is_probe_sample = true;
                self.start_probe_bw_up(arrival);
            }
            State::Up if self.is_time_to_go_down(arrival) => {
                self.cycle.prev_too_high = false;
                self.start_probe_bw_down(arrival.ack.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW.
    fn is_time_to_probe_bw(&self, arrival: &Arrival<'_>) -> bool {
        let waited = arrival.ack.now > self.cycle.began + self.cycle.wait;
        let rounds = self.target_inflight(arrival.cwnd).min(RENO_ROUNDS);
        waited || self.cycle.rounds_since_up >= rounds
    }

    /// TargetInflight.
    fn target_inflight(&self, cwnd: u32) -> u32 {
        self.model.bdp(1.0, self.initial_cwnd).min(cwnd)
    }

    /// IsTimeToCruise.
    fn is_time_to_cruise(&self, arrival: &Arrival<'_>) -> bool {
        let room = arrival.in_flight <= self.model.inflight_with_headroom();
        room && arrival.in_flight <= self.inflight(1.0)
    }

    /// IsTimeToGoDown.
    fn is_time_to_go_down(&mut self, arrival: &Arrival<'_>) -> bool {
        let longterm = self.model.inflight_longterm;
        if self.cycle.prev_too_high && arrival.in_flight >= longterm {
            self.cycle.prev_precautionary = true;
            return true;
        }
        if arrival.delivery.cwnd_full && arrival.cwnd >= longterm {
            // The bound, not the path, limits the rate.
            self.full_pipe.reset(arrival.rate);
            return false;
        }
        self.full_pipe.now
    }

    /// AdaptLongTermModel; whether it has decided on a state.
    fn adapt_long_term_model(&mut self, arrival: &Arrival<'_>) -> bool {
        let round_start = self.model.round_start;
        if self.cycle.ack_phase == AckPhase::ProbeStarting && round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && round_start {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            let probes = self.state.is_probe_bw();
            if probes && !arrival.sample.app_limited {
                self.model.advance_max_bw_filter();
            }
            if probes && self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                self.start_probe_bw_refill();
                return true;
            }
        }
        let sample = arrival.sample;
        let high = model::is_inflight_too_high(sample.lost, sample.tx_in_flight);
        if !high && self.model.inflight_longterm != UNBOUNDED {
            let longterm = &mut self.model.inflight_longterm;
            *longterm = (*longterm).max(sample.tx_in_flight.min(UNBOUNDED - 1));
            if self.state == State::Up {
                self.probe_inflight_longterm_upward(arrival);
            }
        }
        false
    }

    /// ProbeInflightLongtermUpward.
    fn probe_inflight_longterm_upward(&mut self, arrival: &Arrival<'_>) {
        if !arrival.delivery.cwnd_full || arrival.cwnd < self.model.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.up_acked = cycle.up_acked.saturating_add(arrival.delivery.newly);
        let each = cycle.acked_per_increase.max(1);
        let delta = cycle.up_acked / each;
        cycle.up_acked %= each;
        let longterm = &mut self.model.inflight_longterm;
        *longterm = longterm.saturating_add(delta).min(UNBOUNDED - 1);
        if self.model.round_start {
            cycle.raise_slope(arrival.cwnd);
        }
    }

    /// HandleInflightTooHigh: probing with `tx_in_flight` in flight has met too much loss.
    pub(super) fn handle_inflight_too_high(
        &mut self,
        window: &Window,
        tx_in_flight: u32,
        app_limited: bool,
    ) {
        self.cycle.prev_too_high = true;
        self.cycle.is_probe_sample = false;
        if !app_limited {
            let least = Model::beta(self.target_inflight(window.cwnd));
            self.model.inflight_longterm = tx_in_flight.max(least).min(UNBOUNDED - 1);
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_probe_bw_down(self.model.now);
        }
    }
}
