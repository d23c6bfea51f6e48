//! The queue of a link direction, as a scenario gives it.

use bentpipe_base::Bytes;
use bentpipe_link::Limit;
use bentpipe_link::keys::{Fault, Value, Values};
use bentpipe_link::queue::{self, QueueSpec, registry};

/// A queue: a kind of the link's [registry], and the values of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    spec: QueueSpec,
    limit: QueueLimit,
    values: Values,
}

impl Queue {
    /// First in, first out; a packet that finds no room is dropped.
    pub fn drop_tail(limit: QueueLimit) -> Self {
        let kind = { registry::<()>().iter() }.find(|entry| entry.spec.name == "drop-tail");
        Self {
            spec: kind.expect("the registry has it, see the test").spec,
            limit,
            values: Values::default(),
        }
    }

    /// A queue of the kind called `name`, whose keys are as in `said`; what is not said there has its default.
    ///
    /// # Errors
    /// What is wrong with it, or that there is no such kind, or no such key, or that one lacks.
    pub fn new(
        name: &str,
        limit: QueueLimit,
        said: &[(&'static str, Value)],
    ) -> Result<Self, Fault> {
        let spec = queue::find(name).ok_or_else(|| Fault {
            key: "kind",
            what: format!("unknown queue `{name}`"),
            expected: "a kind of `bentpipe list`".to_owned(),
        })?;
        let values = Values::complete(spec.keys, said)?;
        match (spec.faults)(limit.into(), &values).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(Self::of(spec, limit, values)),
        }
    }

    /// A queue whose values were checked when they were read.
    pub(crate) const fn of(spec: QueueSpec, limit: QueueLimit, values: Values) -> Self {
        Self {
            spec,
            limit,
            values,
        }
    }

    /// Its kind.
    pub const fn spec(&self) -> &QueueSpec {
        &self.spec
    }

    /// Most that it holds.
    pub const fn limit(&self) -> QueueLimit {
        self.limit
    }

    /// What its keys are.
    pub const fn values(&self) -> &Values {
        &self.values
    }
}

impl Default for Queue {
    /// Drop-tail of 1000 packets, the `txqueuelen` of Linux interfaces.
    fn default() -> Self {
        Self::drop_tail(QueueLimit::Packets(1000))
    }
}

/// How much a queue holds, the packet in transmission not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most so many packets.
    Packets(u32),
    /// At most so many bytes.
    Bytes(Bytes),
}

impl From<QueueLimit> for Limit {
    fn from(limit: QueueLimit) -> Self {
        match limit {
            QueueLimit::Packets(packets) => Self::Packets(packets as usize),
            QueueLimit::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}
