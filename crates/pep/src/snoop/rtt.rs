//! The agent's estimate of the round-trip time over the satellite link, and the timeout that follows from it.

use super::config::{Config, Gain};
use core::time::Duration;

/// The agent's own estimate of the round-trip time from here over the link and back.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    gain: Gain,
    sampled: bool,
    srtt: Duration,
    rttvar: Duration,
    least: Duration,
    min_timeout: Duration,
}

impl Rtt {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            gain: config.gain,
            sampled: false,
            srtt: config.srtt,
            rttvar: config.rttvar,
            least: Duration::MAX,
            min_timeout: config.min_timeout,
        }
    }

    /// Takes one sample.
    pub(super) fn sample(&mut self, rtt: Duration) {
        if rtt.is_zero() {
            return;
        }
        self.least = self.least.min(rtt);
        match self.gain {
            // RFC 6298, section 2: (2.2) for the first sample, (2.3) for others.
            Gain::Rfc6298 if !self.sampled => {
                self.srtt = rtt;
                self.rttvar = rtt / 2;
            }
            Gain::Rfc6298 => {
                self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(rtt)) / 4;
                self.srtt = (self.srtt * 7 + rtt) / 8;
            }
            // The old value has the weight that the sample should have; the deviation is from the
            // new mean.
            Gain::Ns2 => {
                self.srtt = (self.srtt + rtt * 7) / 8;
                self.rttvar = (self.rttvar * 7 + self.srtt.abs_diff(rtt)) / 8;
            }
        }
        self.sampled = true;
    }

    /// The shortest sample; `Duration::MAX` before the first.
    pub(super) const fn least(&self) -> Duration {
        self.least
    }

    /// After how long without news the first unacknowledged segment is sent again.
    pub(super) fn timeout(&self) -> Duration {
        match self.gain {
            Gain::Rfc6298 => self.srtt + (self.rttvar * 4).max(self.min_timeout),
            Gain::Ns2 => (self.srtt + self.rttvar * 4).max(self.min_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn standard_gain_is_that_of_rfc_6298() {
        let mut rtt = Rtt::new(&Config::standard());
        assert_eq!(rtt.timeout(), MS(1000));
        rtt.sample(MS(500));
        assert_eq!(rtt.timeout(), MS(500 + 4 * 250));
        rtt.sample(MS(580));
        // RTTVAR = 3/4 250 + 1/4 80 = 207.5; SRTT = 7/8 500 + 1/8 580 = 510.
        assert_eq!(rtt.timeout(), MS(510 + 830));
    }

    #[test]
    fn ns2_gain_follows_the_last_sample() {
        let mut rtt = Rtt::new(&Config::ns2());
        // 0.1 + 4 * 0.25
        assert_eq!(rtt.timeout(), MS(1100));
        rtt.sample(MS(500));
        // SRTT = 0.125 * 100 + 0.875 * 500 = 450; RTTVAR = 0.125 * 50 + 0.875 * 250 = 225.
        assert_eq!(rtt.timeout(), MS(450 + 900));
    }

    #[test]
    fn the_timeout_has_a_floor() {
        for (config, floor) in [(Config::ns2(), MS(100)), (Config::standard(), MS(210))] {
            let mut rtt = Rtt::new(&config);
            for _ in 0..200 {
                rtt.sample(MS(10));
            }
            assert_eq!(rtt.timeout(), floor);
        }
    }
}
