//! From TOML text to a [`Scenario`]: first every value by itself, then what must fit together.

mod check;
mod flows;
mod links;
mod nodes;

use crate::model::{Ip, Scenario};
use crate::problem::Problems;
use crate::read::{Document, Place, Table, Wrong};
use crate::values::{Name, check_name};
use core::time::Duration;
use std::collections::BTreeMap;

impl Scenario {
    /// Reads a scenario; `file` is the name of the text in messages.
    ///
    /// Errors hold every problem found: syntax first, and only where that is right keys, units,
    /// values and names.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        if document.is_broken() {
            return document.finish(None);
        }
        let scenario = read(document.root()).map(|(scenario, places)| {
            check::whole(&document, &scenario, &places);
            scenario
        });
        document.finish(scenario)
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
    /// Of each flow.
    flows: Vec<flows::Places>,
}

/// `None` where a part that others refer to could not be read: the checks of the whole would find
/// only consequences of that.
fn read(mut root: Table<'_, '_>) -> Option<(Scenario, Places)> {
    let mut places = Places::default();
    let name = root.required::<Name>("name", "\"geo\"");
    let seed = root.or("seed", 1u64);
    let time_limit = time_limit(&mut root);
    let ip = ip(&mut root);
    reserved(&mut root);
    let hosts = nodes::hosts(&mut root, &mut places);
    let routers = nodes::routers(&mut root, &mut places);
    let gateways = nodes::gateways(&mut root, &mut places);
    let links = links::links(&mut root, &mut places);
    let flows = flows::flows(&mut root, &mut places);
    root.finish();
    let scenario = Scenario {
        name: name?.0,
        seed,
        time_limit,
        ip,
        hosts: hosts?,
        routers: routers?,
        gateways: gateways?,
        links: links?,
        flows: flows?,
    };
    Some((scenario, places))
}

fn time_limit(root: &mut Table<'_, '_>) -> Duration {
    let limit = root.or("time_limit", Duration::from_secs(60));
    if limit.is_zero() || limit > LONGEST {
        let what = "a time limit of nothing or of more than a day";
        root.problem("time_limit", Wrong::new(what, "such as \"60s\""));
    }
    limit
}

/// Longer delays and durations than a day are slips of the unit.
const LONGEST: Duration = Duration::from_secs(86_400);

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

/// Words that later versions will give a meaning: refused by name, so that nobody believes they do
/// something now.
fn reserved(root: &mut Table<'_, '_>) {
    for key in ["sweep", "figures", "peps"] {
        if root.has(key) {
            let what = format!("`{key}` is reserved for a later version");
            let expected = "one scenario without it, run once for each point";
            root.problem(key, Wrong::new(what, expected));
            // Asked for, so not also unknown.
            let _ = root.optional::<Anything>(key);
        }
    }
}

struct Anything;

impl crate::read::Value for Anything {
    fn read(_: &toml::de::DeValue<'_>, _: &str) -> Result<Self, Wrong> {
        Ok(Self)
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
