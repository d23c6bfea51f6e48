//! `queue` of a direction, and the sizes of what holds packets.

use super::keys::values;
use crate::model::{Queue, QueueLimit};
use bentpipe_base::Bytes;
use bentpipe_config::{Table, Wrong, brief};
use bentpipe_link::queue;

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
    let read = spec.map(|spec| (spec, values(&mut table, spec.keys)));
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
