//! A run of a study whose points others measure: other processes, other machines.

use crate::collector::Collector;
use crate::row::{Key, Measures, Row};
use crate::run::{VisitingOrder, visit};
use crate::{Options, Progress, Results, StudyError};
use bentpipe_scenario::Study;
use bentpipe_scenario::study::Point;

/// The results folder of a run whose points others measure, in any order. It is that of [`run`](crate::run()), locked until
/// this ends; what is put in is there at once.
pub struct Session {
    collector: Collector,
    unfinished: Vec<u64>,
}

impl Session {
    /// Opens the folder, and takes in what an earlier run has finished. Of `options` the progress is not told.
    ///
    /// # Errors
    /// As [`run`](crate::run()).
    pub fn open(study: &Study, options: &Options<'_>) -> Result<Self, StudyError> {
        let collector = Collector::open(study, options)?;
        let mut collector = visit(study, options, None, collector)?;
        let order = VisitingOrder::new(study.len());
        let places = collector.missing();
        Ok(Self {
            collector,
            unfinished: places.into_iter().map(|place| order.index(place)).collect(),
        })
    }

    /// The numbers of the points that are to be measured, neighbours far apart.
    pub fn unfinished(&self) -> &[u64] {
        &self.unfinished
    }

    /// Takes the row of point number `index`.
    ///
    /// # Errors
    /// The folder cannot be written, or the row is none of ours.
    pub fn add(&mut self, index: u64, row: &Row) -> Result<(), StudyError> {
        let key = Key::parse(&row.point).ok_or_else(|| StudyError::Row(row.point.clone()))?;
        self.collector.add(index, key, row)
    }

    /// Takes that the point of these labels could not be measured.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn fail(&mut self, labels: &[String], why: &str) -> Result<(), StudyError> {
        self.collector.fail(labels, why)
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.collector.progress()
    }

    /// Puts the folder in order.
    ///
    /// # Errors
    /// Points are missing, or failed: what is finished is kept.
    pub fn finish(self) -> Result<Results, StudyError> {
        self.collector.finish()
    }
}

impl Row {
    /// What was measured of `point`.
    pub fn of(point: Point, measures: Measures) -> Self {
        Self::new(Key::of(&point.scenario), point.labels, measures)
    }
}
