//! A study: a scenario, the axes along which it is varied, and the tables and figures that are made
//! of its points.
//!
//! Each axis sets keys of the document to its values; a point is the scenario that results from one
//! value of every axis. Points are made one at a time ([`Expander`]), so that the size of a study is
//! a number, not memory. A value that does not fit its key is a problem with the place of the value.
//!
//! ```
//! use bentpipe_scenario::{Known, Study};
//! let text = r#"
//! name = "rates"
//! [hosts.a]
//! [hosts.b]
//! [links.l]
//! ends = ["a", "b"]
//! rate = "1Mbit/s"
//! [[flows]]
//! from = "a"
//! to = "b"
//! bytes = "1MB"
//! [[sweep]]
//! name = "rate"
//! key = "links.l.rate"
//! values = ["1Mbit/s", "2Mbit/s"]
//! [[sweep]]
//! name = "seed"
//! key = "seed"
//! values = "1..10"
//! "#;
//! let study = Study::parse("rates.toml", text, Known::default())?;
//! assert_eq!(study.len(), 20);
//! let last = study.expander().point(19)?;
//! assert_eq!(last.labels, ["2Mbit/s", "10"]);
//! assert_eq!(last.scenario.links["l"].forward.rate.unwrap().mbps(), 2.0);
//! # Ok::<(), bentpipe_scenario::Problems>(())
//! ```

mod axis;
mod expand;
mod layout;

pub use expand::{Expander, Point};
pub use layout::{Contrast, Figure, FigureKind, Filter, TableKind, TableSpec};

use crate::model::Scenario;
use crate::parse::{self, Known};
use crate::problem::Problems;
use crate::read::Document;
use axis::Values;
use core::fmt::Write;

/// Name of the axis whose values are repetitions: cells are taken over all of them.
pub const SEED: &str = "seed";

/// A scenario, its axes, and what is made of its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    file: String,
    text: String,
    base: Scenario,
    axes: Vec<Axis>,
    tables: Vec<TableSpec>,
    figures: Vec<Figure>,
}

/// One direction in which the scenario is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    name: String,
    /// The dotted keys that each value sets, if it does not bring its own.
    keys: Vec<axis::Key>,
    values: Values,
    quick: Option<Values>,
}

impl Study {
    /// Reads a study; `file` is the name of the text in messages.
    ///
    /// # Errors
    /// Every problem found: those of the scenario, then those of axes, tables and figures, and of
    /// every single value of an axis (of a range, its first and last) in an otherwise first point.
    pub fn parse(file: &str, text: &str, known: Known<'_>) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        if document.is_broken() {
            return document.finish(None);
        }
        let mut root = document.root();
        let axes = axis::axes(&mut root);
        // Without axes no label can be looked up; asked for all the same, so not unknown keys.
        let layout = match &axes {
            Some(axes) => layout::layout(&mut root, axes, known),
            None => {
                let _ = (root.list("tables"), root.list("figures"));
                None
            }
        };
        let base = parse::scenario(root, known);
        let study = axes.zip(layout).zip(base).map(|((axes, layout), base)| {
            let (tables, figures) = layout;
            Self {
                file: file.to_owned(),
                text: text.to_owned(),
                base,
                axes,
                tables,
                figures,
            }
        });
        let study = document.finish(study)?;
        expand::check(&study, known)?;
        Ok(study)
    }

    /// The scenario as it stands in the file, before any axis.
    pub const fn base(&self) -> &Scenario {
        &self.base
    }

    /// The axes, in the order of the file; the last varies fastest.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The tables, in the order of the file.
    pub fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    /// The figures, in the order of the file.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// How many points it has.
    pub fn len(&self) -> u64 {
        let lengths = self.axes.iter().map(|axis| axis.values.len());
        lengths.fold(1, u64::saturating_mul)
    }

    /// Whether it has no point: never, as every axis has values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// With the seeds 1 to `count` in place of its own; `false` if it has no axis of that name.
    pub fn set_seeds(&mut self, count: u64) -> bool {
        let Some(axis) = self.axes.iter_mut().find(|axis| axis.name == SEED) else {
            return false;
        };
        axis.values = Values::Count {
            first: 1,
            last: count.max(1),
        };
        true
    }

    /// With the `quick` values of every axis that has some.
    pub fn set_quick(&mut self) {
        for axis in &mut self.axes {
            if let Some(quick) = axis.quick.take() {
                axis.values = quick;
            }
        }
    }

    /// What all points have in common: the scenario before any axis, and what the axes set. Two
    /// studies with the same may share their results, whatever their values.
    pub fn identity(&self) -> String {
        let mut text = self.base.to_toml();
        for axis in &self.axes {
            let keys: Vec<&str> = axis.keys.iter().map(|key| key.text.as_str()).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "axis {}: {}", axis.name, keys.join(" "));
        }
        text
    }

    /// The number of the point of one value of each axis, by their numbers.
    pub fn index_of(&self, choice: &[u64]) -> u64 {
        let axes = self.axes.iter().zip(choice);
        axes.fold(0, |index, (axis, at)| index * axis.len() + at)
    }

    /// Makes points.
    pub fn expander(&self) -> Expander<'_> {
        Expander::new(self)
    }
}

impl Axis {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many values it has; at least one.
    pub fn len(&self) -> u64 {
        self.values.len()
    }

    /// Whether it has no values: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the value called `label`.
    pub fn position(&self, label: &str) -> Option<u64> {
        self.labels()
            .position(|own| own == label)
            .map(|at| at as u64)
    }

    /// The labels of its values, in order.
    pub fn labels(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.len()).map(|index| self.values.label(index))
    }
}
