//! HyStart++: P. Balasubramanian, Y. Huang, M. Olson, "HyStart++: Modified Slow Start for TCP", RFC 9406, section 4.2.
//!
//! ```text
//! least RTT of a round trip = the least of its samples, once there are 8                               [s]
//! slow start: each segment acknowledged cwnd += 1, at most 8 an acknowledgement unless paced            [segments]
//!   it is no less than the last round trip's + clamp(that / 8, 4 ms, 16 ms): to conservative slow start [s]
//! conservative slow start: each segment acknowledged cwnd += 1/4                                        [segments]
//!   it is less than it was at the beginning of this phase: back to slow start
//!   five round trips, the one in which it began among them: slow start ends at the window of then
//! ```
//!
//! The first slow start of a connection alone is so; a threshold that is known ends it as ever.
//!
//! Deviations: none known.

use crate::growth::Round;
use crate::{Ack, Window};
use std::time::Duration;

/// MIN_RTT_THRESH, MAX_RTT_THRESH and MIN_RTT_DIVISOR.
const LEAST_EXCESS: Duration = Duration::from_millis(4);
const MOST_EXCESS: Duration = Duration::from_millis(16);
const DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const ROUNDS: u32 = 5;
/// L, without pacing: the most segments that one acknowledgement adds.
const MOST_AN_ACK: u32 = 8;

/// Where the first slow start of a connection is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyStartPlusPlus {
    round: Round,
    /// The least round-trip time of the last round trip, and of this one.
    last: Option<Duration>,
    least: Option<Duration>,
    /// Samples of this round trip.
    samples: u32,
    conservative: Option<Conservative>,
    /// Quarters of a segment that the window has grown beyond whole ones.
    quarters: u32,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The least round-trip time of the round trip in which it began.
    baseline: Duration,
    /// Round trips that have ended in it.
    rounds: u32,
}

impl HyStartPlusPlus {
    /// Takes a sample of the round-trip time; whether slow start is to end.
    pub(crate) fn ends(&mut self, ack: &Ack, rtt: Duration) -> bool {
        if self.round.turns(ack) {
            self.last = self.least.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= ROUNDS {
                    return true;
                }
            }
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        self.samples += 1;
        if self.samples < SAMPLES {
            return false;
        }
        match self.conservative {
            Some(Conservative { baseline, .. }) if least < baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let excess = |last: Duration| (last / DIVISOR).clamp(LEAST_EXCESS, MOST_EXCESS);
                let grows = |last: Duration| least >= last.saturating_add(excess(last));
                if self.last.is_some_and(grows) {
                    self.conservative = Some(Conservative {
                        baseline: least,
                        rounds: 0,
                    });
                }
            }
        }
        false
    }

    /// By how many segments the window grows for `acked` of them.
    pub(crate) fn growth(&mut self, window: &Window, acked: u32) -> u32 {
        let most = match window.pacing {
            Some(_) => u32::MAX,
            None => MOST_AN_ACK,
        };
        let acked = acked.min(most);
        if self.conservative.is_none() {
            return acked;
        }
        self.quarters += acked;
        let grown = self.quarters / GROWTH_DIVISOR;
        self.quarters %= GROWTH_DIVISOR;
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::{Bytes, Instant, Seq};

    /// One round trip of `samples` acknowledgements that all took `millis`; whether slow start ended in it.
    fn round(search: &mut HyStartPlusPlus, number: u32, millis: u64, samples: u32) -> bool {
        let ack = |i: u32| Ack {
            now: Instant::ZERO,
            una: Seq(number * 1000 + i + 1),
            next: Seq((number + 1) * 1000),
            ..Ack::default()
        };
        let rtt = Duration::from_millis(millis);
        // All are taken, whatever the first one says.
        let ended = (0..samples).filter(|i| search.ends(&ack(*i), rtt)).count();
        ended > 0
    }

    fn window(pacing: bool) -> Window {
        Window {
            cwnd: 100,
            ssthresh: u32::MAX,
            in_flight: 100,
            offered: u32::MAX,
            mss: Bytes(1000),
            wire: Bytes(1040),
            pacing: pacing.then(|| bentpipe_base::Rate::from_bits_per_sec(1_000_000)),
        }
    }

    #[test]
    fn a_longer_round_trip_begins_conservative_slow_start_which_ends_after_five() {
        let mut search = HyStartPlusPlus::default();
        assert!(!round(&mut search, 1, 100, 8));
        // Less than an eighth more, and too few samples.
        assert!(!round(&mut search, 2, 111, 8) && search.conservative.is_none());
        assert!(!round(&mut search, 3, 200, 7) && search.conservative.is_none());
        assert!(!round(&mut search, 4, 200, 8));
        // The seven samples of the last one were its least: nothing has grown.
        assert!(search.conservative.is_none());
        assert!(!round(&mut search, 5, 216, 8) && search.conservative.is_some());
        assert_eq!(search.growth(&window(false), 7), 1);
        assert_eq!(search.growth(&window(false), 1), 1);
        for number in 6..=9 {
            assert!(!round(&mut search, number, 216, 8), "{number}");
        }
        assert!(round(&mut search, 10, 216, 8));
    }

    #[test]
    fn a_round_trip_that_was_long_by_chance_is_forgotten() {
        let mut search = HyStartPlusPlus::default();
        round(&mut search, 1, 20, 8);
        round(&mut search, 2, 24, 8);
        assert!(
            search.conservative.is_some(),
            "4 ms are the least that counts"
        );
        round(&mut search, 3, 23, 8);
        assert!(search.conservative.is_none());
        assert_eq!(search.growth(&window(false), 4), 4);
        for number in 4..20 {
            assert!(!round(&mut search, number, 23, 8));
        }
    }

    #[test]
    fn an_acknowledgement_adds_at_most_eight_segments_unless_paced() {
        let mut search = HyStartPlusPlus::default();
        assert_eq!(search.growth(&window(false), 40), 8);
        assert_eq!(search.growth(&window(true), 40), 40);
    }
}
