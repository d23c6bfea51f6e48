//! Connections in TIME-WAIT, as the few numbers that are still needed (RFC 9293, section 3.10.7.4): to acknowledge a FIN
//! that comes again, and to tell a new connection of the same four numbers from what is left of the old one (RFC
//! 6191). A reset ends none of them (RFC 1337, fix F1).

use crate::Tuple;
use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::TimeWaitState;
use bentpipe_wire::{Flags, Segment, Timestamps};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The connections in TIME-WAIT.
#[derive(Debug, Default)]
pub(crate) struct TimeWaits {
    entries: HashMap<Tuple, Entry>,
    /// In the order in which they end.
    order: BTreeSet<(Instant, Tuple)>,
    most: usize,
    lasts: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    closed: TimeWaitState,
    until: Instant,
}

/// What to do with a segment.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The connection is none of these.
    Unknown,
    /// It may open a new connection, whose number shall be beyond this one; where nobody takes it, it is answered.
    Opens(Seq, Segment),
    /// It is answered.
    Answer(Segment),
    /// It is dropped.
    Drop,
}

impl TimeWaits {
    pub(crate) fn new(most: usize, lasts: Duration) -> Self {
        Self {
            most,
            lasts,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(tuple)
    }

    /// A connection goes into TIME-WAIT.
    pub(crate) fn insert(&mut self, tuple: Tuple, closed: TimeWaitState, now: Instant) {
        self.remove(&tuple);
        while self.entries.len() >= self.most {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
            self.entries.remove(&oldest);
        }
        let until = now + self.lasts;
        self.entries.insert(tuple, Entry { closed, until });
        self.order.insert((until, tuple));
    }

    /// A segment of `tuple` arrived.
    pub(crate) fn input(&mut self, tuple: &Tuple, segment: &Segment, now: Instant) -> Verdict {
        let Some(entry) = self.entries.get_mut(tuple) else {
            return Verdict::Unknown;
        };
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            return Verdict::Drop;
        }
        let opens = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        if opens && is_newer(segment, &entry.closed) {
            let answer = acknowledgement(&entry.closed, now);
            return Verdict::Opens(entry.closed.next, answer);
        }
        // A bare acknowledgement is not answered, because two ends in TIME-WAIT would answer each other without end.
        let ends = Flags::SYN | Flags::FIN;
        if segment.payload.is_empty() && flags.bits() & ends.bits() == 0 {
            return Verdict::Drop;
        }
        if flags.contains(Flags::FIN) {
            self.order.remove(&(entry.until, *tuple));
            entry.until = now + self.lasts;
            self.order.insert((entry.until, *tuple));
        }
        Verdict::Answer(acknowledgement(&entry.closed, now))
    }

    /// A new connection has the four numbers.
    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        if let Some(entry) = self.entries.remove(tuple) {
            self.order.remove(&(entry.until, *tuple));
        }
    }

    /// Forgets those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((until, tuple)) = self.order.first().copied()
            && until <= now
        {
            self.order.pop_first();
            self.entries.remove(&tuple);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }
}

/// Whether `syn` can be no echo of the old connection (RFC 6191, section 2): by its timestamp where both have one, or by
/// its number.
fn is_newer(syn: &Segment, closed: &TimeWaitState) -> bool {
    match (syn.timestamps, closed.clocks) {
        (Some(stamp), Some((_, peer))) if stamp.value != peer => {
            stamp.value.wrapping_sub(peer) as i32 > 0
        }
        _ => syn.seq > closed.expected,
    }
}

fn acknowledgement(closed: &TimeWaitState, now: Instant) -> Segment {
    let milliseconds = (now.as_nanos() / 1_000_000) as u32;
    Segment {
        seq: closed.next,
        ack: closed.expected,
        flags: Flags::ACK,
        window: closed.window,
        timestamps: closed.clocks.map(|(epoch, peer)| Timestamps {
            value: milliseconds.wrapping_add(epoch),
            echo: peer,
        }),
        ..Segment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], port).into(),
        }
    }

    fn closed(clocks: Option<(u32, u32)>) -> TimeWaitState {
        TimeWaitState {
            next: Seq(1_000),
            expected: Seq(5_000),
            window: 100,
            clocks,
        }
    }

    fn syn(seq: u32, stamp: Option<u32>) -> Segment {
        Segment {
            seq: Seq(seq),
            flags: Flags::SYN,
            timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
            ..Segment::default()
        }
    }

    fn waits() -> TimeWaits {
        TimeWaits::new(100, Duration::from_secs(60))
    }

    #[test]
    fn a_newer_syn_opens_and_an_older_is_acknowledged() {
        let now = Instant::ZERO;
        for (clocks, seq, stamp, opens) in [
            (None, 5_001, None, true),
            (None, 5_000, None, false),
            (None, 4_000, None, false),
            (Some((0, 70)), 4_000, Some(71), true),
            (Some((0, 70)), 6_000, Some(69), false),
            // The same tick of the peer's clock: the number decides.
            (Some((0, 70)), 6_000, Some(70), true),
            (Some((0, 70)), 6_000, None, true),
        ] {
            let mut waits = waits();
            waits.insert(tuple(1), closed(clocks), now);
            match waits.input(&tuple(1), &syn(seq, stamp), now) {
                Verdict::Opens(beyond, _) => {
                    assert!(opens, "{clocks:?} {seq} {stamp:?}");
                    assert_eq!(beyond, Seq(1_000));
                    // Until somebody takes it.
                    assert_eq!(waits.len(), 1);
                    waits.remove(&tuple(1));
                    assert_eq!(waits.len(), 0);
                }
                Verdict::Answer(ack) => {
                    assert!(!opens, "{clocks:?} {seq} {stamp:?}");
                    assert_eq!((ack.seq, ack.ack), (Seq(1_000), Seq(5_000)));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_reset_ends_none_and_a_fin_begins_its_time_anew() {
        let mut waits = waits();
        waits.insert(tuple(1), closed(None), Instant::ZERO);
        let with = |flags| Segment {
            seq: Seq(4_999),
            flags,
            ..Segment::default()
        };
        let half = Instant::ZERO + Duration::from_secs(30);
        // Two such ends would answer each other for ever.
        let stray = waits.input(&tuple(1), &with(Flags::ACK), half);
        assert!(matches!(stray, Verdict::Drop));
        let reset = waits.input(&tuple(1), &with(Flags::RST), half);
        assert!(matches!(reset, Verdict::Drop));
        let again = waits.input(&tuple(1), &with(Flags::FIN | Flags::ACK), half);
        assert!(matches!(again, Verdict::Answer(_)));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        waits.expire(at(60));
        assert!(waits.contains(&tuple(1)));
        assert_eq!(waits.deadline(), Some(at(90)));
        waits.expire(at(90));
        assert_eq!((waits.len(), waits.deadline()), (0, None));
    }

    #[test]
    fn past_the_bound_the_oldest_ends_early() {
        let mut waits = waits();
        for port in 0..300 {
            waits.insert(tuple(port), closed(None), Instant::from_nanos(port.into()));
        }
        assert_eq!(waits.len(), 100);
        assert!(waits.contains(&tuple(299)) && !waits.contains(&tuple(199)));
    }
}
