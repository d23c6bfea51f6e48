//! What is running and how long it will still take: a bar on a terminal, lines elsewhere.

use crate::terminal;
use bentpipe_demo::Event;
use bentpipe_demo::plan::Cell;
use bentpipe_demo::results::{Outcome, paused};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Follows a pool of runs.
pub(crate) struct Progress {
    state: Arc<Mutex<State>>,
    bar: Option<ProgressBar>,
}

struct State {
    workers: usize,
    /// Not begun yet, by their estimates.
    waiting: Vec<(String, Duration)>,
    running: Vec<(Cell, Instant)>,
    ended: usize,
    /// Ended or still to end.
    total: usize,
    /// To be tried again alone.
    again: Vec<String>,
    /// How long the runs that ended were expected to take, and took.
    expected: Duration,
    took: Duration,
}

/// Weight of the estimates against what the first runs took.
const PRIOR: Duration = Duration::from_secs(60);

impl Progress {
    /// For `cells` on `workers` threads.
    pub(crate) fn new(cells: &[Cell], workers: usize) -> Self {
        let state = Arc::new(Mutex::new(State::new(cells, workers)));
        let total = cells.len();
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:32.cyan/dim} {pos}/{len} runs{msg}")
                .expect("the template is well-formed")
                .progress_chars("━╸─");
            let bar = ProgressBar::new(total as u64).with_style(style);
            terminal::attach(&bar);
            keep_fresh(&bar, &state);
            bar
        });
        Self { state, bar }
    }

    /// Takes note of `event`.
    pub(crate) fn hear(&self, event: &Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.hear(event);
        match (event, &self.bar) {
            (Event::Ended(_), Some(bar)) => bar.set_position(state.ended as u64),
            (Event::Ended(outcome), None) => {
                let (ended, total, left) = (state.ended, state.total, clock(state.left()));
                let line = line(outcome);
                terminal::say(&format!("[{ended}/{total}, about {left} left] {line}"));
            }
            (Event::Again(cell, why, _), _) => {
                tracing::info!("{}: {why}; will be run again alone", cell.title());
            }
            (Event::Shed(_), Some(bar)) => bar.set_length(state.total as u64),
            (Event::Began(_) | Event::Shed(_) | Event::Group, _) => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl State {
    fn new(cells: &[Cell], workers: usize) -> Self {
        let waiting = cells
            .iter()
            .map(|cell| (cell.name(), cell.estimate()))
            .collect();
        Self {
            workers,
            waiting,
            running: Vec::new(),
            ended: 0,
            total: cells.len(),
            again: Vec::new(),
            expected: Duration::ZERO,
            took: Duration::ZERO,
        }
    }

    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Began(cell) => {
                let name = cell.name();
                self.waiting.retain(|(waiting, _)| *waiting != name);
                self.again.retain(|waiting| *waiting != name);
                self.running.push(((*cell).clone(), Instant::now()));
            }
            Event::Shed(cell) => {
                let name = cell.name();
                self.waiting.retain(|(waiting, _)| *waiting != name);
                self.total -= 1;
            }
            Event::Group => {}
            Event::Again(cell, ..) => {
                self.end(cell);
                self.waiting.push((cell.name(), cell.estimate()));
                self.again.push(cell.name());
            }
            Event::Ended(outcome) => {
                let name = outcome.cell.name();
                // One that is not tried again, for want of time, was waiting.
                self.waiting.retain(|(waiting, _)| *waiting != name);
                self.again.retain(|waiting| *waiting != name);
                self.end(&outcome.cell);
                self.ended += 1;
            }
        }
    }

    fn end(&mut self, cell: &Cell) {
        if let Some(index) = self.running.iter().position(|(running, _)| running == cell) {
            let (cell, began) = self.running.swap_remove(index);
            self.expected += cell.estimate();
            self.took += began.elapsed();
        }
    }

    /// About how long the rest takes, were it spread evenly, on a machine as quick as it has been.
    fn left(&self) -> Duration {
        let rest =
            |(cell, began): &(Cell, Instant)| cell.estimate().saturating_sub(began.elapsed());
        let running: Duration = self.running.iter().map(rest).sum();
        let waiting: Duration = self.waiting.iter().map(|(_, estimate)| *estimate).sum();
        let longest = self.running.iter().map(rest).max().unwrap_or_default();
        let left = longest.max((running + waiting) / self.workers.max(1) as u32);
        left.mul_f64((self.took + PRIOR).as_secs_f64() / (self.expected + PRIOR).as_secs_f64())
    }

    fn message(&self) -> String {
        let titles: Vec<String> = self
            .running
            .iter()
            .map(|(cell, began)| format!("  {:>3} s  {}", began.elapsed().as_secs(), cell.title()))
            .collect();
        let again = match self.again.len() {
            0 => String::new(),
            some => format!(", {some} to repeat alone"),
        };
        format!(
            ", about {} left{again}\n{}",
            clock(self.left()),
            titles.join("\n")
        )
    }
}

/// Keeps the time left current until the bar is finished.
fn keep_fresh(bar: &ProgressBar, state: &Arc<Mutex<State>>) {
    let (bar, state) = (bar.clone(), Arc::clone(state));
    thread::spawn(move || {
        while !bar.is_finished() {
            let message = state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .message();
            bar.set_message(message);
            thread::sleep(Duration::from_millis(500));
        }
    });
}

fn line(outcome: &Outcome) -> String {
    let title = outcome.cell.title();
    let pause = outcome
        .result
        .as_ref()
        .ok()
        .and_then(|figures| figures.host_paused_ms);
    let mark = pause
        .map(|pause| format!(" ({})", paused(pause)))
        .unwrap_or_default();
    match (&outcome.result, outcome.cell.measure.size()) {
        (Err(why), _) => format!("{title}: failed: {why}"),
        (Ok(figures), None) => format!("{title}: {:.2} Mb/s{mark}", figures.goodput_mbps),
        (Ok(figures), Some(_)) => match figures.completion_s {
            Some(seconds) => format!("{title}: {seconds:.2} s{mark}"),
            None => format!("{title}: cut off{mark}"),
        },
    }
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_demo::plan::{Selection, groups};

    #[test]
    fn the_time_left_shrinks_from_the_whole_plan_to_nothing() {
        let cells = groups(&Selection::default()).concat();
        let mut state = State::new(&cells, 8);
        let whole = state.left();
        assert!(whole > Duration::from_secs(60), "{whole:?}");
        state.hear(&Event::Shed(&cells[0]));
        for cell in &cells[1..] {
            state.hear(&Event::Began(cell));
            state.hear(&Event::Again(cell, "late", None));
            state.hear(&Event::Began(cell));
            state.hear(&Event::Ended(&Outcome {
                cell: cell.clone(),
                result: Err("not run".into()),
                attempts: 2,
            }));
            assert!(state.left() < whole);
        }
        assert_eq!(state.left(), Duration::ZERO);
        assert_eq!(
            (state.ended, state.total),
            (cells.len() - 1, cells.len() - 1)
        );
        assert!(state.again.is_empty());
    }

    #[test]
    fn time_reads_as_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}
