//! RED as it was published.
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
//! With `ecn` a packet that is capable of it is marked where it would be dropped at random below max; from max on it is
//! dropped (RFC 3168, section 7).
//!
//! Deviations: the packet being serialised is not in the queue: q is one less
//! than in the paper while the link is busy, and the queue is idle from the moment its last packet
//! begins to leave. A packet refused by the hard limit sets count to 0, as a random drop does.

use super::{Curve, Marker, RedError, RedSettings, Slot};
use crate::Mark;
use crate::queue::{
    Discipline, DropTail, Fault, Key, Limit, LinkInfo, Queue, QueueKind, Value, Values, Waiting,
};
use bentpipe_base::{Bytes, Instant, Stream};

/// RED as Floyd and Jacobson published it. One draw a packet.
pub struct Red<P> {
    curve: Curve,
    weight: f64,
    fifo: DropTail<P>,
    average: f64,
    /// Packets since the last drop, while the average lies between the thresholds; -1 below them.
    count: i64,
    /// Since when the queue has been empty.
    idle: Option<Instant>,
    slot: Slot,
    marker: Marker,
}

impl<P> Red<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// Thresholds out of order, or a typical packet of no length.
    pub fn new(settings: RedSettings) -> Result<Self, RedError> {
        Ok(Self {
            curve: Curve::new(&settings)?,
            weight: settings.weight.value(),
            fifo: DropTail::new(settings.limit),
            average: 0.0,
            count: -1,
            idle: Some(Instant::ZERO),
            slot: Slot::new(settings.slot),
            marker: Marker::new(settings.ecn),
        })
    }

    /// The average length of the queue, in packets or bytes as the thresholds are.
    pub const fn average(&self) -> f64 {
        self.average
    }

    /// The probability p_a, which spreads drops evenly: count p_b grows to 1 at the latest.
    fn probability(&self, initial: f64) -> f64 {
        let left = 1.0 - self.count as f64 * initial;
        if initial < left { initial / left } else { 1.0 }
    }

    /// Whether the packet is dropped at random.
    fn drops(&mut self, len: Bytes, chance: f64) -> bool {
        if self.average < self.curve.min() {
            self.count = -1;
            return false;
        }
        self.count += 1;
        let initial = self.curve.of_length(self.curve.at(self.average), len);
        initial >= 1.0 || chance < self.probability(initial)
    }
}

impl<P: Send> Red<P> {
    /// Takes the queue's length at the arrival of a packet into the average.
    fn sample(&mut self, now: Instant) {
        match self.idle.filter(|_| self.fifo.is_empty()) {
            Some(since) => {
                let idle = now - since;
                if !idle.is_zero() {
                    let slots = idle.as_secs_f64() / self.slot.get().as_secs_f64();
                    self.average *= (1.0 - self.weight).powf(slots);
                }
                // If this packet is dropped, the next must not count the same time again.
                self.idle = Some(now);
            }
            None => {
                let length = self.curve.length(&self.fifo);
                self.average += self.weight * (length - self.average);
            }
        }
    }
}

impl<P: Mark + Send + 'static> QueueKind<P> for Red<P> {
    const NAME: &'static str = "red";
    const SUMMARY: &'static str =
        "drops at random before it is full, by its average length (Floyd and Jacobson, 1993)";
    const KEYS: &'static [Key] = &super::keys(
        || Value::Flag(true),
        Key::optional("mean_packet", || Value::Size(Bytes(1500))),
    );

    fn faults(limit: Limit, values: &Values) -> Vec<Fault> {
        super::faults(limit, values)
    }

    fn build(limit: Limit, values: &Values, link: &LinkInfo) -> Result<Discipline<P>, Fault> {
        let queue = Self::new(RedSettings::of(limit, values, link))?;
        Ok(Discipline::Other(Box::new(queue)))
    }
}

impl<P: Mark + Send> Queue<P> for Red<P> {
    fn push(
        &mut self,
        mut packet: P,
        len: Bytes,
        now: Instant,
        draw: &mut Stream,
    ) -> Result<(), P> {
        self.sample(now);
        let hit = self.drops(len, draw.uniform());
        let may_mark = self.average < self.curve.max();
        let taken = if hit && !(may_mark && self.marker.spares(&mut packet, len, &self.fifo)) {
            Err(packet)
        } else {
            self.fifo.push(packet, len, now, draw)
        };
        if hit || taken.is_err() {
            self.count = 0;
        }
        if taken.is_ok() {
            self.idle = None;
        }
        taken
    }

    fn marked(&self) -> u64 {
        self.marker.marked()
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<P>> {
        let waiting = self.fifo.pop(now)?;
        let empty = self.fifo.is_empty();
        self.slot.departed(now, empty);
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
