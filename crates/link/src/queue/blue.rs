//! BLUE: drops at random with a probability that learns from overflow and idle time, not from the
//! length of the queue.
//!
//! Source: W. Feng, D. Kandlur, D. Saha, K. Shin, "BLUE: A new class of active queue management
//! algorithms", University of Michigan, CSE-TR-387-99 (1999), figure 5; the same authors in IEEE/ACM
//! Transactions on Networking 10 (2002):
//!
//! ```text
//! upon packet loss:    if now - last_update > freeze_time:  p ← p + d1,  last_update ← now
//! upon link idle:      if now - last_update > freeze_time:  p ← p - d2,  last_update ← now
//! each arrival:        dropped with probability p
//! ```
//!
//! With `ecn` a packet that is capable of it is marked with probability p in place of dropped.
//!
//! Deviations: a loss is a packet that the limit refuses, not one that p drops.
//! While the link stays idle the second event comes again after each freeze time: nothing would undo
//! the drops of a load that is gone, for the paper's event comes once an idle period. The queue does not see
//! the end of a transmission: that the link was idle shows when a packet leaves at the instant it comes, or
//! comes a freeze time after the last one left and finds nobody waiting; idle time counts from when the packet
//! before it began to leave.

use super::marker::{self, Marker};
use super::{
    Discipline, DropTail, Fault, Key, Limit, LinkInfo, Queue, QueueKind, Value, Values, Waiting,
};
use crate::Mark;
use crate::keys::LONGEST;
use bentpipe_base::{Bytes, Instant, Probability, Stream};
use core::time::Duration;

/// The settings of a [`Blue`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlueSettings {
    /// What it holds at most; beyond it packets are refused.
    pub limit: Limit,
    /// d1: what an overflow adds to the probability.
    pub increment: Probability,
    /// d2: what an idle link takes from it.
    pub decrement: Probability,
    /// The least time between two changes of the probability.
    pub freeze: Duration,
    /// Whether packets that are capable of it are marked in place of dropped at random (RFC 3168).
    pub ecn: bool,
}

impl BlueSettings {
    /// d1 0.0025, d2 0.00025 and 100 ms: d1 well above d2, as the paper wants, for a queue that grows
    /// needs an answer sooner than one that is empty.
    pub fn recommended(limit: Limit) -> Self {
        let chance = |value| Probability::new(value).expect("between 0 and 1");
        Self {
            limit,
            increment: chance(0.0025),
            decrement: chance(0.000_25),
            freeze: Duration::from_millis(100),
            ecn: false,
        }
    }
}

/// A BLUE queue. It draws one random number for each packet.
pub struct Blue<P> {
    settings: BlueSettings,
    fifo: DropTail<P>,
    probability: f64,
    /// When the probability last changed; before it ever did, the start.
    updated: Instant,
    /// When a packet last left.
    left: Instant,
    marker: Marker,
}

impl<P> Blue<P> {
    /// An empty queue that drops nothing yet.
    pub const fn new(settings: BlueSettings) -> Self {
        Self {
            settings,
            fifo: DropTail::new(settings.limit),
            probability: 0.0,
            updated: Instant::ZERO,
            left: Instant::ZERO,
            marker: Marker::new(settings.ecn),
        }
    }

    /// The probability p that the next packet is dropped.
    pub const fn probability(&self) -> f64 {
        self.probability
    }

    fn change(&mut self, by: f64, now: Instant) {
        self.probability = (self.probability + by).clamp(0.0, 1.0);
        self.updated = now;
    }

    fn overflow(&mut self, now: Instant) {
        if now - self.updated > self.settings.freeze {
            self.change(self.settings.increment.value(), now);
        }
    }

    /// The link was idle until `now`.
    fn idle(&mut self, now: Instant) {
        if now - self.updated <= self.settings.freeze {
            return;
        }
        let freeze = self.settings.freeze.as_secs_f64();
        let idle = (now - self.updated.max(self.left)).as_secs_f64();
        let times = if freeze > 0.0 {
            (idle / freeze).floor().max(1.0)
        } else {
            1.0
        };
        self.change(-times * self.settings.decrement.value(), now);
    }
}

impl<P: Mark + Send + 'static> QueueKind<P> for Blue<P> {
    const NAME: &'static str = "blue";
    const SUMMARY: &'static str =
        "drops at random as often as overflow and idle time have taught it";
    const KEYS: &'static [Key] = &[
        Key::or("increment", || {
            Value::Chance(BlueSettings::recommended(Limit::Infinite).increment)
        }),
        Key::or("decrement", || {
            Value::Chance(BlueSettings::recommended(Limit::Infinite).decrement)
        }),
        Key::or("freeze", || {
            Value::Time(BlueSettings::recommended(Limit::Infinite).freeze)
        }),
        marker::KEY,
    ];

    fn faults(_limit: Limit, values: &Values) -> Vec<Fault> {
        let freeze = values.time("freeze");
        let fault = Fault {
            key: "freeze",
            what: "a freeze time of nothing or of more than a day".to_owned(),
            expected: "at most a day (86400s), such as \"100ms\"".to_owned(),
        };
        let wrong = freeze.is_zero() || freeze > LONGEST;
        wrong.then_some(fault).into_iter().collect()
    }

    fn build(limit: Limit, values: &Values, _link: &LinkInfo) -> Result<Discipline<P>, Fault> {
        Ok(Discipline::Other(Box::new(Self::new(BlueSettings {
            limit,
            increment: values.chance("increment"),
            decrement: values.chance("decrement"),
            freeze: values.time("freeze"),
            ecn: Marker::is_on(values),
        }))))
    }
}

impl<P: Mark + Send> Queue<P> for Blue<P> {
    fn push(
        &mut self,
        mut packet: P,
        len: Bytes,
        now: Instant,
        draw: &mut Stream,
    ) -> Result<(), P> {
        if self.fifo.is_empty() && now - self.left > self.settings.freeze {
            self.idle(now);
        }
        let hit = draw.uniform() < self.probability;
        if hit && !self.marker.spares(&mut packet, len, &self.fifo) {
            return Err(packet);
        }
        let taken = self.fifo.push(packet, len, now, draw);
        if taken.is_err() {
            self.overflow(now);
        }
        taken
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<P>> {
        let waiting = self.fifo.pop(now)?;
        if waiting.since == now && self.left < now {
            self.idle(now);
        }
        self.left = now;
        Some(waiting)
    }

    fn marked(&self) -> u64 {
        self.marker.marked()
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}
