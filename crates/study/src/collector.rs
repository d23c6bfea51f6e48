//! Takes in what points bring, in any order.

use crate::folder::Folder;
use crate::row::{Key, Measures, Row};
use crate::samples::{Samples, single};
use crate::shard::Shard;
use crate::{Options, Progress, Results, StudyError};
use bentpipe_scenario::Study;
use std::path::Path;

/// The results folder of a run, and what is kept of its points in memory.
pub(crate) struct Collector {
    folder: Folder,
    /// How many points are to come.
    points: u64,
    /// Number and key of each finished point.
    finished: Vec<(u64, Key)>,
    /// Of one shard, of which no tables are made, empty.
    samples: Samples,
    /// Measures that a finished point must have been asked for.
    single: Vec<String>,
    /// How many of the finished points an earlier run had finished.
    resumed: u64,
    failed: u64,
    /// The first point that failed, and why.
    first: Option<String>,
    /// The places, in the order in which points are visited, of those that are not there where none are run.
    missing: Vec<u64>,
}

impl Collector {
    /// Opens the folder that `options` names.
    pub(crate) fn open(study: &Study, options: &Options<'_>) -> Result<Self, StudyError> {
        let folder = || Folder::open(options.out, study, options.fresh, options.shard);
        Self::new(study, options, folder)
    }

    /// As [`open`](Self::open), for a folder that is only read.
    pub(crate) fn read(study: &Study, options: &Options<'_>) -> Result<Self, StudyError> {
        Self::new(study, options, || Folder::read(options.out, study))
    }

    /// As [`read`](Self::read), also while a run appends to the folder.
    pub(crate) fn look(study: &Study, options: &Options<'_>) -> Result<Self, StudyError> {
        Self::new(study, options, || Folder::look(options.out, study))
    }

    fn new(
        study: &Study,
        options: &Options<'_>,
        folder: impl FnOnce() -> Result<Folder, StudyError>,
    ) -> Result<Self, StudyError> {
        let shard = options.shard.unwrap_or(Shard::WHOLE);
        let points = shard.len(study.len());
        let too_many = |_| StudyError::TooMany { points };
        let samples = match options.shard {
            None => Samples::new(study).map_err(too_many)?,
            Some(_) => Samples::default(),
        };
        let mut finished = Vec::new();
        let count = usize::try_from(points).unwrap_or(usize::MAX);
        finished.try_reserve_exact(count).map_err(too_many)?;
        Ok(Self {
            folder: folder()?,
            points,
            finished,
            samples,
            single: single(study),
            resumed: 0,
            failed: 0,
            first: None,
            missing: Vec::new(),
        })
    }

    pub(crate) const fn folder(&mut self) -> &mut Folder {
        &mut self.folder
    }

    /// How far it has come.
    pub(crate) const fn progress(&self) -> Progress {
        Progress {
            done: self.finished.len() as u64,
            resumed: self.resumed,
            failed: self.failed,
            total: self.points,
        }
    }

    /// Takes point number `index` from the folder; `false` where it is not there. One that was finished before the study
    /// named a flow or link of which it wants a measure is not there.
    pub(crate) fn resume(&mut self, index: u64, key: Key) -> bool {
        let asked = |row: &Row| {
            let mut names = self.single.iter();
            names.all(|name| row.measures.contains_key(name))
        };
        let Some(row) = self.folder.row(key).filter(asked) else {
            return false;
        };
        self.keep(index, key, &row.measures);
        self.resumed += 1;
        true
    }

    /// Takes what point number `index` brought.
    pub(crate) fn add(&mut self, index: u64, key: Key, row: &Row) -> Result<(), StudyError> {
        self.folder.append(key, row)?;
        self.keep(index, key, &row.measures);
        Ok(())
    }

    fn keep(&mut self, index: u64, key: Key, measures: &Measures) {
        self.samples.put(index, measures);
        self.finished.push((index, key));
    }

    /// Takes that the point of these labels could not be run.
    pub(crate) fn fail(&mut self, labels: &[String], why: &str) -> Result<(), StudyError> {
        self.folder.fail(labels, why)?;
        let words = || format!("point {}: {why}", labels.join(", "));
        self.first.get_or_insert_with(words);
        self.failed += 1;
        Ok(())
    }

    /// Takes that the point at `place` of the order in which points are visited is not there.
    pub(crate) fn miss(&mut self, place: u64) {
        self.missing.push(place);
    }

    /// The places of the points that are not there, in order.
    pub(crate) fn missing(&mut self) -> Vec<u64> {
        let mut places = std::mem::take(&mut self.missing);
        places.sort_unstable();
        places
    }

    /// Puts the folder in order when all points are finished.
    pub(crate) fn finish(mut self) -> Result<Results, StudyError> {
        let Progress {
            done,
            failed,
            total,
            ..
        } = self.progress();
        if done + failed < total {
            return Err(StudyError::Interrupted { done, total });
        }
        if let Some(first) = self.first {
            return Err(StudyError::Failed {
                failed,
                total,
                first,
                file: self.folder.failures(),
            });
        }
        self.finished.sort_unstable();
        let order = self.finished.into_iter().map(|(_, key)| key);
        self.folder.finish(order)?;
        Ok(Results {
            samples: self.samples,
            points: total,
            resumed: self.resumed,
        })
    }

    /// What is there, when all points are finished; the folder stays as it is.
    pub(crate) fn results(self, path: &Path) -> Result<Results, StudyError> {
        let Progress { done, total, .. } = self.progress();
        if done < total {
            let path = path.to_owned();
            return Err(StudyError::Unfinished { path, done, total });
        }
        Ok(self.so_far())
    }

    /// What is there, whether or not more is to come.
    pub(crate) fn so_far(self) -> Results {
        Results {
            points: self.progress().done,
            samples: self.samples,
            resumed: self.resumed,
        }
    }
}
