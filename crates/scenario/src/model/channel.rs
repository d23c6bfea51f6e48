//! What happens to packets on a link: queues, bursts of errors, outages; and to the link itself.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_link::Limit;
use bentpipe_link::queue::{self, Fault, Otherwise, Spec, Value, Values, registry};
use core::time::Duration;

/// A queue and how it decides: a kind of the link's [registry], and what is said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    spec: Spec,
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
        let fault = |what: String, expected: &str| Fault {
            key: "kind",
            what,
            expected: expected.to_owned(),
        };
        let spec = queue::find(name).ok_or_else(|| {
            fault(
                format!("unknown queue `{name}`"),
                "a kind of `bentpipe list`",
            )
        })?;
        let mut values = Values::default();
        for key in spec.keys {
            let value = said.iter().find(|(name, _)| *name == key.name);
            match (value, key.otherwise) {
                (Some((_, value)), _) => values.set(key.name, *value),
                (None, Otherwise::Example) => values.set(key.name, (key.example)()),
                (None, Otherwise::Unsaid) => {}
                (None, Otherwise::Required) => {
                    return Err(fault(format!("`{}` is not said", key.name), "a value"));
                }
            }
        }
        let known = |name: &str| spec.keys.iter().any(|key| key.name == name);
        if let Some((name, _)) = said.iter().find(|(name, _)| !known(name)) {
            return Err(fault(format!("unknown key `{name}`"), "a key of the queue"));
        }
        match (spec.faults)(limit.into(), &values).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(Self::of(spec, limit, values)),
        }
    }

    /// Of what was read and found right.
    pub(crate) const fn of(spec: Spec, limit: QueueLimit, values: Values) -> Self {
        Self {
            spec,
            limit,
            values,
        }
    }

    /// Its kind.
    pub const fn spec(&self) -> &Spec {
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

/// Two-state errors (Gilbert and Elliott): packets are lost with a chance that depends on a state
/// that changes from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gilbert {
    /// By what is seen: every packet of the bad state is lost, none of the good one.
    Means {
        /// Mean number of packets in a row that are lost, at least 1.
        mean_burst: f64,
        /// Share of packets that are lost.
        error_rate: Probability,
    },
    /// By the chain itself.
    Transitions {
        /// Chance that a packet in the good state is followed by the bad one.
        to_bad: Probability,
        /// Chance that a packet in the bad state is followed by the good one.
        to_good: Probability,
        /// Chance that a packet of the good state is lost. Default 0.
        good_error_rate: Probability,
        /// Chance that a packet of the bad state is lost. Default 1.
        bad_error_rate: Probability,
    },
}

impl Gilbert {
    /// The share of packets that are lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Means { error_rate, .. } => error_rate.value(),
            Self::Transitions {
                to_bad,
                to_good,
                good_error_rate,
                bad_error_rate,
            } => {
                let sum = to_bad.value() + to_good.value();
                // A chain that never moves stays where it began: in the good state.
                let bad = if sum > 0.0 { to_bad.value() / sum } else { 0.0 };
                bad * bad_error_rate.value() + (1.0 - bad) * good_error_rate.value()
            }
        }
    }
}

/// A time in which nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, from the start of the run.
    pub start: Duration,
    /// How long it lasts, more than nothing.
    pub length: Duration,
    /// When it begins again, counted from `start`: longer than `length`. Default never.
    pub every: Option<Duration>,
}

/// What becomes of one direction of a link in the course of a run; what it does not say stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Duration,
    /// The rate from then on, more than nothing.
    pub rate: Option<Rate>,
    /// The propagation delay from then on. Nothing overtakes what left earlier.
    pub delay: Option<Duration>,
}
