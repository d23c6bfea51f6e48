use crate::Instant;
use core::time::Duration;

/// When a host's timers expire: to the moment, or as those of Linux's timer wheel (`calc_wheel_index`).
///
/// The wheel moves by ticks, 4 ms with HZ = 250, and each of its levels is eight times as coarse as the one before. A timer that is due
/// in less than 63 ticks expires with one of them, in less than 504 with one of eight, and so on: never early, and up to an eighth of
/// its time late.
///
/// ```
/// use bentpipe_base::{Instant, TimerWheel};
/// use core::time::Duration;
///
/// let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
/// let linux = TimerWheel::new(Duration::from_millis(4));
/// assert_eq!(linux.expiry(at(0), at(40)), at(44));
/// assert_eq!(linux.expiry(at(0), at(612)), at(640));
/// assert_eq!(TimerWheel::default().expiry(at(0), at(612)), at(612));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerWheel {
    /// Nanoseconds of a tick; 0: timers expire to the moment.
    tick: u64,
}

/// Ticks of the first level: one of its 64 buckets is the one that expires now.
const FIRST: u64 = 63;
/// Each level is two to this power times as coarse as the one before.
const COARSER: u32 = 3;
/// Beyond this one, a level would hold more than 2^64 ticks.
const MOST: u32 = 57;

impl TimerWheel {
    /// A wheel that moves each `tick`; zero: timers expire to the moment.
    pub fn new(tick: Duration) -> Self {
        Self {
            tick: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// When a timer expires that is set at `now` to be due `at` a time; [`Instant::MAX`] is never.
    #[inline]
    pub fn expiry(self, now: Instant, at: Instant) -> Instant {
        if self.tick == 0 || at == Instant::MAX {
            return at;
        }
        let clock = now.as_nanos() / self.tick;
        let wait = at.nanos_since(now).div_ceil(self.tick);
        let mut shift = 0;
        while shift < MOST && wait >= FIRST << shift {
            shift += COARSER;
        }
        // The tick that is under way counts for nothing, and so does what has passed of a coarser one.
        let bucket = (clock.saturating_add(wait) >> shift) + 1;
        Instant::from_nanos(bucket.saturating_mul(1 << shift).saturating_mul(self.tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timer_expires_early_and_none_later_than_its_level_is_coarse() {
        let wheel = TimerWheel::new(Duration::from_millis(4));
        let tick = 4_000_000;
        for now in (0..40 * tick).step_by(999_983) {
            for ticks in [1, 62, 63, 64, 503, 504, 4031, 4032, 1 << 40] {
                let at = Instant::from_nanos(now + ticks * tick - 1);
                let late = wheel.expiry(Instant::from_nanos(now), at).nanos_since(at);
                let bucket = tick.max(ticks * tick / 7);
                assert!((1..=bucket + tick).contains(&late), "{now} {ticks}: {late}");
            }
        }
        // Beyond what can be counted there is nothing to be late for.
        assert_eq!(wheel.expiry(Instant::ZERO, Instant::MAX), Instant::MAX);
        let last = Instant::from_nanos(u64::MAX - 1);
        assert!(TimerWheel::new(Duration::from_nanos(1)).expiry(Instant::ZERO, last) >= last);
    }
}
