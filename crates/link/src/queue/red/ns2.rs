//! RED as ns-2 2.35 does it (`queue/red.cc`), for comparison with its figures.
//!
//! ```text
//! each arrival, with q waiting:  avg ← (1 - w)^m avg,  then avg ← (1 - w) avg + w q,  count ← count + 1
//!     m: whole packets of typical length that idle time had room for
//! avg < min, or q <= 1:          passes
//! the first one that does not:   passes, count ← 1
//! the others:                    with x = count p_b dropped with the probability
//!                                0 for x < 1,  p_b / (2 - x) for x < 2,  1 above; count ← 0 if so
//! q at the limit:                dropped, count ← 0
//! ```
//!
//! So after a drop 1/p_b packets pass before the next one may be dropped (`wait_`), and gaps are uniform between
//! one and two times 1/p_b, where the published RED has them between one packet and 1/p_b. In bytes q <= 1 means that nobody
//! waits, count is that of whole typical packets in the bytes since the last drop, the probability is multiplied by the packet's
//! length over a typical one, and the limit stops a packet that finds as many bytes, not one that would go beyond.
//!
//! `use_mark_p_` (the default) leaves the drops above the upper thresholds to the formula, which is certain there. With `ecn`
//! (`setbit_`) a packet that is capable of it is marked in place of dropped at random while p_b < 0.1 (`mark_p_`). Not
//! here: adaptive RED, `cautious_`, and the weight by the link's rate (`q_weight_ -1`, the default of 2.35).

use super::{Curve, Marker, RedError, RedSettings, Slot};
use crate::Mark;
use crate::queue::{
    Discipline, DropTail, Fault, Key, Limit, LinkInfo, Queue, QueueKind, Value, Values, Waiting,
};
use bentpipe_base::{Bytes, Instant, Stream};

/// Packets are marked while the probability p_b is below this (`mark_p_`).
const MARK_P: f64 = 0.1;

/// RED as ns-2 does it. One draw a packet.
pub struct RedNs2<P> {
    curve: Curve,
    limit: Limit,
    weight: f64,
    fifo: DropTail<P>,
    average: f64,
    /// Packets since the last drop, and their bytes.
    count: u64,
    count_bytes: u64,
    /// The average was above the lower threshold, and more than one packet waited, when the last packet came.
    above: bool,
    /// Since when the link has been idle.
    idle: Option<Instant>,
    slot: Slot,
    marker: Marker,
}

impl<P> RedNs2<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// Thresholds out of order, or a typical packet of no length.
    pub fn new(settings: RedSettings) -> Result<Self, RedError> {
        Ok(Self {
            curve: Curve::new(&settings)?,
            limit: settings.limit,
            weight: settings.weight.value(),
            fifo: DropTail::new(Limit::Infinite),
            average: 0.0,
            count: 0,
            count_bytes: 0,
            above: false,
            idle: None,
            slot: Slot::new(settings.slot),
            marker: Marker::new(settings.ecn),
        })
    }

    /// The average length of the queue, in packets or bytes as the thresholds are.
    pub const fn average(&self) -> f64 {
        self.average
    }

    fn restart(&mut self, count: u64, bytes: u64) {
        (self.count, self.count_bytes) = (count, bytes);
    }

    /// Spreads drops: the probability for a packet of `len` (`modify_p`).
    fn probability(&self, len: Bytes) -> f64 {
        let p = self.curve.at(self.average);
        let count = match self.curve.typical() {
            Some(typical) => self.count_bytes / typical.0,
            None => self.count,
        };
        let spent = count as f64 * p;
        let spread = if spent < 1.0 {
            0.0
        } else if spent < 2.0 {
            p / (2.0 - spent)
        } else {
            1.0
        };
        self.curve.of_length(spread, len)
    }
}

impl<P: Send> RedNs2<P> {
    /// Takes the queue's length at the arrival of a packet into the average.
    fn sample(&mut self, now: Instant) {
        if let Some(since) = self.idle.take() {
            let packets = self.slot.packets(now - since).floor();
            self.average *= (1.0 - self.weight).powf(packets);
        }
        let length = self.curve.length(&self.fifo);
        self.average += self.weight * (length - self.average);
    }

    /// Whether the packet is dropped at random.
    fn drops(&mut self, len: Bytes, chance: f64) -> bool {
        let queued = self.curve.length(&self.fifo);
        if self.average < self.curve.min() || queued <= 1.0 {
            self.above = false;
            return false;
        }
        if !self.above {
            self.above = true;
            self.restart(1, len.0);
            return false;
        }
        chance < self.probability(len)
    }

    fn full(&self) -> bool {
        match self.limit {
            Limit::Packets(most) => self.fifo.len() >= most,
            Limit::Bytes(most) => self.fifo.bytes() >= most,
            Limit::Infinite => false,
        }
    }
}

impl<P: Mark + Send + 'static> QueueKind<P> for RedNs2<P> {
    const NAME: &'static str = "red-ns2";
    const SUMMARY: &'static str =
        "RED as ns-2 2.35 does it: waits between drops, never drops with one packet waiting";
    const KEYS: &'static [Key] = &super::keys(
        || Value::Flag(true),
        Key::or("mean_packet", || Value::Size(Bytes(500))),
    );

    fn faults(limit: Limit, values: &Values) -> Vec<Fault> {
        super::faults(limit, values)
    }

    fn build(limit: Limit, values: &Values, link: &LinkInfo) -> Result<Discipline<P>, Fault> {
        let queue = Self::new(RedSettings::of(limit, values, link))?;
        Ok(Discipline::Other(Box::new(queue)))
    }
}

impl<P: Mark + Send> Queue<P> for RedNs2<P> {
    fn push(
        &mut self,
        mut packet: P,
        len: Bytes,
        now: Instant,
        draw: &mut Stream,
    ) -> Result<(), P> {
        self.sample(now);
        self.count += 1;
        self.count_bytes = self.count_bytes.saturating_add(len.0);
        let (hit, full) = (self.drops(len, draw.uniform()), self.full());
        if hit || full {
            self.restart(0, 0);
            let may_mark = !full && self.curve.at(self.average) < MARK_P;
            if !(may_mark && self.marker.spares(&mut packet, len, &self.fifo)) {
                return Err(packet);
            }
        }
        self.fifo.push(packet, len, now, draw)
    }

    fn marked(&self) -> u64 {
        self.marker.marked()
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<P>> {
        let waiting = self.fifo.pop(now)?;
        self.slot.departed(now, self.fifo.is_empty());
        Some(waiting)
    }

    fn idle_since(&mut self, since: Instant) {
        self.idle = Some(since);
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}
