//! How much the log says of peers that have not shown that they hear this server: anybody may forge them, in any number.

use bentpipe_base::Instant;
use core::time::Duration;

/// See the file's head.
#[derive(Debug)]
pub(super) struct StrangerLog {
    /// Lines at once at most.
    burst: u32,
    /// After so long there may be one more.
    pause: Duration,
    /// When there may be as many lines at once as ever.
    even_at: Instant,
    left_out: u64,
}

impl StrangerLog {
    /// Of those from addresses that have shown nothing.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            burst: 20,
            pause: Duration::from_secs(1),
            even_at: now,
            left_out: 0,
        }
    }

    /// Of those from addresses that have: their owners' failures are told, and others forge them too.
    pub(super) const fn of_known(now: Instant) -> Self {
        Self {
            burst: 1000,
            pause: Duration::from_millis(50),
            ..Self::new(now)
        }
    }

    /// Whether there may be a line, and how many were left out before it.
    pub(super) fn line(&mut self, now: Instant) -> Option<u64> {
        if self.even_at.since(now) > self.pause * (self.burst - 1) {
            self.left_out += 1;
            return None;
        }
        self.even_at = self.even_at.max(now) + self.pause;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_strangers_does_not_fill_the_log() {
        let mut now = Instant::ZERO;
        let mut log = StrangerLog::new(now);
        let mut lines = |seconds: u64| {
            let mut told = Vec::new();
            for _ in 0..seconds * 1000 {
                told.extend(log.line(now));
                now += Duration::from_millis(1);
            }
            told
        };
        // Nothing was left out of the first, and what was of the others is told.
        let first = lines(1);
        assert_eq!(first, [0; 20]);
        let later = lines(100);
        assert!((99..=101).contains(&later.len()), "{}", later.len());
        assert!(later.iter().all(|left_out| *left_out > 900));
        let mut known = StrangerLog::of_known(now);
        let told = (0..2000).filter(|_| known.line(now).is_some()).count();
        assert_eq!(told, 1000);
    }
}
