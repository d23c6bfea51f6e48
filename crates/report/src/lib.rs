//! Pages and figures of reports: HTML that carries its figures, style, script and uPlot and loads nothing from
//! anywhere, and the same figures as SVG files.
//!
//! Here are the page of a study ([`study`]), a figure as a file ([`svg()`]), and
//! [`page`], which makes any page whole; the templates are in `web/`. What a report says is for others to find out:
//! `bentpipe-study` makes tables, lines and what stands around them, `bentpipe-demo` and `bentpipe compare` have pages of their own beside
//! their figures. Begin with [`page`].
#![forbid(unsafe_code)]

pub mod study;
mod svg;
mod text;

pub use svg::svg;
pub use text::{date, wrapped};

use serde::Serialize;
use std::io::{self, Write};

/// A mark in a template, and the text that takes its place.
pub type Part = (&'static str, &'static str);

/// What every page has: its style and helpers, and uPlot with its licence.
const SHARED: [Part; 5] = [
    ("{{report.css}}", include_str!("../../../web/report.css")),
    (
        "{{page.js}}",
        include_str!(concat!(env!("OUT_DIR"), "/page.js")),
    ),
    (
        "{{uplot.css}}",
        include_str!(concat!(env!("OUT_DIR"), "/uPlot.min.css")),
    ),
    (
        "{{uplot.js}}",
        include_str!(concat!(env!("OUT_DIR"), "/uPlot.iife.min.js")),
    ),
    (
        "{{uplot.licence}}",
        include_str!(concat!(env!("OUT_DIR"), "/uPlot.licence.js")),
    ),
];

/// What every page has that stands in a template at `mark`, for servers that hand it out as a file.
pub fn shared(mark: &str) -> Option<&'static str> {
    let part = SHARED.iter().find(|(own, _)| *own == mark);
    part.map(|(_, text)| *text)
}

/// The page that `template` describes: `scripts` and what all pages share stand at their marks, and `data` as JSON
/// at the mark `{{data}}`.
///
/// # Errors
/// When a figure in `data` is not a number.
pub fn page(template: &str, scripts: &[Part], data: &impl Serialize) -> serde_json::Result<String> {
    let mut page = Vec::new();
    write_page(&mut page, template, scripts, data).map_err(serde::ser::Error::custom)?;
    // Templates, scripts and JSON are text.
    String::from_utf8(page).map_err(serde::ser::Error::custom)
}

/// Writes the same page to `out` as it comes, so that its data are never in memory as a whole.
///
/// # Errors
/// When a figure in `data` is not a number, or what `out` gives.
pub fn write_page<W: Write>(
    out: &mut W,
    template: &str,
    scripts: &[Part],
    data: &impl Serialize,
) -> io::Result<()> {
    let filled = scripts
        .iter()
        .chain(&SHARED)
        .fold(template.to_owned(), |page, (mark, part)| {
            page.replace(mark, part)
        });
    let (before, behind) = filled.split_once("{{data}}").unwrap_or((&filled, ""));
    out.write_all(before.as_bytes())?;
    serde_json::to_writer(Escaped(&mut *out), data)?;
    out.write_all(behind.as_bytes())
}

/// JSON inside a script element, which a `<` could end.
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (index, piece) in bytes.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(piece)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
