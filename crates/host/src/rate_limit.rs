use bentpipe_base::Instant;

/// So much a second at most, and as much at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    per_second: u32,
    /// What is left, in billionths.
    left: u64,
    since: Instant,
}

const ONE: u64 = 1_000_000_000;

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            left: u64::from(per_second) * ONE,
            since: Instant::ZERO,
        }
    }

    /// Takes one, where one is left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let most = u64::from(self.per_second) * ONE;
        let passed = now.nanos_since(self.since);
        let more = passed.saturating_mul(self.per_second.into());
        self.left = self.left.saturating_add(more).min(most);
        self.since = now;
        let taken = self.left >= ONE;
        if taken {
            self.left -= ONE;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_more_pass_than_the_limit_says() {
        let mut limit = RateLimit::new(10);
        let mut now = Instant::ZERO;
        let mut passed = 0;
        for _ in 0..3000 {
            passed += u32::from(limit.take(now));
            now += Duration::from_millis(1);
        }
        // Ten at once, and ten a second for three seconds.
        assert!((39..=40).contains(&passed), "{passed}");
    }
}
