//! Runs many independent runs side by side, and repeats alone those that the others disturbed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A run that ended, one way or the other.
#[derive(Clone, Debug)]
pub struct Outcome<C, F> {
    /// Which run.
    pub cell: C,
    /// Its figures, or why there are none.
    pub result: Result<F, String>,
    /// How often it was tried.
    pub attempts: u32,
}

/// How one try of a run ended.
#[derive(Clone, Debug)]
pub enum Try<F> {
    /// With figures.
    Done(F),
    /// The emulator fell behind: why, and what was measured where that is to be shown if no other try
    /// brings better. Worth another one, alone.
    Invalid(String, Option<F>),
    /// It could not be run.
    Failed(String),
    /// Someone asked to stop.
    Stopped,
}

/// What the pool tells whoever watches it.
#[derive(Debug)]
pub enum Event<'a, C, F> {
    /// A run began.
    Began(&'a C),
    /// A run ended; it will not be tried again.
    Ended(&'a Outcome<C, F>),
    /// A run was invalid and will be tried again alone: why, and what it measured all the same.
    Again(&'a C, &'a str, Option<&'a F>),
    /// There is no time left for a run.
    Shed(&'a C),
    /// The first tries of a group have all ended.
    Group,
}

/// Links emulated side by side on each processor. On two processors ten leave the emulators' p99
/// lateness at 0.2 ms in the median run and take three and a half minutes for the demo.
const JOBS_PER_PROCESSOR: usize = 5;
/// The most workers. More would only wait for the longest runs.
const MOST_JOBS: usize = 24;

/// How many runs go side by side where nobody says otherwise.
pub fn default_jobs() -> usize {
    (processors() * JOBS_PER_PROCESSOR).min(MOST_JOBS)
}

/// Processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How often an invalid run is tried again, alone. If every try is disturbed, the machine cannot measure the run.
const TRIES_ALONE: u32 = 2;

/// Runs the cells of each group, one group after the other, in their order on `workers` threads, and the invalid
/// ones of all groups again alone afterwards.
///
/// `admit` is asked before a run begins, with the number of tries it had; a run that it refuses is left out, or
/// keeps what its last try brought. `watch` is called on the caller's thread. When `stop` is set no further run
/// begins; the outcomes so far are returned. A `run` that panics counts as failed.
pub fn run<C: Clone + Send, F: Send>(
    groups: Vec<Vec<C>>,
    workers: usize,
    stop: &AtomicBool,
    run: impl Fn(&C) -> Try<F> + Sync,
    admit: impl Fn(&C, u32) -> bool + Sync,
    mut watch: impl FnMut(Event<'_, C, F>),
) -> Vec<Outcome<C, F>> {
    let mut outcomes = Vec::new();
    let mut again = Vec::new();
    for group in groups {
        let admit = |cell: &C| admit(cell, 0);
        let hear = |message| match message {
            Message::Began(cell) => watch(Event::Began(&cell)),
            Message::Refused(cell) => watch(Event::Shed(&cell)),
            Message::Ended(cell, Try::Invalid(why, left)) => {
                watch(Event::Again(&cell, &why, left.as_ref()));
                again.push((cell, why, left));
            }
            Message::Ended(cell, ended) => settle(cell, ended, 1, &mut outcomes, &mut watch),
        };
        round(group, workers.max(1), stop, &run, &admit, hear);
        watch(Event::Group);
    }
    for (cell, why, left) in again {
        let mut last = Try::Invalid(why, left);
        let mut attempts = 1;
        let tries = |attempts| attempts <= TRIES_ALONE && !stop.load(Ordering::Relaxed);
        while matches!(last, Try::Invalid(..)) && tries(attempts) && admit(&cell, attempts) {
            watch(Event::Began(&cell));
            last = caught(&run, &cell);
            attempts += 1;
        }
        settle(cell, last, attempts, &mut outcomes, &mut watch);
    }
    outcomes
}

enum Message<C, F> {
    Began(C),
    Refused(C),
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
        Try::Invalid(_, Some(figures)) => Ok(figures),
        Try::Invalid(why, None) if attempts > 1 => Err(format!("{why}, also when run alone")),
        Try::Invalid(why, None) => Err(why),
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
    admit: &(impl Fn(&C) -> bool + Sync),
    mut hear: impl FnMut(Message<C, F>),
) {
    let waiting = Mutex::new(VecDeque::from(cells));
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (!stop.load(Ordering::Relaxed))
            .then(|| waiting.pop_front())
            .flatten()
    };
    let (tell, events) = channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let tell = tell.clone();
            scope.spawn(move || work(next, run, admit, &tell));
        }
        drop(tell);
        events.iter().for_each(&mut hear);
    });
}

fn work<C: Clone, F>(
    next: impl Fn() -> Option<C>,
    run: &impl Fn(&C) -> Try<F>,
    admit: &impl Fn(&C) -> bool,
    tell: &Sender<Message<C, F>>,
) {
    while let Some(cell) = next() {
        // The receiver outlives the workers; were it gone, nobody would miss the message.
        if !admit(&cell) {
            let _ = tell.send(Message::Refused(cell));
            continue;
        }
        let _ = tell.send(Message::Began(cell.clone()));
        let ended = caught(run, &cell);
        let _ = tell.send(Message::Ended(cell, ended));
    }
}

fn caught<C, F>(run: &impl Fn(&C) -> Try<F>, cell: &C) -> Try<F> {
    catch_unwind(AssertUnwindSafe(|| run(cell)))
        .unwrap_or_else(|_| Try::Failed("the run panicked: this is a defect".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A run by its loss and its seed.
    #[derive(Clone, Debug, PartialEq)]
    struct Cell {
        loss: u32,
        seed: u64,
    }

    fn short() -> Vec<Cell> {
        let seeds = |loss| (1..=3).map(move |seed| Cell { loss, seed });
        (0..3).flat_map(seeds).collect()
    }

    fn all<C, F>(_: &C, _: F) -> bool {
        true
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
            let again = {
                let mut seen = seen.lock().unwrap();
                let again = seen.contains(cell);
                seen.push(cell.clone());
                again
            };
            assert!(!again || others == 0, "a second try has no company");
            match (cell.seed, cell.loss) {
                (2, _) if !again => Try::Invalid("late".into(), None),
                (3, 1) => Try::Invalid("late".into(), None),
                (3, 2) => panic!("a defect"),
                _ => Try::Done(()),
            }
        };
        let planned = short().len();
        let outcomes = run(vec![short()], 4, &AtomicBool::new(false), one, all, |_| {});
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
            assert_eq!((*attempts, ended), expected, "{cell:?}");
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
            Try::Done(())
        };
        let outcomes = run(vec![short()], 1, &stop, one, all, |_| {});
        assert_eq!(outcomes.len(), 2);
        assert_eq!(began.into_inner(), 3);
    }

    #[test]
    fn what_there_is_no_time_for_is_left_out_and_a_disturbed_run_keeps_its_figures() {
        let one = |cell: &Cell| match cell.seed {
            2 => Try::Invalid("late".into(), Some(())),
            _ => Try::Done(()),
        };
        // No third runs, and nothing is tried again.
        let admit = |cell: &Cell, tries: u32| cell.seed < 3 && tries == 0;
        let (mut shed, mut again, mut groups) = (0, 0, 0);
        let cells = vec![short(), Vec::new()];
        let planned: Vec<u64> = short().iter().map(|cell| cell.seed).collect();
        let outcomes = run(
            cells,
            2,
            &AtomicBool::new(false),
            one,
            admit,
            |event| match event {
                Event::Shed(cell) => {
                    assert_eq!(cell.seed, 3);
                    shed += 1;
                }
                Event::Again(cell, why, left) => {
                    assert_eq!((cell.seed, why, left.is_some()), (2, "late", true));
                    again += 1;
                }
                Event::Group => groups += 1,
                Event::Began(_) | Event::Ended(_) => {}
            },
        );
        let of = |seed| planned.iter().filter(|one| **one == seed).count();
        assert_eq!((shed, again, groups), (of(3), of(2), 2));
        assert_eq!(outcomes.len(), planned.len() - of(3));
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.result.is_ok() && outcome.attempts == 1)
        );
    }
}
