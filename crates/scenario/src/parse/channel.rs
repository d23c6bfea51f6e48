//! Reads the channels of a link direction, by the keys that the kinds of channel declare.

use super::keys::{example, values};
use crate::model::{Channel, Channels};
use bentpipe_config::{Table, Wrong};
use bentpipe_link::channel::{ChannelSpec, Form, REGISTRY};
use bentpipe_link::keys::{Key, Otherwise};

/// The channels that `table` describes; kinds that it does not name are as in `like`.
pub(super) fn channels(table: &mut Table<'_, '_>, like: &Channels) -> Channels {
    let of = |spec: &'static ChannelSpec| {
        if !table.has(spec.key) {
            // The key is asked for, so that it can be suggested for a misspelt one.
            let _ = table.raw(spec.key);
            let these = like.iter().filter(|channel| channel.spec() == spec);
            return these.cloned().collect();
        }
        match spec.form {
            Form::Bare => Vec::from_iter(channel(table, spec)),
            Form::Table if table.says(spec.key, "none") => Vec::new(),
            Form::Table => {
                let inner = table.table(spec.key);
                Vec::from_iter(inner.and_then(|inner| whole(inner, spec)))
            }
            Form::List => {
                let inner = table.list(spec.key).into_iter();
                inner.filter_map(|inner| whole(inner, spec)).collect()
            }
        }
    };
    REGISTRY.iter().flat_map(of).collect()
}

/// The channel that is all of `table`.
fn whole(mut table: Table<'_, '_>, spec: &'static ChannelSpec) -> Option<Channel> {
    let channel = channel(&mut table, spec);
    table.finish();
    channel
}

/// The channel whose keys stand in `table`.
fn channel(table: &mut Table<'_, '_>, spec: &'static ChannelSpec) -> Option<Channel> {
    let keys = way(table, spec)?;
    let values = values(table, keys)?;
    let faults = (spec.faults)(&values);
    let right = faults.is_empty();
    for fault in faults {
        table.problem(fault.key, Wrong::new(fault.what, fault.expected));
    }
    right.then(|| Channel::of(spec, values))
}

/// The one of the ways to describe a `spec` that `table` takes.
fn way(table: &Table<'_, '_>, spec: &'static ChannelSpec) -> Option<&'static [Key]> {
    if let [only] = spec.ways {
        return Some(only);
    }
    let taken = |keys: &&&[Key]| keys.iter().any(|key| table.has(key.name));
    let mut ways = spec.ways.iter().filter(taken);
    if let (Some(way), None) = (ways.next(), ways.next()) {
        return Some(way);
    }
    let ways = spec.ways.iter().map(|keys| {
        let required = { keys.iter() }.filter(|key| key.otherwise == Otherwise::Required);
        let lines = required.map(|key| format!("`{} = {}`", key.name, example(key, false)));
        lines.collect::<Vec<_>>().join(" and ")
    });
    let expected = ways.collect::<Vec<_>>().join(", or ");
    let what = format!("{} is not clear", table.title());
    table
        .document()
        .problem(table.place(), Wrong::new(what, expected));
    None
}
