//! The keys by which a scenario describes a queue or a channel. Each kind declares its keys in its own file, and the
//! code that reads and writes scenarios follows the declaration.

use bentpipe_base::{Bytes, Probability};
use core::time::Duration;
use thiserror::Error;

/// The longest duration that a scenario may give. More than a day is most likely a wrong unit.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
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
    /// Numbers of packets.
    Numbers(Vec<u64>),
}

/// One key of a kind. Keys of the same kind that differ in their value alone are written alike.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in scenarios.
    pub name: &'static str,
    /// A value that it can have.
    pub example: fn() -> Value,
    /// What the key is where the scenario does not give it.
    pub otherwise: Otherwise,
}

/// What a key is where the scenario does not give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// As its example.
    Example,
    /// It has no value; the queue or channel finds one itself.
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

/// What a scenario says of a queue besides its limit, or of a channel: a value for each of its keys that has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<(&'static str, Value)>);

impl Values {
    /// Each of `keys` at its default or its example.
    pub fn examples(keys: &[Key]) -> Self {
        let said = { keys.iter() }.filter(|key| key.otherwise != Otherwise::Unsaid);
        Self(said.map(|key| (key.name, (key.example)())).collect())
    }

    /// The values that are `said`, and for each other one of `keys` its default, if it has one.
    ///
    /// # Errors
    /// A key that must be said and is not, or one that is said and unknown.
    pub fn complete(keys: &[Key], said: &[(&'static str, Value)]) -> Result<Self, Fault> {
        let fault = |key, what: String, expected: &str| Fault {
            key,
            what,
            expected: expected.to_owned(),
        };
        let known = |name: &str| keys.iter().any(|key| key.name == name);
        if let Some((name, _)) = said.iter().find(|(name, _)| !known(name)) {
            let what = format!("unknown key `{name}`");
            return Err(fault(name, what, "a key of its kind"));
        }
        let mut values = Self::default();
        for key in keys {
            let value = said.iter().find(|(name, _)| *name == key.name);
            match (value, key.otherwise) {
                (Some((_, value)), _) => values.set(key.name, value.clone()),
                (None, Otherwise::Example) => values.set(key.name, (key.example)()),
                (None, Otherwise::Unsaid) => {}
                (None, Otherwise::Required) => {
                    let what = format!("`{}` is not said", key.name);
                    return Err(fault(key.name, what, "a value"));
                }
            }
        }
        Ok(values)
    }

    /// Sets `key`, which has not been set.
    pub fn set(&mut self, key: &'static str, value: Value) {
        self.0.push((key, value));
    }

    /// The keys that are set, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// The value of `key`, if it has one.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value)
    }

    /// The value of `key` as a probability; 0 where it is not one.
    pub fn chance(&self, key: &str) -> Probability {
        match self.get(key) {
            Some(Value::Chance(chance)) => *chance,
            _ => Probability::default(),
        }
    }

    /// The value of `key` as a duration; zero where it is not one.
    pub fn time(&self, key: &str) -> Duration {
        match self.get(key) {
            Some(Value::Time(time)) => *time,
            _ => Duration::ZERO,
        }
    }

    /// The value of `key` as an amount of data, if it is one.
    pub fn size(&self, key: &str) -> Option<Bytes> {
        match self.get(key) {
            Some(Value::Size(size)) => Some(*size),
            _ => None,
        }
    }

    /// The value of `key` as a number; 0 where it is not one.
    pub fn number(&self, key: &str) -> f64 {
        match self.get(key) {
            Some(Value::Number(number)) => *number,
            _ => 0.0,
        }
    }

    /// Whether `key` is yes.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key) == Some(&Value::Flag(true))
    }

    /// The value of `key` as a length; 0 where it is not one.
    pub fn length(&self, key: &str) -> u64 {
        match self.get(key) {
            Some(Value::Length(length)) => *length,
            _ => 0,
        }
    }

    /// The value of `key` as a list of numbers; empty where it is not one.
    pub fn numbers(&self, key: &str) -> &[u64] {
        match self.get(key) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }
}

/// What is wrong with a queue or a channel as a scenario describes it.
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
