//! Running the points of a study on all cores.

use crate::StudyError;
use crate::folder::Folder;
use crate::row::{Measures, Row, key};
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
    /// Of these, those of earlier runs.
    pub resumed: u64,
    /// In all.
    pub total: u64,
}

/// What a run brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Every point, in order.
    pub rows: Vec<Row>,
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
    let folder = Folder::open(options.out, study, options.fresh)?;
    let crew = Crew {
        study,
        options,
        measure,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        shared: Mutex::new(Shared {
            folder,
            done: Vec::new(),
            resumed: 0,
            error: None,
        }),
    };
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| crew.work());
        }
    });
    let total = study.len();
    let Shared {
        folder,
        mut done,
        resumed,
        error,
    } = crew
        .shared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    let count = done.len() as u64;
    if count < total {
        return Err(StudyError::Interrupted { done: count, total });
    }
    done.sort_by_key(|(index, _)| *index);
    let rows: Vec<Row> = done.into_iter().map(|(_, row)| row).collect();
    let order: Vec<String> = rows.iter().map(|row| row.point.clone()).collect();
    folder.finish(&order)?;
    Ok(Results { rows, resumed })
}

struct Crew<'a> {
    study: &'a Study,
    options: &'a Options<'a>,
    measure: &'a (dyn Fn(&Scenario) -> Result<Measures, String> + Sync),
    /// How many points have been taken.
    next: AtomicU64,
    stop: AtomicBool,
    shared: Mutex<Shared>,
}

struct Shared {
    folder: Folder,
    /// Number and row of every finished point.
    done: Vec<(u64, Row)>,
    resumed: u64,
    /// The first.
    error: Option<StudyError>,
}

impl Crew<'_> {
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
        let point = key(&scenario);
        let found = self.shared().folder.line(&point).map(str::to_owned);
        let row = found
            .as_deref()
            .and_then(|line| serde_json::from_str(line).ok());
        let resumed = row.is_some();
        let row = match row {
            // Its labels are those of today: a value may have been given another name.
            Some(row) => Row { labels, ..row },
            None => match (self.measure)(&scenario) {
                Ok(measures) => Row {
                    point,
                    labels,
                    measures,
                },
                // A point that takes long may have been given up for that.
                Err(_) if self.options.cancel.load(Ordering::Relaxed) => return Ok(()),
                Err(why) => {
                    let labels = labels.join(", ");
                    return Err(StudyError::Point { labels, why });
                }
            },
        };
        let mut shared = self.shared();
        if !resumed {
            let line = serde_json::to_string(&row).map_err(|error| StudyError::Point {
                labels: row.labels.join(", "),
                why: error.to_string(),
            })?;
            shared.folder.append(&row.point, line)?;
        }
        shared.resumed += u64::from(resumed);
        shared.done.push((index, row));
        let progress = Progress {
            done: shared.done.len() as u64,
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

/// A step that visits every point once and never long the same corner of the study: points differ in
/// what they cost, and so the time left is guessed well from the first on. Coprime to `total`, near
/// its golden section.
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
