//! CUBIC as Linux has it, `net/ipv4/tcp_cubic.c`, in whole segments and jiffies: what `cubic` is on most
//! servers, and in the lab. What the RFC says is `cubic_rfc.rs`.
//!
//! ```text
//! W(t) = 0.4 (t - K)^3 + Wmax, K = cbrt((Wmax - cwnd_epoch) / 0.4)       [segments, s]
//! cnt  = cwnd / (W(t + RTTmin) - cwnd), 100 cwnd where that is not ahead; of both cnt the smaller one,
//!        cwnd / (West - cwnd), where Reno's window West is ahead; at least 2 [segments]
//! each cnt segments acknowledged:      cwnd += 1
//! each 15/8 cwnd of them:              West += 1                            [segments]
//! loss: ssthresh = 717/1024 cwnd; Wmax = cwnd, or 1741/2048 cwnd when that is below the last Wmax
//! ```
//!
//! C is 410/1024, RTTmin the smallest round-trip time since the last timeout. Before the first loss, and after a
//! timeout until the next, cnt is at most 20. Slow start ends by HyStart (`hystart.rs`), unless `Settings::slow_start` says otherwise.
//!
//! Deviations: a jiffy is always 4 ms (HZ = 250); the cube root is exact, Linux's is off by up to 0.2%.

use crate::hystart::{SlowStart, Start};
use crate::{Ack, Congestion, Gauge, Phase, Signal, Window};
use bentpipe_base::Instant;
use std::time::Duration;

/// A beta of 0.7, in 1024ths.
const BETA: u64 = 717;
const SCALE: u64 = 1024;
/// C in 1024ths of a segment a second cubed.
const C: u64 = 410;
/// Reno's window grows by one in so many eighths of a window: 3 (1 - beta) / (1 + beta), inverted.
const RENO_EIGHTHS: u64 = 15;
const JIFFY: Duration = Duration::from_millis(4);
/// The window is not looked at more often, unless it changes.
const LOOK: u64 = 250 / 32;
/// 1024ths of a second, in which Linux reckons the time of its curve.
const TICKS: u64 = 1024;
/// An epoch is reckoned no longer than this; the curve has grown beyond any window long before.
const LONGEST: u64 = 1 << 18;

/// Congestion avoidance since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// In 1024ths of a second.
    k: u64,
    /// The plateau, in segments.
    origin: u64,
    /// Reno's window, in segments, and the segments acknowledged towards its next one.
    reno: u64,
    acked: u64,
    /// The jiffy and the window of the last look.
    jiffy: u64,
    cwnd: u64,
    /// Segments to acknowledge until the window grows by one.
    cnt: u64,
}

/// CUBIC's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    start: Start,
    /// Segments; 0: no loss yet.
    w_max: u64,
    epoch: Option<Epoch>,
    /// Segments acknowledged towards the next growth (Linux `snd_cwnd_cnt`).
    credit: u64,
}

fn jiffies(now: Instant) -> u64 {
    now.as_nanos() / JIFFY.as_nanos() as u64
}

impl Epoch {
    fn new(now: Instant, cwnd: u64, w_max: u64) -> Self {
        let above = w_max.saturating_sub(cwnd);
        Self {
            start: now,
            // K^3 = above / C, both in 1024ths: above * 2^40 / 410.
            k: cube_root((above.min(1 << 20) << 40) / C),
            origin: w_max.max(cwnd),
            reno: cwnd,
            acked: 0,
            jiffy: u64::MAX,
            cwnd,
            cnt: 100 * cwnd,
        }
    }

    /// W(t + RTTmin), in whole segments.
    fn target(&self, now: Instant, min_rtt: Duration) -> u64 {
        let passed = jiffies(now)
            .saturating_sub(jiffies(self.start))
            .min(LONGEST)
            * TICKS
            / 250;
        let ahead = min_rtt.as_nanos().div_ceil(JIFFY.as_nanos()) as u64 * TICKS / 250;
        let t = (passed + ahead).min(LONGEST);
        let apart = t.abs_diff(self.k);
        let delta = (u128::from(C) * u128::from(apart).pow(3)) >> 40;
        let delta = u64::try_from(delta).unwrap_or(u64::MAX);
        if t < self.k {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        }
    }

    /// Linux `bictcp_update`: how many segments are to be acknowledged for one more.
    fn update(
        &mut self,
        now: Instant,
        min_rtt: Duration,
        cwnd: u64,
        acked: u64,
        first: bool,
    ) -> u64 {
        self.acked += acked;
        let jiffy = jiffies(now);
        let looked = self.jiffy != u64::MAX;
        if looked && self.cwnd == cwnd && jiffy.saturating_sub(self.jiffy) <= LOOK {
            return self.cnt;
        }
        if !looked || jiffy != self.jiffy {
            (self.cwnd, self.jiffy) = (cwnd, jiffy);
            let target = self.target(now, min_rtt);
            self.cnt = match target.checked_sub(cwnd) {
                Some(ahead @ 1..) => cwnd / ahead,
                _ => 100 * cwnd,
            };
            if first {
                self.cnt = self.cnt.min(20);
            }
        }
        let each = (cwnd * RENO_EIGHTHS / 8).max(1);
        if self.acked > each {
            let grown = (self.acked - 1) / each;
            self.acked -= grown * each;
            self.reno += grown;
        }
        if self.reno > cwnd {
            self.cnt = self.cnt.min(cwnd / (self.reno - cwnd));
        }
        self.cnt = self.cnt.max(2);
        self.cnt
    }
}

impl Cubic {
    /// For one connection, whose slow start ends by `slow_start`.
    pub fn new(slow_start: SlowStart) -> Self {
        Self {
            start: Start::new(slow_start),
            ..Self::default()
        }
    }

    /// Congestion avoidance for `acked` segments.
    fn avoid(&mut self, window: &mut Window, now: Instant, acked: u32) {
        let (cwnd, acked) = (u64::from(window.cwnd), u64::from(acked));
        let w_max = self.w_max;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(now, cwnd, w_max));
        let min_rtt = self.start.min_rtt();
        let cnt = epoch.update(now, min_rtt, cwnd, acked, w_max == 0);
        let mut grown = 0;
        // Credits gathered at a higher count are applied gently (Linux `tcp_cong_avoid_ai`).
        if self.credit >= cnt {
            self.credit = 0;
            grown += 1;
        }
        self.credit += acked;
        grown += self.credit / cnt;
        self.credit %= cnt;
        window.cwnd = window.cwnd.saturating_add(grown as u32);
    }
}

/// The whole part of the cube root.
fn cube_root(x: u64) -> u64 {
    let mut root = 0_u64;
    // 2^21 is the cube root of 2^63, and more than any window asks for.
    for bit in (0..21).rev() {
        let more = root | 1 << bit;
        if u128::from(more).pow(3) <= u128::from(x) {
            root = more;
        }
    }
    root
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let epoch = self.epoch.map(|epoch| epoch.start);
        let left = self.start.acknowledged(window, ack, epoch);
        if left > 0 {
            self.avoid(window, ack.now, left);
        }
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        let cwnd = u64::from(window.cwnd);
        self.w_max = if cwnd < self.w_max {
            cwnd * (SCALE + BETA) / (2 * SCALE)
        } else {
            cwnd
        };
        self.epoch = None;
        // Linux `tcp_init_cwnd_reduction`.
        self.credit = 0;
        ((cwnd * BETA / SCALE) as u32).max(2)
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
        let k = self
            .epoch
            .map_or(0.0, |epoch| epoch.k as f64 / TICKS as f64);
        vec![("w_max_segments", self.w_max as f64), ("k_s", k)]
    }
}
