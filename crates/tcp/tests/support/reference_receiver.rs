//! What arrives at the [reference](super::Reference): which acknowledgement is due when, and which hole it names.

use bentpipe_base::{Instant, Ranges};
use bentpipe_wire::Payload;
use std::time::Duration;

const DELAYED_ACK: Duration = Duration::from_millis(200);
/// The first hole is named so often.
const FIRST_HOLE: u32 = 4;
/// And so often when the acknowledgement number has moved to another.
const NEXT_HOLE: u32 = 3;

/// The half that receives.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// Octets in order, and one for the FIN.
    next: u64,
    beyond: Ranges,
    /// The octet that is the peer's FIN.
    fin: Option<u64>,
    /// Segments that are not acknowledged yet.
    owed: u32,
    delayed: Option<Instant>,
    /// The first hole is named so often again.
    first_left: u32,
    /// What arrived behind the last hole that was named begins here.
    named_until: u64,
}

impl Receiver {
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn octets(&self) -> u64 {
        self.fin.map_or(self.next, |at| self.next.min(at))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.fin.is_some_and(|at| self.next > at)
    }

    /// Octets from `from` on arrive, and the FIN behind them; whether that is acknowledged at once.
    pub(super) fn input(&mut self, from: u64, payload: &Payload, fin: bool, now: Instant) -> bool {
        check(payload, from);
        let end = from + payload.len() as u64;
        if fin {
            self.fin = Some(end);
        }
        let before = self.next;
        if self.beyond.is_empty() {
            self.first_left = FIRST_HOLE;
        }
        self.beyond.insert(from.max(before), end + u64::from(fin));
        if let Some((_, end)) = self.beyond.first().filter(|first| first.0 <= before) {
            self.next = end;
            self.beyond.trim(end);
            self.first_left = self.first_left.max(NEXT_HOLE);
        }
        self.owed += 1;
        let at_once = fin || !self.beyond.is_empty() || self.next == before || self.owed >= 2;
        if !at_once {
            self.delayed = Some(now + DELAYED_ACK);
        }
        at_once
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.delayed
    }

    /// An acknowledgement leaves; returns the hole that it names.
    pub(super) fn acknowledge(&mut self) -> Option<(u64, u64)> {
        (self.owed, self.delayed) = (0, None);
        let (first, _) = self.beyond.first()?;
        if self.first_left > 0 {
            self.first_left -= 1;
            self.named_until = self.named_until.max(first);
            return Some((self.next, first));
        }
        let mut end = self.next;
        for (from, to) in self.beyond.iter() {
            if from > self.named_until {
                self.named_until = from;
                return Some((end, from));
            }
            end = to;
        }
        None
    }
}

/// Whether a segment's octets from `from` on are those of the stream.
fn check(payload: &Payload, from: u64) {
    if let Payload::Bytes(octets) = payload {
        let mut stream = (from..).zip(octets.iter());
        let right = stream.all(|(at, octet)| *octet == Payload::pattern(at));
        assert!(right, "wrong octets from {from} on");
    }
}
