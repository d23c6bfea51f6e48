//! The outcome of a comparison whose lines are a table and a JSON array alike.

use super::write_json;
use serde::Serialize;
use std::io;
use std::path::Path;

/// One line of a [`LineReport`].
pub trait Line: Serialize {
    /// The head of its table.
    const HEADER: &'static [&'static str];

    /// Its row of the table: a cell for each of [`Line::HEADER`].
    fn row(&self) -> Vec<String>;
}

/// What was found, line by line, and under what conditions.
#[derive(Clone, Debug)]
pub struct LineReport<E> {
    entries: Vec<E>,
    notes: Vec<String>,
}

impl<E: Line> LineReport<E> {
    pub(super) fn new(entries: Vec<E>, notes: Vec<String>) -> Self {
        Self { entries, notes }
    }

    /// Its lines.
    pub fn entries(&self) -> &[E] {
        &self.entries
    }

    /// Under what conditions the figures were taken, who was left out and why: a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The head of [`LineReport::table`].
    pub fn header(&self) -> Vec<String> {
        E::HEADER.iter().map(|&name| name.to_owned()).collect()
    }

    /// One row a line.
    pub fn table(&self) -> Vec<Vec<String>> {
        self.entries.iter().map(E::row).collect()
    }

    /// The lines as a JSON array.
    ///
    /// # Errors
    /// Figures are numbers and text: none is known.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.entries)
    }

    /// Writes [`LineReport::json`] to `path`, making its folder where there is none.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        write_json(path, self.json()?)
    }
}
