//! The keys by which a scenario describes a queue. Each kind of queue declares its own in its file, and whoever reads
//! and writes scenarios goes by the declaration.

use super::{Discipline, Limit};
use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;
use thiserror::Error;

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A probability.
    Chance(Probability),
    /// A duration.
    Time(Duration),
    /// An amount of data.
    Size(Bytes),
    /// A real number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A length of the queue: packets where its limit is in packets, bytes where it is in bytes.
    Length(u64),
}

/// One key of a kind of queue. Keys of the same kind that differ in their value alone are written alike.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in scenarios.
    pub name: &'static str,
    /// A value that it can have.
    pub example: fn() -> Value,
    /// What it is where the scenario does not say.
    pub otherwise: Otherwise,
}

/// What a key is where the scenario does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// As its example.
    Example,
    /// Nothing: the queue finds its own.
    Unsaid,
    /// It must be said.
    Required,
}

impl Key {
    /// A key with a default.
    pub const fn or(name: &'static str, default: fn() -> Value) -> Self {
        Self {
            name,
            example: default,
            otherwise: Otherwise::Example,
        }
    }

    /// A key without a default, which need not be said.
    pub const fn optional(name: &'static str, example: fn() -> Value) -> Self {
        Self {
            name,
            example,
            otherwise: Otherwise::Unsaid,
        }
    }

    /// A key that must be said.
    pub const fn required(name: &'static str, example: fn() -> Value) -> Self {
        Self {
            name,
            example,
            otherwise: Otherwise::Required,
        }
    }
}

/// What a scenario says of a queue besides its limit: a value for each of its keys that has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<(&'static str, Value)>);

impl Values {
    /// Sets `key`, which has not been set.
    pub fn set(&mut self, key: &'static str, value: Value) {
        self.0.push((key, value));
    }

    /// The keys that are set, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.iter().copied()
    }

    /// The value of `key`, if it has one.
    pub fn get(&self, key: &str) -> Option<Value> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| *value)
    }

    /// The probability that `key` is, 0 where it is none.
    pub fn chance(&self, key: &str) -> Probability {
        match self.get(key) {
            Some(Value::Chance(chance)) => chance,
            _ => Probability::default(),
        }
    }

    /// The duration that `key` is, none where it is no duration.
    pub fn time(&self, key: &str) -> Duration {
        match self.get(key) {
            Some(Value::Time(time)) => time,
            _ => Duration::ZERO,
        }
    }

    /// The amount of data that `key` is, if it is one.
    pub fn size(&self, key: &str) -> Option<Bytes> {
        match self.get(key) {
            Some(Value::Size(size)) => Some(size),
            _ => None,
        }
    }

    /// The number that `key` is, 0 where it is none.
    pub fn number(&self, key: &str) -> f64 {
        match self.get(key) {
            Some(Value::Number(number)) => number,
            _ => 0.0,
        }
    }

    /// Whether `key` is yes.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key) == Some(Value::Flag(true))
    }

    /// The length that `key` is, 0 where it is none.
    pub fn length(&self, key: &str) -> u64 {
        match self.get(key) {
            Some(Value::Length(length)) => length,
            _ => 0,
        }
    }
}

/// What is wrong with a queue as a scenario describes it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}: expected {expected}")]
pub struct Fault {
    /// The key that is wrong.
    pub key: &'static str,
    /// What was found.
    pub what: String,
    /// What would have been right.
    pub expected: String,
}

/// What a queue may know of the direction that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The rate at first.
    pub rate: Option<Rate>,
    /// The largest packet.
    pub mtu: Bytes,
}

/// A kind of queue, as its file declares it.
pub trait Kind<P> {
    /// As scenarios name it.
    const NAME: &'static str;
    /// One line about it.
    const SUMMARY: &'static str;
    /// Its keys besides the limit.
    const KEYS: &'static [Key] = &[];

    /// What is wrong with a queue of this `limit` and these `values`.
    fn faults(_limit: Limit, _values: &Values) -> Vec<Fault> {
        Vec::new()
    }

    /// The queue.
    ///
    /// # Errors
    /// What no queue can be, where [`faults`](Self::faults) were not asked for.
    fn build(limit: Limit, values: &Values, line: &Line) -> Result<Discipline<P>, Fault>;
}

/// A kind of queue, of whatever packets.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// As scenarios name it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Its keys besides the limit.
    pub keys: &'static [Key],
    /// What is wrong with a queue of such a limit and such values.
    pub faults: fn(Limit, &Values) -> Vec<Fault>,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Spec {
    /// Each key at its default or its example.
    pub fn examples(&self) -> Values {
        let said = self
            .keys
            .iter()
            .filter(|key| key.otherwise != Otherwise::Unsaid);
        Values(said.map(|key| (key.name, (key.example)())).collect())
    }
}

/// One kind of queue of packets `P`.
pub struct Entry<P> {
    /// What is the same for all packets.
    pub spec: Spec,
    /// The queue of such a limit and such values.
    pub build: fn(Limit, &Values, &Line) -> Result<Discipline<P>, Fault>,
}

impl<P> Entry<P> {
    /// The entry of the kind `K`.
    pub(super) const fn of<K: Kind<P>>() -> Self {
        Self {
            spec: Spec {
                name: K::NAME,
                summary: K::SUMMARY,
                keys: K::KEYS,
                faults: K::faults,
            },
            build: K::build,
        }
    }
}
