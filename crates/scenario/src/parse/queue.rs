//! `queue` of a direction, and the sizes of what holds packets.

use crate::model::{Queue, QueueLimit};
use bentpipe_base::{Bytes, Probability};
use bentpipe_config::{Number, Table, Wrong, brief};
use bentpipe_link::queue::{self, Key, Otherwise, Spec, Value, Values};
use core::time::Duration;

pub(super) fn queue(table: &mut Table<'_, '_>) -> Option<Queue> {
    let mut table = table.table("queue")?;
    let name = table.or("kind", "drop-tail".to_owned());
    let spec = queue::find(&name);
    if spec.is_none() {
        let what = format!("unknown queue `{}`", brief(&name));
        let kinds = queue::registry::<()>().iter();
        let mut names: Vec<&str> = kinds.map(|entry| entry.spec.name).collect();
        names.sort_unstable();
        table.problem("kind", Wrong::name(what, &name, &names));
    }
    let limit = limit(&mut table, "the queue's size");
    let read = spec.map(|spec| (spec, values(&mut table, &spec)));
    let mut right = true;
    if let (Some((spec, Some(values))), Some(limit)) = (&read, limit) {
        for fault in (spec.faults)(limit.into(), values) {
            table.problem(fault.key, Wrong::new(fault.what, fault.expected));
            right = false;
        }
    }
    table.finish();
    let (spec, values) = read?;
    Some(Queue::of(spec, limit?, values?)).filter(|_| right)
}

/// What `table` says of the keys of `spec`; `None` where one lacks or is wrong.
fn values(table: &mut Table<'_, '_>, spec: &Spec) -> Option<Values> {
    let mut values = Values::default();
    let mut whole = true;
    for key in spec.keys {
        let said = value(table, key);
        match (said, key.otherwise) {
            (Some(value), _) => values.set(key.name, value),
            (None, _) if table.has(key.name) => whole = false,
            (None, Otherwise::Example) => values.set(key.name, (key.example)()),
            (None, Otherwise::Unsaid) => {}
            (None, Otherwise::Required) => {
                let what = format!("{} lacks `{}`", table.title(), key.name);
                let example = example(key, table.has("bytes"));
                let wrong = Wrong::new(what, format!("`{} = {example}`", key.name));
                table.document().problem(table.place(), wrong);
                whole = false;
            }
        }
    }
    whole.then_some(values)
}

/// The value of `key`, if it is said and right.
fn value(table: &mut Table<'_, '_>, key: &Key) -> Option<Value> {
    match (key.example)() {
        Value::Chance(_) => table.optional::<Probability>(key.name).map(Value::Chance),
        Value::Time(_) => table.optional::<Duration>(key.name).map(Value::Time),
        Value::Size(_) => table.optional::<Bytes>(key.name).map(Value::Size),
        Value::Number(_) => {
            { table.optional::<Number>(key.name) }.map(|Number(number)| Value::Number(number))
        }
        Value::Flag(_) => table.optional::<bool>(key.name).map(Value::Flag),
        Value::Length(_) if table.has("bytes") => {
            { table.optional::<Bytes>(key.name) }.map(|Bytes(length)| Value::Length(length))
        }
        Value::Length(_) => table.optional::<u64>(key.name).map(Value::Length),
    }
}

/// A right value of a key that must be said, as it is written.
fn example(key: &Key, in_bytes: bool) -> String {
    match (key.example)() {
        Value::Length(length) if in_bytes => format!("\"{length}kB\""),
        value => crate::emit::value(value, in_bytes),
    }
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
