//! Running the points of a study on all cores.

use crate::StudyError;
use crate::collector::Collector;
use crate::row::{Key, Measures, Row};
use crate::samples::Samples;
use crate::shard::Shard;
use bentpipe_scenario::study::Expander;
use bentpipe_scenario::{Scenario, Study};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// How to run a study.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The results folder.
    pub out: &'a Path,
    /// The part of the points that is run; `None`: all of them.
    pub shard: Option<Shard>,
    /// How many points are run at a time, at least 1.
    pub threads: usize,
    /// Whether results that are there are replaced.
    pub fresh: bool,
    /// Raised by whoever wants the run to stop.
    pub cancel: &'a AtomicBool,
    /// Told after every point, from any thread.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Points finished, those of earlier runs included.
    pub done: u64,
    /// Points among these that earlier runs finished.
    pub resumed: u64,
    /// Points that could not be run.
    pub failed: u64,
    /// Points of the study, or of its shard.
    pub total: u64,
}

/// What a run brings. Rows are in the folder, in the order of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What tables, figures and statements are made of; empty of a shard.
    pub samples: Samples,
    /// How many points there are; of [`read_so_far`], are finished.
    pub points: u64,
    /// How many of them an earlier run had finished.
    pub resumed: u64,
}

/// Measures every point of `study` that is not finished yet, or those of one shard; runs share nothing. A point that cannot
/// be run does not stop the others.
///
/// # Errors
/// Whatever ends it early, or points that could not be run; what is finished is in the folder.
pub fn run(
    study: &Study,
    options: &Options<'_>,
    measure: &(dyn Fn(&Scenario) -> Result<Measures, String> + Sync),
) -> Result<Results, StudyError> {
    let collector = Collector::open(study, options)?;
    visit(study, options, Some(measure), collector)?.finish()
}

/// The results that an earlier run left in the folder of `options`, in which nothing is changed; of `options` threads and cancel
/// count besides.
///
/// # Errors
/// There are none, not all, or those of another study or version.
pub fn read(study: &Study, options: &Options<'_>) -> Result<Results, StudyError> {
    let collector = Collector::read(study, options)?;
    visit(study, options, None, collector)?.results(options.out)
}

/// As [`read`], of the points that are finished so far, also while another process runs the study in that folder: the others
/// have no samples.
///
/// # Errors
/// There are none, or those of another study or version.
pub fn read_so_far(study: &Study, options: &Options<'_>) -> Result<Results, StudyError> {
    let collector = Collector::look(study, options)?;
    Ok(visit(study, options, None, collector)?.so_far())
}

/// How a point is measured.
type Measure<'a> = &'a (dyn Fn(&Scenario) -> Result<Measures, String> + Sync);

/// Has `collector` take in all points: from the folder, or measured. Without `measure` it is told which are not there.
pub(crate) fn visit(
    study: &Study,
    options: &Options<'_>,
    measure: Option<Measure<'_>>,
    collector: Collector,
) -> Result<Collector, StudyError> {
    let pool = WorkerPool {
        study,
        options,
        measure,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        shared: Mutex::new(Shared {
            collector,
            error: None,
        }),
    };
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| pool.work());
        }
    });
    let shared = pool.shared.into_inner();
    let Shared { collector, error } = shared.unwrap_or_else(PoisonError::into_inner);
    error.map_or(Ok(collector), Err)
}

struct WorkerPool<'a> {
    study: &'a Study,
    options: &'a Options<'a>,
    measure: Option<Measure<'a>>,
    /// How many points have been taken.
    next: AtomicU64,
    stop: AtomicBool,
    shared: Mutex<Shared>,
}

struct Shared {
    collector: Collector,
    /// The first.
    error: Option<StudyError>,
}

impl WorkerPool<'_> {
    fn work(&self) {
        let expander = self.study.expander();
        let order = VisitingOrder::new(self.study.len());
        let shard = self.options.shard.unwrap_or(Shard::WHOLE);
        loop {
            let stop =
                self.stop.load(Ordering::Relaxed) || self.options.cancel.load(Ordering::Relaxed);
            let taken = self.next.fetch_add(1, Ordering::Relaxed);
            if stop || taken >= shard.len(self.study.len()) {
                return;
            }
            let place = shard.place(taken);
            if let Err(error) = self.one(&expander, place, order.index(place)) {
                self.stop.store(true, Ordering::Relaxed);
                self.shared().error.get_or_insert(error);
                return;
            }
        }
    }

    /// The point number `index`, which stands at `place` of the order.
    fn one(&self, expander: &Expander<'_>, place: u64, index: u64) -> Result<(), StudyError> {
        let point = expander.point(index)?;
        let key = Key::of(&point.scenario);
        if !self.shared().collector.resume(index, key) {
            let Some(measure) = self.measure else {
                self.shared().collector.miss(place);
                return Ok(());
            };
            let measured = measure(&point.scenario);
            match measured {
                Ok(measures) => {
                    let row = Row::new(key, point.labels, measures);
                    self.shared().collector.add(index, key, &row)?;
                }
                // A point that takes long may have been given up for that.
                Err(_) if self.options.cancel.load(Ordering::Relaxed) => return Ok(()),
                Err(why) => self.shared().collector.fail(&point.labels, &why)?,
            }
        }
        let progress = self.shared().collector.progress();
        (self.options.progress)(progress);
        Ok(())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order in which points are visited: each once, and neighbours far apart. Points of one corner of the study take
/// similar times, so a mixed order makes the estimate of the remaining time good from the start, and shards alike.
pub(crate) struct VisitingOrder {
    total: u64,
    /// Coprime to `total`, and near its golden section.
    step: u64,
}

impl VisitingOrder {
    pub(crate) fn new(total: u64) -> Self {
        let wanted = (total as f64 * 0.618) as u64;
        let coprime = |step: &u64| gcd(*step, total) == 1;
        let step = (wanted.max(1)..=total.max(1)).find(coprime).unwrap_or(1);
        Self { total, step }
    }

    /// The number of the point at `place`, which is less than the total.
    pub(crate) fn index(&self, place: u64) -> u64 {
        (u128::from(place) * u128::from(self.step) % u128::from(self.total)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_visited_once() {
        for total in 1..200 {
            let order = VisitingOrder::new(total);
            let mut seen: Vec<u64> = (0..total).map(|place| order.index(place)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..total).collect::<Vec<_>>(), "{total}");
        }
    }
}
