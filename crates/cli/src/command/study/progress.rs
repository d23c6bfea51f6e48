//! How far a study has come, and how long it will still take.

use crate::terminal;
use bentpipe_study::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A bar on a terminal; elsewhere a line now and then.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    began: Instant,
    /// When the last line was said.
    said: Mutex<Instant>,
}

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);

impl Bar {
    pub(super) fn new(total: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let template = "{bar:32.cyan/dim} {pos}/{len} points, {elapsed} gone, about {eta} left";
            let style = ProgressStyle::with_template(template)
                .expect("the template is well-formed")
                .progress_chars("━╸─");
            let bar = ProgressBar::new(total).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(250));
            terminal::attach(&bar);
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            began: now,
            said: Mutex::new(now),
        }
    }

    pub(super) fn show(&self, progress: Progress) {
        let Progress {
            done,
            resumed,
            failed,
            total,
        } = progress;
        let over = done + failed;
        if let Some(bar) = &self.bar {
            bar.set_position(over);
            return;
        }
        // If another thread holds the lock, it writes the line.
        let Ok(mut said) = self.said.try_lock() else {
            return;
        };
        if said.elapsed() >= PAUSE {
            *said = Instant::now();
            let left = left(self.began.elapsed(), over - resumed, total - over);
            let lost = match failed {
                0 => String::new(),
                some => format!(", {some} of them failed"),
            };
            terminal::say(&format!(
                "[{over}/{total} points{lost}, about {left} s left]"
            ));
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds that the rest takes at the pace so far.
fn left(elapsed: Duration, ran: u64, rest: u64) -> u64 {
    (elapsed.as_secs_f64() * rest as f64 / ran.max(1) as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_what_its_share_took() {
        assert_eq!(left(Duration::from_secs(10), 100, 250), 25);
        assert_eq!(left(Duration::from_secs(10), 0, 0), 0);
    }
}
