//! TCP Vegas: L. Brakmo, L. Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global
//! Internet", IEEE JSAC 13(8), 1995, 1465-1480, with the parameters and the order of steps of ns-2.
//!
//! ```text
//! expected = (flight + acked) / BaseRTT          [segments/s]
//! actual   = segments sent in the last RTT / RTT [segments/s]
//! diff     = (expected - actual) * BaseRTT       [segments], rounded; judged once an RTT
//! slow start (cwnd < ssthresh), every other RTT:
//!     diff > gamma: cwnd -= cwnd / 8, ssthresh = 2;  else each segment acknowledged: cwnd += 1
//! congestion avoidance:
//!     diff < alpha: each segment acknowledged: cwnd += 1 / cwnd;  diff > beta: cwnd -= 1
//! fine-grained timeout = 17/16 * (SRTT + 2 * RTTVAR) [s], of unrounded samples
//! loss by duplicate ACKs: cwnd -= cwnd / 4, or / 2 for a segment sent more than once; none for a
//!     segment that was sent before the last decrease
//! retransmission timeout: ssthresh = cwnd / 2, cwnd = 2
//! ```
//!
//! Deviations:
//! - alpha/beta/gamma are 1/3/1 segments as in ns-2; the paper tries 1/3 and 2/4, of buffers;
//! - after a loss Vegas never returns to slow start but by a retransmission timeout (ns-2 sets
//!   ssthresh to 2), and BaseRTT also rises when an RTT carried at most one segment;
//! - the window grows only while at most two segments of it were unused (ns-2);
//! - a loss recovery other than Vegas's own neither asks for the fine-grained timeout nor says which
//!   segment was lost: then a loss halves the window.

use crate::growth::Round;
use crate::{Ack, Congestion, FirstUnacked, Gauge, Phase, Signal, Window};
use bentpipe_base::{Instant, Seq};
use std::time::Duration;

/// How many segments Vegas keeps in the queue of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Below these, in segments, the window grows.
    pub alpha: u32,
    /// Above these, in segments, it shrinks.
    pub beta: u32,
    /// Above these, in segments, slow start ends.
    pub gamma: u32,
}

impl Default for Thresholds {
    /// The thresholds of ns-2: 1, 3, 1.
    fn default() -> Self {
        Self {
            alpha: 1,
            beta: 3,
            gamma: 1,
        }
    }
}

/// The estimator of the fine-grained timeout, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// Eight times the smoothed round-trip time.
    srtt8: f64,
    /// Four times its variation.
    var4: f64,
    /// `None` until the first sample.
    timeout: Option<f64>,
}

impl Clock {
    fn sample(&mut self, rtt: f64) {
        if self.timeout.is_none() {
            self.srtt8 = rtt * 8.0;
            self.var4 = rtt;
        }
        let error = rtt - self.srtt8 / 8.0;
        self.srtt8 += error;
        self.var4 += error.abs() - self.var4 / 4.0;
        self.timeout = Some((self.srtt8 / 4.0 + self.var4) / 2.0 * 17.0 / 16.0);
    }

    fn back_off(&mut self, transmits: u32) {
        let factor = if transmits > 1 { 2.0 } else { 9.0 / 8.0 };
        // An hour is as good as never, and stays finite.
        self.timeout = self.timeout.map(|timeout| (timeout * factor).min(3600.0));
    }
}

/// Vegas's state.
#[derive(Clone, Debug)]
pub struct Vegas {
    thresholds: Thresholds,
    /// The window with its fraction, in segments.
    cwnd: f64,
    /// What a segment acknowledged adds in this round trip, in segments.
    step: f64,
    /// Slow start grows in this round trip, not in the next.
    growing: bool,
    round: Round,
    /// The round trip under way: the first byte sent in it, and when it began.
    first: Option<Seq>,
    began: Instant,
    /// Samples of the round-trip time in it: their sum in seconds, and their number.
    sum: f64,
    samples: u32,
    /// The smallest round-trip time, in seconds; 0: unknown.
    base: f64,
    /// What the last judgement found, in segments.
    diff: f64,
    clock: Clock,
    /// The first byte not acknowledged.
    una: Option<Seq>,
    /// When the window was last reduced for a loss.
    reduced: Option<Instant>,
    /// A loss by duplicate acknowledgements: slow start is over.
    lossy: bool,
}

impl Vegas {
    /// For one connection.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            cwnd: 1.0,
            step: 0.0,
            growing: true,
            round: Round::default(),
            first: None,
            began: Instant::ZERO,
            sum: 0.0,
            samples: 0,
            base: 0.0,
            diff: 0.0,
            clock: Clock::default(),
            una: None,
            reduced: None,
            lossy: false,
        }
    }

    /// One sample of the round-trip time, in seconds.
    fn sample(&mut self, rtt: f64) {
        self.sum += rtt;
        self.samples = self.samples.saturating_add(1);
        if rtt > 0.0 {
            if self.base == 0.0 || rtt < self.base {
                self.base = rtt;
            }
            self.clock.sample(rtt);
        }
    }

    /// A round trip ended: judges it and begins the next.
    fn turn(&mut self, window: &mut Window, ack: &Ack, settled: bool) {
        let rtt = if self.samples > 0 {
            self.sum / f64::from(self.samples)
        } else {
            ack.now.since(self.began).as_secs_f64()
        };
        let flight = segments(window, ack.next, ack.una) + f64::from(ack.acked);
        let sent = self
            .first
            .map_or(flight, |first| segments(window, ack.next, first));
        if rtt > 0.0 {
            if self.base == 0.0 || rtt < self.base || sent <= 1.0 {
                self.base = rtt;
            }
            self.diff = (flight - sent / rtt * self.base + 0.5).trunc();
            if settled {
                self.judge(window);
            }
        }
        self.sum = 0.0;
        self.samples = 0;
        self.first = Some(ack.next);
        self.began = ack.now;
    }

    /// What `diff` does to the window.
    fn judge(&mut self, window: &mut Window) {
        if self.cwnd < f64::from(window.ssthresh) {
            self.growing = !self.growing;
            self.step = 0.0;
            if self.growing && self.diff > f64::from(self.thresholds.gamma) {
                window.ssthresh = 2;
                self.cwnd = (self.cwnd - self.cwnd / 8.0).max(2.0);
            } else if self.growing {
                self.step = 1.0;
            }
        } else if self.diff > f64::from(self.thresholds.beta) {
            self.cwnd = (self.cwnd - 1.0).max(2.0);
            self.step = 0.0;
        } else if self.diff < f64::from(self.thresholds.alpha) {
            self.step = 1.0 / self.cwnd;
        } else {
            self.step = 0.0;
        }
    }

    /// One acknowledgement of new data outside recovery.
    fn grow(&mut self, window: &Window, ack: &Ack) {
        if self.step >= 1.0 && self.cwnd >= f64::from(window.ssthresh) {
            self.step = 0.0;
        }
        let used = segments(window, ack.next, ack.una) + f64::from(ack.acked);
        if self.cwnd - used <= 2.0 {
            self.cwnd += self.step * f64::from(ack.acked);
        }
    }
}

/// Segments from byte `from` to byte `to`; 0 when `to` comes before.
fn segments(window: &Window, to: Seq, from: Seq) -> f64 {
    let bytes = to.offset_from(from).max(0);
    (f64::from(bytes) / window.mss.0.max(1) as f64).ceil()
}

impl Congestion for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn judges_by_base_rtt(&self) -> bool {
        true
    }

    fn init(&mut self, _window: &mut Window, now: Instant, rtt: Option<Duration>) {
        self.began = now;
        if let Some(rtt) = rtt {
            // The handshake is a round trip too: the next one is slow start's to grow in.
            self.growing = false;
            self.sample(rtt.as_secs_f64());
        }
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        window.cwnd = window.cwnd.max(1);
        let advanced = self.una.is_none_or(|una| ack.una.offset_from(una) > 0);
        self.una = Some(ack.una);
        if !advanced {
            return;
        }
        // The sender's loss recovery may have changed it.
        if self.cwnd as u32 != window.cwnd {
            self.cwnd = f64::from(window.cwnd);
        }
        let settled = !matches!(ack.phase, Phase::Cwr | Phase::Recovery);
        if settled && self.lossy {
            window.ssthresh = 2;
            self.lossy = false;
        }
        if self.round.turns(ack) {
            self.turn(window, ack, settled);
        }
        if settled {
            self.grow(window, ack);
            window.cwnd = self.cwnd as u32;
        }
        if let Some(rtt) = ack.rtt {
            self.sample(rtt.as_secs_f64());
        }
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.lossy = true;
        (window.cwnd / 2).max(2)
    }

    fn ssthresh_for(&mut self, window: &Window, hole: &FirstUnacked) -> u32 {
        self.clock.back_off(hole.transmits);
        self.lossy = true;
        if self.reduced.is_some_and(|reduced| reduced >= hole.sent) {
            return window.cwnd;
        }
        self.reduced = Some(hole.now);
        let cut = match window.cwnd {
            0..=3 => return 2,
            cwnd if hole.transmits > 1 => cwnd.div_ceil(2),
            cwnd => cwnd / 4,
        };
        window.cwnd - cut
    }

    fn expired(&self, hole: &FirstUnacked) -> bool {
        let waited = hole.now.since(hole.sent).as_secs_f64();
        self.clock.timeout.is_some_and(|timeout| waited >= timeout)
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, now: Instant) {
        if signal == Signal::Timeout {
            window.cwnd = 2;
            self.reduced = Some(now);
            self.lossy = false;
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![
            ("base_rtt_ms", self.base * 1e3),
            ("diff_segments", self.diff),
            (
                "fine_timeout_ms",
                self.clock.timeout.unwrap_or_default() * 1e3,
            ),
        ]
    }
}
