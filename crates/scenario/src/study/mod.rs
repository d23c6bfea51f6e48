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
mod figure;
mod layout;
mod statement;

pub use expand::{Expander, Point};
pub use figure::{Band, Figure, FigureKind, Lines, Scale};
pub use layout::{Contrast, Filter, TableKind, TableSpec};
pub use statement::{Bound, ParseBoundError, SMALL_SHARE, Statement, Take};

use crate::model::Scenario;
use crate::parse::{self, Known};
use crate::problem::Problems;
use crate::read::Document;
use axis::Values;
use core::fmt::Write;
use layout::Layout;

/// Name of the axis whose values are repetitions: cells are taken over all of them.
pub const SEED: &str = "seed";

/// Most combinations of which `[[points]]` may choose: one number each is held.
const MOST_COMBINATIONS: u64 = 100_000_000;

/// A scenario, its axes, and what is made of its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    file: String,
    text: String,
    base: Scenario,
    axes: Vec<Axis>,
    layout: Layout,
    /// Where `[[points]]` chooses: the numbers of its points among all combinations, in order.
    chosen: Option<Vec<u64>>,
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
                let _ = layout::KEYS.map(|key| root.list(key));
                None
            }
        };
        let base = parse::scenario(root, known);
        let study = axes
            .zip(layout)
            .zip(base)
            .map(|((axes, layout), base)| Self {
                file: file.to_owned(),
                text: text.to_owned(),
                base,
                axes,
                layout,
                chosen: None,
            });
        let mut study = document.finish(study)?;
        expand::check(&study, known)?;
        study.choose();
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
        &self.layout.tables
    }

    /// The figures, in the order of the file.
    pub fn figures(&self) -> &[Figure] {
        &self.layout.figures
    }

    /// The statements, in the order of the file.
    pub fn statements(&self) -> &[Statement] {
        &self.layout.statements
    }

    /// How many points it has.
    pub fn len(&self) -> u64 {
        match &self.chosen {
            Some(chosen) => chosen.len() as u64,
            None => self.combinations(),
        }
    }

    fn combinations(&self) -> u64 {
        let lengths = self.axes.iter().map(|axis| axis.values.len());
        lengths.fold(1, u64::saturating_mul)
    }

    /// Enumerates the points of `[[points]]`, after any change of values. A study too large for
    /// that keeps all its combinations, which the caller will find too many.
    fn choose(&mut self) {
        let blocks = &self.layout.points;
        if blocks.is_empty() || self.combinations() > MOST_COMBINATIONS {
            self.chosen = None;
            return;
        }
        let mut chosen: Vec<u64> = blocks.iter().flat_map(|block| self.block(block)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        self.chosen = Some(chosen);
    }

    /// The numbers of the combinations that `block` admits.
    fn block(&self, block: &Filter) -> Vec<u64> {
        let mut numbers = vec![0];
        for (at, axis) in self.axes.iter().enumerate() {
            let admitted = |(_, label): &(u64, String)| {
                let some = block.get(&at);
                some.is_none_or(|some| some.contains(label))
            };
            let values = (0..axis.len()).zip(axis.labels()).filter(admitted);
            let values: Vec<u64> = values.map(|(value, _)| value).collect();
            let longer = numbers.iter().flat_map(|number| {
                let first = number * axis.len();
                values.iter().map(move |value| first + value)
            });
            numbers = longer.collect();
        }
        numbers
    }

    /// The number among all combinations of point number `index`.
    fn combination(&self, index: u64) -> u64 {
        let chosen = self.chosen.as_deref().filter(|chosen| !chosen.is_empty());
        chosen.map_or(index, |chosen| {
            chosen[(index % chosen.len() as u64) as usize]
        })
    }

    /// Whether it has no point: where `[[points]]` admits none of the values.
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
        self.choose();
        true
    }

    /// With the `quick` values of every axis that has some.
    pub fn set_quick(&mut self) {
        for axis in &mut self.axes {
            if let Some(quick) = axis.quick.take() {
                axis.values = quick;
            }
        }
        self.choose();
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

    /// The number of the point of one value of each axis, by their numbers; `None` if `[[points]]`
    /// leaves it out.
    pub fn index_of(&self, choice: &[u64]) -> Option<u64> {
        let axes = self.axes.iter().zip(choice);
        let number = axes.fold(0, |index, (axis, at)| index * axis.len() + at);
        match &self.chosen {
            None => Some(number),
            Some(chosen) => chosen.binary_search(&number).ok().map(|at| at as u64),
        }
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
