//! `[links.NAME]` and `[links.NAME.reverse]`.

use super::{LONGEST, Places, named};
use crate::model::{Direction, Link, Queue, QueueLimit};
use crate::read::{Table, Value, Wrong};
use crate::values::Name;
use bentpipe_base::{Bytes, Rate};
use std::collections::BTreeMap;
use toml::de::DeValue;

pub(super) fn links(
    root: &mut Table<'_, '_>,
    places: &mut Places,
) -> Option<BTreeMap<String, Link>> {
    named(root, "links", |name, _, mut table| {
        let ends = table.required_pair();
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

impl Table<'_, '_> {
    fn required_pair(&mut self) -> Option<[String; 2]> {
        let example = "[\"terminal\", \"hub\"]";
        if !self.has("ends") {
            let what = format!("{} lacks `ends`", self.title());
            let expected = format!("`ends = {example}`");
            self.problem("ends", Wrong::new(what, expected));
        }
        let [a, b] = self.array::<Name, 2>("ends", example)?;
        Some([a.0, b.0])
    }
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
    let delay = table.or("delay", like.delay);
    if delay > LONGEST {
        let wrong = Wrong::new("a delay of more than a day", "such as \"300ms\"");
        table.problem("delay", wrong);
    }
    let queue = queue(table);
    if queue.is_some() && rate.is_none() && !misspelt {
        let what = "a queue without a rate would never hold a packet";
        table.problem("queue", Wrong::new(what, "a `rate` beside it"));
    }
    Direction {
        rate,
        delay,
        queue: match rate {
            Some(_) => queue.unwrap_or(like.queue),
            None => Queue::default(),
        },
        packet_error_rate: table.or("packet_error_rate", like.packet_error_rate),
        bit_error_rate: table.or("bit_error_rate", like.bit_error_rate),
        overhead: table.or("overhead", like.overhead),
    }
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

fn queue(table: &mut Table<'_, '_>) -> Option<Queue> {
    let mut queue = table.table("queue")?;
    let kind = queue.or("kind", "drop-tail".to_owned());
    if kind != "drop-tail" {
        let what = format!("unknown queue `{}`", crate::values::brief(&kind));
        queue.problem("kind", Wrong::name(what, &kind, &["drop-tail"]));
    }
    let bytes = queue.optional::<Bytes>("bytes");
    let packets = queue.optional::<u64>("packets");
    let limit = match (bytes, packets) {
        (Some(bytes), None) => Some(QueueLimit::Bytes(bytes)),
        (None, Some(packets)) => u32::try_from(packets).ok().map(QueueLimit::Packets),
        _ => None,
    };
    let said = queue.has("bytes") || queue.has("packets");
    let twice = queue.has("bytes") && queue.has("packets");
    if twice || !said || packets.is_some_and(|packets| packets > u64::from(u32::MAX)) {
        let what = "the queue's size is not clear";
        let expected = "one of `bytes = \"750kB\"` and `packets = 500`";
        queue
            .document()
            .problem(queue.place(), Wrong::new(what, expected));
    }
    queue.finish();
    limit.map(Queue::DropTail)
}
