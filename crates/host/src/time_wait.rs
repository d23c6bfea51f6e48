//! Connections in TIME-WAIT, as the few numbers that are still needed (RFC 9293, section 3.10.7.4): to acknowledge a FIN
//! that comes again, and to tell a new connection of the same four numbers from what is left of the old one (RFC
//! 6191). A reset ends none of them (RFC 1337, fix F1).

use crate::Tuple;
use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::TimeWaitState;
use bentpipe_wire::{Flags, Segment, Timestamps};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The connections in TIME-WAIT.
#[derive(Debug, Default)]
pub(crate) struct TimeWaits {
    entries: HashMap<Tuple, Entry>,
    /// In the order in which they end, but for those whose time began anew.
    order: VecDeque<(Instant, Tuple)>,
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
    /// It opens a new connection, whose number shall be beyond this one.
    Opens(Seq),
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
        while self.entries.len() >= self.most {
            let Some((_, oldest)) = self.order.pop_front() else {
                return;
            };
            self.entries.remove(&oldest);
        }
        let until = now + self.lasts;
        self.entries.insert(tuple, Entry { closed, until });
        self.order.push_back((until, tuple));
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
            let beyond = entry.closed.next;
            self.entries.remove(tuple);
            return Verdict::Opens(beyond);
        }
        if flags.contains(Flags::FIN) {
            entry.until = now + self.lasts;
        }
        Verdict::Answer(acknowledgement(&entry.closed, now))
    }

    /// Forgets those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, tuple)) = self.order.front().copied()
            && at <= now
        {
            self.order.pop_front();
            match self.entries.get(&tuple).map(|entry| entry.until) {
                Some(until) if until <= now => {
                    self.entries.remove(&tuple);
                }
                // Its time began anew, or another connection has the four numbers and an entry of its own behind.
                Some(until) if !self.is_queued(&tuple, until) => {
                    self.order.push_back((until, tuple));
                }
                _ => {}
            }
        }
    }

    /// Whether the end at `until` waits at the back already.
    fn is_queued(&self, tuple: &Tuple, until: Instant) -> bool {
        let last = self.order.iter().rev();
        let mut same = last.take_while(|(at, _)| *at >= until);
        same.any(|queued| *queued == (until, *tuple))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(at, _)| *at)
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
                Verdict::Opens(beyond) => {
                    assert!(opens, "{clocks:?} {seq} {stamp:?}");
                    assert_eq!(beyond, Seq(1_000));
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
