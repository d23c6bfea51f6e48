//! The two connections of one flow, and what goes from one to the other: a machine made of two, whose ports are the sides
//! that they face.

use super::{Counters, LegCounters, Resets};
use crate::Side;
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_tcp::{Cause, Connection, Event, State};
use bentpipe_wire::{Ecn, Segment};
use core::time::Duration;

pub(super) struct Legs {
    /// Towards the ground, towards space.
    legs: [Leg; 2],
    /// Payload bytes received in order and not acknowledged by the far end, both directions.
    pub(super) held: u64,
    /// Payload bytes that went to the ground's leg and to that of space, not counted so far.
    moved: [u64; 2],
    /// The event [`Broken`] is to be told.
    broken: bool,
    policy: Resets,
    /// One leg has failed: until when the other is given what came before. All of it, where the peer of the one that failed had
    /// said its end: it has lost nothing, and most often has closed, and its host resets what the other end still says.
    resets: Option<Instant>,
    /// The leg whose turn it is to send: first that of the ground, as often as it has something.
    sends: Side,
}

/// Bytes that a leg is given whatever its peer's window is.
const LEAST: u64 = 16 << 10;

/// One of the legs broke, so that both were reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// How a leg has failed: with more to come from its peer, for all that is known, or with all of it here.
#[derive(Clone, Copy)]
enum Failure {
    BeforeEnd,
    AfterEnd,
}

struct Leg {
    connection: Connection,
    /// Its peer will send no more.
    ended: bool,
    /// It was told to close.
    closed: bool,
    /// Retransmissions already counted.
    again: u64,
    /// SNACKs received, SNACKs sent and outages already counted.
    scps: [u64; 3],
}

impl Leg {
    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            ended: false,
            closed: false,
            again: 0,
            scps: [0; 3],
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
    pub(super) fn new(side: Side, near: Connection, far: Connection, policy: Resets) -> Self {
        let (near, far) = (Leg::new(near), Leg::new(far));
        Self {
            legs: match side {
                Side::Ground => [near, far],
                Side::Space => [far, near],
            },
            held: 0,
            moved: [0; 2],
            broken: false,
            policy,
            resets: None,
            sends: Side::Ground,
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
        let counters = self.connection(side).counters();
        LegCounters {
            sent: Bytes(counters.bytes_sent),
            sent_again: Bytes(counters.bytes_retransmitted),
            segments_again: counters.retransmitted,
        }
    }

    /// The TCP towards `side`.
    pub(super) const fn connection(&self, side: Side) -> &Connection {
        &self.legs[index(side)].connection
    }

    /// Whether the leg towards space and its peer speak SCPS-TP.
    pub(super) fn speaks_scps(&self) -> bool {
        self.legs[index(Side::Space)].connection.speaks_scps()
    }

    /// The leg towards space tells its window.
    pub(super) fn announce_to_space(&mut self) {
        self.legs[index(Side::Space)].connection.announce_window();
    }

    /// Whether the link to space is out, says who knows.
    pub(super) fn set_link(&mut self, is_up: bool, now: Instant) {
        let space = &mut self.legs[index(Side::Space)].connection;
        if is_up {
            space.link_restored(now)
        } else {
            space.link_out(now)
        }
        self.sends = Side::Ground;
    }

    /// A packet of the peer in space arrived damaged.
    pub(super) fn note_damaged(&mut self) {
        self.legs[index(Side::Space)].connection.note_damaged();
    }

    /// The path to `side` takes no longer segments than `mss` bytes, options included, as is said of the one numbered `seq`.
    pub(super) fn lower_segment_size(&mut self, side: Side, seq: Seq, mss: u16, now: Instant) {
        let leg = &mut self.legs[index(side)].connection;
        if leg.is_in_flight(seq) {
            leg.lower_segment_size(mss, now);
            self.sends = Side::Ground;
        }
    }

    /// Bytes that both keep, those too that came out of order.
    pub(super) fn in_memory(&self) -> u64 {
        let connections = self.legs.iter().map(|leg| &leg.connection);
        connections.map(Connection::buffered).sum()
    }

    /// Bytes that wait for the peer in space.
    pub(super) fn to_space(&self) -> u64 {
        let [ground, space] = &self.legs;
        ground.connection.readable() + space.connection.unacknowledged()
    }

    /// Whether the ground's leg is at its end.
    pub(super) fn is_over_on_ground(&self) -> bool {
        self.legs[index(Side::Ground)].is_over()
    }

    /// Resets both legs.
    pub(super) fn abort(&mut self, now: Instant) {
        self.reset(now);
        self.relay_both(now);
    }

    fn reset(&mut self, now: Instant) {
        for leg in &mut self.legs {
            leg.connection.abort(now);
        }
    }

    /// Counts what was relayed and sent again since it was called last, and what is held now.
    pub(super) fn count(&mut self, counters: &mut Counters) {
        let [to_ground, to_space] = core::mem::take(&mut self.moved);
        counters.to_ground += to_ground;
        counters.to_space += to_space;
        let [ground, space] = &mut self.legs;
        for (leg, count) in [
            (ground, &mut counters.again_ground),
            (space, &mut counters.again_space),
        ] {
            let again = leg.connection.counters().retransmitted;
            *count += again - leg.again;
            leg.again = again;
        }
        let space = &mut self.legs[index(Side::Space)];
        if space.connection.config().scps.is_some() {
            let now = space.connection.counters();
            let now = [now.snacks, now.snacks_sent, now.outages];
            let before = core::mem::replace(&mut space.scps, now);
            counters.snacks += now[0] - before[0];
            counters.snacks_sent += now[1] - before[1];
            counters.outages += now[2] - before[2];
        }
        let kept = |leg: &Leg| leg.connection.readable() + leg.connection.unacknowledged();
        // What a dead leg had is of no use to anybody.
        let alive = self.legs.iter().filter(|leg| !leg.is_over());
        self.held = alive.map(kept).sum();
    }

    /// Hears both legs, and relays within their buffers.
    fn relay_both(&mut self, now: Instant) {
        if let Some(failure) = self.hear()
            && self.resets.is_none()
        {
            self.broken = true;
            match (self.policy.grace, failure) {
                (Duration::ZERO, _) => self.reset(now),
                (_, Failure::AfterEnd) => self.resets = Some(Instant::MAX),
                (grace, Failure::BeforeEnd) => self.resets = Some(now + grace),
            }
        }
        self.moved[1] += self.relay(0, now);
        self.moved[0] += self.relay(1, now);
        if self
            .resets
            .is_some_and(|until| until <= now || self.has_delivered())
        {
            self.resets = None;
            self.reset(now);
        }
        self.sends = Side::Ground;
    }

    /// Whether whoever is alive has all that came before the other failed, and the end that it had said.
    fn has_delivered(&self) -> bool {
        let [ground, space] = &self.legs;
        [(ground, space), (space, ground)].iter().all(|(from, to)| {
            let left = from.connection.readable() + to.connection.unacknowledged();
            let tells_end = matches!(
                to.connection.state(),
                State::FinWait1 | State::Closing | State::LastAck
            );
            to.is_over() || left == 0 && !tells_end
        })
    }

    /// Takes the events of both legs; says how the connection has broken, if it has.
    fn hear(&mut self) -> Option<Failure> {
        let mut failure = None;
        for leg in &mut self.legs {
            let mut broken = false;
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
            if broken {
                failure = Some(if leg.ended {
                    Failure::AfterEnd
                } else {
                    Failure::BeforeEnd
                });
            }
        }
        failure
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
        if self.resets.is_some() && sink.state() == State::Closed {
            // The side that has failed takes no more, and what it had said before goes on meanwhile.
            source.consume(source.readable());
            return 0;
        }
        let mut most = sink.config().send_buffer.0;
        if from == 0 && self.policy.within_window {
            let window = sink.peer_window();
            // What the ground may have in flight counts too. Something has to wait for a window that is shut: it is asked for then.
            let rest = window.saturating_sub(source.config().receive_buffer.0);
            most = most.min(rest.max(window / 2).max(LEAST));
        }
        let room = most.saturating_sub(sink.unacknowledged());
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

impl Machine for Legs {
    /// A segment, and what the IP header says of it.
    type Packet = (Segment, Ecn);
    type Port = Side;
    type Event = Broken;

    fn input(&mut self, side: Side, (segment, ecn): (Segment, Ecn), now: Instant) {
        let leg = &mut self.legs[index(side)].connection;
        leg.receive_marked(&segment, ecn, now);
        self.relay_both(now);
    }

    fn timeout(&mut self, now: Instant) {
        for leg in &mut self.legs {
            if leg.connection.deadline().is_some_and(|due| due <= now) {
                leg.connection.timeout(now);
            }
        }
        self.relay_both(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(Side, (Segment, Ecn))> {
        let [ground, space] = self.legs.each_mut().map(|leg| &mut leg.connection);
        if self.sends == Side::Ground {
            if let Some(segment) = ground.transmit(now) {
                return Some((Side::Ground, (segment, ground.ecn())));
            }
            self.sends = Side::Space;
        }
        let segment = space.transmit(now)?;
        Some((Side::Space, (segment, space.ecn())))
    }

    fn event(&mut self) -> Option<Broken> {
        core::mem::take(&mut self.broken).then_some(Broken)
    }

    fn deadline(&self) -> Option<Instant> {
        let deadlines = self.legs.iter().map(|leg| leg.connection.deadline());
        deadlines.chain([self.resets]).flatten().min()
    }
}
