//! RED: random early detection, which drops before the queue is full, by its average length. One file
//! each: as it was published ([`floyd`]), as ns-2 does it ([`ns2`]), as Linux does it ([`linux`]). What
//! they have in common is here: the settings, the curve from the average length to the probability, and the time
//! of a typical packet, by which idle time is counted.
//!
//! ```text
//! p_b(avg) = 0                                               avg < min
//!            max_p (avg - min) / (max - min)                 min <= avg < max
//!            1; gentle: max_p + (1 - max_p) (avg - max) / max up to 2 max, then 1
//! ```

mod floyd;
mod linux;
mod ns2;

pub use floyd::Red;
pub use linux::RedLinux;
pub use ns2::RedNs2;

use super::marker::{self, Marker};
use super::{DropTail, Fault, Key, Limit, LinkInfo, Queue, Value, Values};
use bentpipe_base::{Bytes, Instant, Probability};
use core::time::Duration;
use thiserror::Error;

/// Between which average lengths RED drops at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Thresholds {
    /// Counted in packets.
    Packets {
        /// Below this average no packet is dropped.
        min: f64,
        /// From this average on every packet is dropped; with `gentle`, from twice of it on.
        max: f64,
    },
    /// Counted in bytes, link framing not counted.
    Bytes {
        /// Below it no packet is dropped.
        min: Bytes,
        /// From it on every packet is, or, gentle, from twice it.
        max: Bytes,
        /// A packet of this length is dropped with the probability that the formula gives; others
        /// in proportion.
        typical: Bytes,
    },
}

/// The settings of a RED queue of any of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedSettings {
    /// What it holds at most, whatever the average.
    pub limit: Limit,
    /// Where random drops begin and end.
    pub thresholds: Thresholds,
    /// The probability p_b at the upper threshold.
    pub max_p: Probability,
    /// The weight w of a new sample in the average.
    pub weight: Probability,
    /// Whether drops grow to certainty between one and two upper thresholds.
    pub gentle: bool,
    /// Whether packets that are capable of it are marked in place of dropped at random (RFC 3168).
    pub ecn: bool,
    /// The transmission time of a typical packet, by which idle time is counted; `None`: as long
    /// as the last packet took that left with another behind it.
    pub slot: Option<Duration>,
}

impl RedSettings {
    /// In packets, gentle, with min 5, max 15, max_p 0.1 and w 0.002: the paper's thresholds and
    /// weight, and the max_p that Floyd recommends since 1997.
    pub fn recommended(limit: Limit) -> Self {
        let chance = |value| Probability::new(value).expect("between 0 and 1");
        Self {
            limit,
            thresholds: Thresholds::Packets {
                min: 5.0,
                max: 15.0,
            },
            max_p: chance(0.1),
            weight: chance(0.002),
            gentle: true,
            ecn: false,
            slot: None,
        }
    }
}

/// Settings that make no RED queue.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum RedError {
    /// The thresholds do not lie one above the other.
    #[error("RED's lower threshold {min} must be below its upper one {max}, and neither negative")]
    Thresholds {
        /// The lower one.
        min: f64,
        /// The upper one.
        max: f64,
    },
    /// A typical packet of no length.
    #[error("the typical packet of a RED queue in bytes must have a length: give one above 0B")]
    Typical,
}

/// The keys of RED in scenarios. `gentle` is the default of the key of that name, `mean_packet` the key for the typical length of
/// a packet.
const fn keys(gentle: fn() -> Value, mean_packet: Key) -> [Key; 7] {
    [
        Key::required("min_threshold", || Value::Length(5)),
        Key::required("max_threshold", || Value::Length(15)),
        Key::or("max_probability", || {
            Value::Chance(RedSettings::recommended(Limit::Infinite).max_p)
        }),
        Key::or("weight", || {
            Value::Number(RedSettings::recommended(Limit::Infinite).weight.value())
        }),
        Key::or("gentle", gentle),
        mean_packet,
        marker::KEY,
    ]
}

/// What is wrong with values of these keys.
fn faults(limit: Limit, values: &Values) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |key, what, expected: &str| {
        let expected = expected.to_owned();
        faults.push(Fault {
            key,
            what,
            expected,
        });
    };
    let weight = values.number("weight");
    if !(weight > 0.0 && weight <= 1.0) {
        let expected = "more than 0 and at most 1, such as 0.002";
        fault("weight", format!("a weight of {weight}"), expected);
    }
    let mean = values.size("mean_packet");
    if let Some(mean) = mean.filter(|mean| !(1..=65_535).contains(&mean.0)) {
        let what = format!("`mean_packet` of {mean}");
        fault("mean_packet", what, "1B to 65535B");
    }
    let (min, max) = (
        values.length("min_threshold"),
        values.length("max_threshold"),
    );
    let most = match limit {
        Limit::Packets(packets) => packets as u64,
        Limit::Bytes(bytes) => bytes.0,
        Limit::Infinite => u64::MAX,
    };
    if min >= max || max > most {
        let what = format!("thresholds of {min} and {max} in a queue of {most}");
        let expected = "`min_threshold` below `max_threshold`, and that at most the queue's size";
        fault("max_threshold", what, expected);
    }
    faults
}

impl RedSettings {
    /// The settings that the keys' `values` say, at the head of `link`.
    fn of(limit: Limit, values: &Values, link: &LinkInfo) -> Self {
        let (min, max) = (
            values.length("min_threshold"),
            values.length("max_threshold"),
        );
        let mean = values.size("mean_packet");
        Self {
            limit,
            thresholds: match limit {
                Limit::Bytes(_) => Thresholds::Bytes {
                    min: Bytes(min),
                    max: Bytes(max),
                    typical: mean.unwrap_or(link.mtu),
                },
                Limit::Packets(_) | Limit::Infinite => Thresholds::Packets {
                    min: min as f64,
                    max: max as f64,
                },
            },
            max_p: values.chance("max_probability"),
            weight: Probability::new(values.number("weight"))
                .expect("`faults` lets no weight pass that is none"),
            gentle: values.flag("gentle"),
            ecn: Marker::is_on(values),
            slot: { link.rate.zip(mean) }.map(|(rate, mean)| rate.serialisation(mean)),
        }
    }
}

impl From<RedError> for Fault {
    fn from(error: RedError) -> Self {
        Self {
            key: "min_threshold",
            what: error.to_string(),
            expected: "thresholds one above the other, and a typical packet with a length"
                .to_owned(),
        }
    }
}

/// The thresholds, and the probability p_b between them.
#[derive(Clone, Copy, Debug)]
struct Curve {
    thresholds: Thresholds,
    max_p: f64,
    gentle: bool,
}

impl Curve {
    fn new(settings: &RedSettings) -> Result<Self, RedError> {
        let curve = Self {
            thresholds: settings.thresholds,
            max_p: settings.max_p.value(),
            gentle: settings.gentle,
        };
        if curve.typical() == Some(Bytes(0)) {
            return Err(RedError::Typical);
        }
        let (min, max) = (curve.min(), curve.max());
        if !(min >= 0.0 && min < max && max.is_finite()) {
            return Err(RedError::Thresholds { min, max });
        }
        Ok(curve)
    }

    /// The lower threshold, in packets or bytes.
    const fn min(&self) -> f64 {
        match self.thresholds {
            Thresholds::Packets { min, .. } => min,
            Thresholds::Bytes { min, .. } => min.0 as f64,
        }
    }

    /// The upper threshold, in packets or bytes.
    const fn max(&self) -> f64 {
        match self.thresholds {
            Thresholds::Packets { max, .. } => max,
            Thresholds::Bytes { max, .. } => max.0 as f64,
        }
    }

    /// The length of a typical packet, where lengths count.
    const fn typical(&self) -> Option<Bytes> {
        match self.thresholds {
            Thresholds::Packets { .. } => None,
            Thresholds::Bytes { typical, .. } => Some(typical),
        }
    }

    /// The length of `fifo`, in packets or bytes as the thresholds are.
    fn length<P: Send>(&self, fifo: &DropTail<P>) -> f64 {
        match self.thresholds {
            Thresholds::Packets { .. } => fifo.len() as f64,
            Thresholds::Bytes { .. } => fifo.bytes().0 as f64,
        }
    }

    /// The probability p_b for a typical packet, by the `average` length.
    fn at(&self, average: f64) -> f64 {
        let (min, max, max_p) = (self.min(), self.max(), self.max_p);
        if average < min {
            0.0
        } else if average < max {
            max_p * (average - min) / (max - min)
        } else if self.gentle && average < 2.0 * max {
            max_p + (1.0 - max_p) * (average - max) / max
        } else {
            1.0
        }
    }

    /// The `probability` of a packet of `len` for that of a typical one, where lengths count; certainty
    /// stays what it is.
    fn of_length(&self, probability: f64, len: Bytes) -> f64 {
        match self.typical() {
            Some(typical) if probability < 1.0 => {
                (probability * len.0 as f64 / typical.0 as f64).clamp(0.0, 1.0)
            }
            _ => probability,
        }
    }
}

/// The transmission time of a typical packet.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where the time is measured: when the last packet left, if another one was waiting behind it.
    busy: Option<Instant>,
    measured: bool,
    slot: Duration,
}

impl Slot {
    /// The time `given`. With `None` it is measured: the time that the last packet took that left with another one
    /// waiting behind it.
    fn new(given: Option<Duration>) -> Self {
        Self {
            busy: None,
            measured: given.is_none(),
            slot: given.unwrap_or(Duration::ZERO),
        }
    }

    /// A packet began to leave at `now`; whether that left the queue `empty`.
    fn departed(&mut self, now: Instant, empty: bool) {
        if let Some(before) = self.busy.filter(|_| self.measured) {
            self.slot = now - before;
        }
        self.busy = (!empty).then_some(now);
    }

    const fn get(&self) -> Duration {
        self.slot
    }

    /// How many typical packets could have left in `idle`: none where nothing tells their time.
    fn packets(&self, idle: Duration) -> f64 {
        if self.slot.is_zero() {
            0.0
        } else {
            idle.as_secs_f64() / self.slot.as_secs_f64()
        }
    }
}
