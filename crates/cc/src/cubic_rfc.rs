//! CUBIC as the RFC has it: L. Xu, S. Ha, I. Rhee, V. Goel, L. Eggert (Ed.), "CUBIC for Fast and Long-Distance
//! Networks", RFC 9438, section 4.
//!
//! ```text
//! W(t)   = C * (t - K)^3 + Wmax, K = cbrt((Wmax - cwnd_epoch) / C) [segments, s], C = 0.4
//! target = W(t + RTT), within [cwnd, 1.5 * cwnd]                   [segments]
//! each segment acknowledged: cwnd += (target - cwnd) / cwnd, to no less than
//! Reno's window:             West += alpha / cwnd, alpha = 3 * (1 - beta) / (1 + beta),
//!                            1 from the window before the loss on
//! loss: ssthresh = beta * cwnd, beta = 0.7; Wmax = cwnd, with fast convergence
//!       (1 + beta) / 2 * cwnd when that is below the last Wmax     [segments]
//! ```
//!
//! What Linux makes of it is `cubic.rs`. Deviations, all of them Linux's too:
//! - slow start ends by HyStart (`hystart.rs`), unless `Settings::slow_start` says otherwise;
//! - RTT in the target is the smallest one, not the smoothed;
//! - before the first loss, and after a timeout until the next, the window grows by a twentieth a
//!   round trip at least;
//! - a timeout forgets Wmax and the smallest round-trip time;
//! - ssthresh is taken from cwnd, not from the flight size.

use crate::growth::Fraction;
use crate::hystart::{SlowStart, Start};
use crate::{Ack, Congestion, Gauge, Phase, Signal, Window};
use bentpipe_base::Instant;
use std::time::Duration;

const C: f64 = 0.4;
const BETA: f64 = 0.7;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// No smallest round-trip time above it is reckoned with.
const LONGEST_RTT: Duration = Duration::from_secs(60);

/// Congestion avoidance since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// In seconds.
    k: f64,
    /// The plateau, in segments.
    origin: f64,
    /// Reno's window, in segments.
    reno: f64,
}

/// CUBIC's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct CubicRfc {
    start: Start,
    /// Segments; 0: no loss yet.
    w_max: f64,
    /// The window before the last loss, in segments.
    prior: f64,
    epoch: Option<Epoch>,
    fraction: Fraction,
}

impl CubicRfc {
    /// For one connection, whose slow start ends by `slow_start`.
    pub fn new(slow_start: SlowStart) -> Self {
        Self {
            start: Start::new(slow_start),
            ..Self::default()
        }
    }

    /// Congestion avoidance for `acked` segments.
    fn avoid(&mut self, window: &mut Window, now: Instant, acked: u32) {
        let cwnd = self.fraction.of(window);
        let (w_max, prior) = (self.w_max, self.prior);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            k: cube_root((w_max - cwnd).max(0.0) / C),
            origin: w_max.max(cwnd),
            reno: cwnd,
        });
        let ahead = now.since(epoch.start) + self.start.min_rtt().min(LONGEST_RTT);
        let t = ahead.as_secs_f64() - epoch.k;
        let target = (epoch.origin + C * t * t * t).clamp(cwnd, 1.5 * cwnd);
        let mut each = (target - cwnd) / cwnd;
        if w_max == 0.0 {
            each = each.max(1.0 / 20.0);
        }
        let acked = f64::from(acked);
        let alpha = if epoch.reno < prior { ALPHA } else { 1.0 };
        epoch.reno += alpha * acked / cwnd;
        let grown = (each * acked).max(epoch.reno - cwnd);
        self.fraction.grow(window, grown);
    }
}

/// The real cube root of a number that is finite and not negative, by Newton's method, which gives
/// the same bits everywhere.
fn cube_root(x: f64) -> f64 {
    let mut root = x.max(1.0);
    loop {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next < root {
            root = next;
        } else {
            return root;
        }
    }
}

impl Congestion for CubicRfc {
    fn name(&self) -> &'static str {
        "cubic-rfc"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let epoch = self.epoch.map(|epoch| epoch.start);
        let left = self.start.acknowledged(window, ack, epoch);
        if left > 0 {
            self.avoid(window, ack.now, left);
        }
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        let cwnd = f64::from(window.cwnd);
        self.w_max = if cwnd < self.w_max {
            cwnd * (1.0 + BETA) / 2.0
        } else {
            cwnd
        };
        self.prior = cwnd;
        self.epoch = None;
        ((cwnd * BETA) as u32).max(2)
    }

    fn on_phase(&mut self, _window: &mut Window, phase: Phase) {
        if phase == Phase::Loss {
            *self = Self {
                start: self.start.after_timeout(),
                ..Self::default()
            };
        }
    }

    fn on_signal(&mut self, _window: &mut Window, signal: Signal, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += self.start.idle(signal, now);
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let k = self.epoch.map_or(0.0, |epoch| epoch.k);
        vec![("w_max_segments", self.w_max), ("k_s", k)]
    }
}
