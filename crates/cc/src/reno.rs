//! Reno: M. Allman, V. Paxson, E. Blanton, "TCP Congestion Control", RFC 5681, section 3.1.
//!
//! ```text
//! slow start (cwnd < ssthresh), each segment acknowledged: cwnd += 1        [segments]
//! congestion avoidance,         each segment acknowledged: cwnd += 1 / cwnd [segments]
//! loss: ssthresh = max(cwnd / 2, 2)                                         [segments]
//! ```
//!
//! Slow start is that of RFC 5681; `Settings::slow_start` may end it by HyStart++ (`hystart_plus_plus.rs`).
//!
//! A loss forgets what was acknowledged towards the next increase, as Linux does (`snd_cwnd_cnt` in
//! `tcp_init_cwnd_reduction` and `tcp_enter_loss`): the smaller window begins its first round trip whole.
//!
//! Deviations:
//! - segments are counted, not acknowledgements, without RFC 3465's limit of two a time;
//! - half of cwnd, not of the flight size (equation 4): the window grows only while it is what
//!   limits the sender, so the two agree where it matters; Linux does so too;
//! - in CWR and recovery the window is left to the sender's loss recovery.

use crate::growth::may_grow;
use crate::hystart::{SlowStart, Start};
use crate::{Ack, Congestion, Gauge, Window};

/// Reno's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno {
    start: Start,
    /// Segments acknowledged towards the next increase in congestion avoidance.
    count: u32,
}

impl Reno {
    /// For one connection, whose slow start ends by `slow_start`; CUBIC's HyStart is not Reno's.
    pub fn new(slow_start: SlowStart) -> Self {
        Self {
            start: Start::new(match slow_start {
                SlowStart::HyStartPlusPlus => slow_start,
                SlowStart::HyStart | SlowStart::Standard => SlowStart::Standard,
            }),
            count: 0,
        }
    }
}

impl Congestion for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let left = self.start.acknowledged(window, ack, None);
        if !may_grow(ack) {
            return;
        }
        if window.cwnd >= window.ssthresh {
            let sum = self.count.saturating_add(left);
            self.count = sum % window.cwnd;
            window.cwnd = window.cwnd.saturating_add(sum / window.cwnd);
        }
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.count = 0;
        (window.cwnd / 2).max(2)
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![("count_segments", f64::from(self.count))]
    }
}
