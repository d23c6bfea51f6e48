//! How far a transfer has come, how fast it is, and how long it will still take.

use crate::terminal;
use bentpipe_transfer::client::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// A bar on a terminal; elsewhere a line now and then.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    began: Instant,
    said: Instant,
}

/// Before anything is shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);

impl Bar {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            bar: None,
            began: now,
            said: now,
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        if self.began.elapsed() < PATIENCE {
            return;
        }
        if !stderr().is_terminal() {
            if self.said.elapsed() >= PAUSE {
                self.said = Instant::now();
                terminal::say(&line(progress, self.began.elapsed()));
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let template =
                "{bar:32.cyan/dim} {msg} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(template)
                .expect("the template is well-formed")
                .progress_chars("━╸─");
            let bar = ProgressBar::new(progress.known).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(250));
            terminal::attach(&bar);
            bar
        });
        bar.set_length(progress.known);
        bar.set_position(progress.done);
        bar.set_message(format!("{}/{} files,", progress.over, progress.jobs));
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(progress: Progress, elapsed: Duration) -> String {
    let rate = progress.done as f64 / elapsed.as_secs_f64().max(1e-3);
    let left = (progress.known - progress.done.min(progress.known)) as f64 / rate.max(1.0);
    format!(
        "[{}/{} files, {:.1} of {:.1} MB, {:.2} Mbit/s, about {left:.0} s left]",
        progress.over,
        progress.jobs,
        progress.done as f64 / 1e6,
        progress.known as f64 / 1e6,
        rate * 8.0 / 1e6,
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
        };
        let said = line(progress, Duration::from_secs(10));
        assert_eq!(
            said,
            "[1/3 files, 10.0 of 30.0 MB, 8.00 Mbit/s, about 20 s left]"
        );
    }
}
