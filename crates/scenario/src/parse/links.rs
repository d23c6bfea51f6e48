//! `[links.NAME]` and `[links.NAME.reverse]`.

use super::channel::channels;
use super::queue::queue;
use super::{LONGEST, Places, named};
use crate::model::{Change, Direction, Link, Queue};
use crate::names::Name;
use bentpipe_base::{Bytes, Rate};
use bentpipe_config::{Table, Value, Wrong};
use bentpipe_link::Burst;
use core::time::Duration;
use std::collections::BTreeMap;
use toml::de::DeValue;

pub(super) fn links(
    root: &mut Table<'_, '_>,
    places: &mut Places,
) -> Option<BTreeMap<String, Link>> {
    named(root, "links", |name, _, mut table| {
        let ends = ends(&mut table);
        let place = table.place_of("ends");
        places.ends.insert(name.to_owned(), [place.clone(), place]);
        let mtu = mtu(&mut table);
        let forward = direction(&mut table, &Direction::default());
        let reverse = match table.table("reverse") {
            Some(mut reverse) => {
                let direction = direction(&mut reverse, &forward);
                reverse.finish();
                direction
            }
            None => forward.clone(),
        };
        table.finish();
        Some(Link {
            ends: ends?,
            mtu,
            forward,
            reverse,
        })
    })
}

fn ends(table: &mut Table<'_, '_>) -> Option<[String; 2]> {
    let example = "[\"terminal\", \"hub\"]";
    if !table.has("ends") {
        let what = format!("{} lacks `ends`", table.title());
        let expected = format!("`ends = {example}`");
        table.problem("ends", Wrong::new(what, expected));
    }
    let [a, b] = table.array::<Name, 2>("ends", example)?;
    Some([a.0, b.0])
}

fn mtu(table: &mut Table<'_, '_>) -> Bytes {
    let mtu = table.or("mtu", Bytes(1500));
    // Below 1280 there is no IPv6 (RFC 8200, section 5); above 65535 no IPv4.
    if !(1280..=65_535).contains(&mtu.0) {
        let what = format!("an MTU of {mtu}");
        table.problem("mtu", Wrong::new(what, "1280B to 65535B"));
    }
    mtu
}

/// The direction that `table` describes; what it does not say is as in `like`.
fn direction(table: &mut Table<'_, '_>, like: &Direction) -> Direction {
    let said = table.optional("rate");
    let misspelt = said.is_none() && table.has("rate");
    let rate = match said {
        Some(Limit::Of(rate)) => Some(rate),
        Some(Limit::None) => None,
        None => like.rate,
    };
    let [delay, jitter] = [("delay", like.delay), ("jitter", like.jitter)].map(|(key, like)| {
        let time = table.or(key, like);
        if time > LONGEST {
            let what = format!("a {key} of more than a day");
            let wrong = Wrong::new(what, "at most a day (86400s), such as \"300ms\"");
            table.problem(key, wrong);
        }
        time
    });
    let queue = queue(table);
    if queue.is_some() && rate.is_none() && !misspelt {
        let what = "a queue without a rate would never hold a packet";
        table.problem("queue", Wrong::new(what, "a `rate` beside it"));
    }
    Direction {
        rate,
        burst: burst(table, rate, like.burst),
        delay,
        jitter,
        queue: match rate {
            Some(_) => queue.unwrap_or_else(|| like.queue.clone()),
            None => Queue::default(),
        },
        channels: channels(table, &like.channels),
        errors_before_queue: table.or("errors_before_queue", like.errors_before_queue),
        overhead: table.or("overhead", like.overhead),
        changes: if table.has("changes") {
            changes(table, rate.is_some() || misspelt)
        } else {
            like.changes.clone()
        },
    }
}

/// `burst`; `like` is what it is where nothing is said. One of no bytes is none, as a reverse direction may have to say.
fn burst(table: &mut Table<'_, '_>, rate: Option<Rate>, like: Option<Burst>) -> Option<Burst> {
    if !table.has("burst") {
        return like.filter(|_| rate.is_some());
    }
    let mut inner = table.table("burst")?;
    let bytes = inner.required::<Bytes>("bytes", "\"128kB\"");
    let ceiling = match bytes {
        Some(Bytes(0)) => None,
        _ => inner.required::<Rate>("ceiling", "\"10Mbit/s\""),
    };
    if let Some(ceiling) = ceiling {
        let wrong = match rate {
            None => Some(Wrong::new("a burst above no rate", "a `rate` of the link")),
            Some(rate) if ceiling < rate => {
                let what = format!("a ceiling below the rate of {rate}");
                Some(Wrong::new(what, format!("at least \"{rate}\"")))
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            inner.problem("ceiling", wrong);
        }
    }
    inner.finish();
    rate?;
    Some(Burst {
        bytes: bytes?,
        ceiling: ceiling?,
    })
}

/// `rate`, where "none" can be said too: a reverse direction would otherwise take the forward one's.
enum Limit {
    None,
    Of(Rate),
}

impl Value for Limit {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match value {
            DeValue::String(text) if text == "unlimited" => Ok(Self::None),
            _ => Rate::read(value, source)
                .map(Self::Of)
                .map_err(|wrong| Wrong {
                    expected: format!("{}, or \"unlimited\"", wrong.expected),
                    ..wrong
                }),
        }
    }
}

/// The changes of a direction, which `has_rate` or not.
fn changes(table: &mut Table<'_, '_>, has_rate: bool) -> Vec<Change> {
    let tables = table.list("changes");
    let changes: Vec<Change> = tables
        .into_iter()
        .filter_map(|table| change(table, has_rate))
        .collect();
    if !changes.is_sorted_by(|a, b| a.at < b.at) {
        let wrong = Wrong::new("`changes` are not in order", "ascending times in `at`");
        table.problem("changes", wrong);
    }
    changes
}

fn change(mut table: Table<'_, '_>, has_rate: bool) -> Option<Change> {
    let at = table.required::<Duration>("at", "\"5s\"");
    let rate = table.optional::<Rate>("rate");
    let delay = table.optional::<Duration>("delay");
    let long = |time: Option<Duration>| time.is_some_and(|time| time > LONGEST);
    if long(at) || long(delay) {
        let wrong = Wrong::new(
            "a time of more than a day",
            "at most a day (86400s), such as \"5s\"",
        );
        table.document().problem(table.place(), wrong);
    }
    if rate.is_some_and(|rate| rate.bits_per_sec() == 0) {
        let wrong = Wrong::new("a rate of nothing", "more, or an `outage`");
        table.problem("rate", wrong);
    }
    if rate.is_some() && !has_rate {
        let what = "a link without a rate cannot change it";
        table.problem("rate", Wrong::new(what, "a `rate` from the start"));
    }
    if !table.has("rate") && !table.has("delay") {
        let wrong = Wrong::new("a change of nothing", "`rate`, `delay` or both");
        table.document().problem(table.place(), wrong);
    }
    table.finish();
    Some(Change {
        at: at?,
        rate,
        delay,
    })
}
