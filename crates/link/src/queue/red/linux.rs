//! RED as Linux does it (`net/sched/sch_red.c` and `include/net/red.h`, kernel 6.x).
//!
//! ```text
//! each arrival, with q waiting:  avg ← (1 - w) avg + w q
//! the first one after idleness:  avg ← (1 - w)^m avg,  m = idle time / slot
//! avg < min:                     passes, count ← -1
//! min <= avg < max:              count ← count + 1; at 0 it passes and R is drawn from [0, 1);
//!                                dropped if count p_b >= R, then count ← 0 and R is drawn anew
//! avg >= max:                    dropped, count ← -1
//! ```
//!
//! One R lasts from drop to drop: gaps are uniform between one packet and 1/p_b. There is no gentle part. A packet that the
//! limit stops changes nothing of this. With `ecn` a packet that is capable of it is marked in place of dropped, from max on
//! too, as in Linux without `harddrop`.
//!
//! Deviations: the kernel counts bytes only (here packets too), its w is a power of two, its average is an integer of that
//! scale, and (1 - w)^m comes from a table of whole powers of two with a straight line before the first; here
//! all are real numbers. No `adaptative`, `harddrop` or `nodrop`.

use super::{Curve, Marker, RedError, RedSettings, Slot};
use crate::Mark;
use crate::queue::{
    Discipline, DropTail, Fault, Key, Limit, LinkInfo, Queue, QueueKind, Value, Values, Waiting,
};
use bentpipe_base::{Bytes, Instant, Stream};

/// RED as Linux does it. One draw a packet.
pub struct RedLinux<P> {
    curve: Curve,
    weight: f64,
    fifo: DropTail<P>,
    average: f64,
    /// Packets since the last drop, while the average lies between the thresholds; -1 elsewhere.
    count: i64,
    /// What `count` times p_b must reach for the next drop.
    threshold: f64,
    /// Since when the link has been idle.
    idle: Option<Instant>,
    slot: Slot,
    marker: Marker,
}

impl<P> RedLinux<P> {
    /// An empty queue; it is never gentle.
    ///
    /// # Errors
    /// Thresholds out of order, or a typical packet of no length.
    pub fn new(settings: RedSettings) -> Result<Self, RedError> {
        let settings = RedSettings {
            gentle: false,
            ..settings
        };
        Ok(Self {
            curve: Curve::new(&settings)?,
            weight: settings.weight.value(),
            fifo: DropTail::new(settings.limit),
            average: 0.0,
            count: -1,
            threshold: 0.0,
            idle: None,
            slot: Slot::new(settings.slot),
            marker: Marker::new(settings.ecn),
        })
    }

    /// The average length of the queue, in packets or bytes as the thresholds are.
    pub const fn average(&self) -> f64 {
        self.average
    }

    /// Whether the packet is dropped (`red_action`).
    fn drops(&mut self, chance: f64) -> bool {
        if self.average < self.curve.min() || self.average >= self.curve.max() {
            self.count = -1;
            return self.average >= self.curve.max();
        }
        self.count += 1;
        if self.count == 0 {
            self.threshold = chance;
            return false;
        }
        let drops = self.count as f64 * self.curve.at(self.average) >= self.threshold;
        if drops {
            (self.count, self.threshold) = (0, chance);
        }
        drops
    }
}

impl<P: Send> RedLinux<P> {
    /// Takes the queue's length at the arrival of a packet into the average.
    fn sample(&mut self, now: Instant) {
        if let Some(since) = self.idle.take() {
            let packets = self.slot.packets(now - since);
            self.average *= (1.0 - self.weight).powf(packets);
        } else {
            let length = self.curve.length(&self.fifo);
            self.average += self.weight * (length - self.average);
        }
    }
}

impl<P: Mark + Send + 'static> QueueKind<P> for RedLinux<P> {
    const NAME: &'static str = "red-linux";
    const SUMMARY: &'static str =
        "RED as Linux does it: one random number from drop to drop, never gentle";
    const KEYS: &'static [Key] = &super::keys(
        || Value::Flag(false),
        Key::or("mean_packet", || Value::Size(Bytes(1000))),
    );

    fn faults(limit: Limit, values: &Values) -> Vec<Fault> {
        let mut faults = super::faults(limit, values);
        if values.flag("gentle") {
            faults.push(Fault {
                key: "gentle",
                what: "Linux's RED is never gentle".to_owned(),
                expected: "`red` or `red-ns2`".to_owned(),
            });
        }
        faults
    }

    fn build(limit: Limit, values: &Values, link: &LinkInfo) -> Result<Discipline<P>, Fault> {
        let queue = Self::new(RedSettings::of(limit, values, link))?;
        Ok(Discipline::Other(Box::new(queue)))
    }
}

impl<P: Mark + Send> Queue<P> for RedLinux<P> {
    fn push(
        &mut self,
        mut packet: P,
        len: Bytes,
        now: Instant,
        draw: &mut Stream,
    ) -> Result<(), P> {
        self.sample(now);
        if self.drops(draw.uniform()) && !self.marker.spares(&mut packet, len, &self.fifo) {
            return Err(packet);
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
