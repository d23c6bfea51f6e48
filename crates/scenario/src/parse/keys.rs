//! The keys that kinds of queues and channels declare beside their machines.

use bentpipe_base::{Bytes, Probability};
use bentpipe_config::{Number, Table, Wrong};
use bentpipe_link::keys::{Key, Otherwise, Value, Values};
use core::time::Duration;

/// What `table` says of `keys`; `None` where one lacks or is wrong.
pub(super) fn values(table: &mut Table<'_, '_>, keys: &[Key]) -> Option<Values> {
    let mut values = Values::default();
    let mut whole = true;
    for key in keys {
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
        Value::Numbers(_) => {
            let example = example(key, false);
            table.values(key.name, &example).map(Value::Numbers)
        }
    }
}

/// A right value of a key, as it is written.
pub(super) fn example(key: &Key, in_bytes: bool) -> String {
    match (key.example)() {
        Value::Length(length) if in_bytes => format!("\"{length}kB\""),
        Value::Numbers(numbers) if numbers.is_empty() => "[17, 230]".to_owned(),
        value => crate::emit::value(&value, in_bytes),
    }
}
