//! The retransmission timeout: RFC 6298, with V. Jacobson's integer arithmetic in units of the
//! clock's tick ("Congestion Avoidance and Control", SIGCOMM 1988, appendix A).
//!
//! ```text
//! first sample R:  SRTT = R, RTTVAR = R/2
//! next ones:       RTTVAR += (|R - SRTT| - RTTVAR) / 4;  SRTT += (R - SRTT) / 8     [ticks]
//! RTO = max(SRTT + max(G, 4 RTTVAR), least), doubled at each expiry, at most the greatest  [s]
//! ```
//!
//! Deviation: SRTT is updated before RTTVAR uses it, with the same error term (as BSD does; the two
//! orders agree, for both take R - SRTT from before).

use crate::Config;
use bentpipe_base::Instant;
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
    /// RTO without backoff, in nanoseconds.
    base: u64,
    /// 8 SRTT, in ticks; 0: unknown.
    srtt8: i64,
    /// 4 RTTVAR, in ticks.
    var4: i64,
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
            base: nanos(config.initial_rto).max(1),
            srtt8: 0,
            var4: 0,
            backoff: 1,
        }
    }

    /// A sample: sent at `sent`, acknowledged at `now`. Ends the backoff.
    pub(crate) fn sample(&mut self, sent: Instant, now: Instant) {
        self.backoff = 1;
        self.observe(sent, now);
    }

    /// A sample that leaves the backoff as it is.
    pub(crate) fn observe(&mut self, sent: Instant, now: Instant) {
        // Ticks of a clock that started at zero, as both ends of the sample read it.
        let ticks = now.as_nanos() / self.tick - sent.as_nanos().min(now.as_nanos()) / self.tick;
        // An hour at most: what is longer is no round trip.
        let rtt = ticks.clamp(1, (3_600_000_000_000 / self.tick).max(1)) as i64;
        if self.srtt8 == 0 {
            self.srtt8 = rtt << 3;
            self.var4 = rtt << 1;
        } else {
            let error = rtt - (self.srtt8 >> 3);
            self.srtt8 = (self.srtt8 + error).max(1);
            self.var4 = (self.var4 + error.abs() - (self.var4 >> 2)).max(1);
        }
        let ticks = ((self.var4.max(self.least_var4) << 3) + self.srtt8) >> 3;
        self.base = (ticks as u64).saturating_mul(self.tick);
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
        now.plus_nanos(self.timeout_nanos())
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
        rto.sample(at(0), at(100));
        // SRTT 100, RTTVAR 50: 100 + 200.
        assert_eq!(rto.timeout(), Duration::from_millis(300));
        rto.sample(at(1000), at(1180));
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
            rto.sample(at(1000 * k), at(1000 * k + 600));
        }
        assert_eq!(rto.timeout(), Duration::from_millis(800));
    }

    #[test]
    fn stays_within_its_bounds_and_doubles() {
        let mut rto = Rto::new(&Config::rfc());
        rto.sample(at(0), at(10));
        assert_eq!(rto.timeout(), Duration::from_secs(1), "RFC 6298, 2.4");
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            rto.back_off();
            assert_eq!(rto.timeout(), Duration::from_secs(seconds));
        }
        rto.sample(at(0), at(10));
        assert_eq!(rto.timeout(), Duration::from_secs(1));
    }

    #[test]
    fn counts_the_ticks_of_ns2() {
        let mut rto = Rto::new(&Config::ns2());
        assert_eq!(rto.timeout(), Duration::from_secs(3));
        // 565 ms from a tick: 56 ticks; 56 + 4 * 28 = 168.
        rto.sample(at(0), at(565));
        assert_eq!(rto.timeout(), Duration::from_millis(1680));
        // The same 565 ms see 57 ticks from the middle of one.
        let mut rto = Rto::new(&Config::ns2());
        rto.sample(at(5), at(570));
        assert_eq!(rto.timeout(), Duration::from_millis(1710));
    }
}
