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
//! # Ok::<(), bentpipe_config::Problems>(())
//! ```

mod axis;
mod engine;
mod expand;
mod figure;
mod layout;
mod measure;
mod statement;
mod time_sequence;

pub use engine::Engine;
pub use expand::{Expander, Point};
pub(crate) use expand::{Setting, change, set};
pub use figure::{Band, Figure, FigureKind, Lines, Scale};
pub use layout::{Contrast, Filter, TableKind, TableSpec};
pub use measure::{KnownMeasure, Part};
pub use statement::{Bound, ParseBoundError, SMALL_SHARE, Statement, Take};
pub use time_sequence::TimeSequence;

use crate::model::{Scenario, Traffic, TrafficSource};
use crate::parse::{self, Known};
use axis::Values;
use bentpipe_config::{Document, Problems};
use bentpipe_traffic::{Profile, ProfileError};
use core::fmt::Write;
use layout::Layout;
use std::collections::{BTreeMap, BTreeSet};

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
    engine: Engine,
    capture: bool,
    axes: Vec<Axis>,
    layout: Layout,
    /// Where `[[points]]` chooses: the numbers of its points among all combinations, in order.
    chosen: Option<Vec<u64>>,
    /// The profiles of cross traffic that points name, by the names of their files.
    profiles: BTreeMap<String, Profile>,
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
        let engine = engine::engine(&mut root);
        let capture = root.optional("capture").unwrap_or(false);
        let known = engine.knowing(known);
        let axes = axis::axes(&mut root);
        // Without axes no label can be looked up; asked for all the same, so not unknown keys.
        let layout = match &axes {
            Some(axes) => layout::layout(&mut root, axes, known, capture),
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
                engine,
                capture,
                axes,
                layout,
                chosen: None,
                profiles: BTreeMap::new(),
            });
        let mut study = document.finish(study)?;
        expand::check(&study, known)?;
        study.choose();
        Ok(study)
    }

    /// The files of cross traffic that the scenario or values of an axis name.
    ///
    /// # Errors
    /// Values that contradict each other.
    pub fn profile_files(&self) -> Result<BTreeSet<String>, Problems> {
        let mut files = BTreeSet::new();
        let Some(traffic) = &self.base.traffic else {
            return Ok(files);
        };
        files.extend(traffic.file().map(str::to_owned));
        let expander = self.expander();
        for (number, axis) in self.axes.iter().enumerate() {
            if matches!(axis.values, Values::Count { .. }) {
                continue;
            }
            for at in 0..axis.len() {
                let mut choice = vec![0; self.axes.len()];
                choice[number] = at;
                let scenario = expander.scenario(&choice)?;
                let file = scenario.traffic.as_ref().and_then(|own| own.file());
                files.extend(file.map(str::to_owned));
            }
        }
        Ok(files)
    }

    /// Takes `text` for the content of the profile `file`, for the base and every point that names
    /// it.
    ///
    /// # Errors
    /// What is wrong with the profile, or with it in a run of the scenario's length.
    pub fn load_profile(&mut self, file: &str, text: &str) -> Result<(), ProfileError> {
        let profile = Profile::parse(file, text)?;
        profile.fits(file, self.base.time_limit)?;
        self.profiles.insert(file.to_owned(), profile);
        let mut base = self.base.clone();
        self.fill(&mut base);
        self.base = base;
        Ok(())
    }

    /// Gives the traffic of `scenario` the profile that it names, where that was read.
    fn fill(&self, scenario: &mut Scenario) {
        if let Some(Traffic {
            source: TrafficSource::Profile { file, profile },
            ..
        }) = &mut scenario.traffic
        {
            *profile = self.profiles.get(file).cloned();
        }
    }

    /// The scenario as it stands in the file, before any axis.
    pub const fn base(&self) -> &Scenario {
        &self.base
    }

    /// What its points are run on.
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// Whether each point is captured at both ends of every link: `capture`.
    pub const fn is_captured(&self) -> bool {
        self.capture
    }

    /// With its points run on `engine`.
    pub const fn set_engine(&mut self, engine: Engine) {
        self.engine = engine;
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

    /// The time-sequence graphs of captures, in the order of the file.
    pub fn time_sequences(&self) -> &[TimeSequence] {
        &self.layout.time_sequences
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
            let values: Vec<u64> = (0..axis.len())
                .zip(axis.labels())
                .filter(admitted)
                .map(|(value, _)| value)
                .collect();
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

    /// What all points have in common: the scenario before any axis, what runs it, and what the axes
    /// set. Two studies with the same may share their results, whatever their values.
    pub fn identity(&self) -> String {
        let mut text = self.base.to_toml();
        if self.engine != Engine::Simulator {
            text.push_str(self.engine.name());
        }
        for axis in &self.axes {
            let keys: Vec<&str> = axis.keys.iter().map(|key| key.text.as_str()).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "axis {}: {}", axis.name, keys.join(" "));
        }
        text
    }

    /// The numbers of the values of point number `index` on each axis; past the last the numbers
    /// begin again.
    pub fn choice(&self, index: u64) -> Vec<u64> {
        let mut rest = self.combination(index);
        let mut choice = vec![0; self.axes.len()];
        for (at, axis) in choice.iter_mut().zip(&self.axes).rev() {
            *at = rest % axis.len();
            rest /= axis.len();
        }
        choice
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

    /// The label of value number `index`, which is less than its length.
    pub fn label(&self, index: u64) -> String {
        self.values.label(index)
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
