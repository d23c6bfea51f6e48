//! Compound TCP: K. Tan, J. Song, Q. Zhang, M. Sridharan, "A Compound TCP Approach for High-Speed
//! and Long Distance Networks", INFOCOM 2006, section III; draft-sridharan-tcpm-ctcp-02.
//!
//! ```text
//! win  = cwnd + dwnd                                    [segments], what is sent by
//! each segment acknowledged: cwnd += 1 / win            [segments]
//! diff = win * (1 - BaseRTT / RTT)                      [segments queued], once a round trip
//! diff < gamma: dwnd += max(alpha * win^k - 1, 0), else dwnd = max(dwnd - zeta * diff, 0)
//! loss: ssthresh = (1 - beta) * win, dwnd = max((1 - beta) * win - cwnd / 2, 0)
//! timeout and slow start: dwnd = 0
//! ```
//!
//! alpha = 1/8, beta = 1/2, k = 3/4, gamma = 30, zeta = 1.
//!
//! Deviations: gamma is fixed (the draft tunes it); RTT is the mean of the round trip's samples; dwnd
//! exists from 38 segments on, as the draft has it.

use crate::fixed_point::SEGMENTS_MAX;
use crate::growth::{Fraction, Round, may_grow, slow_start};
use crate::{Ack, Congestion, Gauge, Signal, Window};
use bentpipe_base::Instant;

const ALPHA: f64 = 0.125;
const BETA: f64 = 0.5;
const GAMMA: f64 = 30.0;
const ZETA: f64 = 1.0;
const LOW_WINDOW: u32 = 38;

/// Compound TCP's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compound {
    /// The part of the window that delay governs, in segments.
    dwnd: f64,
    fraction: Fraction,
    round: Round,
    /// The smallest round-trip time, in seconds; 0: unknown.
    base: f64,
    /// Samples of this round trip: their sum in seconds, and their number.
    sum: f64,
    samples: u32,
}

impl Compound {
    fn sample(&mut self, ack: &Ack) {
        let Some(rtt) = ack.rtt.map(|rtt| rtt.as_secs_f64()) else {
            return;
        };
        if rtt > 0.0 && (self.base == 0.0 || rtt < self.base) {
            self.base = rtt;
        }
        self.sum += rtt;
        self.samples = self.samples.saturating_add(1);
    }

    /// A round trip ended; its mean round-trip time in seconds, 0: unknown.
    fn turn(&mut self) -> f64 {
        let rtt = self.sum / f64::from(self.samples.max(1));
        self.sum = 0.0;
        self.samples = 0;
        rtt
    }

    /// Once a round trip of `rtt` seconds in congestion avoidance.
    fn delay(&mut self, window: &mut Window, rtt: f64) {
        let win = self.fraction.of(window);
        self.dwnd = self.dwnd.min(win - 1.0);
        if window.cwnd < LOW_WINDOW || rtt <= 0.0 {
            return;
        }
        let diff = win * (1.0 - self.base / rtt);
        if diff < GAMMA {
            // win^(3/4) by square roots, which are exact everywhere.
            let grown = (ALPHA * win.sqrt() * win.sqrt().sqrt() - 1.0).max(0.0);
            self.dwnd += grown;
            self.fraction.grow(window, grown);
        } else {
            let shrunk = (ZETA * diff).min(self.dwnd);
            self.dwnd -= shrunk;
            window.cwnd -= (shrunk as u32).min(window.cwnd - 1);
        }
    }
}

impl Congestion for Compound {
    fn name(&self) -> &'static str {
        "compound"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        window.cwnd = window.cwnd.max(1);
        let turned = self.round.turns(ack);
        let rtt = if turned { self.turn() } else { 0.0 };
        self.sample(ack);
        if !may_grow(ack) {
            return;
        }
        let left = slow_start(window, ack.acked.min(SEGMENTS_MAX));
        if left == 0 {
            self.dwnd = 0.0;
            return;
        }
        let win = self.fraction.of(window);
        self.fraction.grow(window, f64::from(left) / win);
        if turned {
            self.delay(window, rtt);
        }
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        let win = f64::from(window.cwnd);
        let cwnd = (win - self.dwnd).max(0.0);
        self.dwnd = (win * (1.0 - BETA) - cwnd / 2.0).max(0.0);
        ((win * (1.0 - BETA)) as u32).max(2)
    }

    fn on_signal(&mut self, _window: &mut Window, signal: Signal, _now: Instant) {
        if signal == Signal::Timeout {
            self.dwnd = 0.0;
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![
            ("dwnd_segments", self.dwnd),
            ("base_rtt_ms", self.base * 1e3),
        ]
    }
}
