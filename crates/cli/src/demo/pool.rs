//! Runs many independent runs side by side, and again alone what the company disturbed.

use super::plan::Cell;
use super::results::{Figures, Outcome};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How one try of a run ended.
#[derive(Clone, Debug)]
pub(crate) enum Try<F = Figures> {
    /// With figures.
    Done(F),
    /// The emulator fell behind: the figures say nothing about TCP. Worth another try, alone.
    Invalid(String),
    /// It could not be run.
    Failed(String),
    /// Someone asked to stop.
    Stopped,
}

/// What the pool tells whoever watches it.
#[derive(Debug)]
pub(crate) enum Event<'a, C = Cell, F = Figures> {
    /// A run began.
    Began(&'a C),
    /// A run ended; it will not be tried again.
    Ended(&'a Outcome<C, F>),
    /// A run was invalid and will be tried again alone.
    Again(&'a C, &'a str),
}

/// How often an invalid run is tried again, alone: what disturbs a machine for long is no fault of
/// the run, but what disturbs every try cannot be measured there.
const TRIES_ALONE: u32 = 2;

/// Runs `cells` in their order on `workers` threads, the invalid ones again alone afterwards.
///
/// `watch` is called on the caller's thread. When `stop` is set no further run begins; the outcomes
/// so far are returned. A `run` that panics counts as failed.
pub(crate) fn run<C: Clone + Send, F: Send>(
    cells: Vec<C>,
    workers: usize,
    stop: &AtomicBool,
    run: impl Fn(&C) -> Try<F> + Sync,
    mut watch: impl FnMut(Event<'_, C, F>),
) -> Vec<Outcome<C, F>> {
    let mut outcomes = Vec::with_capacity(cells.len());
    let mut waiting = cells;
    for attempts in 1..=1 + TRIES_ALONE {
        let workers = if attempts == 1 { workers.max(1) } else { 1 };
        let mut again = Vec::new();
        round(waiting, workers, stop, &run, |message| match message {
            Message::Began(cell) => watch(Event::Began(&cell)),
            Message::Ended(cell, Try::Invalid(why)) if attempts <= TRIES_ALONE => {
                watch(Event::Again(&cell, &why));
                again.push(cell);
            }
            Message::Ended(cell, ended) => settle(cell, ended, attempts, &mut outcomes, &mut watch),
        });
        waiting = again;
    }
    outcomes
}

enum Message<C, F> {
    Began(C),
    Ended(C, Try<F>),
}

fn settle<C, F>(
    cell: C,
    ended: Try<F>,
    attempts: u32,
    outcomes: &mut Vec<Outcome<C, F>>,
    watch: &mut impl FnMut(Event<'_, C, F>),
) {
    let result = match ended {
        Try::Done(figures) => Ok(figures),
        Try::Failed(why) => Err(why),
        Try::Invalid(why) => Err(format!("{why}, also when run alone")),
        Try::Stopped => return,
    };
    let outcome = Outcome {
        cell,
        result,
        attempts,
    };
    watch(Event::Ended(&outcome));
    outcomes.push(outcome);
}

fn round<C: Clone + Send, F: Send>(
    cells: Vec<C>,
    workers: usize,
    stop: &AtomicBool,
    run: &(impl Fn(&C) -> Try<F> + Sync),
    mut hear: impl FnMut(Message<C, F>),
) {
    let waiting = Mutex::new(VecDeque::from(cells));
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (!stop.load(Ordering::Relaxed))
            .then(|| waiting.pop_front())
            .flatten()
    };
    let (tell, told) = channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let tell = tell.clone();
            scope.spawn(move || work(next, run, &tell));
        }
        drop(tell);
        told.iter().for_each(&mut hear);
    });
}

fn work<C: Clone, F>(
    next: impl Fn() -> Option<C>,
    run: &impl Fn(&C) -> Try<F>,
    tell: &Sender<Message<C, F>>,
) {
    while let Some(cell) = next() {
        // The receiver outlives the workers; were it gone, nobody would miss the message.
        let _ = tell.send(Message::Began(cell.clone()));
        let ended = catch_unwind(AssertUnwindSafe(|| run(&cell)))
            .unwrap_or_else(|_| Try::Failed("the run panicked: this is a defect".into()));
        let _ = tell.send(Message::Ended(cell, ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::{Selection, cells};
    use std::sync::atomic::AtomicUsize;

    fn short() -> Vec<Cell> {
        cells(&Selection {
            only: vec!["split-rate".into()],
            quick: false,
        })
    }

    #[test]
    fn an_invalid_run_is_tried_again_and_alone() {
        let (running, company) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let seen = Mutex::new(Vec::new());
        let one = |cell: &Cell| {
            let others = running.fetch_add(1, Ordering::SeqCst);
            company.fetch_max(others, Ordering::SeqCst);
            thread::sleep(std::time::Duration::from_millis(2));
            running.fetch_sub(1, Ordering::SeqCst);
            let name = cell.name();
            let again = {
                let mut seen = seen.lock().unwrap();
                let again = seen.contains(&name);
                seen.push(name);
                again
            };
            assert!(!again || others == 0, "a second try has no company");
            match (cell.seed, cell.loss) {
                (2, _) if !again => Try::Invalid("late".into()),
                (3, 1) => Try::Invalid("late".into()),
                (3, 2) => panic!("a defect"),
                _ => Try::Done(Figures::default()),
            }
        };
        let planned = short().len();
        let outcomes = run(short(), 4, &AtomicBool::new(false), one, |_| {});
        assert_eq!(outcomes.len(), planned);
        assert!(company.into_inner() > 0, "the first tries run side by side");
        for Outcome {
            cell,
            result,
            attempts,
        } in &outcomes
        {
            let expected = match (cell.seed, cell.loss) {
                (3, 1) => (3, Err("late, also when run alone")),
                (3, 2) => (1, Err("the run panicked: this is a defect")),
                (2, _) => (2, Ok(())),
                _ => (1, Ok(())),
            };
            let ended = result.as_ref().map(|_| ()).map_err(String::as_str);
            assert_eq!((*attempts, ended), expected, "{}", cell.name());
        }
    }

    #[test]
    fn nothing_begins_after_a_stop() {
        let stop = AtomicBool::new(false);
        let began = AtomicUsize::new(0);
        let one = |_: &Cell| {
            if began.fetch_add(1, Ordering::SeqCst) == 2 {
                stop.store(true, Ordering::SeqCst);
                return Try::Stopped;
            }
            Try::Done(Figures::default())
        };
        let outcomes = run(short(), 1, &stop, one, |_| {});
        assert_eq!(outcomes.len(), 2);
        assert_eq!(began.into_inner(), 3);
    }
}
