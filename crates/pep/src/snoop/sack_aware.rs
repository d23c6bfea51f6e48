//! The agent of the 1995 paper for today's TCP, the preset `standard`: it reads SACK blocks, and finds losses by the order
//! of transmissions.
//!
//! From Balakrishnan, Seshan and Katz (1995): cache what is not acknowledged; send a missing segment
//! again when the receiver says that it lacks it, or when the timer expires; keep the duplicate
//! acknowledgements from the sender, unless the segment is not cached or was sent again by the
//! sender itself.
//!
//! Where this goes beyond it: a link keeps the order, so each transmission is numbered, and one is
//! lost as soon as one `threshold` numbers later has arrived (the idea of RACK, RFC 8985, with
//! numbers instead of times). What has arrived is told by SACK blocks, by an acknowledgement that
//! advances after a local retransmission (the partial acknowledgement of RFC 6582), or, without
//! SACK, by more duplicates than packets sent before the last retransmission can explain. So a lost
//! retransmission is found too. All duplicates of a loss under repair are suppressed, SACK blocks
//! and all: the agent acts on them. The timer backs off. Amortised O(1) a packet.

use super::Verdict;
use super::cache::{Cached, Place};
use super::flow_direction::{Context, DirectionState};
use crate::{Packet, SegmentView};
use bentpipe_base::{Instant, Seq};
use core::time::Duration;
use std::collections::VecDeque;

/// State of one direction.
#[derive(Default)]
pub(super) struct SackAware {
    /// Duplicates since the acknowledgement advanced.
    dupacks: u32,
    /// The highest number of a transmission that surely arrived.
    delivered: u64,
    /// The receiver sends SACK blocks.
    sacks: bool,
    /// What has been told by SACK blocks, above the acknowledgement: disjoint, in order.
    ranges: Vec<(Seq, Seq)>,
    /// Transmissions in their order: number and sequence number; at most twice as many as there are copies, and some.
    log: VecDeque<(u64, Seq)>,
    /// Expiries of the timer since the acknowledgement advanced.
    backoff: u32,
}

/// The timer doubles so many times at most.
const MOST_BACKOFF: u32 = 6;
/// Transmissions that may be noted whatever there are copies of.
const SPARE: usize = 16;

impl SackAware {
    pub(super) fn on_data<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        packet: &P,
        context: &mut Context<'_, P>,
    ) {
        let in_order = state.seen.is_none_or(|seen| view.seq >= seen);
        let mut place = state.cache.place(view.seq, view.end());
        let size = packet.wire_length();
        if place == Place::Overlaps {
            state.cache.cut(view.seq, view.end());
            place = state.cache.place(view.seq, view.end());
        }
        match place {
            Place::Same(index) => {
                context.counters.resent += 1;
                let grows = state
                    .cache
                    .get(index)
                    .is_some_and(|entry| entry.size < size);
                if !grows || state.has_room(size, context) {
                    state.cache.refresh(index, packet.clone(), size);
                }
                let least = state.rtt.least();
                if let Some(entry) = state.cache.get_mut(index) {
                    // A sender that did not wait for an answer to the copy says nothing of the copy.
                    let answerable = context.now - entry.sent >= least;
                    if index == 0 && entry.tries > 0 && !entry.resent && !entry.sacked && answerable
                    {
                        state.record.failed(context.config);
                    }
                    entry.resent = true;
                    entry.tries = 0;
                    entry.timed = false;
                    entry.order = state.order;
                    entry.sent = context.now;
                }
                if index == 0 {
                    self.restart(state, context.now);
                }
            }
            Place::Free(index) if state.has_room(size, context) => {
                context.counters.cached += 1;
                context.counters.resent += u64::from(!in_order);
                let mut entry = Cached::new(view.seq, view.end(), packet.clone(), context.now);
                entry.first = state.order;
                entry.order = state.order;
                entry.resent = !in_order;
                state.cache.insert(index, entry);
                if in_order {
                    self.note(state, state.order, view.seq);
                }
            }
            Place::Free(_) | Place::Overlaps => context.counters.uncached += 1,
        }
        if state.deadline.is_none() {
            self.restart(state, context.now);
        }
    }

    /// The acknowledgement advances.
    pub(super) fn advance<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) {
        state.ack = Some(view.ack);
        let mut sent = None;
        let mut smooth = true;
        while let Some(entry) = state.cache.pop_before(view.ack) {
            // Karn's rule; and what waited behind a gap tells nothing about the link.
            smooth &= entry.tries == 0 && !entry.resent && !entry.sacked;
            sent = Some(entry.sent);
            self.arrived(&entry, context.now, state.rtt.least());
            if entry.tries > 0 && !entry.resent {
                state.record.arrived();
            }
        }
        if let Some(sent) = sent.filter(|_| smooth) {
            state.rtt.sample(context.now - sent);
        }
        self.dupacks = 0;
        self.backoff = 0;
        if !self.ranges.is_empty() {
            self.ranges.retain(|&(_, right)| right > view.ack);
        }
        self.take_sack(state, view, context);
        self.repair(state, context);
        self.restart(state, context.now);
    }

    /// A duplicate of the last acknowledgement.
    pub(super) fn duplicate<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) -> Verdict {
        if self.take_sack(state, view, context) {
            // It reports a duplicate segment, not a missing one (RFC 2883).
            return Verdict::Pass;
        }
        self.dupacks = self.dupacks.saturating_add(1);
        self.repair(state, context);
        match state.awaited() {
            Some(head) if !head.resent && head.tries < context.config.tries => {
                context.counters.suppressed += 1;
                Verdict::Suppress
            }
            _ => Verdict::Pass,
        }
    }

    /// The same acknowledgement with news for the sender: only its SACK blocks concern us.
    pub(super) fn news<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) {
        self.take_sack(state, view, context);
        self.repair(state, context);
    }

    pub(super) fn on_timeout<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        context: &mut Context<'_, P>,
    ) {
        if state.awaited().is_none() {
            return;
        }
        let Some(order) = state.retransmit(0, true, context) else {
            return;
        };
        if let Some(head) = state.cache.get_mut(0) {
            // A receiver may take a SACK block back (RFC 2018, section 8).
            head.sacked = false;
            let seq = head.seq;
            self.note(state, order, seq);
        }
        self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
        self.restart(state, context.now);
    }

    fn restart<P: Packet>(&self, state: &mut DirectionState<P>, now: Instant) {
        let timeout = state.rtt.timeout() * (1 << self.backoff);
        state.deadline = (!state.cache.is_empty()).then(|| now + timeout);
    }

    /// `entry` is known to have arrived. Which of its transmissions was it?
    fn arrived<P>(&mut self, entry: &Cached<P>, now: Instant, least: Duration) {
        // Another may have arrived before the timer or the sender sent it again.
        let ambiguous = entry.timed || entry.resent;
        let too_soon = entry.tries > 0 && now - entry.sent < least;
        if !ambiguous && !too_soon {
            self.delivered = self.delivered.max(entry.order);
        }
    }

    /// Learns from SACK blocks. Returns whether the first reports a duplicate segment.
    fn take_sack<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        view: &SegmentView<'_, P::Endpoint>,
        context: &Context<'_, P>,
    ) -> bool {
        let Some(first) = view.sack.first() else {
            return false;
        };
        let inside = |outer: &bentpipe_wire::SackBlock| {
            outer.left <= first.left && first.right <= outer.right
        };
        let duplicate = first.right <= view.ack || view.sack.get(1).is_some_and(inside);
        for block in view.sack.iter().skip(usize::from(duplicate)) {
            let sent = state.seen.is_some_and(|seen| block.right <= seen);
            if view.ack < block.left && block.left < block.right && sent {
                self.sacks = true;
                self.cover(state, block.left, block.right, context);
            }
        }
        duplicate
    }

    /// Everything from `left` up to `right` has arrived. Touches only what is new.
    fn cover<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        left: Seq,
        right: Seq,
        context: &Context<'_, P>,
    ) {
        let from = self.ranges.partition_point(|range| range.1 < left);
        let touched = self.ranges[from..]
            .iter()
            .take_while(|range| range.0 <= right)
            .count();
        if touched == 1 && self.ranges[from].0 <= left && right <= self.ranges[from].1 {
            return;
        }
        // Whoever invents ranges shall not fill our memory.
        if touched == 0 && self.ranges.len() > state.cache.len() + 4 {
            return;
        }
        let mut merged = (left, right);
        let mut gap = left;
        for index in from..from + touched {
            let range = self.ranges[index];
            self.mark(state, gap, range.0, context.now);
            gap = range.1;
            if range.0 < merged.0 {
                merged.0 = range.0;
            }
            if range.1 > merged.1 {
                merged.1 = range.1;
            }
        }
        self.mark(state, gap, right, context.now);
        self.ranges.splice(from..from + touched, [merged]);
        // What was too much for the cache was sent after the last that is in it.
        if let Some(back) = state.cache.back().filter(|back| back.end < right) {
            let passed = back.first + u64::from(context.config.threshold);
            self.delivered = self.delivered.max(passed);
        }
    }

    fn mark<P>(&mut self, state: &mut DirectionState<P>, left: Seq, right: Seq, now: Instant) {
        let mut index = state.cache.after(left);
        while let Some(entry) = state.cache.get_mut(index) {
            if entry.end > right {
                break;
            }
            if entry.seq >= left && !entry.sacked {
                entry.sacked = true;
                let entry = &*entry;
                if entry.tries > 0 && !entry.resent {
                    state.record.arrived();
                }
                self.arrived(entry, now, state.rtt.least());
            }
            index += 1;
        }
    }

    /// Sends again what is known to be lost.
    fn repair<P: Packet>(&mut self, state: &mut DirectionState<P>, context: &mut Context<'_, P>) {
        let Some(ack) = state.ack else {
            return;
        };
        let threshold = u64::from(context.config.threshold);
        while let Some(&(order, seq)) = self.log.front() {
            let acknowledged = seq < ack && state.cache.front().is_none_or(|head| seq < head.seq);
            if !acknowledged && (!self.sacks || order + threshold > self.delivered) {
                break;
            }
            self.log.pop_front();
            if acknowledged {
                continue;
            }
            let index = state.cache.after(seq);
            let lost = state.cache.get(index).is_some_and(|entry| {
                entry.order == order && entry.seq == seq && !entry.sacked && !entry.resent
            });
            if lost {
                self.again(state, index, context);
            }
        }
        if !self.sacks && self.head_is_lost(state, threshold) {
            self.again(state, 0, context);
        }
    }

    /// Without SACK: whether the segment that the receiver waits for is lost.
    fn head_is_lost<P: Packet>(&self, state: &DirectionState<P>, threshold: u64) -> bool {
        let Some(head) = state.awaited().filter(|head| !head.resent) else {
            return false;
        };
        // Each transmission since the last that surely arrived, other than its own, explains one
        // duplicate.
        let explained = match head.tries {
            0 => 0,
            tries => (head.order - head.first.max(self.delivered).min(head.order))
                .saturating_sub(u64::from(tries)),
        };
        head.order + threshold <= self.delivered || u64::from(self.dupacks) >= explained + threshold
    }

    fn again<P: Packet>(
        &mut self,
        state: &mut DirectionState<P>,
        index: usize,
        context: &mut Context<'_, P>,
    ) {
        let Some(order) = state.retransmit(index, false, context) else {
            return;
        };
        if let Some(seq) = state.cache.get(index).map(|entry| entry.seq) {
            self.note(state, order, seq);
        }
        if index == 0 {
            self.restart(state, context.now);
        }
    }

    /// Takes note of a transmission. What was noted of copies that are gone since, or were sent again, is forgotten as soon as
    /// that is more than half: a sender whose segments overlap again and again does not fill our memory.
    fn note<P: Packet>(&mut self, state: &DirectionState<P>, order: u64, seq: Seq) {
        self.log.push_back((order, seq));
        if self.log.len() > 2 * state.cache.len() + SPARE {
            self.log.retain(|&(order, seq)| {
                let entry = state.cache.get(state.cache.after(seq));
                entry.is_some_and(|entry| entry.seq == seq && entry.order == order)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counters;
    use super::super::cache::Cache;
    use super::super::config::Config;
    use super::super::rtt::Rtt;
    use super::*;
    use crate::Side;
    use bentpipe_base::Bytes;
    use bentpipe_wire::{Flags, Ip, Packet as WirePacket, Payload, Segment};
    use core::cell::Cell;

    /// `length` octets from `seq` on.
    fn data(seq: u32, length: u32) -> WirePacket {
        let [from, to] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        let segment = Segment {
            seq: Seq(seq),
            flags: Flags::ACK,
            payload: Payload::Virtual {
                offset: 0,
                len: length,
            },
            ..Segment::default()
        };
        WirePacket::of_segment(Ip::between(from, to).unwrap(), 80, 4000, segment)
    }

    /// A sender that sends each of its octets twice, the second time with the one before.
    #[test]
    fn what_is_noted_of_copies_that_are_gone_is_forgotten() {
        let config = Config::default();
        let mut state = DirectionState {
            cache: Cache::new(),
            rtt: Rtt::new(&config),
            ack: Some(Seq(1000)),
            seen: Some(Seq(1001)),
            order: 0,
            deadline: None,
            advanced: Instant::ZERO,
            record: super::super::flow_direction::Record::default(),
        };
        let (mut rules, mut counters) = (SackAware::default(), Counters::default());
        let mut out = VecDeque::new();
        let mut context = Context {
            config: &config,
            now: Instant::ZERO,
            to: Side::Space,
            buffered: Bytes(0),
            out: &mut out,
            counters: &mut counters,
            full: Cell::new(false),
        };
        for seq in 1001..20_000 {
            for packet in [data(seq, 1), data(seq - 1, 2)] {
                state.order += 1;
                let view = packet.view().unwrap();
                rules.on_data(&mut state, &view, &packet, &mut context);
                state.seen = Some(view.end());
            }
        }
        assert!(state.cache.len() <= 2, "each copy cuts the one before");
        let most = 2 * state.cache.len() + SPARE;
        assert!(
            (1..=most + 1).contains(&rules.log.len()),
            "{}",
            rules.log.len()
        );
    }
}
