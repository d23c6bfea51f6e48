//! The maximum of what was seen in a window of time, by K. Nichols' algorithm, in three samples whatever the window's
//! length (Linux `lib/win_minmax.c`): the best, the best since that one, and the best since the second.

/// A windowed maximum; time is counted in rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowedMax {
    /// Round and value, none older or less than the next.
    best: [(u64, f64); 3],
}

impl WindowedMax {
    /// The maximum.
    pub(crate) fn get(&self) -> f64 {
        self.best[0].1
    }

    /// Takes `value`, seen in round `now`, and forgets what is older than `window` rounds.
    pub(crate) fn update(&mut self, window: u64, now: u64, value: f64) {
        let sample = (now, value);
        let age = |at: u64| now.saturating_sub(at);
        if value >= self.best[0].1 || age(self.best[2].0) > window {
            self.best = [sample; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if value >= self.best[2].1 {
            self.best[2] = sample;
        }
        self.advance(window, now, sample);
    }

    /// The best one leaves when it is too old; a second or third as old as the best is renewed after a quarter and
    /// half of the window, so that a successor is at hand.
    fn advance(&mut self, window: u64, now: u64, sample: (u64, f64)) {
        let age = now.saturating_sub(self.best[0].0);
        if age > window {
            self.best = [self.best[1], self.best[2], sample];
            if now.saturating_sub(self.best[0].0) > window {
                self.best = [self.best[1], self.best[2], sample];
            }
        } else if self.best[1].0 == self.best[0].0 && age > window / 4 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if self.best[2].0 == self.best[1].0 && age > window / 2 {
            self.best[2] = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against all samples of the window: never more than their maximum, and at least that of its last quarter.
        #[test]
        fn it_lies_between_the_maxima_of_the_window_and_of_its_last_part(
            steps in prop::collection::vec((0_u64..4, 0_u32..1000), 1..200),
            window in 1_u64..20,
        ) {
            let (mut filter, mut now, mut seen) = (WindowedMax::default(), 0, Vec::new());
            for (passed, value) in steps {
                now += passed;
                let value = f64::from(value);
                seen.push((now, value));
                filter.update(window, now, value);
                let since = |age: u64| {
                    let recent = seen.iter().filter(|(at, _)| now - at <= age);
                    recent.map(|(_, value)| *value).fold(0.0, f64::max)
                };
                prop_assert!(filter.get() <= since(window));
                prop_assert!(filter.get() >= since(window / 4));
            }
        }
    }
}
