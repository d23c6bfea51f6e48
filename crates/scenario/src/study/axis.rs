//! `[[sweep]]`.

use super::Axis;
use crate::names::Name;
use bentpipe_config::{Place, Table, Wrong, brief};
use serde_spanned::Spanned;
use std::collections::BTreeSet;
use toml::de::DeValue;

/// A dotted key of the document, and where the axis says it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) place: Place,
}

/// The values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    /// Whole numbers, both ends included; the labels are the numbers.
    Count { first: u64, last: u64 },
    /// The values of an array of the document, by their labels.
    List {
        key: &'static str,
        labels: Vec<String>,
    },
}

impl Values {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Count { first, last } => last - first + 1,
            Self::List { labels, .. } => labels.len() as u64,
        }
    }

    pub(super) fn label(&self, index: u64) -> String {
        match self {
            Self::Count { first, .. } => (first + index).to_string(),
            Self::List { labels, .. } => labels[index as usize].clone(),
        }
    }
}

/// `None` if one of them could not be read.
pub(super) fn axes(root: &mut Table<'_, '_>) -> Option<Vec<Axis>> {
    let tables = root.list("sweep");
    let count = tables.len();
    let axes: Vec<Axis> = tables.into_iter().filter_map(axis).collect();
    let mut names = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for axis in &axes {
        if !names.insert(&axis.name) {
            let what = format!("a second axis named `{}`", axis.name);
            root.problem("sweep", Wrong::new(what, "names that differ"));
        }
        for key in &axis.keys {
            if !keys.insert(&key.text) {
                let what = format!("`{}` is set by two axes", key.text);
                let wrong = Wrong::new(what, "one axis, whose values may set several keys");
                root.document().problem(key.place.clone(), wrong);
            }
        }
    }
    (axes.len() == count).then_some(axes)
}

fn axis(mut table: Table<'_, '_>) -> Option<Axis> {
    let name = table.required::<Name>("name", "\"rate\"");
    let keys = keys(&mut table);
    let values = values(&mut table, "values", keys.is_empty());
    let quick = if table.has("quick") {
        values_of(&mut table, "quick", keys.is_empty())
    } else {
        None
    };
    table.finish();
    Some(Axis {
        name: name?.0,
        keys,
        values: values?,
        quick,
    })
}

/// `key`: one text, or an array of them. None where every value brings its own.
fn keys(table: &mut Table<'_, '_>) -> Vec<Key> {
    let Some(value) = table.raw("key") else {
        return Vec::new();
    };
    let items = match value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![value],
    };
    let key = |item: &&Spanned<DeValue<'_>>| {
        let text = table.read::<String>(item)?;
        let place = item.span();
        if text.split('.').any(str::is_empty) {
            let what = format!("`{}` is no dotted key", brief(&text));
            let wrong = Wrong::new(what, "such as \"links.space.bit_error_rate\"");
            table.document().problem(place, wrong);
            return None;
        }
        Some(Key { text, place })
    };
    items.iter().filter_map(key).collect()
}

fn values(table: &mut Table<'_, '_>, key: &'static str, whole: bool) -> Option<Values> {
    if !table.has(key) {
        let what = format!("{} lacks `{key}`", table.title());
        let expected = format!("`{key} = [...]`, or a range such as `{key} = \"1..20\"`");
        table.problem(key, Wrong::new(what, expected));
    }
    values_of(table, key, whole)
}

/// `whole`: the axis has no key, so every value must bring its own.
fn values_of(table: &mut Table<'_, '_>, key: &'static str, whole: bool) -> Option<Values> {
    let value = table.raw(key)?;
    let expected = "an array of values, or a range of whole numbers such as \"1..20\"";
    let items = match value.get_ref() {
        DeValue::Array(items) if !items.is_empty() => items,
        DeValue::String(text) => {
            let range = range(text);
            if range.is_none() || whole {
                let what = format!("`{}` is no range of values for a key", brief(text));
                table.problem(key, Wrong::new(what, expected));
            }
            return range;
        }
        _ => {
            let source = table.document().source(&value.span());
            let what = format!("`{}` are no values", brief(source));
            table.problem(key, Wrong::new(what, expected));
            return None;
        }
    };
    let labels: Vec<String> = items
        .iter()
        .filter_map(|item| label(table, item, whole))
        .collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = labels.iter().find(|label| !seen.insert(*label)) {
        let what = format!("two values are called `{}`", brief(twice));
        table.problem(key, Wrong::new(what, "labels that differ"));
    }
    (labels.len() == items.len()).then_some(Values::List { key, labels })
}

/// Both ends of "1..20"; the range is not empty.
fn range(text: &str) -> Option<Values> {
    let (first, last) = text.split_once("..")?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    // The document's integers are signed.
    let most = i64::MAX as u64;
    (first <= last && last <= most).then_some(Values::Count { first, last })
}

/// The name of a value: of a table its `label`, otherwise the value as it is written.
fn label(table: &Table<'_, '_>, item: &Spanned<DeValue<'_>>, whole: bool) -> Option<String> {
    let document = table.document();
    let wrong = |what: &str| {
        let expected = if whole {
            "`{ label = \"...\", set = { \"dotted.key\" = ... } }`, as the axis has no `key`"
        } else {
            "a value, `{ label = \"...\", value = ... }` or `{ label = \"...\", set = { \"dotted.key\" = ... } }`"
        };
        document.problem(item.span(), Wrong::new(what, expected));
    };
    let entries = match item.get_ref() {
        DeValue::Table(entries) => entries,
        _ if whole => {
            wrong("a value without a key");
            return None;
        }
        DeValue::String(text) => return Some(text.to_string()),
        _ => return Some(document.source(&item.span()).to_owned()),
    };
    let (value, set) = (entries.get("value"), entries.get("set"));
    let right = match (value, set) {
        (Some(_), None) => !whole,
        (None, Some(set)) => set.get_ref().is_table(),
        _ => false,
    };
    let Some(label) = entries.get("label").filter(|_| right && entries.len() == 2) else {
        wrong("a value that does not say what it sets");
        return None;
    };
    table.read::<String>(label)
}
