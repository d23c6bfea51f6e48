//! `queue` of a direction, and the sizes of what holds packets.

use super::LONGEST;
use super::endpoint::sized;
use crate::model::{Blue, Queue, QueueLimit, Red, RedKind};
use bentpipe_base::{Bytes, Probability};
use bentpipe_config::{Number, Table, Wrong, brief};
use core::time::Duration;

const KINDS: [&str; 5] = ["blue", "drop-tail", "red", "red-linux", "red-ns2"];

pub(super) fn queue(table: &mut Table<'_, '_>) -> Option<Queue> {
    let mut queue = table.table("queue")?;
    let kind = queue.or("kind", "drop-tail".to_owned());
    if !KINDS.contains(&kind.as_str()) {
        let what = format!("unknown queue `{}`", brief(&kind));
        queue.problem("kind", Wrong::name(what, &kind, &KINDS));
    }
    let limit = limit(&mut queue, "the queue's size");
    let red_kind = RedKind::ALL.into_iter().find(|red| red.name() == kind);
    let made = match (red_kind, kind.as_str()) {
        (Some(kind), _) => red(&mut queue, kind, limit).map(Queue::Red),
        (None, "blue") => blue(&mut queue, limit).map(Queue::Blue),
        (None, _) => limit.map(Queue::DropTail),
    };
    queue.finish();
    made
}

/// `bytes` or `packets` of `table`; `what` is their size.
pub(super) fn limit(table: &mut Table<'_, '_>, what: &str) -> Option<QueueLimit> {
    let bytes = table.optional::<Bytes>("bytes");
    let packets = table.optional::<u64>("packets");
    let limit = match (bytes, packets) {
        (Some(bytes), None) => Some(QueueLimit::Bytes(bytes)),
        (None, Some(packets)) => u32::try_from(packets).ok().map(QueueLimit::Packets),
        _ => None,
    };
    let said = table.has("bytes") || table.has("packets");
    let twice = table.has("bytes") && table.has("packets");
    if twice || !said || packets.is_some_and(|packets| packets > u64::from(u32::MAX)) {
        let wrong = Wrong::new(
            format!("{what} is not clear"),
            "one of `bytes = \"750kB\"` and `packets = 500`",
        );
        table.document().problem(table.place(), wrong);
    }
    limit
}

fn red(table: &mut Table<'_, '_>, kind: RedKind, limit: Option<QueueLimit>) -> Option<Red> {
    let in_bytes = table.has("bytes");
    let min = threshold(table, "min_threshold", in_bytes);
    let max = threshold(table, "max_threshold", in_bytes);
    let tenth = Probability::new(0.1).expect("0.1 lies in [0, 1]");
    let max_probability = table.or("max_probability", tenth);
    let weight = table.or("weight", Number(0.002)).0;
    if !(weight > 0.0 && weight <= 1.0) {
        let wrong = Wrong::new(
            format!("a weight of {weight}"),
            "more than 0 and at most 1, such as 0.002",
        );
        table.problem("weight", wrong);
    }
    let gentle = table.or("gentle", kind != RedKind::Linux);
    if gentle && kind == RedKind::Linux {
        let wrong = Wrong::new("Linux's RED is never gentle", "`red` or `red-ns2`");
        table.problem("gentle", wrong);
    }
    let mean_packet = sized(table, "mean_packet", 1..=65_535);
    let (limit, min, max) = (limit?, min?, max?);
    if min >= max || max > limit.count() {
        let what = format!(
            "thresholds of {min} and {max} in a queue of {}",
            limit.count()
        );
        let expected = "`min_threshold` below `max_threshold`, and that at most the queue's size";
        table.problem("max_threshold", Wrong::new(what, expected));
        return None;
    }
    Some(Red {
        kind,
        limit,
        min_threshold: min,
        max_threshold: max,
        max_probability,
        weight,
        gentle,
        mean_packet,
    })
}

fn blue(table: &mut Table<'_, '_>, limit: Option<QueueLimit>) -> Option<Blue> {
    let share = |value| Probability::new(value).expect("lies in [0, 1]");
    let increment = table.or("increment", share(0.0025));
    let decrement = table.or("decrement", share(0.000_25));
    let freeze = table.or("freeze", Duration::from_millis(100));
    if freeze.is_zero() || freeze > LONGEST {
        let what = "a freeze time of nothing or of more than a day";
        table.problem(
            "freeze",
            Wrong::new(what, "at most a day (86400s), such as \"100ms\""),
        );
    }
    Some(Blue {
        limit: limit?,
        increment,
        decrement,
        freeze,
    })
}

fn threshold(table: &mut Table<'_, '_>, key: &'static str, in_bytes: bool) -> Option<u64> {
    if in_bytes {
        table.required::<Bytes>(key, "\"50kB\"").map(|size| size.0)
    } else {
        table.required::<u64>(key, "50")
    }
}
