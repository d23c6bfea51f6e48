//! The files of the pages, built into the binary.

use bentpipe_report::shared;

/// A file and its media type.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

const JS: &str = "text/javascript";
const CSS: &str = "text/css";

macro_rules! page {
    ($name:literal, $kind:expr) => {
        page!($name, $kind, concat!("testbed/", $name))
    };
    ($name:literal, $kind:expr, $path:expr) => {
        Asset {
            name: $name,
            kind: $kind,
            text: include_str!(concat!("../../../web/", $path)),
        }
    };
}

/// What `make advisor` has beside, too: `page.js` and `report.css` are of all pages.
const FILES: &[Asset] = &[
    page!("testbed.css", CSS),
    page!("main.js", JS),
    page!("ask.js", JS),
    page!("lines.js", JS),
    page!("run.js", JS),
    page!("scenario-form.js", JS),
    page!("watch.js", JS),
    page!("compare.js", JS),
    page!("history.js", JS),
    page!("studies.js", JS),
    page!("gateway.js", JS),
    page!("page.js", JS, "page.js"),
    page!("sheet.js", JS, "sheet.js"),
    page!("report.css", CSS, "report.css"),
];

/// The page.
pub(crate) const INDEX: &str = include_str!("../../../web/testbed/index.html");
/// What is shown to whom has no token.
pub(crate) const LOGIN: &str = include_str!("../../../web/testbed/login.html");

/// The file called `name`.
pub(crate) fn find(name: &str) -> Option<Asset> {
    let own = FILES.iter().find(|asset| asset.name == name);
    let own = own.map(|&Asset { name, kind, text }| Asset { name, kind, text });
    own.or_else(|| {
        let (name, kind, text) = match name {
            "uPlot.min.css" => ("uPlot.min.css", CSS, shared("{{uplot.css}}")),
            "uPlot.iife.min.js" => ("uPlot.iife.min.js", JS, shared("{{uplot.js}}")),
            "uPlot.licence.js" => ("uPlot.licence.js", JS, shared("{{uplot.licence}}")),
            _ => return None,
        };
        let text = text?;
        Some(Asset { name, kind, text })
    })
}

/// Whether anybody may have it: what the page without a token looks like.
pub(crate) fn is_public(name: &str) -> bool {
    ["testbed.css", "report.css"].contains(&name)
}
