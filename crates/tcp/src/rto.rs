//! The retransmission timeout: RFC 6298, with V. Jacobson's integer arithmetic in units of the
//! clock's tick ("Congestion Avoidance and Control", SIGCOMM 1988, appendix A).
//!
//! ```text
//! first sample R:  SRTT = R, RTTVAR = R/2
//! next ones:       RTTVAR += (|R - SRTT| - RTTVAR) / 4;  SRTT += (R - SRTT) / 8     [ticks]
//! RTO = max(SRTT + max(G, 4 RTTVAR), least), doubled at each expiry, at most the greatest  [s]
//! ```
//!
//! With a least variance (`rto_variance`) RTTVAR is Linux's (`tcp_rtt_estimator`): it rises at once to the greatest deviation, and
//! falls once a round trip, by a quarter of what it is above the greatest of that round trip. A round trip of many samples so
//! does not bring it down at once, and the timeout of a young connection stays above two round trips.
//!
//! Deviation: SRTT is updated before RTTVAR uses it, with the same error term (as BSD does; the two
//! orders agree, for both take R - SRTT from before).

use crate::Config;
use bentpipe_base::{Instant, TimerWheel};
use std::ops::Range;
use std::time::Duration;

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Rto {
    /// Nanoseconds of a tick.
    tick: u64,
    least: u64,
    /// Least of 4 RTTVAR, in ticks.
    least_var4: i64,
    greatest: u64,
    timers: TimerWheel,
    /// RTO without backoff, in nanoseconds.
    base: u64,
    /// 8 SRTT, in ticks; 0: unknown.
    srtt8: i64,
    /// 4 RTTVAR, in ticks.
    var4: i64,
    /// Four times the smoothed deviation, and the greatest of this round trip, in ticks; the round trip ends when what lies
    /// before this offset is acknowledged. Linux `mdev_us`, `mdev_max_us` and `rtt_seq`.
    deviation4: i64,
    greatest_deviation4: i64,
    round_end: u64,
    /// A power of two.
    backoff: u64,
}

/// Backed off by more than this, what was known of the round-trip time is doubted (RFC 6298,
/// section 5.7; BSD).
const DOUBT: u64 = 8;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Rto {
    pub(crate) fn new(config: &Config) -> Self {
        let tick = nanos(config.clock_granularity).max(1);
        Self {
            tick,
            least: nanos(config.min_rto).max(1),
            least_var4: (nanos(config.rto_variance) / tick) as i64,
            greatest: nanos(config.max_rto).max(1),
            timers: config.timers,
            base: nanos(config.initial_rto).max(1),
            srtt8: 0,
            var4: 0,
            deviation4: 0,
            greatest_deviation4: 0,
            round_end: 0,
            backoff: 1,
        }
    }

    /// Whether the variance is Linux's.
    pub(crate) const fn is_linux(&self) -> bool {
        self.least_var4 > 0
    }

    /// A sample: sent at `sent`, acknowledged at `now`, when `flight` was from the first offset that is not acknowledged to the
    /// next to be sent. Ends the backoff.
    pub(crate) fn sample(&mut self, sent: Instant, now: Instant, flight: Range<u64>) {
        self.backoff = 1;
        self.observe(sent, now, flight);
    }

    /// A sample that leaves the backoff as it is.
    pub(crate) fn observe(&mut self, sent: Instant, now: Instant, flight: Range<u64>) {
        // Ticks of a clock that started at zero, as both ends of the sample read it.
        let ticks = now.as_nanos() / self.tick - sent.as_nanos().min(now.as_nanos()) / self.tick;
        // An hour at most: what is longer is no round trip.
        let rtt = ticks.clamp(1, (3_600_000_000_000 / self.tick).max(1)) as i64;
        if self.srtt8 == 0 {
            self.srtt8 = rtt << 3;
            self.var4 = (rtt << 1).max(self.least_var4);
            self.deviation4 = rtt << 1;
            (self.greatest_deviation4, self.round_end) = (self.var4, flight.end);
        } else {
            let error = rtt - (self.srtt8 >> 3);
            self.srtt8 = (self.srtt8 + error).max(1);
            if self.is_linux() {
                self.deviate(error, &flight);
            } else {
                self.var4 = (self.var4 + error.abs() - (self.var4 >> 2)).max(1);
            }
        }
        let ticks = ((self.var4 << 3) + self.srtt8) >> 3;
        self.base = (ticks as u64).saturating_mul(self.tick);
    }

    /// Takes a sample that is off by `error` into the variance, as Linux does.
    fn deviate(&mut self, error: i64, flight: &Range<u64>) {
        let change = error.abs() - (self.deviation4 >> 2);
        // Round trips that become shorter are no reason for a longer timeout.
        let slow = error < 0 && change > 0;
        self.deviation4 += if slow { change >> 3 } else { change };
        self.greatest_deviation4 = self.greatest_deviation4.max(self.deviation4);
        self.var4 = self.var4.max(self.greatest_deviation4);
        if flight.start > self.round_end {
            self.var4 -= (self.var4 - self.greatest_deviation4) >> 2;
            (self.greatest_deviation4, self.round_end) = (self.least_var4, flight.end);
        }
    }

    /// A SYN was lost: data starts with a timeout of at least 3 s, or the greatest, while no sample
    /// says more (RFC 6298, section 5.7).
    pub(crate) fn start_over(&mut self) {
        self.backoff = 1;
        if self.srtt8 == 0 {
            self.base = self.base.max(3_000_000_000).min(self.greatest);
        }
    }

    /// What is sent is known to arrive, though no sample could be taken.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 1;
    }

    /// The timer expired.
    pub(crate) fn back_off(&mut self) {
        if nanos(self.timeout()) < self.greatest {
            self.backoff = self.backoff.saturating_mul(2);
        }
        if self.backoff > DOUBT {
            self.var4 += self.srtt8 >> 3;
            self.srtt8 = 0;
        }
    }

    /// How long to wait from now.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_nanos())
    }

    /// When the timer expires that starts at `now`.
    pub(crate) fn expiry(&self, now: Instant) -> Instant {
        self.timers
            .expiry(now, now.plus_nanos(self.timeout_nanos()))
    }

    fn timeout_nanos(&self) -> u64 {
        let whole = self.base.max(self.least).saturating_mul(self.backoff);
        whole.min(self.greatest)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        (self.srtt8 > 0)
            .then(|| Duration::from_nanos((self.srtt8 as u64).saturating_mul(self.tick) >> 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn follows_the_equations_of_rfc_6298() {
        let mut rto = Rto::new(&Config {
            min_rto: Duration::from_millis(1),
            ..Config::rfc()
        });
        assert_eq!(rto.timeout(), Duration::from_secs(1));
        rto.sample(at(0), at(100), 0..1);
        // SRTT 100, RTTVAR 50: 100 + 200.
        assert_eq!(rto.timeout(), Duration::from_millis(300));
        rto.sample(at(1000), at(1180), 1..2);
        // RTTVAR 50 + (80 - 50) / 4 = 57.5, SRTT 100 + 80 / 8 = 110: 340.
        assert_eq!(rto.timeout(), Duration::from_millis(340));
        assert_eq!(rto.srtt(), Some(Duration::from_millis(110)));
    }

    #[test]
    fn a_steady_round_trip_keeps_the_granularity_to_spare() {
        let mut rto = Rto::new(&Config {
            min_rto: Duration::from_millis(1),
            rto_variance: Duration::from_millis(200),
            ..Config::rfc()
        });
        for k in 0..100 {
            rto.sample(at(1000 * k), at(1000 * k + 600), k..k + 1);
        }
        assert_eq!(rto.timeout().as_millis(), 800);
    }

    #[test]
    fn the_samples_of_one_round_trip_do_not_bring_the_timeout_down_at_once() {
        let mut rto = Rto::new(&Config {
            min_rto: Duration::from_millis(200),
            rto_variance: Duration::from_millis(200),
            ..Config::rfc()
        });
        // SRTT 500, 4 RTTVAR 1000.
        rto.sample(at(0), at(500), 0..1);
        for segment in 1..30 {
            rto.sample(at(1000), at(1500), segment..30);
        }
        assert_eq!(rto.timeout(), Duration::from_millis(1500));
        // The deviation has fallen to 421 when the next round trip begins: a quarter of what is above it goes.
        rto.sample(at(2000), at(2500), 31..60);
        assert_eq!(rto.timeout().as_millis(), 1355);
        // And of what is above the least, a round trip later.
        rto.sample(at(3000), at(3500), 61..90);
        assert_eq!(rto.timeout().as_millis(), 1191);
    }

    #[test]
    fn stays_within_its_bounds_and_doubles() {
        let mut rto = Rto::new(&Config::rfc());
        rto.sample(at(0), at(10), 0..1);
        assert_eq!(rto.timeout(), Duration::from_secs(1), "RFC 6298, 2.4");
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            rto.back_off();
            assert_eq!(rto.timeout(), Duration::from_secs(seconds));
        }
        rto.sample(at(0), at(10), 0..1);
        assert_eq!(rto.timeout(), Duration::from_secs(1));
    }

    #[test]
    fn counts_the_ticks_of_ns2() {
        let mut rto = Rto::new(&Config::ns2());
        assert_eq!(rto.timeout(), Duration::from_secs(3));
        // 565 ms from a tick: 56 ticks; 56 + 4 * 28 = 168.
        rto.sample(at(0), at(565), 0..1);
        assert_eq!(rto.timeout(), Duration::from_millis(1680));
        // The same 565 ms see 57 ticks from the middle of one.
        let mut rto = Rto::new(&Config::ns2());
        rto.sample(at(5), at(570), 0..1);
        assert_eq!(rto.timeout(), Duration::from_millis(1710));
    }
}
