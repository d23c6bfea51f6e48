//! How far a transfer has come, how fast it is, and how long it will still take.

use crate::terminal;
use bentpipe_saratoga_udp::client::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// A bar on a terminal; elsewhere a line now and then.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    began: Instant,
    said: Instant,
    /// How many octets had arrived at which time, for the last [`WINDOW`].
    marks: VecDeque<(Instant, u64)>,
}

/// Nothing is shown before this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);
/// The rate is that of so long.
const WINDOW: Duration = Duration::from_secs(5);
/// Between two looks at what has arrived.
const TICK: Duration = Duration::from_millis(250);

impl Bar {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            bar: None,
            began: now,
            said: now,
            marks: VecDeque::from([(now, 0)]),
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        if self.marks.back().is_some_and(|(at, _)| now - *at < TICK) {
            return;
        }
        let rate = self.rate(now, progress.done);
        if now - self.began < PATIENCE {
            return;
        }
        if !stderr().is_terminal() {
            if now - self.said >= PAUSE {
                self.said = now;
                terminal::say(&format!("[{}]", line(progress, rate)));
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:32.cyan/dim} {msg}")
                .expect("the template is well-formed")
                .progress_chars("━╸─");
            let bar = ProgressBar::new(0).with_style(style);
            terminal::attach(&bar);
            bar
        });
        // Many short files take their time for their number, not for their length.
        let (done, all) = match progress.jobs {
            0 | 1 => (progress.done, progress.known),
            jobs => (progress.over as u64, jobs as u64),
        };
        bar.set_length(all.max(1));
        bar.set_position(done);
        bar.set_message(line(progress, rate));
    }

    /// Octets a second, over the last while, now that `done` have arrived.
    fn rate(&mut self, now: Instant, done: u64) -> f64 {
        self.marks.push_back((now, done));
        while self.marks.len() > 2 && self.marks.get(1).is_some_and(|(at, _)| now - *at >= WINDOW) {
            self.marks.pop_front();
        }
        let (from, before) = self.marks.front().copied().unwrap_or((now, done));
        done.saturating_sub(before) as f64 / (now - from).as_secs_f64().max(1e-3)
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How far it is, at `rate` octets a second.
fn line(progress: Progress, rate: f64) -> String {
    let left = progress.known.saturating_sub(progress.done) as f64 / rate;
    let pace = if progress.waits {
        "waiting for room at the server or here".to_owned()
    } else if rate < 1.0 {
        // While next to nothing arrives, the remaining time cannot be estimated.
        "nothing arrives".to_owned()
    } else {
        format!("{:.2} Mbit/s, about {left:.0} s left", rate * 8.0 / 1e6)
    };
    format!(
        "{}/{} files, {:.1} of {:.1} MB, {pace}",
        progress.over,
        progress.jobs,
        progress.done as f64 / 1e6,
        progress.known as f64 / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_what_its_share_took() {
        let progress = Progress {
            done: 10_000_000,
            known: 30_000_000,
            over: 1,
            jobs: 3,
            waits: false,
        };
        assert_eq!(
            line(progress, 1e6),
            "1/3 files, 10.0 of 30.0 MB, 8.00 Mbit/s, about 20 s left"
        );
    }

    #[test]
    fn nothing_is_foretold_where_nothing_arrives() {
        let mut progress = Progress {
            done: 0,
            known: 2_000_000,
            over: 0,
            jobs: 1,
            waits: true,
        };
        assert_eq!(
            line(progress, 0.0),
            "0/1 files, 0.0 of 2.0 MB, waiting for room at the server or here"
        );
        progress.waits = false;
        assert_eq!(
            line(progress, 0.0),
            "0/1 files, 0.0 of 2.0 MB, nothing arrives"
        );
    }

    /// 1 MB a second, in files that end all at once now and then.
    #[test]
    fn the_rate_is_that_of_what_arrives() {
        let mut bar = Bar::new();
        let began = bar.began;
        for quarter in 1..=80 {
            let now = began + TICK * quarter;
            let rate = bar.rate(now, u64::from(quarter / 4 * 1_000_000));
            if quarter > 20 {
                assert!((7e5..1.3e6).contains(&rate), "{rate} after {quarter}");
            }
        }
        assert!(bar.marks.len() < 30);
    }
}
