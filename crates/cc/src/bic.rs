//! BIC: L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for Fast
//! Long-Distance Networks", INFOCOM 2004, section III.
//!
//! ```text
//! step = (Wmax - cwnd) / 2, within [Smin, Smax]              [segments a round trip], below Wmax
//! step = 1, doubled whenever cwnd grew by it, at most Smax   [segments a round trip], from Wmax on
//! each segment acknowledged: cwnd += step / cwnd             [segments]
//! loss: ssthresh = (1 - beta) * cwnd; Wmax = cwnd, with fast convergence (1 - beta / 2) * cwnd
//!       when that is below the last Wmax                     [segments]
//! below 14 segments: Reno
//! ```
//!
//! Smax = 32, Smin = 0.01, beta = 0.125 as in the paper (Linux: 16, none and 0.2).
//!
//! Deviations: Wmax stays the last one known when the window has passed it, so that fast convergence
//! does not set in after every probing, and at the start the window probes (Linux does both so).

use crate::fixed_point::SEGMENTS_MAX;
use crate::growth::{Fraction, may_grow, slow_start};
use crate::{Ack, Congestion, Gauge, Window};

const LOW_WINDOW: u32 = 14;
const S_MAX: f64 = 32.0;
const S_MIN: f64 = 0.01;
const BETA: f64 = 0.125;

/// BIC's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bic {
    /// Segments; 0: no loss yet.
    w_max: f64,
    /// Beyond it: the step of a round trip, in segments; 0: not there yet.
    probe: f64,
    /// Where the step doubles, in segments.
    target: f64,
    fraction: Fraction,
}

impl Bic {
    /// How much the window grows in this round trip, in segments.
    fn step(&mut self, cwnd: f64) -> f64 {
        let missing = self.w_max - cwnd;
        if missing >= S_MIN {
            self.probe = 0.0;
            return (missing / 2.0).clamp(S_MIN, S_MAX);
        }
        if self.probe == 0.0 {
            self.probe = 1.0;
            self.target = cwnd + 1.0;
        } else if cwnd >= self.target {
            self.probe = (self.probe * 2.0).min(S_MAX);
            self.target = cwnd + self.probe;
        }
        self.probe
    }
}

impl Congestion for Bic {
    fn name(&self) -> &'static str {
        "bic"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        window.cwnd = window.cwnd.max(1);
        if !may_grow(ack) {
            return;
        }
        let left = slow_start(window, ack.acked.min(SEGMENTS_MAX));
        if left == 0 {
            return;
        }
        let cwnd = self.fraction.of(window);
        let step = if window.cwnd < LOW_WINDOW {
            1.0
        } else {
            self.step(cwnd)
        };
        self.fraction.grow(window, step * f64::from(left) / cwnd);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.probe = 0.0;
        if window.cwnd < LOW_WINDOW {
            return (window.cwnd / 2).max(2);
        }
        let cwnd = f64::from(window.cwnd);
        self.w_max = if cwnd < self.w_max {
            cwnd * (1.0 - BETA / 2.0)
        } else {
            cwnd
        };
        (cwnd * (1.0 - BETA)) as u32
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![
            ("w_max_segments", self.w_max),
            ("probe_segments", self.probe),
        ]
    }
}
