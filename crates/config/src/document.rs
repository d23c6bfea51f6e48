//! Reading TOML so that every problem is found, placed and explained.
//!
//! A [`Document`] holds the text and what was found wrong with it; a [`Table`] hands out values by
//! key and remembers which keys it was asked for, so that at its end every other key is unknown and
//! the nearest known one can be named. Problems do not stop the reading: a value that could not be
//! read is `None`, and [`Document::finish`] gives either the value or all problems.

use crate::{Problem, Problems, nearest};
use core::cell::RefCell;
use core::ops::Range;
use serde_spanned::Spanned;
use std::collections::BTreeSet;
use toml::de::{DeArray, DeTable, DeValue};

/// Where something stands in the text: a range of bytes.
pub type Place = Range<usize>;

/// A TOML text being read, and the problems found so far.
pub struct Document<'t> {
    file: &'t str,
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    problems: RefCell<Vec<(Place, Wrong)>>,
    broken: bool,
}

/// A value that is not what it should be; the place is known to whoever asked for the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What was found.
    pub what: String,
    /// What would have been right.
    pub expected: String,
    /// The nearest valid name.
    pub suggestion: Option<String>,
}

impl Wrong {
    /// `what` where `expected` would have been right.
    pub fn new(what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            expected: expected.into(),
            suggestion: None,
        }
    }

    /// `what` where one of `names` would have been right; suggests the one nearest to `found`.
    pub fn name(what: impl Into<String>, found: &str, names: &[&str]) -> Self {
        let expected = match names {
            [] => "none here".to_owned(),
            [one] => format!("`{one}`"),
            [most @ .., last] => format!("`{}` or `{last}`", most.join("`, `")),
        };
        Self {
            what: what.into(),
            expected,
            suggestion: nearest(found, names.iter().copied()).map(str::to_owned),
        }
    }
}

/// A type that a TOML value can be read as. `source` is the value as it was written, for messages.
pub trait Value: Sized {
    /// Reads `value`, or says what is wrong with it.
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong>;
}

impl<'t> Document<'t> {
    /// Reads the syntax of `text`; `file` is its name in messages.
    pub fn new(file: &'t str, text: &'t str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let problems: Vec<(Place, Wrong)> = errors
            .iter()
            .map(|error| {
                let place = error.span().unwrap_or(0..0);
                (place, syntax(error.message()))
            })
            .collect();
        Self {
            file,
            text,
            root,
            broken: !problems.is_empty(),
            problems: RefCell::new(problems),
        }
    }

    /// The same text with another content, whose values stand in that text.
    pub fn with_root(file: &'t str, text: &'t str, root: DeTable<'t>) -> Self {
        Self {
            file,
            text,
            root: Spanned::new(0..text.len(), root),
            broken: false,
            problems: RefCell::default(),
        }
    }

    /// Whether the text is not even TOML: reading on would only find consequences of that.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The outermost table.
    pub fn root(&self) -> Table<'_, 't> {
        Table {
            document: self,
            entries: self.root.get_ref(),
            place: 0..0,
            path: String::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Records a problem at `place`.
    pub fn problem(&self, place: Place, wrong: Wrong) {
        self.problems.borrow_mut().push((place, wrong));
    }

    /// `value` if nothing was wrong, otherwise all problems in the order of the text.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        let mut found = self.problems.take();
        match value {
            Some(value) if found.is_empty() => return Ok(value),
            // Whoever returns None has recorded why; this line is for the one who forgot.
            None if found.is_empty() => {
                found.push((0..0, Wrong::new("incomplete", "more than this")));
            }
            _ => {}
        }
        found.sort_by_key(|(place, _)| place.start);
        let mut cursor = Cursor::new(self.text);
        let problems = found.into_iter().map(|(place, wrong)| {
            cursor.advance(place.start);
            Problem {
                file: self.file.to_owned(),
                line: cursor.line,
                column: cursor.column,
                what: wrong.what,
                expected: wrong.expected,
                suggestion: wrong.suggestion,
            }
        });
        Err(Problems(problems.collect()))
    }

    /// The text at `place`, which is of this document.
    pub fn source(&self, place: &Place) -> &'t str {
        &self.text[place.clone()]
    }
}

/// The TOML parser's own message, cut in two where it says what it expected.
fn syntax(message: &str) -> Wrong {
    let line = message.lines().collect::<Vec<_>>().join(", ");
    match line.split_once(", expected ") {
        Some((what, expected)) => Wrong::new(format!("not TOML: {what}"), expected),
        None => Wrong::new(format!("not TOML: {line}"), "TOML 1.0, see https://toml.io"),
    }
}

/// Line and column of places that come one behind the other.
struct Cursor<'t> {
    rest: &'t str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'t> Cursor<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            rest: text,
            at: 0,
            line: 1,
            column: 1,
        }
    }

    /// Goes on to byte `to` of the text, at most to its end.
    fn advance(&mut self, to: usize) {
        let length = to.saturating_sub(self.at);
        let (passed, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        self.line += passed.matches('\n').count();
        self.column = match passed.rsplit_once('\n') {
            Some((_, last)) => last.chars().count() + 1,
            None => self.column + passed.chars().count(),
        };
        self.at += passed.len();
        self.rest = rest;
    }
}

/// One table of a [`Document`].
pub struct Table<'d, 't> {
    document: &'d Document<'t>,
    entries: &'d DeTable<'t>,
    place: Place,
    path: String,
    asked: BTreeSet<&'static str>,
}

impl<'d, 't> Table<'d, 't> {
    /// The document it belongs to.
    pub fn document(&self) -> &'d Document<'t> {
        self.document
    }

    /// Where its header stands.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Where the value of `key` stands; the table's own place when there is no such key.
    pub fn place_of(&self, key: &str) -> Place {
        self.entries
            .get(key)
            .map_or(self.place(), |value| value.span())
    }

    /// Its name as in a header: `[links.space]`; "the file" for the outermost.
    pub fn title(&self) -> String {
        match self.path.as_str() {
            "" => "the file".to_owned(),
            path => format!("[{path}]"),
        }
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the value of `key` is an array.
    pub fn is_array(&self, key: &str) -> bool {
        let value = self.entries.get(key);
        value.is_some_and(|value| value.get_ref().is_array())
    }

    /// Records a problem with the value of `key`, or with the table where `key` is missing.
    pub fn problem(&self, key: &str, wrong: Wrong) {
        self.document.problem(self.place_of(key), wrong);
    }

    /// Whether the value of `key` is this very text: a word in the place of a table or a quantity.
    pub fn says(&mut self, key: &'static str, word: &str) -> bool {
        let value = self.raw(key).map(Spanned::get_ref);
        matches!(value, Some(DeValue::String(text)) if text == word)
    }

    /// The value of `key`, if it is there and right.
    pub fn optional<T: Value>(&mut self, key: &'static str) -> Option<T> {
        let value = self.raw(key)?;
        self.read(value)
    }

    /// The value of `key`, `default` if it is not there.
    pub fn or<T: Value>(&mut self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// The value of `key`; a problem if it is not there. `example` shows a right one.
    pub fn required<T: Value>(&mut self, key: &'static str, example: &str) -> Option<T> {
        self.asked.insert(key);
        if !self.has(key) {
            let what = format!("{} lacks `{key}`", self.title());
            self.problem(key, Wrong::new(what, format!("`{key} = {example}`")));
        }
        self.optional(key)
    }

    /// The `N` values of the array `key`.
    pub fn array<T: Value, const N: usize>(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Option<[T; N]> {
        let value = self.raw(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            let what = format!("`{key}` is {}", kind(value.get_ref()));
            self.problem(key, Wrong::new(what, format!("`{key} = {example}`")));
            return None;
        };
        if items.len() != N {
            let what = format!("`{key}` has {} values", items.len());
            self.problem(key, Wrong::new(what, format!("{N}: `{key} = {example}`")));
            return None;
        }
        let read: Vec<T> = items.iter().filter_map(|item| self.read(item)).collect();
        read.try_into().ok()
    }

    /// All values of the array `key`; `None` if it is not there or one of them is wrong.
    pub fn values<T: Value>(&mut self, key: &'static str, example: &str) -> Option<Vec<T>> {
        let value = self.raw(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            let what = format!("`{key}` is {}", kind(value.get_ref()));
            self.problem(key, Wrong::new(what, format!("`{key} = {example}`")));
            return None;
        };
        let read: Vec<T> = items.iter().filter_map(|item| self.read(item)).collect();
        (read.len() == items.len()).then_some(read)
    }

    /// The table `key`, if there is one.
    pub fn table(&mut self, key: &'static str) -> Option<Table<'d, 't>> {
        let value = self.raw(key)?;
        self.enter(key, value)
    }

    /// The named tables within the table `key`: `[key.name]`, by name.
    pub fn tables(&mut self, key: &'static str) -> Vec<(&'d str, Place, Table<'d, 't>)> {
        let Some(outer) = self.table(key) else {
            return Vec::new();
        };
        let named = outer.entries.iter().filter_map(|(name, value)| {
            let table = outer.enter(name.get_ref(), value)?;
            Some((&**name.get_ref(), name.span(), table))
        });
        named.collect()
    }

    /// The tables of the array `[[key]]`, in order.
    pub fn list(&mut self, key: &'static str) -> Vec<Table<'d, 't>> {
        let Some(value) = self.raw(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.get_ref() else {
            let what = format!("`{key}` is {}", kind(value.get_ref()));
            self.problem(key, Wrong::new(what, format!("tables under `[[{key}]]`")));
            return Vec::new();
        };
        items
            .iter()
            .filter_map(|item| self.enter(key, item))
            .collect()
    }

    /// The table `key` as it is, unread: another program will.
    pub fn opaque(&mut self, key: &'static str) -> Option<toml::Table> {
        let value = self.raw(key)?;
        let table = self.enter(key, value)?;
        table.own(table.entries)
    }

    /// Its keys and values, unread.
    pub fn entries(&self) -> &'d DeTable<'t> {
        self.entries
    }

    /// Ends the reading of this table: every key nobody asked for is unknown.
    pub fn finish(self) {
        let known: Vec<&str> = self.asked.iter().copied().collect();
        for (key, _) in self.entries {
            let name: &str = key.get_ref();
            if !self.asked.contains(name) {
                let what = format!("unknown key `{name}` in {}", self.title());
                self.document
                    .problem(key.span(), Wrong::name(what, name, &known));
            }
        }
    }

    /// The value of `key`, unread.
    pub fn raw(&mut self, key: &'static str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.asked.insert(key);
        self.entries.get(key)
    }

    /// Reads `value`, which stands in this table; what is wrong with it is recorded.
    pub fn read<T: Value>(&self, value: &Spanned<DeValue<'_>>) -> Option<T> {
        let source = self.document.source(&value.span());
        T::read(value.get_ref(), source)
            .map_err(|wrong| self.document.problem(value.span(), wrong))
            .ok()
    }

    fn enter(&self, key: &str, value: &'d Spanned<DeValue<'t>>) -> Option<Table<'d, 't>> {
        let path = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        let DeValue::Table(entries) = value.get_ref() else {
            let what = format!("`{path}` is {}", kind(value.get_ref()));
            let wrong = Wrong::new(what, format!("a table `[{path}]`"));
            self.document.problem(value.span(), wrong);
            return None;
        };
        Some(Table {
            document: self.document,
            entries,
            place: value.span(),
            path,
            asked: BTreeSet::new(),
        })
    }

    fn own(&self, entries: &DeTable<'_>) -> Option<toml::Table> {
        let pairs = entries
            .iter()
            .map(|(key, value)| Some((key.get_ref().to_string(), self.own_value(value)?)));
        pairs.collect()
    }

    fn own_value(&self, value: &Spanned<DeValue<'_>>) -> Option<toml::Value> {
        Some(match value.get_ref() {
            DeValue::String(text) => toml::Value::String(text.to_string()),
            DeValue::Boolean(value) => toml::Value::Boolean(*value),
            DeValue::Datetime(value) => toml::Value::Datetime(*value),
            DeValue::Integer(_) => toml::Value::Integer(self.read(value)?),
            DeValue::Float(_) => toml::Value::Float(self.read(value)?),
            DeValue::Array(items) => toml::Value::Array(self.own_items(items)?),
            DeValue::Table(entries) => toml::Value::Table(self.own(entries)?),
        })
    }

    fn own_items(&self, items: &DeArray<'_>) -> Option<Vec<toml::Value>> {
        items.iter().map(|item| self.own_value(item)).collect()
    }
}

/// What sort of value it is, with its article.
pub fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
