//! Westwood+: L. Grieco, S. Mascolo, "Performance Evaluation and Comparison of Westwood+, New Reno,
//! and Vegas TCP Congestion Control", ACM CCR 34(2), 2004, section 2; the counting of acknowledged
//! data from S. Mascolo et al., "TCP Westwood: Bandwidth Estimation for Enhanced Transport over
//! Wireless Links", MobiCom 2001.
//!
//! ```text
//! sample: data acknowledged in a round trip / its time         [segments/s]
//! BWE = 0.9 * BWE + 0.1 * sample                               [segments/s]
//! loss: ssthresh = max(BWE * RTTmin, 2), cwnd no more than it  [segments]
//! timeout: ssthresh likewise, also above cwnd
//! growth: Reno
//! ```
//!
//! A duplicate acknowledgement stands for one segment, which the acknowledgement that later covers it
//! does not count again.
//!
//! Deviations: a sample spans at least 50 ms and the first is taken as it is (Linux); before the
//! first, a loss halves the window.

use crate::reno::Reno;
use crate::{Ack, Congestion, Gauge, Signal, Window};
use bentpipe_base::{Instant, Seq};
use std::time::Duration;

const WEIGHT: f64 = 0.1;
const SPAN_MIN: Duration = Duration::from_millis(50);

/// Westwood+'s state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Westwood {
    reno: Reno,
    una: Option<Seq>,
    /// Segments that duplicate acknowledgements have stood for.
    ahead: f64,
    /// When the sample under way began.
    began: Instant,
    /// Segments acknowledged in it.
    acked: f64,
    /// The last round-trip time.
    rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    /// Segments a second.
    bandwidth: Option<f64>,
}

impl Westwood {
    /// Segments that this acknowledgement stands for.
    fn count(&mut self, window: &Window, ack: &Ack) -> f64 {
        let advance = self.una.map_or(0, |una| ack.una.offset_from(una)).max(0);
        self.una = Some(ack.una);
        if advance == 0 {
            self.ahead += 1.0;
            return 1.0;
        }
        let advance = f64::from(advance) / window.mss.0.max(1) as f64;
        let known = self.ahead.min(advance);
        self.ahead -= known;
        advance - known
    }

    fn sample(&mut self, ack: &Ack, segments: f64) {
        if let Some(rtt) = ack.rtt {
            self.rtt = Some(rtt);
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
        self.acked += segments;
        let span = ack.now.since(self.began);
        if self.rtt.is_none_or(|rtt| span <= rtt.max(SPAN_MIN)) {
            return;
        }
        let sample = self.acked / span.as_secs_f64();
        self.bandwidth = Some(self.bandwidth.map_or(sample, |bandwidth| {
            bandwidth + WEIGHT * (sample - bandwidth)
        }));
        self.began = ack.now;
        self.acked = 0.0;
    }

    /// BWE * RTTmin, in segments.
    fn product(&self) -> Option<u32> {
        let product = self.bandwidth? * self.min_rtt?.as_secs_f64();
        Some((product as u32).max(2))
    }
}

impl Congestion for Westwood {
    fn name(&self) -> &'static str {
        "westwood"
    }

    fn init(&mut self, _window: &mut Window, now: Instant, _rtt: Option<Duration>) {
        self.began = now;
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let segments = if self.una.is_none() {
            self.una = Some(ack.una);
            f64::from(ack.acked)
        } else {
            self.count(window, ack)
        };
        self.sample(ack, segments);
        self.reno.on_ack(window, ack);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        let half = (window.cwnd / 2).max(2);
        self.product()
            .map_or(half, |product| product.min(window.cwnd).max(2))
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, _now: Instant) {
        if let (Signal::Timeout, Some(product)) = (signal, self.product()) {
            window.ssthresh = product;
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let min_rtt = self.min_rtt.unwrap_or_default();
        vec![
            (
                "bandwidth_segments_per_s",
                self.bandwidth.unwrap_or_default(),
            ),
            ("min_rtt_ms", min_rtt.as_secs_f64() * 1e3),
        ]
    }
}
