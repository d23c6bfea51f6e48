//! How many repairs are sent, and of how many packets each is made: fixed, or by the losses that the other end measured.

use crate::{MAX_WINDOW, Report};
use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;
use thiserror::Error;

/// How much is sent besides the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strength {
    /// A repair follows each so many packets.
    pub every: u16,
    /// The packets that a repair is made of, the latest ones.
    pub window: u16,
    /// The repairs that follow the last packet before a silence.
    pub tail: u8,
}

/// A strength that no layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a repair of {window} packets after every {every}: the window must be of 1 to {MAX_WINDOW} packets, \
     and each packet in at least one repair"
)]
pub struct StrengthError {
    every: u16,
    window: u16,
}

/// A repair after every third packet: what is stronger repeats, rather.
const STRONGEST: u16 = 3;
/// Repairs at the end of an answer: of two packets that are lost of the last ones one is seldom left, and of bursts of three on average
/// one in twenty-five is longer than eight.
const TAIL: u8 = 3;
const TAIL_OF_BURSTS: u8 = 8;
/// A repair after every so many packets, or fewer, is for losses in bursts as well, against which the end of an answer has more.
const FIRM: u16 = 10;
/// From so many packets lost in a row on the losses come in bursts: independent ones at 20% make 1.25 of it.
const BURSTS: f64 = 1.5;

impl Strength {
    /// What 5% lost in bursts need, while nothing is known: too few repairs at first would have a stream wait for round trips.
    pub const INITIAL: Self = Self {
        every: 5,
        window: 200,
        tail: TAIL_OF_BURSTS,
    };

    /// Repairs that take `overhead` of the packets' rate, of `window` packets each.
    ///
    /// # Errors
    /// As [`Self::checked`]. Overhead of which there is less than a 512th is none.
    pub fn fixed(overhead: Probability, window: u16) -> Result<Self, StrengthError> {
        let every = (1.0 / overhead.value()).round() as u16;
        let tail = tail(every);
        let strength = Self {
            every,
            window,
            tail,
        };
        strength.checked()
    }

    /// This strength, if there is such a one.
    ///
    /// # Errors
    /// A window of no packets, or of more than repairs can be made of, or of fewer than pass between two repairs.
    pub fn checked(self) -> Result<Self, StrengthError> {
        let Self { every, window, .. } = self;
        if every == 0 || window < every || usize::from(window) > MAX_WINDOW {
            return Err(StrengthError { every, window });
        }
        Ok(self)
    }

    /// What is needed against the losses of `report`: overhead of twice their share and 1% where they are scattered, of thrice
    /// and 2% in bursts, over a longer window (docs/fec.md has what that gives).
    pub fn against(report: Report) -> Self {
        let Some(share) = report.share() else {
            return Self::INITIAL;
        };
        let in_bursts = report.mean_burst() >= BURSTS;
        let (factor, least, repairs) = if in_bursts {
            (3.0, 0.02, 25)
        } else {
            (2.0, 0.01, 10)
        };
        let every = (1.0 / (factor * share.value() + least)) as u16;
        let every = every.max(STRONGEST);
        let window = (repairs * every).clamp(64, MAX_WINDOW as u16);
        let tail = if in_bursts {
            TAIL_OF_BURSTS
        } else {
            tail(every)
        };
        Self {
            every,
            window,
            tail,
        }
    }

    /// The packets after which one that has not come is not repaired any more, or only rarely: QUIC's threshold for loss
    /// (RFC 9002, section 6.1.1), which otherwise has what is repaired sent again.
    pub fn packet_threshold(self) -> u32 {
        let delay = (4 * u32::from(self.every)).max(64);
        delay.min(self.window.into())
    }

    /// The rate that is left to the packets of one at which all is sent.
    pub fn share_of(self, rate: Rate) -> Rate {
        let every = f64::from(self.every);
        rate.scaled(every / (every + 1.0))
    }
}

/// The repairs at the end of an answer, where one follows each `every` packets before it.
const fn tail(every: u16) -> u8 {
    if every <= FIRM { TAIL_OF_BURSTS } else { TAIL }
}

/// When what is sent is taken for the end of an answer, which repairs alone follow.
///
/// 4 ms, and at least what four packets take at `rate`: the gaps between packets of a busy slow link are no silence.
pub fn silence(rate: Rate, packet: Bytes) -> Duration {
    const LEAST: Duration = Duration::from_millis(4);
    rate.serialisation(Bytes(packet.0.saturating_mul(4)))
        .max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_twice_the_losses_and_thrice_those_in_bursts() {
        let against = |percent: f64, burst: u8| {
            let loss = (percent * 655.36) as u16;
            let strength = Strength::against(Report { loss, burst });
            assert_eq!(strength.checked(), Ok(strength));
            strength
        };
        assert_eq!(against(1.0, 16).every, 33);
        assert_eq!(against(5.0, 17).every, 9);
        assert_eq!(against(1.0, 48).every, 20);
        assert_eq!(against(5.0, 48).every, 5);
        assert!(against(1.0, 48).tail > against(1.0, 17).tail);
        assert_eq!(against(5.0, 48).tail, against(5.0, 17).tail);
        assert_eq!(against(0.0, 16).every, 100);
        assert_eq!(against(99.0, 16).every, STRONGEST);
        assert_eq!(Strength::against(Report::default()), Strength::INITIAL);
    }

    #[test]
    fn impossible_strengths_are_refused() {
        let strength = |every, window| {
            Strength {
                every,
                window,
                tail: 0,
            }
            .checked()
        };
        assert!(strength(1, 1).is_ok() && strength(512, 512).is_ok());
        for (every, window) in [(0, 10), (10, 0), (10, 9), (10, 513)] {
            let message = strength(every, window).unwrap_err().to_string();
            assert!(message.contains("1 to 512"), "{message}");
        }
    }

    #[test]
    fn gaps_of_a_slow_link_are_no_silence() {
        let silence = |rate| silence(Rate::from_bits_per_sec(rate), Bytes(1500));
        assert_eq!(silence(100_000_000), Duration::from_millis(4));
        assert_eq!(silence(1_000_000), Duration::from_millis(48));
    }
}
