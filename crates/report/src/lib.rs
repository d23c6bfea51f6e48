//! Pages and figures of reports: HTML that carries its figures, style, script and uPlot and loads nothing from
//! anywhere, and the same figures as SVG files.
//!
//! Here are the page of a study ([`study`]), a figure as the page and the file draw it ([`figure`], [`svg()`]), and
//! [`page`], which makes any page whole; the templates are in `web/`. What a report says is for others to find out:
//! `bentpipe-study` makes tables and lines, `bentpipe-demo` and `bentpipe compare` have pages of their own beside
//! their figures. Begin with [`page`].
#![forbid(unsafe_code)]

pub mod figure;
pub mod study;
mod svg;
mod text;

pub use svg::svg;
pub use text::{date, wrapped};

use serde::Serialize;

/// A mark in a template, and the text that takes its place.
pub type Part = (&'static str, &'static str);

/// What every page has: its style, and uPlot with its licence.
const SHARED: [Part; 4] = [
    ("{{report.css}}", include_str!("../../../web/report.css")),
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

/// The page that `template` describes: `scripts` and what all pages share stand at their marks, and `data` as JSON
/// at the mark `{{data}}`.
///
/// # Errors
/// When a figure in `data` is not a number.
pub fn page(template: &str, scripts: &[Part], data: &impl Serialize) -> serde_json::Result<String> {
    // A `<` inside the data could end its script element.
    let data = serde_json::to_string(data)?.replace('<', "\\u003c");
    let filled = scripts
        .iter()
        .chain(&SHARED)
        .fold(template.to_owned(), |page, (mark, part)| {
            page.replace(mark, part)
        });
    Ok(filled.replace("{{data}}", &data))
}
