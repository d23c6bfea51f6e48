//! From TOML text to a [`Scenario`]: first every value by itself, then what must fit together.

mod channel;
mod check;
mod endpoint;
mod flows;
mod keys;
mod links;
mod nodes;
mod old_split;
mod peps;
mod queue;
mod traffic;

use crate::model::{Ip, Scenario};
use crate::names::{Name, check_name};
use crate::study::KnownMeasure;
use bentpipe_config::{Document, Place, Problems, Table, Wrong};
use bentpipe_link::keys::LONGEST;
use core::time::Duration;
use std::collections::BTreeMap;

/// Names that other crates give a meaning, so that a typo in one is found where it stands. Where
/// the list is empty any name will do, and is looked up later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'n> {
    /// Variants of TCP.
    pub variants: &'n [&'n str],
    /// Congestion controls.
    pub controls: &'n [&'n str],
    /// Programs that move files.
    pub apps: &'n [&'n str],
    /// Measures of studies.
    pub measures: &'n [KnownMeasure<'n>],
    /// Names that measures had before, each with what is written now.
    pub renamed: &'n [(&'n str, &'n str)],
}

impl Scenario {
    /// Reads a scenario; `file` is the name of the text in messages. Any variant of TCP and any
    /// congestion control is taken.
    ///
    /// Errors hold every problem found: syntax first, and only where that is right keys, units,
    /// values and names.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Self::parse_knowing(file, text, Known::default())
    }

    /// Reads a scenario whose variants of TCP and congestion controls must be among the `known`.
    ///
    /// Errors are those of [`Scenario::parse`].
    pub fn parse_knowing(file: &str, text: &str, known: Known<'_>) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        if document.is_broken() {
            return document.finish(None);
        }
        let scenario = single(&document, known);
        document.finish(scenario)
    }
}

/// The scenario that `document` describes, which is no study; problems are recorded in it.
pub(crate) fn single(document: &Document<'_>, known: Known<'_>) -> Option<Scenario> {
    let mut root = document.root();
    studies(&mut root);
    scenario(root, known)
}

/// The scenario that `root` describes, checked as a whole; problems are recorded in its document.
pub(crate) fn scenario(root: Table<'_, '_>, known: Known<'_>) -> Option<Scenario> {
    let document = root.document();
    let (scenario, places) = read(root)?;
    check::whole(document, &scenario, &places, known);
    Some(scenario)
}

/// What makes a study of a scenario. One run has no use for it: refused by name, so that nobody
/// believes that it does something.
fn studies(root: &mut Table<'_, '_>) {
    for key in ["sweep", "tables", "figures", "engine", "capture"] {
        if root.has(key) {
            let what = format!("`{key}` makes a study of this file");
            let expected = "one scenario without it, or `bentpipe study run`";
            root.problem(key, Wrong::new(what, expected));
            // Asked for, so not also unknown.
            let _ = root.optional::<Anything>(key);
        }
    }
}

struct Anything;

impl bentpipe_config::Value for Anything {
    fn read(_: &toml::de::DeValue<'_>, _: &str) -> Result<Self, Wrong> {
        Ok(Self)
    }
}

/// Where the names that refer to something else stand, for the checks of the whole.
#[derive(Default)]
struct Places {
    /// The header of each node.
    nodes: BTreeMap<String, Place>,
    /// The ends of each link.
    ends: BTreeMap<String, [Place; 2]>,
    /// `sat` and `lan` of each gateway.
    legs: BTreeMap<String, [Place; 2]>,
    /// `node` and `link` of each PEP.
    peps: BTreeMap<String, [Place; 2]>,
    /// `congestion_control` of each host.
    controls: BTreeMap<String, Place>,
    /// The keys of each flow.
    flows: Vec<flows::Places>,
    /// `between` and `variant` of the traffic.
    traffic: Option<[Place; 2]>,
}

/// `None` where a part that others refer to could not be read: the checks of the whole would find
/// only consequences of that.
fn read(mut root: Table<'_, '_>) -> Option<(Scenario, Places)> {
    let mut places = Places::default();
    let name = root.required::<Name>("name", "\"geo\"");
    let seed = root.or("seed", 1u64);
    let time_limit = time_limit(&mut root);
    let ip = ip(&mut root);
    let hosts = nodes::hosts(&mut root, &mut places);
    let routers = nodes::routers(&mut root, &mut places);
    let gateways = nodes::gateways(&mut root, &mut places);
    let peps = peps::peps(&mut root, &mut places);
    let links = links::links(&mut root, &mut places);
    let flows = flows::flows(&mut root, &mut places);
    let traffic = traffic::traffic(&mut root, &mut places);
    root.finish();
    let scenario = Scenario {
        name: name?.0,
        seed,
        time_limit,
        ip,
        hosts: hosts?,
        routers: routers?,
        gateways: gateways?,
        peps: peps?,
        links: links?,
        flows: flows?,
        traffic: traffic?,
    };
    Some((scenario, places))
}

fn time_limit(root: &mut Table<'_, '_>) -> Duration {
    let limit = root.or("time_limit", Duration::from_secs(60));
    if limit.is_zero() || limit > LONGEST {
        let what = "a time limit of nothing or of more than a day";
        root.problem(
            "time_limit",
            Wrong::new(what, "at most a day (86400s), such as \"60s\""),
        );
    }
    limit
}

fn ip(root: &mut Table<'_, '_>) -> Ip {
    match root.or("ip", 4u64) {
        4 => Ip::V4,
        6 => Ip::V6,
        other => {
            let what = format!("there is no IPv{other}");
            root.problem("ip", Wrong::new(what, "`4` or `6`"));
            Ip::V4
        }
    }
}

/// The tables under `key` as a map by checked name; `None` if one of them could not be read.
fn named<'d, 't, T>(
    root: &mut Table<'d, 't>,
    key: &'static str,
    mut read: impl FnMut(&str, &Place, Table<'d, 't>) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let document = root.document();
    let mut whole = true;
    let mut map = BTreeMap::new();
    for (name, place, table) in root.tables(key) {
        if let Err(wrong) = check_name(name) {
            document.problem(place.clone(), wrong);
            whole = false;
        }
        match read(name, &place, table) {
            Some(value) => drop(map.insert(name.to_owned(), value)),
            None => whole = false,
        }
    }
    whole.then_some(map)
}
