//! Running the points of a study on all cores.

use crate::StudyError;
use crate::folder::Folder;
use crate::row::{Key, Measures, Row};
use crate::samples::{Samples, single};
use bentpipe_scenario::study::{Expander, Point};
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
    /// Points of the study.
    pub total: u64,
}

/// What a run brings. Rows are in the folder, in the order of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What tables, figures and statements are made of.
    pub samples: Samples,
    /// How many points there are.
    pub points: u64,
    /// How many of them an earlier run had finished.
    pub resumed: u64,
}

/// Measures every point of `study` that is not finished yet; runs share nothing.
///
/// # Errors
/// Whatever ends it early; what is finished is in the folder.
pub fn run(
    study: &Study,
    options: &Options<'_>,
    measure: &(dyn Fn(&Scenario) -> Result<Measures, String> + Sync),
) -> Result<Results, StudyError> {
    let points = study.len();
    let too_many = |_| StudyError::TooMany { points };
    let samples = Samples::new(study).map_err(too_many)?;
    let mut order = Vec::new();
    order.try_reserve_exact(points as usize).map_err(too_many)?;
    order.resize(points as usize, Key::default());
    let folder = Folder::open(options.out, study, options.fresh)?;
    let pool = WorkerPool {
        study,
        options,
        measure,
        single: single(study),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        shared: Mutex::new(Shared {
            folder,
            order,
            samples,
            done: 0,
            resumed: 0,
            error: None,
        }),
    };
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| pool.work());
        }
    });
    let Shared {
        folder,
        order,
        samples,
        done,
        resumed,
        error,
    } = pool
        .shared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    if done < points {
        return Err(StudyError::Interrupted {
            done,
            total: points,
        });
    }
    folder.finish(&order)?;
    Ok(Results {
        samples,
        points,
        resumed,
    })
}

struct WorkerPool<'a> {
    study: &'a Study,
    options: &'a Options<'a>,
    measure: &'a (dyn Fn(&Scenario) -> Result<Measures, String> + Sync),
    /// Measures that a finished point must have been asked for.
    single: Vec<String>,
    /// How many points have been taken.
    next: AtomicU64,
    stop: AtomicBool,
    shared: Mutex<Shared>,
}

struct Shared {
    folder: Folder,
    /// The keys of finished points, by their numbers.
    order: Vec<Key>,
    samples: Samples,
    /// How many points are finished.
    done: u64,
    /// How many of them an earlier run had finished.
    resumed: u64,
    /// The first.
    error: Option<StudyError>,
}

impl WorkerPool<'_> {
    fn work(&self) {
        let expander = self.study.expander();
        let total = self.study.len();
        let step = stride(total);
        loop {
            let stop =
                self.stop.load(Ordering::Relaxed) || self.options.cancel.load(Ordering::Relaxed);
            let taken = self.next.fetch_add(1, Ordering::Relaxed);
            if stop || taken >= total {
                return;
            }
            let index = (u128::from(taken) * u128::from(step) % u128::from(total)) as u64;
            if let Err(error) = self.one(&expander, index) {
                self.stop.store(true, Ordering::Relaxed);
                self.shared().error.get_or_insert(error);
                return;
            }
        }
    }

    fn one(&self, expander: &Expander<'_>, index: u64) -> Result<(), StudyError> {
        let Point {
            labels, scenario, ..
        } = expander.point(index)?;
        let key = Key::of(&scenario);
        // A point that was finished before the study named this flow or link is run again.
        let asked = |row: &Row| {
            self.single
                .iter()
                .all(|name| row.measures.contains_key(name))
        };
        let found = self.shared().folder.row(key).filter(asked);
        let resumed = found.is_some();
        let measures = match found {
            Some(row) => row.measures,
            None => match (self.measure)(&scenario) {
                Ok(measures) => measures,
                // A point that takes long may have been given up for that.
                Err(_) if self.options.cancel.load(Ordering::Relaxed) => return Ok(()),
                Err(why) => {
                    let labels = labels.join(", ");
                    return Err(StudyError::Point { labels, why });
                }
            },
        };
        let mut shared = self.shared();
        shared.samples.put(index, &measures);
        if !resumed {
            let row = Row {
                point: key.to_string(),
                labels,
                measures,
            };
            shared.folder.append(key, &row)?;
        }
        shared.order[index as usize] = key;
        shared.done += 1;
        shared.resumed += u64::from(resumed);
        let progress = Progress {
            done: shared.done,
            resumed: shared.resumed,
            total: self.study.len(),
        };
        drop(shared);
        (self.options.progress)(progress);
        Ok(())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The step by which points are visited: each once, and neighbours far apart. Points of one corner of the study take
/// similar times, so a mixed order makes the estimate of the remaining time good from the start. The step is coprime to
/// `total` and near its golden section.
fn stride(total: u64) -> u64 {
    let wanted = (total as f64 * 0.618) as u64;
    let coprime = |step: &u64| gcd(*step, total) == 1;
    (wanted.max(1)..=total.max(1)).find(coprime).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_visits_every_point_once() {
        for total in 1..200 {
            let step = stride(total);
            let mut seen: Vec<u64> = (0..total).map(|taken| taken * step % total).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..total).collect::<Vec<_>>(), "{total}");
        }
    }
}
