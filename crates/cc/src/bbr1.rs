//! BBR version 1, as it is in mainline Linux (`net/ipv4/tcp_bbr.c`, of which this is no copy): N. Cardwell, Y. Cheng,
//! C. S. Gunn, S. Hassas Yeganeh, V. Jacobson, "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016. It is
//! what a socket gets that asks mainline Linux for `bbr`.
//!
//! ```text
//! bw      = the highest delivery rate of the last 10 round trips      [segments/s]
//! min_rtt = the least round-trip time of the last 10 s
//! pacing  = pacing_gain * bw * 0.99                                   [segments/s]
//! cwnd    = cwnd_gain * bw * min_rtt + extra_acked + 3 bursts         [segments], even, at least 4
//! state:  Startup  Drain    ProbeBW                                  ProbeRTT
//! pacing  2.89     1/2.89   5/4, 3/4 and six times 1, min_rtt each   1
//! cwnd    2.89     2.89     2                                        4 segments for 200 ms each 10 s
//! ```
//!
//! Loss does not change the model, but for a policer's: two stretches of at least 4 round trips with 20% loss and rates
//! within an eighth of each other set `bw` for 48 round trips. In recovery as many segments go out as arrive for a
//! round trip; afterwards the window is what it was.
//!
//! Deviations from Linux: rates are floating-point numbers; where ProbeBW begins in its cycle is drawn from a hash of
//! the time, so that equal runs are equal; what waits for the pacer counts as in flight.

use crate::bbr::{hash, payload_rate};
use crate::delivery::{Delivery, LostSegment, RateSample};
use crate::windowed_max::WindowedMax;
use crate::{Ack, Congestion, Gauge, Phase, Signal, Window};
use bentpipe_base::Instant;
use std::time::Duration;

/// 2 / ln 2, as Linux rounds it: 739 of 256.
const HIGH_GAIN: f64 = 739.0 / 256.0;
const DRAIN_GAIN: f64 = 88.0 / 256.0;
const CWND_GAIN: f64 = 2.0;
const PACING_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const PACING_MARGIN: f64 = 0.01;
const BW_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const CWND_MIN: u32 = 4;
const INITIAL_CWND: u32 = 10;
const NOMINAL_RTT: Duration = Duration::from_millis(1);
const FULL_BW_GROWTH: f64 = 1.25;
const FULL_BW_ROUNDS: u32 = 3;
/// A burst is what a millisecond carries, Linux' `sk_pacing_shift` (2^-10 s), of 1 or 2 segments at least, by whether
/// the rate is less than [`SMALL_RATE`], in bytes a second.
const BURST_SECONDS: f64 = 1.0 / 1024.0;
const SMALL_RATE: u64 = 150_000;
const BURST_BYTES_MAX: f64 = 65_215.0;
const BURST_SEGMENTS_MAX: u32 = 127;
const EXTRA_ACKED_ROUNDS: u32 = 5;
const EXTRA_ACKED_SECONDS: f64 = 0.1;
const EPOCH_ACKED_MAX: u64 = 1 << 20;
/// A policer is found between two stretches of at least this many round trips; its rate is kept for at most `POLICED_ROUNDS_MAX`.
const POLICED_ROUNDS_MIN: u32 = 4;
const POLICED_ROUNDS_MAX: u32 = 48;
const POLICED_LOSS: f64 = 50.0 / 256.0;
const POLICED_RATIO: f64 = 1.0 / 8.0;
const POLICED_DIFFERENCE: f64 = 500.0;
const CWND_CAP: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// Looks for a token bucket on the path, which lets a burst through and then drops what exceeds its rate.
#[derive(Clone, Copy, Debug, Default)]
struct Policer {
    /// The rate of the last stretch, in segments a second; 0: none yet.
    bw: f64,
    /// The rate holds.
    in_use: bool,
    sampling: bool,
    rounds: u32,
    /// What was delivered and lost when the stretch began, and when that was.
    delivered: u64,
    lost: u64,
    began: Instant,
}

impl Policer {
    fn restart(&mut self, delivered: u64, lost: u64, now: Instant) {
        (self.delivered, self.lost, self.began) = (delivered, lost, now);
        self.rounds = 0;
    }

    fn reset(&mut self, delivered: u64, lost: u64, now: Instant) {
        *self = Self::default();
        self.restart(delivered, lost, now);
    }

    /// A stretch ends with the rate `bw`, in segments of `mss` bytes a second.
    fn stretch_done(&mut self, bw: f64, mss: f64) -> bool {
        let difference = (bw - self.bw).abs();
        let alike = difference <= POLICED_RATIO * self.bw
            || difference * mss * (1.0 - PACING_MARGIN) <= POLICED_DIFFERENCE;
        if self.bw > 0.0 && alike {
            self.bw = (self.bw + bw) / 2.0;
            self.in_use = true;
            self.rounds = 0;
            return true;
        }
        self.bw = bw;
        false
    }
}

/// How much more than the estimated bandwidth is acknowledged at once.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    began: Instant,
    acked: u64,
    rounds: u32,
    /// The most in the last five round trips and the five before them, in turn.
    most: [u32; 2],
    current: usize,
}

/// BBR's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bbr1 {
    mode: Mode,
    max_bw: WindowedMax,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    rounds: u64,
    next_round_delivered: u64,
    round_start: bool,
    cycle: usize,
    cycle_began: Instant,
    pacing_gain: f64,
    cwnd_gain: f64,
    full_bw: f64,
    full_bw_rounds: u32,
    full_bw_reached: bool,
    prior_cwnd: u32,
    prior_phase: Phase,
    packet_conservation: bool,
    idle_restart: bool,
    seen_rtt: bool,
    policer: Policer,
    aggregation: Aggregation,
    /// Segments delivered and lost since the connection began, as of the last acknowledgement.
    delivered: u64,
    lost: u64,
    now: Instant,
}

/// `count` as a volume in segments.
fn segments(count: f64) -> u32 {
    count.clamp(0.0, f64::from(CWND_CAP)) as u32
}

impl Bbr1 {
    /// The estimated bandwidth, in segments a second.
    fn bw(&self) -> f64 {
        if self.policer.in_use {
            self.policer.bw
        } else {
            self.max_bw.get()
        }
    }

    /// `gain` bandwidth-delay products of `bw`, rounded up.
    fn bdp(&self, bw: f64, gain: f64) -> u32 {
        self.min_rtt.map_or(INITIAL_CWND, |rtt| {
            segments((bw * rtt.as_secs_f64() * gain).ceil())
        })
    }

    /// The window for `volume` with what end hosts keep in bursts.
    fn quantization_budget(&self, volume: u32, window: &Window) -> u32 {
        let rate = window.pacing.map_or(0, |rate| rate.bytes_per_sec());
        let bytes = (rate as f64 * BURST_SECONDS).min(BURST_BYTES_MAX);
        let least = if rate < SMALL_RATE { 1 } else { 2 };
        let burst = segments(bytes / window.mss.0.max(1) as f64).clamp(least, BURST_SEGMENTS_MAX);
        let even = (volume + 3 * burst + 1) & !1;
        let probing = self.mode == Mode::ProbeBw && self.cycle == 0;
        even + if probing { 2 } else { 0 }
    }

    fn inflight(&self, gain: f64, window: &Window) -> u32 {
        self.quantization_budget(self.bdp(self.max_bw.get(), gain), window)
    }

    fn update_bw(&mut self, ack: &Ack, delivery: &Delivery, sample: &RateSample, mss: f64) {
        self.round_start = false;
        let Some(rate) = delivery.rate(sample) else {
            return;
        };
        if sample.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = delivery.total;
            self.rounds += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        self.look_for_policer(ack.lost, sample.app_limited, mss);
        if !sample.app_limited || rate >= self.max_bw.get() {
            self.max_bw.update(BW_ROUNDS, self.rounds, rate);
        }
    }

    fn look_for_policer(&mut self, lost: u32, app_limited: bool, mss: f64) {
        let (delivered, all_lost, now) = (self.delivered, self.lost, self.now);
        let policer = &mut self.policer;
        if policer.in_use {
            if self.mode == Mode::ProbeBw && self.round_start {
                policer.rounds += 1;
                if policer.rounds >= POLICED_ROUNDS_MAX {
                    policer.reset(delivered, all_lost, now);
                    self.enter_probe_bw();
                }
            }
            return;
        }
        if !policer.sampling {
            if lost == 0 {
                return;
            }
            policer.restart(delivered, all_lost, now);
            policer.sampling = true;
        }
        if app_limited {
            policer.reset(delivered, all_lost, now);
            return;
        }
        policer.rounds += u32::from(self.round_start);
        if policer.rounds < POLICED_ROUNDS_MIN {
            return;
        }
        if policer.rounds > 4 * POLICED_ROUNDS_MIN {
            policer.reset(delivered, all_lost, now);
            return;
        }
        let arrived = delivered.saturating_sub(policer.delivered) as f64;
        let missing = all_lost.saturating_sub(policer.lost) as f64;
        let time = now.since(policer.began);
        let lossy = arrived > 0.0 && missing >= POLICED_LOSS * arrived;
        if lost == 0 || !lossy || time < Duration::from_millis(1) {
            return;
        }
        if policer.stretch_done(arrived / time.as_secs_f64(), mss) {
            self.pacing_gain = 1.0;
        } else {
            policer.restart(delivered, all_lost, now);
        }
    }

    fn update_ack_aggregation(&mut self, delivery: &Delivery, now: Instant, cwnd: u32) {
        let bw = self.bw();
        let epoch = &mut self.aggregation;
        if self.round_start {
            epoch.rounds += 1;
            if epoch.rounds >= EXTRA_ACKED_ROUNDS {
                epoch.rounds = 0;
                epoch.current ^= 1;
                epoch.most[epoch.current] = 0;
            }
        }
        let newly = u64::from(delivery.newly);
        let mut expected = (bw * now.since(epoch.began).as_secs_f64()) as u64;
        if epoch.acked <= expected || epoch.acked + newly >= EPOCH_ACKED_MAX {
            (epoch.acked, epoch.began, expected) = (0, now, 0);
        }
        epoch.acked = (epoch.acked + newly).min(EPOCH_ACKED_MAX - 1);
        let extra = (epoch.acked - expected.min(epoch.acked)).min(u64::from(cwnd)) as u32;
        let most = &mut epoch.most[epoch.current];
        *most = (*most).max(extra);
    }

    fn update_cycle_phase(&mut self, ack: &Ack, delivery: &Delivery, window: &Window) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let passed = self
            .min_rtt
            .is_none_or(|rtt| ack.now.since(self.cycle_began) > rtt);
        let gain = self.pacing_gain;
        let flight = delivery.prior_in_flight;
        let over = if gain > 1.0 {
            passed && (ack.lost > 0 || flight >= self.inflight(gain, window))
        } else if gain < 1.0 {
            passed || flight <= self.inflight(1.0, window)
        } else {
            passed
        };
        if over {
            self.advance_cycle(ack.now);
        }
    }

    fn advance_cycle(&mut self, now: Instant) {
        self.cycle = (self.cycle + 1) % PACING_GAINS.len();
        self.cycle_began = now;
    }

    fn enter_probe_bw(&mut self) {
        self.mode = Mode::ProbeBw;
        let drawn = hash(self.now.as_nanos() ^ self.delivered.rotate_left(32)) % 7;
        self.cycle = PACING_GAINS.len() - 1 - drawn as usize;
        self.advance_cycle(self.now);
    }

    fn check_full_bw_reached(&mut self, app_limited: bool) {
        if self.full_bw_reached || !self.round_start || app_limited {
            return;
        }
        if self.max_bw.get() >= self.full_bw * FULL_BW_GROWTH {
            self.full_bw = self.max_bw.get();
            self.full_bw_rounds = 0;
            return;
        }
        self.full_bw_rounds += 1;
        self.full_bw_reached = self.full_bw_rounds >= FULL_BW_ROUNDS;
    }

    fn check_drain(&mut self, window: &mut Window) {
        if self.mode == Mode::Startup && self.full_bw_reached {
            self.mode = Mode::Drain;
            window.ssthresh = self.inflight(1.0, window);
        }
        if self.mode == Mode::Drain && window.in_flight <= self.inflight(1.0, window) {
            self.enter_probe_bw();
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, delivery: &Delivery, window: &mut Window) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt.filter(|rtt| !rtt.is_zero())
            && (expired || self.min_rtt.is_none_or(|least| rtt < least))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = ack.now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.save_cwnd(window);
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            self.stay_in_probe_rtt(ack.now, window);
        }
        if delivery.newly > 0 {
            self.idle_restart = false;
        }
    }

    fn stay_in_probe_rtt(&mut self, now: Instant, window: &mut Window) {
        if self.probe_rtt_done.is_some() {
            self.probe_rtt_round_done |= self.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(now, window);
            }
        } else if window.in_flight <= CWND_MIN {
            self.probe_rtt_done = Some(now + PROBE_RTT_TIME);
            self.probe_rtt_round_done = false;
            self.next_round_delivered = self.delivered;
        }
    }

    fn check_probe_rtt_done(&mut self, now: Instant, window: &mut Window) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt_at = now;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        if self.full_bw_reached {
            self.enter_probe_bw();
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.policer.in_use => (1.0, CWND_GAIN),
            Mode::ProbeBw => (PACING_GAINS[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    fn save_cwnd(&mut self, window: &Window) {
        let cut = matches!(self.prior_phase, Phase::Recovery | Phase::Loss)
            || self.mode == Mode::ProbeRtt;
        self.prior_cwnd = if cut {
            self.prior_cwnd.max(window.cwnd)
        } else {
            window.cwnd
        };
    }

    fn init_pacing_rate(&mut self, window: &mut Window, rtt: Option<Duration>) {
        let rtt = rtt.filter(|rtt| !rtt.is_zero());
        self.seen_rtt = rtt.is_some();
        let bw = f64::from(window.cwnd) / rtt.unwrap_or(NOMINAL_RTT).as_secs_f64();
        let paced = bw * HIGH_GAIN * (1.0 - PACING_MARGIN);
        window.pacing = Some(payload_rate(window, paced));
    }

    fn set_pacing_rate(&mut self, window: &mut Window, gain: f64, srtt: Option<Duration>) {
        if !self.seen_rtt && srtt.is_some() {
            self.init_pacing_rate(window, srtt);
        }
        let rate = payload_rate(window, self.bw() * gain * (1.0 - PACING_MARGIN));
        if self.full_bw_reached || window.pacing.is_none_or(|now| rate > now) {
            window.pacing = Some(rate);
        }
    }

    fn set_cwnd(&mut self, window: &mut Window, ack: &Ack, newly: u32) {
        if newly > 0 {
            window.cwnd = self.next_cwnd(window, ack, newly);
        }
        window.cwnd = window.cwnd.clamp(1, CWND_CAP);
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(CWND_MIN);
        }
    }

    /// The window after `newly` more segments arrived.
    fn next_cwnd(&mut self, window: &Window, ack: &Ack, newly: u32) -> u32 {
        let mut cwnd = window.cwnd.saturating_sub(ack.lost).max(1);
        let recovers = |phase| matches!(phase, Phase::Recovery | Phase::Loss);
        if ack.phase == Phase::Recovery && self.prior_phase != Phase::Recovery {
            self.packet_conservation = true;
            self.next_round_delivered = self.delivered;
            cwnd = window.in_flight.saturating_add(newly);
        } else if recovers(self.prior_phase) && !recovers(ack.phase) {
            cwnd = cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.prior_phase = ack.phase;
        if self.packet_conservation {
            return cwnd.max(window.in_flight.saturating_add(newly));
        }
        let mut extra = 0;
        if self.full_bw_reached {
            let most = self.aggregation.most;
            extra = most[0]
                .max(most[1])
                .min(segments(self.bw() * EXTRA_ACKED_SECONDS));
        }
        let volume = self.bdp(self.bw(), self.cwnd_gain).saturating_add(extra);
        let target = self.quantization_budget(volume, window);
        if self.full_bw_reached {
            cwnd = cwnd.saturating_add(newly).min(target);
        } else if cwnd < target || self.delivered < u64::from(INITIAL_CWND) {
            cwnd = cwnd.saturating_add(newly);
        }
        cwnd.max(CWND_MIN)
    }
}

impl Congestion for Bbr1 {
    fn name(&self) -> &'static str {
        "bbr1"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn samples_deliveries(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn init(&mut self, window: &mut Window, now: Instant, rtt: Option<Duration>) {
        *self = Self {
            min_rtt: rtt.filter(|rtt| !rtt.is_zero()),
            min_rtt_at: now,
            now,
            ..Self::default()
        };
        self.aggregation.began = now;
        window.ssthresh = u32::MAX;
        self.init_pacing_rate(window, rtt);
        self.update_gains();
    }

    fn on_lost(&mut self, _window: &Window, _lost: &LostSegment) {
        self.lost += 1;
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        window.cwnd = window.cwnd.max(1);
        let Some(delivery) = &ack.delivery else {
            return;
        };
        self.now = ack.now;
        self.delivered = delivery.total;
        if let Some(sample) = &delivery.sample {
            self.update_bw(ack, delivery, sample, window.mss.0 as f64);
            if delivery.newly > 0 && sample.interval.is_some() {
                self.update_ack_aggregation(delivery, ack.now, window.cwnd);
            }
            self.update_cycle_phase(ack, delivery, window);
            self.check_full_bw_reached(sample.app_limited);
            self.check_drain(window);
        } else {
            self.round_start = false;
        }
        self.update_min_rtt(ack, delivery, window);
        self.update_gains();
        self.set_pacing_rate(window, self.pacing_gain, ack.srtt);
        self.set_cwnd(window, ack, delivery.newly);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.save_cwnd(window);
        window.ssthresh
    }

    fn on_phase(&mut self, window: &mut Window, phase: Phase) {
        if phase == Phase::Loss {
            // As at the end of a round trip.
            self.prior_phase = Phase::Loss;
            self.full_bw = 0.0;
            self.round_start = true;
            self.look_for_policer(1, false, window.mss.0 as f64);
        }
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, now: Instant) {
        if signal != Signal::Start {
            return;
        }
        self.now = now;
        self.idle_restart = true;
        (self.aggregation.began, self.aggregation.acked) = (now, 0);
        match self.mode {
            Mode::ProbeBw => self.set_pacing_rate(window, 1.0, None),
            Mode::ProbeRtt => self.check_probe_rtt_done(now, window),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn undo(&mut self, window: &Window, _prior: u32) -> u32 {
        (self.full_bw, self.full_bw_rounds) = (0.0, 0);
        self.policer.reset(self.delivered, self.lost, self.now);
        window.cwnd
    }

    fn gauges(&self) -> Vec<Gauge> {
        let mut gauges = vec![
            ("mode", f64::from(self.mode as u8)),
            ("bw_segments_per_s", self.bw()),
            ("pacing_gain", self.pacing_gain),
            ("cwnd_gain", self.cwnd_gain),
        ];
        let rtt = self.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
        gauges.extend(rtt.map(|rtt| ("min_rtt_ms", rtt)));
        gauges
    }
}
