//! The measures that tables, figures and statements name: of the whole run, `goodput`, or of one flow, link or proxy,
//! `goodput(download)`.

use bentpipe_config::{Table, Wrong, brief, nearest};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// A measure that a study may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMeasure<'n> {
    /// Its name.
    pub name: &'n str,
    /// What may stand in brackets after it; `None`: nothing.
    pub part: Option<Part>,
}

/// What a measure may be taken of in place of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A flow.
    Flow,
    /// A link.
    Link,
    /// A PEP or a gateway.
    Pep,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Link => "link",
            Self::Pep => "PEP or gateway",
        }
    }
}

/// The names of flows, links and proxies in a study's file, whatever else is wrong with them.
pub(super) struct Parts {
    flows: Vec<String>,
    links: Vec<String>,
    /// The nodes at the ends of each link.
    ends: BTreeMap<String, Vec<String>>,
    peps: Vec<String>,
}

impl Parts {
    pub(super) fn new(root: &Table<'_, '_>) -> Self {
        let names = |key| match root.entries().get(key).map(|value| value.get_ref()) {
            Some(DeValue::Table(tables)) => tables
                .keys()
                .map(|name| name.get_ref().to_string())
                .collect(),
            _ => Vec::new(),
        };
        let flows = match root.entries().get("flows").map(|value| value.get_ref()) {
            Some(DeValue::Array(flows)) => { flows.iter().enumerate() }
                .map(|(index, flow)| flow_name(flow.get_ref(), index))
                .collect(),
            _ => Vec::new(),
        };
        let ends = |link: &DeValue<'_>| match link.get("ends") {
            Some(ends) => ends.get_ref().as_array().map_or_else(Vec::new, |ends| {
                let names = ends.iter().filter_map(|end| end.get_ref().as_str());
                names.map(str::to_owned).collect()
            }),
            None => Vec::new(),
        };
        let links = match root.entries().get("links").map(|value| value.get_ref()) {
            Some(DeValue::Table(links)) => links
                .iter()
                .map(|(name, link)| (name.get_ref().to_string(), ends(link.get_ref())))
                .collect(),
            _ => BTreeMap::new(),
        };
        Self {
            flows,
            links: names("links"),
            ends: links,
            peps: [names("peps"), names("gateways")].concat(),
        }
    }

    /// The nodes at the ends of `link`; `None` where there is no such link.
    pub(super) fn ends(&self, link: &str) -> Option<&[String]> {
        self.ends.get(link).map(Vec::as_slice)
    }

    /// The names of all links.
    pub(super) fn links(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(String::as_str)
    }

    /// Whether `name` is one of them. Of the copies that a flow's `count` makes, which an axis may vary, any number is
    /// right.
    fn has(&self, part: Part, name: &str) -> bool {
        let copy_of = |flow: &String| {
            let number = name
                .strip_prefix(flow.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
        };
        let there = self.names(part).iter().any(|known| known == name);
        there || part == Part::Flow && self.flows.iter().any(copy_of)
    }

    fn names(&self, part: Part) -> &[String] {
        match part {
            Part::Flow => &self.flows,
            Part::Link => &self.links,
            Part::Pep => &self.peps,
        }
    }
}

/// As flows without a name are called.
fn flow_name(flow: &DeValue<'_>, index: usize) -> String {
    let name_of = |flow: &DeTable<'_>| match flow.get("name")?.get_ref() {
        DeValue::String(name) => Some(name.to_string()),
        _ => None,
    };
    let own = match flow {
        DeValue::Table(flow) => name_of(flow),
        _ => None,
    };
    own.unwrap_or_else(|| format!("flow{}", index + 1))
}

/// What is wrong with `text` as a measure, of those that are `known`; any is right where none is. `renamed` are names
/// of before, with what is written now.
pub(super) fn wrong(
    text: &str,
    known: &[KnownMeasure<'_>],
    renamed: &[(&str, &str)],
    parts: &Parts,
) -> Option<Wrong> {
    if known.is_empty() {
        return None;
    }
    let (name, one) = match text.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        Some((name, one)) => (name, Some(one)),
        None => (text, None),
    };
    let Some(measure) = known.iter().find(|known| known.name == name) else {
        if let Some((old, now)) = renamed.iter().find(|(old, _)| *old == text) {
            let wrong = Wrong::new(
                format!("`{old}` is written otherwise now"),
                format!("`{now}`"),
            );
            return Some(wrong);
        }
        let names: Vec<&str> = known.iter().map(|known| known.name).collect();
        return Some(Wrong::name(
            format!("unknown measure `{}`", brief(text)),
            name,
            &names,
        ));
    };
    let one = one?;
    let Some(part) = measure.part else {
        let what = format!(
            "`{}`, a measure of the whole run, of `{}` alone",
            measure.name,
            brief(one)
        );
        return Some(Wrong::new(what, format!("`{}`", measure.name)));
    };
    (!parts.has(part, one)).then(|| {
        let names = parts.names(part).iter().map(String::as_str);
        let example = names.clone().next().unwrap_or("NAME");
        Wrong {
            suggestion: nearest(one, names).map(|near| format!("{name}({near})")),
            ..Wrong::new(
                format!("`{}` of no {} `{}`", measure.name, part.name(), brief(one)),
                format!(
                    "the name of a {} of this file, such as `{name}({example})`",
                    part.name()
                ),
            )
        }
    })
}
