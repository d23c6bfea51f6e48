//! `[[time_sequences]]`.

use super::layout::{Filter, Reader};
use bentpipe_config::{Wrong, brief};
use core::time::Duration;

/// The time-sequence graph of what was captured of one point: segments, acknowledgements, the window, by the bytes of the
/// stream.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSequence {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The link whose packets are drawn, and the end where they were captured.
    pub link: String,
    /// A node at one of its ends.
    pub node: String,
    /// When it begins and how long it is, from the first packet of the connection on; `None`: all of it.
    pub part: Option<(Duration, Duration)>,
    /// Which point: one value of every axis, of `seed` the first.
    pub filter: Filter,
}

impl Reader<'_, '_, '_> {
    /// A graph needs captures: `captured` is whether the study makes them.
    pub(super) fn time_sequence(mut self, captured: bool) -> Option<TimeSequence> {
        let (name, title) = self.heading();
        let link = self.table.required::<String>("link", "\"space\"");
        let node = self.table.required::<String>("node", "\"hub\"");
        if let Some((link, node)) = link.as_ref().zip(node.as_ref()) {
            self.is_end(link, node);
        }
        if !captured {
            let wrong = Wrong::new(
                "a time-sequence graph of a study without captures",
                "`capture = true` at the top of the file",
            );
            self.table.document().problem(self.table.place(), wrong);
        }
        let begin = self.table.optional::<Duration>("begin");
        let length = self.table.optional::<Duration>("length");
        let part = match (begin, length) {
            (None, None) => None,
            (begin, Some(length)) if !length.is_zero() => Some((begin.unwrap_or_default(), length)),
            _ => {
                let wrong = Wrong::new(
                    "a part without a length",
                    "a `length` beside `begin`, such as \"1s\"",
                );
                self.table.problem("length", wrong);
                None
            }
        };
        let filter = self.filter()?;
        self.all_fixed(Vec::new(), &filter);
        self.table.finish();
        Some(TimeSequence {
            name: name?,
            title: title?,
            link: link?,
            node: node?,
            part,
            filter,
        })
    }

    /// Whether `node` is at an end of `link`; otherwise it is a problem.
    fn is_end(&self, link: &str, node: &str) {
        let Some(ends) = self.parts.ends(link) else {
            let names: Vec<&str> = self.parts.links().collect();
            let what = format!("`{}` is no link", brief(link));
            self.table.problem("link", Wrong::name(what, link, &names));
            return;
        };
        if !ends.iter().any(|end| end == node) {
            let names: Vec<&str> = ends.iter().map(String::as_str).collect();
            let what = format!("`{}` is at no end of `{}`", brief(node), brief(link));
            self.table.problem("node", Wrong::name(what, node, &names));
        }
    }
}
