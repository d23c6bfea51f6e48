//! Two endpoints over a line of perfect links that drop what a list says: enough of a network to
//! hold the endpoint against ns-2's figures.
#![allow(dead_code, reason = "each test file uses its part of the harness")]

use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_tcp::{Connection, Event};
use bentpipe_wire::{Flags, Segment};
use std::collections::VecDeque;
use std::time::Duration;

/// A link of one direction: serialises in order, then delays.
pub(crate) struct Hop {
    pub(crate) rate: Rate,
    pub(crate) delay: Duration,
    free: Instant,
}

impl Hop {
    pub(crate) fn new(rate: u64, delay_ms: u64) -> Self {
        Self {
            rate: Rate::from_bits_per_sec(rate),
            delay: Duration::from_millis(delay_ms),
            free: Instant::ZERO,
        }
    }

    /// When a packet of `len` bytes that comes at `now` has left, and arrives.
    fn pass(&mut self, len: usize, now: Instant) -> Instant {
        let sent = self.free.max(now) + self.rate.serialisation(Bytes(len as u64));
        self.free = sent;
        sent + self.delay
    }
}

/// One direction: hops one after the other.
pub(crate) struct Way {
    pub(crate) hops: Vec<Hop>,
    flight: VecDeque<(Instant, Segment)>,
}

impl Way {
    pub(crate) fn new(hops: Vec<Hop>) -> Self {
        Self {
            hops,
            flight: VecDeque::new(),
        }
    }

    fn push(&mut self, len: usize, segment: Segment, now: Instant) -> Instant {
        let arrival = self.hops.iter_mut().fold(now, |at, hop| hop.pass(len, at));
        self.flight.push_back((arrival, segment));
        arrival
    }

    /// A packet that gets lost as it reaches the last hop, whose time it does not take (ns-2's error
    /// models stand before the link); returns when.
    fn lose(&mut self, len: usize, now: Instant) -> Instant {
        let before = self.hops.len() - 1;
        let hops = &mut self.hops[..before];
        hops.iter_mut().fold(now, |at, hop| hop.pass(len, at))
    }
}

/// One line of a trace: when a data segment arrived, its number from 0, and whether it was lost as it
/// reached the last hop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Passed {
    pub(crate) at: Instant,
    pub(crate) segment: u64,
    pub(crate) dropped: bool,
}

/// A sender, a receiver that reads all at once, and the ways between them.
pub(crate) struct Line {
    pub(crate) near: Connection,
    pub(crate) far: Connection,
    pub(crate) out: Way,
    pub(crate) back: Way,
    pub(crate) now: Instant,
    /// Packets of the sender to lose, by their number from 0: SYNs and data, no bare acknowledgements.
    pub(crate) drops: Vec<u64>,
    sent: u64,
    pub(crate) trace: Option<Vec<Passed>>,
}

impl Line {
    /// The satellite line of the Snoop paper: 10 Mb/s 30 ms, then 2 Mb/s 250 ms.
    pub(crate) fn satellite(near: Connection, far: Connection) -> Self {
        let way = |turned: bool| {
            let mut hops = vec![Hop::new(10_000_000, 30), Hop::new(2_000_000, 250)];
            if turned {
                hops.reverse();
            }
            Way::new(hops)
        };
        Self {
            near,
            far,
            out: way(false),
            back: way(true),
            now: Instant::ZERO,
            drops: Vec::new(),
            sent: 0,
            trace: None,
        }
    }

    /// Runs until `end`, or until nothing more can happen.
    pub(crate) fn run(&mut self, end: Instant) {
        loop {
            self.drain();
            let next = [
                self.near.deadline(),
                self.far.deadline(),
                self.out.flight.front().map(|entry| entry.0),
                self.back.flight.front().map(|entry| entry.0),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                return;
            };
            if next > end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let due = |way: &mut Way| {
            let ready = way.flight.front().is_some_and(|entry| entry.0 <= now);
            ready.then(|| way.flight.pop_front()).flatten()
        };
        if let Some((_, segment)) = due(&mut self.out) {
            self.far.input(segment, now);
        } else if let Some((_, segment)) = due(&mut self.back) {
            self.near.input(segment, now);
        } else {
            self.near.timeout(now);
            self.far.timeout(now);
        }
    }

    fn drain(&mut self) {
        while let Some(segment) = self.near.transmit(self.now) {
            let len = self.near.wire_len(&segment);
            self.send(len, segment);
        }
        while let Some(event) = self.near.event() {
            assert!(!matches!(event, Event::Aborted(_)), "{event:?}");
        }
        // What is read first leaves the whole window to offer.
        while let Some(event) = self.far.event() {
            if event == Event::Readable {
                let waiting = self.far.readable();
                self.far.consume(waiting);
            }
        }
        while let Some(segment) = self.far.transmit(self.now) {
            let len = self.far.wire_len(&segment);
            self.back.push(len, segment, self.now);
        }
    }

    fn send(&mut self, len: usize, segment: Segment) {
        if segment.payload.is_empty() && !segment.flags.contains(Flags::SYN) {
            self.out.push(len, segment, self.now);
            return;
        }
        let number = self.sent;
        self.sent += 1;
        let dropped = self.drops.contains(&number);
        let offset = match segment.payload {
            bentpipe_wire::Payload::Virtual { offset, .. } => offset,
            _ => 0,
        };
        let at = if dropped {
            self.out.lose(len, self.now)
        } else {
            self.out.push(len, segment, self.now)
        };
        if let Some(trace) = &mut self.trace {
            trace.push(Passed {
                at,
                segment: offset / 500,
                dropped,
            });
        }
    }

    /// Runs for `seconds` from the start.
    pub(crate) fn run_for(&mut self, seconds: u64) {
        self.run(Instant::ZERO + Duration::from_secs(seconds));
    }
}
