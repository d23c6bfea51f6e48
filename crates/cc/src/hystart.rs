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
use crate::hystart_plus_plus::HyStartPlusPlus;
use crate::{Ack, Signal, Window};
use bentpipe_base::Instant;
use std::time::Duration;

const LOW_WINDOW: u32 = 16;
const SPACING: Duration = Duration::from_millis(2);
const SLACK: Duration = Duration::from_millis(1);
const SAMPLES: u8 = 8;

/// After the start of an epoch no samples are taken for so long.
const UNSETTLED: Duration = Duration::from_secs(1);

/// How slow start ends before a loss ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStart {
    /// Not at all (RFC 5681).
    Standard,
    /// HyStart ends the slow start of CUBIC, as it does in the kernel by default; that of others goes on until a loss.
    #[default]
    HyStart,
    /// By HyStart++ (RFC 9406).
    HyStartPlusPlus,
}

impl SlowStart {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Standard, Self::HyStart, Self::HyStartPlusPlus];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::HyStart => "hystart",
            Self::HyStartPlusPlus => "hystart++",
        }
    }
}

/// What looks for the end of slow start.
#[derive(Clone, Copy, Debug, Default)]
enum Search {
    /// Nothing: switched off, or slow start has ended.
    #[default]
    None,
    HyStart(HyStart),
    PlusPlus(HyStartPlusPlus),
}

/// What a control knows besides its curve: the smallest round-trip time, what looks for the end of slow start, and when
/// something was acknowledged last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    slow_start: SlowStart,
    search: Search,
    min_rtt: Option<Duration>,
    /// The last acknowledgement.
    last: Instant,
}

impl Start {
    /// By `slow_start`.
    pub(crate) fn new(slow_start: SlowStart) -> Self {
        Self {
            slow_start,
            search: match slow_start {
                SlowStart::Standard => Search::None,
                SlowStart::HyStart => Search::HyStart(HyStart::default()),
                SlowStart::HyStartPlusPlus => Search::PlusPlus(HyStartPlusPlus::default()),
            },
            min_rtt: None,
            last: Instant::default(),
        }
    }

    /// As new after a retransmission timeout; HyStart++ is for the first slow start alone (RFC 9406, section 4.3).
    pub(crate) fn after_timeout(&self) -> Self {
        match self.slow_start {
            SlowStart::HyStartPlusPlus => Self::new(SlowStart::Standard),
            other => Self::new(other),
        }
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
        let acked = ack.acked.min(SEGMENTS_MAX);
        match &mut self.search {
            Search::PlusPlus(search) if window.ssthresh == u32::MAX => {
                let grown = search.growth(window, acked);
                slow_start(window, grown)
            }
            _ => slow_start(window, acked),
        }
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
        let ends = match &mut self.search {
            Search::None => false,
            Search::HyStart(search) => search.ends(window, ack, rtt, min),
            Search::PlusPlus(search) => window.ssthresh == u32::MAX && search.ends(ack, rtt),
        };
        if ends {
            window.ssthresh = window.cwnd;
            self.search = Search::None;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hystart_plus_plus_looks_for_the_end_of_the_first_slow_start_alone() {
        let first = Start::new(SlowStart::HyStartPlusPlus);
        assert!(matches!(first.search, Search::PlusPlus(_)));
        assert!(matches!(first.after_timeout().search, Search::None));
        let linux = Start::new(SlowStart::HyStart);
        assert!(matches!(linux.after_timeout().search, Search::HyStart(_)));
    }
}
