//! The agent of ns-2.35 (`tcp/snoop.cc`), by its behaviour.
//!
//! Its oddities are kept, for the tables of the Snoop paper rest on them:
//! - the first unexpected duplicate reaches the sender, the second one is answered by a local
//!   retransmission; which one it is, is not forgotten when the acknowledgement advances;
//! - the number of duplicates to suppress is the distance in a ring from the packet after the one
//!   sent again to the next free place, minus 2: with a full cache it comes out as -2, and all
//!   duplicates reach the sender;
//! - after the expected ones, further duplicates alternate between reaching the sender and starting
//!   another round of suppression; a lost retransmission waits for the timer;
//! - a full cache lets data pass without a look, retransmissions of the sender too;
//! - the timer restarts in full with each advance, by the estimate before it; retransmitted
//!   segments are sampled; it sends the first copy again only if the receiver waits for that one.
//!
//! Deviations: it counts packets by their bytes, so its ring is by sequence number; a duplicate that
//! carries data, another window or other flags passes uncounted (ns-2 has none such).

use super::Verdict;
use super::cache::{Cached, Place};
use super::flow_direction::{Context, DirectionState};
use crate::{Packet, SegmentView};

/// State of one direction. Places in the ring are counted on and on, not modulo its size.
#[derive(Default)]
pub(super) struct Ns2 {
    /// Place of the first copy (`buftail_`).
    tail: i64,
    /// Place from which duplicates are expected (`expNextAck_`).
    from: i64,
    /// Duplicates to suppress (`expDupacks_`).
    expected: i64,
    /// One unexpected duplicate has passed (`thresh`).
    warned: bool,
}

impl Ns2 {
    pub(super) fn on_data<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        packet: &P,
        context: &mut Context<'_, P>,
    ) {
        // ns-2 knows where a flow begins.
        state.ack.get_or_insert(view.seq);
        if !state.has_room(packet.wire_length(), context) {
            context.counters.uncached += 1;
            return;
        }
        if self.insert(state, view, packet, context) {
            state.deadline = None;
        }
        if state.deadline.is_none() {
            state.restart(context.now);
        }
    }

    /// Returns whether the timer is to start anew.
    fn insert<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        packet: &P,
        context: &mut Context<'_, P>,
    ) -> bool {
        let mut place = state.cache.place(view.seq, view.end());
        if place == Place::Overlaps {
            state.cache.cut(view.seq, view.end());
            place = state.cache.place(view.seq, view.end());
        }
        let index = match place {
            Place::Same(index) => {
                context.counters.resent += 1;
                if let Some(entry) = state.cache.get_mut(index) {
                    entry.tries = 0;
                    entry.resent = true;
                    entry.sent = context.now;
                }
                return true;
            }
            Place::Free(index) => index,
            Place::Overlaps => return false,
        };
        let below = state.seen.is_some_and(|seen| view.end() < seen);
        let append = index == state.cache.len();
        context.counters.cached += 1;
        context.counters.resent += u64::from(below);
        let mut entry = Cached::new(view.seq, view.end(), packet.clone(), context.now);
        entry.resent = below && index == 0;
        state.cache.insert(index, entry);
        if !append {
            self.tail -= 1;
        }
        if below {
            self.from = self.tail;
        }
        below
    }

    pub(super) fn advance<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) {
        let mut sent = None;
        while let Some(entry) = state.cache.pop_before(view.ack) {
            self.tail += 1;
            sent = Some(entry.sent);
        }
        state.restart(context.now);
        if let Some(sent) = sent {
            state.rtt.sample(context.now - sent);
        }
        self.expected = 0;
        self.from = self.tail;
        state.ack = Some(view.ack);
    }

    pub(super) fn duplicate<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        _view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) -> Verdict {
        let Some(head) = state.awaited() else {
            return Verdict::Pass;
        };
        let (tries, resent) = (head.tries, head.resent);
        let verdict = match self.expected {
            0 => {
                self.warned = !self.warned;
                if self.warned || resent {
                    return Verdict::Pass;
                }
                let ring = i64::try_from(context.config.packets).unwrap_or(i64::MAX);
                let head = self.tail + state.cache.len() as i64;
                self.expected = (head - self.from).rem_euclid(ring.max(1)) - 2;
                self.from = self.tail + 1;
                if tries == 0 {
                    self.again(state, false, context)
                } else {
                    Verdict::Pass
                }
            }
            1.. => {
                self.expected -= 1;
                Verdict::Suppress
            }
            -1 if tries < 2 => self.again(state, false, context),
            _ => Verdict::Pass,
        };
        context.counters.suppressed += u64::from(verdict == Verdict::Suppress);
        verdict
    }

    pub(super) fn on_timeout<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        context: &mut Context<'_, P>,
    ) {
        let awaited = state.awaited().is_some();
        if awaited && self.again(state, true, context) == Verdict::Suppress {
            self.from = self.tail + 1;
        }
    }

    /// Sends the first copy again.
    fn again<P: Packet>(
        &self,
        state: &mut DirectionState<P>,
        timed: bool,
        context: &mut Context<'_, P>,
    ) -> Verdict {
        if state.retransmit(0, timed, context).is_none() {
            return Verdict::Pass;
        }
        state.restart(context.now);
        Verdict::Suppress
    }
}
