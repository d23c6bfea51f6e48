//! ns-2's window: a real number of segments (`opencwnd`, `slowdown` of `tcp.cc`, with
//! `windowOption_ 1` and `precisionReduce_`).
//!
//! ```text
//! each acknowledgement of new data: cwnd += 1 below ssthresh, else 1 / cwnd    [segments]
//! loss:    half = min(cwnd, window of the peer) / 2                            [segments]
//!          ssthresh = max(floor(half), 2), cwnd = half                         [segments]
//! timeout: the same ssthresh, cwnd = 1                                         [segments]
//! ```
//!
//! The sender's window holds the whole number, this control the fraction.

use bentpipe_cc::{self as cc, Ack, Congestion, Gauge, Phase, Signal, Window};

/// Reno's window as ns-2 counts it, in place of the registry's Reno in the `ns2` preset.
pub(crate) static RENO: cc::Algorithm = cc::Algorithm {
    name: "reno",
    summary: "Reno's window as a real number, growing by the acknowledgement (ns-2)",
    rate: cc::RateUse::Ignores,
    kernel: None,
    new: |_| Box::<RealReno>::default(),
};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RealReno {
    /// The part of a segment that the window is more than its whole number.
    fraction: f64,
    /// Half the window at the last loss.
    half: f64,
}

impl RealReno {
    fn real(&self, window: &Window) -> f64 {
        f64::from(window.cwnd) + self.fraction
    }

    fn set(&mut self, window: &mut Window, cwnd: f64) {
        let cwnd = cwnd.max(1.0);
        window.cwnd = cwnd as u32;
        self.fraction = cwnd - f64::from(window.cwnd);
    }
}

impl Congestion for RealReno {
    fn name(&self) -> &'static str {
        RENO.name
    }

    fn on_ack(&mut self, window: &mut Window, _ack: &Ack) {
        let cwnd = self.real(window);
        let step = if window.cwnd < window.ssthresh {
            1.0
        } else {
            1.0 / cwnd.max(1.0)
        };
        self.set(window, cwnd + step);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.half = self.real(window).min(f64::from(window.offered)) / 2.0;
        (self.half as u32).max(2)
    }

    fn on_phase(&mut self, window: &mut Window, phase: Phase) {
        if phase == Phase::Recovery {
            let half = self.half;
            self.set(window, half);
        }
    }

    fn on_signal(&mut self, _window: &mut Window, signal: Signal, _now: bentpipe_base::Instant) {
        if signal == Signal::Timeout {
            self.fraction = 0.0;
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![("fraction_segments", self.fraction)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Bytes;

    #[test]
    fn the_fraction_survives_a_loss_and_not_a_timeout() {
        let mut window = Window {
            cwnd: 7,
            ssthresh: 5,
            in_flight: 0,
            offered: u32::MAX,
            mss: Bytes(500),
            wire: Bytes(516),
            pacing: None,
        };
        let mut reno = RealReno {
            fraction: 0.6,
            half: 0.0,
        };
        // 7.6 / 2 = 3.8.
        window.ssthresh = reno.ssthresh(&window);
        reno.on_phase(&mut window, Phase::Recovery);
        assert_eq!((window.ssthresh, window.cwnd), (3, 3));
        // 3.8 + 1 / 3.8 = 4.063.
        reno.on_ack(&mut window, &Ack::default());
        assert_eq!(window.cwnd, 4);
        assert!((reno.fraction - 0.0632).abs() < 1e-4, "{}", reno.fraction);
        window.cwnd = 1;
        reno.on_signal(&mut window, Signal::Timeout, bentpipe_base::Instant::ZERO);
        assert_eq!(reno.fraction, 0.0);
    }
}
