//! From a study and a number to the scenario of that point.

use super::Study;
use super::axis::Values;
use crate::model::Scenario;
use crate::names::unsaid_name;
use crate::parse::{self, Known};
use bentpipe_config::{Document, Place, Problem, Problems, Wrong};
use serde_spanned::Spanned;
use std::borrow::Cow;
use toml::de::{DeTable, DeValue};

/// One scenario of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its number; the last axis varies fastest.
    pub index: u64,
    /// The label of its value on each axis.
    pub labels: Vec<String>,
    /// What is run.
    pub scenario: Scenario,
}

/// Makes the points of a study. One for each thread: it holds the parsed text.
pub struct Expander<'s> {
    study: &'s Study,
    known: Known<'s>,
    /// The document without what makes a study of it.
    base: DeTable<'s>,
    /// For each axis, the arrays of the document that its values stand in.
    axes: Vec<Option<DeTable<'s>>>,
}

/// A key, where it is said, and what it is set to.
pub(crate) struct Setting<'s> {
    pub(crate) key: Cow<'s, str>,
    pub(crate) place: Place,
    pub(crate) value: Spanned<DeValue<'s>>,
}

impl<'s> Expander<'s> {
    pub(super) fn new(study: &'s Study) -> Self {
        Self::knowing(study, Known::default())
    }

    fn knowing(study: &'s Study, known: Known<'s>) -> Self {
        // The study was read from this text before: it is TOML.
        let mut base = DeTable::parse_recoverable(&study.text).0.into_inner();
        let sweep = base.remove("sweep").map(Spanned::into_inner);
        for key in super::layout::KEYS.into_iter().chain(["engine", "capture"]) {
            base.remove(key);
        }
        let tables = match sweep {
            Some(DeValue::Array(items)) => items.into_iter().collect(),
            _ => Vec::new(),
        };
        let axes = tables.into_iter().map(|axis| match axis.into_inner() {
            DeValue::Table(table) => Some(table),
            _ => None,
        });
        Self {
            study,
            known,
            base,
            axes: axes.collect(),
        }
    }

    /// Point number `index`; past the last the numbers begin again.
    ///
    /// # Errors
    /// Values that are right one by one may contradict each other.
    pub fn point(&self, index: u64) -> Result<Point, Problems> {
        let choice = self.study.choice(index);
        let scenario = self.scenario(&choice)?;
        let axes = self.study.axes.iter().zip(&choice);
        let labels = axes.map(|(axis, at)| axis.values.label(*at)).collect();
        Ok(Point {
            index,
            labels,
            scenario,
        })
    }

    /// The scenario of one value of each axis.
    pub(super) fn scenario(&self, choice: &[u64]) -> Result<Scenario, Problems> {
        let axes = self.study.axes.iter().zip(choice);
        let labels: Vec<String> = axes.map(|(axis, at)| axis.values.label(*at)).collect();
        let mut root = self.base.clone();
        let mut wrongs = Vec::new();
        for (number, (label, at)) in labels.iter().zip(choice).enumerate() {
            for setting in self.settings(number, *at, label) {
                let place = setting.place.clone();
                if let Err(wrong) = set(&mut root, &setting.key, &setting) {
                    wrongs.push((place, wrong));
                }
            }
        }
        let Study { file, text, .. } = self.study;
        let document = Document::with_root(file, text, root);
        let scenario = if wrongs.is_empty() {
            parse::scenario(document.root(), self.known)
        } else {
            for (place, wrong) in wrongs {
                document.problem(place, wrong);
            }
            None
        };
        let mut scenario = document.finish(scenario)?;
        self.study.fill(&mut scenario);
        Ok(scenario)
    }

    /// What value number `at` of axis `number` sets; of a range it is the number that its label is.
    fn settings<'p>(&'p self, number: usize, at: u64, label: &'p str) -> Vec<Setting<'p>> {
        let axis = &self.study.axes[number];
        let keyed = |value: &Spanned<DeValue<'p>>| {
            let keys = axis.keys.iter().map(|key| Setting {
                key: Cow::Borrowed(key.text.as_str()),
                place: key.place.clone(),
                value: value.clone(),
            });
            keys.collect()
        };
        let key = match &axis.values {
            Values::Count { .. } => {
                let place = axis.keys.first().map_or(0..0, |key| key.place.clone());
                let value = DeValue::parse(label).expect("digits are a value");
                return keyed(&Spanned::new(place, value.into_inner()));
            }
            Values::List { key, .. } => key,
        };
        let array = self.axes[number].as_ref().and_then(|axis| axis.get(*key));
        let Some(item) = array.and_then(|array| array.get_ref().get(at as usize)) else {
            return Vec::new();
        };
        let DeValue::Table(entries) = item.get_ref() else {
            return keyed(item);
        };
        if let Some(value) = entries.get("value") {
            return keyed(value);
        }
        let set = entries.get("set").and_then(|set| set.get_ref().as_table());
        let pairs = set.into_iter().flatten().map(|(key, value)| Setting {
            key: key.get_ref().clone(),
            place: key.span(),
            value: value.clone(),
        });
        pairs.collect()
    }
}

/// Sets the dotted `path` below `table`, as [`change`] finds it.
pub(crate) fn set<'s>(
    table: &mut DeTable<'s>,
    path: &str,
    setting: &Setting<'s>,
) -> Result<(), Wrong> {
    change(table, path, &setting.key, &|table, name| {
        // Anew, so that the key too stands where the axis says it.
        table.remove(name);
        let key = Spanned::new(setting.place.clone(), Cow::Owned(name.to_owned()));
        table.insert(key, setting.value.clone());
    })
}

/// Calls `act` with each table that the dotted `path` below `table` leads to, and the name of the key in it; `key` is the
/// whole path, for messages. All tables on the way must be there but a link's `reverse`; an array of tables is entered by
/// the `name` of one of them, which flows have without saying it, too, or by `*` for all.
pub(crate) fn change<'s>(
    table: &mut DeTable<'s>,
    path: &str,
    key: &str,
    act: &dyn Fn(&mut DeTable<'s>, &str),
) -> Result<(), Wrong> {
    let Some((head, rest)) = path.split_once('.') else {
        act(table, path);
        return Ok(());
    };
    if head == "reverse" && key.starts_with("links.") && !table.contains_key(head) {
        let empty = Spanned::new(0..0, DeValue::Table(DeTable::default()));
        table.insert(Spanned::new(0..0, Cow::Borrowed("reverse")), empty);
    }
    let missing = |names: &[&str]| {
        let what = format!("`{key}` leads nowhere: there is no `{head}`");
        Err(Wrong::name(what, head, names))
    };
    let names: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match table.get_mut(head).map(Spanned::as_mut) {
        None => missing(&names),
        Some(DeValue::Table(inner)) => change(inner, rest, key, act),
        Some(DeValue::Array(items)) => {
            let (name, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let mut found = false;
            let mut names = Vec::new();
            for (index, item) in items.iter_mut().enumerate() {
                let DeValue::Table(inner) = item.as_mut() else {
                    continue;
                };
                let own = inner.get("name").and_then(|own| own.get_ref().as_str());
                let own = own.map(str::to_owned);
                let own = own.or_else(|| (head == "flows").then(|| unsaid_name(index)));
                if !rest.is_empty() && (name == "*" || own.as_deref() == Some(name)) {
                    change(inner, rest, key, act)?;
                    found = true;
                }
                names.extend(own);
            }
            if found {
                return Ok(());
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let what = format!("`{key}` leads nowhere: no [[{head}]] is named `{name}`");
            Err(Wrong::name(what, name, &names))
        }
        Some(_) => {
            let what = format!("`{key}` leads nowhere: `{head}` is no table");
            Err(Wrong::new(what, "a key of a table"))
        }
    }
}

/// Every value by itself, all other axes at their first.
pub(super) fn check(study: &Study, known: Known<'_>) -> Result<(), Problems> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut try_all = |study: &Study| {
        let expander = Expander::knowing(study, known);
        let mut choice = vec![0; study.axes.len()];
        for (number, axis) in study.axes.iter().enumerate() {
            let values: Vec<u64> = match &axis.values {
                Values::Count { .. } => vec![0, axis.len() - 1],
                Values::List { .. } => (0..axis.len()).collect(),
            };
            for at in values {
                choice[number] = at;
                if let Err(found) = expander.scenario(&choice) {
                    let new = found.into_iter().filter(|new| !problems.contains(new));
                    let new: Vec<Problem> = new.collect();
                    problems.extend(new);
                }
            }
            choice[number] = 0;
        }
    };
    try_all(study);
    let mut quick = study.clone();
    quick.set_quick();
    try_all(&quick);
    problems.sort_by_key(|problem| (problem.line, problem.column));
    Problems::found(problems).map_or(Ok(()), Err)
}
