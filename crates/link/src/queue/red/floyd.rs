//! RED: random early detection, which drops before the queue is full, by its average length.
//!
//! Source: S. Floyd and V. Jacobson, "Random early detection gateways for congestion avoidance",
//! IEEE/ACM Transactions on Networking 1 (1993), figure 2. For each packet that arrives, with q in
//! the queue:
//!
//! ```text
//! avg ← (1 - w) avg + w q                            the queue is not empty
//! avg ← (1 - w)^m avg,  m = time since it is / slot  the queue is empty
//! avg < min:          passes, count ← -1
//! min <= avg < max:   count ← count + 1;  p_b = max_p (avg - min) / (max - min)
//!                     dropped with probability p_b / (1 - count p_b), then count ← 0
//! avg >= max:         dropped, count ← 0
//! ```
//!
//! In bytes, q, min and max count bytes, and p_b is multiplied by the packet's length over a typical
//! one (the paper's "maximum packet size"). Gentle (S. Floyd, "Recommendation on using the
//! gentle variant of RED", 2000): from max to 2 max, p_b = max_p + (1 - max_p) (avg - max) / max, and
//! only from 2 max on all are dropped.
//!
//! Deviations: drops only, no marks. The packet being serialised is not in the queue: q is one less
//! than in the paper while the link is busy, and the queue is idle from the moment its last packet
//! begins to leave. A packet refused by the hard limit sets count to 0, as a random drop does.

use super::{DropTail, Limit, Queue, Waiting};
use bentpipe_base::{Bytes, Instant, Probability, Stream};
use core::time::Duration;
use thiserror::Error;

/// Between which average lengths RED drops at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Thresholds {
    /// Counted in packets.
    Packets {
        /// Below it no packet is dropped.
        min: f64,
        /// From it on every packet is, or, gentle, from twice it.
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

/// What a [`Red`] is like.
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

/// A queue that drops at random before it is full. One draw a packet.
pub struct Red<P> {
    settings: RedSettings,
    /// The thresholds, in packets or bytes.
    min: f64,
    max: f64,
    fifo: DropTail<P>,
    average: f64,
    /// Packets since the last drop, while the average lies between the thresholds; -1 below them.
    count: i64,
    /// Since when the queue has been empty.
    idle: Option<Instant>,
    /// When the last packet left, if another stood behind it.
    busy: Option<Instant>,
    slot: Duration,
}

impl<P> Red<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// Thresholds out of order, or a typical packet of no length.
    pub fn new(settings: RedSettings) -> Result<Self, RedError> {
        let (min, max) = match settings.thresholds {
            Thresholds::Packets { min, max } => (min, max),
            Thresholds::Bytes {
                typical: Bytes(0), ..
            } => {
                return Err(RedError::Typical);
            }
            Thresholds::Bytes { min, max, .. } => (min.0 as f64, max.0 as f64),
        };
        if !(min >= 0.0 && min < max && max.is_finite()) {
            return Err(RedError::Thresholds { min, max });
        }
        Ok(Self {
            settings,
            min,
            max,
            fifo: DropTail::new(settings.limit),
            average: 0.0,
            count: -1,
            idle: Some(Instant::ZERO),
            busy: None,
            slot: settings.slot.unwrap_or(Duration::ZERO),
        })
    }

    /// The average length of the queue, in packets or bytes as the thresholds are.
    pub const fn average(&self) -> f64 {
        self.average
    }

    /// The probability p_b for a packet of `len`, by the present average.
    fn initial_probability(&self, len: Bytes) -> f64 {
        let (average, max_p) = (self.average, self.settings.max_p.value());
        let share = if average < self.min {
            return 0.0;
        } else if average < self.max {
            max_p * (average - self.min) / (self.max - self.min)
        } else if self.settings.gentle && average < 2.0 * self.max {
            max_p + (1.0 - max_p) * (average - self.max) / self.max
        } else {
            return 1.0;
        };
        match self.settings.thresholds {
            Thresholds::Packets { .. } => share,
            Thresholds::Bytes { typical, .. } => {
                (share * len.0 as f64 / typical.0 as f64).clamp(0.0, 1.0)
            }
        }
    }

    /// The probability p_a, which spreads drops evenly: count p_b grows to 1 at the latest.
    fn probability(&self, initial: f64) -> f64 {
        let left = 1.0 - self.count as f64 * initial;
        if initial < left { initial / left } else { 1.0 }
    }

    /// Whether the packet is dropped at random.
    fn drops(&mut self, len: Bytes, chance: f64) -> bool {
        if self.average < self.min {
            self.count = -1;
            return false;
        }
        self.count += 1;
        let initial = self.initial_probability(len);
        initial >= 1.0 || chance < self.probability(initial)
    }
}

impl<P: Send> Red<P> {
    /// Takes the queue's length at the arrival of a packet into the average.
    fn sample(&mut self, now: Instant) {
        let weight = self.settings.weight.value();
        match self.idle.filter(|_| self.fifo.is_empty()) {
            Some(since) => {
                let (idle, slot) = (now - since, self.slot);
                if !idle.is_zero() {
                    let slots = idle.as_secs_f64() / slot.as_secs_f64();
                    self.average *= (1.0 - weight).powf(slots);
                }
                // If this packet is dropped, the next must not count the same time again.
                self.idle = Some(now);
            }
            None => {
                let length = match self.settings.thresholds {
                    Thresholds::Packets { .. } => self.fifo.len() as f64,
                    Thresholds::Bytes { .. } => self.fifo.bytes().0 as f64,
                };
                self.average += weight * (length - self.average);
            }
        }
    }
}

impl<P: Send> Queue<P> for Red<P> {
    fn push(&mut self, packet: P, len: Bytes, now: Instant, draw: &mut Stream) -> Result<(), P> {
        self.sample(now);
        let taken = if self.drops(len, draw.uniform()) {
            Err(packet)
        } else {
            self.fifo.push(packet, len, now, draw)
        };
        match &taken {
            Ok(()) => self.idle = None,
            Err(_) => self.count = 0,
        }
        taken
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<P>> {
        let waiting = self.fifo.pop(now)?;
        if let (Some(before), None) = (self.busy, self.settings.slot) {
            self.slot = now - before;
        }
        let empty = self.fifo.is_empty();
        self.busy = (!empty).then_some(now);
        self.idle = empty.then_some(now);
        Some(waiting)
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}
