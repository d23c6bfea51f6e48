//! The two connections of one flow, and what goes from one to the other.

use super::{Counters, LegCounters};
use crate::Side;
use bentpipe_base::{Bytes, Instant};
use bentpipe_tcp::{Cause, Connection, Event, State};
use bentpipe_wire::Segment;

pub(super) struct Legs {
    /// Towards the ground, towards space.
    legs: [Leg; 2],
    /// Payload bytes received in order and not acknowledged by the far end, both directions.
    pub(super) held: u64,
}

struct Leg {
    connection: Connection,
    /// Its peer will send no more.
    ended: bool,
    /// It was told to close.
    closed: bool,
    /// Retransmissions already counted.
    again: u64,
}

impl Leg {
    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            ended: false,
            closed: false,
            again: 0,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.connection.state(), State::Closed | State::TimeWait)
    }
}

pub(super) const fn index(side: Side) -> usize {
    match side {
        Side::Ground => 0,
        Side::Space => 1,
    }
}

impl Legs {
    /// `near` is the leg on side `side`.
    pub(super) fn new(side: Side, near: Connection, far: Connection) -> Self {
        let (near, far) = (Leg::new(near), Leg::new(far));
        Self {
            legs: match side {
                Side::Ground => [near, far],
                Side::Space => [far, near],
            },
            held: 0,
        }
    }

    /// Whether both legs are at their end, if only waiting for old packets to die out.
    pub(super) fn is_over(&self) -> bool {
        self.legs.iter().all(Leg::is_over)
    }

    /// Whether nothing is left of both.
    pub(super) fn is_closed(&self) -> bool {
        let state = |leg: &Leg| leg.connection.state();
        self.legs.iter().all(|leg| state(leg) == State::Closed)
    }

    /// What was sent towards `side`.
    pub(super) fn sent(&self, side: Side) -> LegCounters {
        let counters = self.legs[index(side)].connection.counters();
        LegCounters {
            sent: Bytes(counters.bytes_sent),
            sent_again: Bytes(counters.bytes_retransmitted),
            segments_again: counters.retransmitted,
        }
    }

    pub(super) fn input(&mut self, side: Side, segment: Segment, now: Instant) {
        self.legs[index(side)].connection.input(segment, now);
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        for leg in &mut self.legs {
            if leg.connection.deadline().is_some_and(|due| due <= now) {
                leg.connection.timeout(now);
            }
        }
    }

    pub(super) fn abort(&mut self, now: Instant) {
        for leg in &mut self.legs {
            leg.connection.abort(now);
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        let due = |leg: &Leg| leg.connection.deadline().unwrap_or(Instant::MAX);
        due(&self.legs[0]).min(due(&self.legs[1]))
    }

    /// Hears both legs, relays within their buffers, and sends what is due: to which side, the segment,
    /// its bytes on the link.
    pub(super) fn settle(
        &mut self,
        counters: &mut Counters,
        now: Instant,
        mut send: impl FnMut(Side, Segment, Bytes),
    ) {
        if self.hear() {
            counters.broken += 1;
            self.abort(now);
        }
        counters.to_space += self.relay(0, now);
        counters.to_ground += self.relay(1, now);
        for side in [Side::Ground, Side::Space] {
            let connection = &mut self.legs[index(side)].connection;
            while let Some(segment) = connection.transmit(now) {
                let length = connection.wire_len(&segment) as u64;
                send(side, segment, Bytes(length));
            }
        }
        let [ground, space] = &mut self.legs;
        for (leg, count) in [
            (ground, &mut counters.again_ground),
            (space, &mut counters.again_space),
        ] {
            let again = leg.connection.counters().retransmitted;
            *count += again - leg.again;
            leg.again = again;
        }
        let kept = |leg: &Leg| leg.connection.readable() + leg.connection.unacknowledged();
        // What a dead leg had is of no use to anybody.
        let alive = self.legs.iter().filter(|leg| !leg.is_over());
        self.held = alive.map(kept).sum();
    }

    /// Takes the events of both legs; whether the connection is broken.
    fn hear(&mut self) -> bool {
        let mut broken = false;
        for leg in &mut self.legs {
            while let Some(event) = leg.connection.event() {
                match event {
                    Event::PeerClosed => leg.ended = true,
                    Event::Aborted(cause) => broken |= cause != Cause::Local,
                    Event::Connected
                    | Event::Readable
                    | Event::Writable
                    | Event::Drained
                    | Event::Closed => {}
                }
            }
            // A reset before the handshake was done sends a leg that answered back to waiting.
            broken |= leg.connection.state() == State::Listen;
        }
        broken
    }

    /// Moves what arrived on leg `from` to the other, as far as that one's send buffer has room; returns how much. What is
    /// left stays in the receive buffer of `from`, whose window shrinks by it.
    fn relay(&mut self, from: usize, now: Instant) -> u64 {
        let [ground, space] = &mut self.legs;
        let (near, far) = if from == 0 {
            (ground, space)
        } else {
            (space, ground)
        };
        let (source, sink) = (&mut near.connection, &mut far.connection);
        let buffer = sink.config().send_buffer.0;
        let room = buffer.saturating_sub(sink.unacknowledged());
        let moved = source.readable().min(room);
        if source.has_bytes() {
            let mut left = usize::try_from(moved).unwrap_or(usize::MAX);
            let mut fits = true;
            while left > 0
                && fits
                && let Some(mut bytes) = source.read_bytes(left)
            {
                left -= bytes.len();
                sink.write_bytes(&mut bytes);
                fits = bytes.is_empty();
            }
            if !fits {
                // Bytes after a stream that is but a count; no driver mixes them.
                source.abort(now);
                sink.abort(now);
            }
        } else if moved > 0 {
            sink.write_virtual(source.consume(moved));
        }
        // A leg that still dials would be given up, with what it was given.
        let stands = !matches!(sink.state(), State::SynSent | State::Listen);
        if near.ended && !far.closed && stands && source.readable() == 0 {
            far.closed = true;
            sink.close(now);
        }
        moved
    }
}
