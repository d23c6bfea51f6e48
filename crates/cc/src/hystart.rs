//! HyStart: S. Ha, I. Rhee, "Taming the elephants: New TCP slow start", Computer Networks 55(9),
//! 2011, 2092-2110, with the constants of Linux `net/ipv4/tcp_cubic.c`. Slow start ends, at the
//! window it has reached, when either holds from 16 segments on:
//!
//! ```text
//! train: ACKs no more than 2 ms apart span (RTTmin + 1 ms) / 2     [s]; the whole when paced
//! delay: the smallest of the first 8 RTTs of a round trip, and of any later,
//!        exceeds RTTmin by clamp(RTTmin / 8, 4 ms, 16 ms)          [s]
//! ```
//!
//! Deviation: the 1 ms for aggregated ACKs is a constant; Linux takes less on links above 2 Gbit/s.

use crate::fixed_point::SEGMENTS_MAX;
use crate::growth::{Round, may_grow, slow_start};
use crate::{Ack, Signal, Window};
use bentpipe_base::Instant;
use std::time::Duration;

const LOW_WINDOW: u32 = 16;
const SPACING: Duration = Duration::from_millis(2);
const SLACK: Duration = Duration::from_millis(1);
const SAMPLES: u8 = 8;

/// After the start of an epoch no samples are taken for so long.
const UNSETTLED: Duration = Duration::from_secs(1);

/// What both CUBICs know besides their curves: the smallest round-trip time, HyStart where it is on, and when
/// something was acknowledged last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    on: bool,
    /// `None`: switched off, or it has ended slow start.
    search: Option<HyStart>,
    min_rtt: Option<Duration>,
    /// The last acknowledgement.
    last: Instant,
}

impl Start {
    /// With HyStart or without.
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            search: on.then(HyStart::default),
            min_rtt: None,
            last: Instant::default(),
        }
    }

    /// Whether HyStart is on.
    pub(crate) fn hystart(&self) -> bool {
        self.on
    }

    /// The smallest round-trip time; zero: none is known.
    pub(crate) fn min_rtt(&self) -> Duration {
        self.min_rtt.unwrap_or_default()
    }

    /// Takes an acknowledgement, in an epoch of congestion avoidance that began at `epoch`, and lets the window grow
    /// by slow start. Returns the segments that are left for congestion avoidance.
    pub(crate) fn acknowledged(
        &mut self,
        window: &mut Window,
        ack: &Ack,
        epoch: Option<Instant>,
    ) -> u32 {
        window.cwnd = window.cwnd.max(1);
        self.last = ack.now;
        self.sample(window, ack, epoch);
        if !may_grow(ack) {
            return 0;
        }
        slow_start(window, ack.acked.min(SEGMENTS_MAX))
    }

    /// By how much an epoch begins later when `signal` comes: idle time is no time to grow in.
    pub(crate) fn idle(&self, signal: Signal, now: Instant) -> Duration {
        match signal {
            Signal::Start => now.since(self.last),
            _ => Duration::ZERO,
        }
    }

    /// Takes the sample of the round-trip time, and ends slow start where it is to end.
    fn sample(&mut self, window: &mut Window, ack: &Ack, epoch: Option<Instant>) {
        let Some(rtt) = ack.rtt else { return };
        if epoch.is_some_and(|start| ack.now.since(start) < UNSETTLED) {
            return;
        }
        let min = self.min_rtt.map_or(rtt, |min| min.min(rtt));
        self.min_rtt = Some(min);
        if window.cwnd >= window.ssthresh {
            return;
        }
        if let Some(search) = &mut self.search
            && search.ends(window, ack, rtt, min)
        {
            window.ssthresh = window.cwnd;
            self.search = None;
        }
    }
}

/// The state of the search for the end of slow start.
#[derive(Clone, Copy, Debug, Default)]
struct HyStart {
    round: Round,
    /// When the round trip began.
    began: Instant,
    /// The last acknowledgement of the train.
    last: Instant,
    /// The smallest round-trip time of this round trip.
    least: Duration,
    samples: u8,
}

impl HyStart {
    /// One sample `rtt` of the round-trip time in slow start, whose smallest so far is `min`:
    /// whether slow start is to end.
    fn ends(&mut self, window: &Window, ack: &Ack, rtt: Duration, min: Duration) -> bool {
        if self.round.turns(ack) {
            self.began = ack.now;
            self.last = ack.now;
            self.least = Duration::MAX;
            self.samples = 0;
        }
        window.cwnd >= LOW_WINDOW && (self.train(window, ack, min) | self.delay(rtt, min))
    }

    fn train(&mut self, window: &Window, ack: &Ack, min: Duration) -> bool {
        if ack.now.since(self.last) > SPACING {
            return false;
        }
        self.last = ack.now;
        let mut threshold = min.saturating_add(SLACK);
        if window.pacing.is_none() {
            threshold /= 2;
        }
        ack.now.since(self.began) > threshold
    }

    fn delay(&mut self, rtt: Duration, min: Duration) -> bool {
        self.least = self.least.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let excess = (min / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        self.least > min.saturating_add(excess)
    }
}
