//! One direction of a flow: the data that goes one way, whose copies are cached, and the acknowledgements that come back.

use super::cache::Cache;
use super::config::{Config, Rules};
use super::ns2::Ns2;
use super::rtt::Rtt;
use super::sack_aware::SackAware;
use super::{Counters, Verdict};
use crate::{Packet, SegmentView, Side};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_wire::Flags;
use std::collections::VecDeque;

/// The parts of the agent that a direction uses while it handles one packet.
pub(super) struct Context<'a, P> {
    pub(super) config: &'a Config,
    pub(super) now: Instant,
    /// Where the data goes.
    pub(super) to: Side,
    /// Bytes cached by all flows.
    pub(super) buffered: Bytes,
    pub(super) out: &'a mut VecDeque<(Side, P)>,
    pub(super) counters: &'a mut Counters,
}

/// State of a direction that both sets of rules need.
pub(super) struct DirectionState<P> {
    pub(super) cache: Cache<P>,
    pub(super) rtt: Rtt,
    /// The highest acknowledgement.
    pub(super) ack: Option<Seq>,
    /// The number after the highest that was sent.
    pub(super) seen: Option<Seq>,
    /// Transmissions of data over the link so far, local ones included.
    pub(super) order: u64,
    /// When the first copy is to be sent again.
    pub(super) deadline: Option<Instant>,
}

enum AckRules {
    SackAware(SackAware),
    Ns2(Ns2),
}

/// One direction of a flow.
pub(super) struct FlowDirection<P> {
    state: DirectionState<P>,
    rules: AckRules,
    /// Window and flags of the last acknowledgement. One that repeats its number with others is no duplicate.
    last: Option<(u16, Flags)>,
}

/// Sequence numbers further apart cannot be in one window (RFC 7323, section 2.3): they are of another connection.
const PLAUSIBLE: u32 = 1 << 30;
/// More sequence numbers than any packet carries.
const LONGEST: u32 = 1 << 24;

impl<P: Packet> FlowDirection<P> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            state: DirectionState {
                cache: Cache::new(),
                rtt: Rtt::new(config),
                ack: None,
                seen: None,
                order: 0,
                deadline: None,
            },
            rules: match config.rules {
                Rules::SackAware => AckRules::SackAware(SackAware::default()),
                Rules::Ns2 => AckRules::Ns2(Ns2::default()),
            },
            last: None,
        }
    }

    /// Bytes on the wire of its copies.
    pub(super) const fn bytes(&self) -> Bytes {
        self.state.cache.bytes()
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.state.deadline
    }

    /// A packet goes towards the receiver: `snoop_data` of the papers.
    pub(super) fn on_data(
        &mut self,
        view: &SegmentView<'_, P::Endpoint>,
        packet: &P,
        context: &mut Context<'_, P>,
    ) {
        let len = view.sequence_length();
        if len == 0 || len > LONGEST {
            return;
        }
        let known = self.state.ack.or(self.state.seen);
        if known.is_some_and(|known| !plausible(view.end(), known)) {
            *self = Self::new(context.config);
        }
        let state = &mut self.state;
        state.order += 1;
        if view.flags.contains(Flags::SYN) {
            // A lost SYN does not shrink the congestion window, and no round-trip time is known yet to repair it by.
            state.seen = Some(view.end());
            return;
        }
        if state.ack.is_some_and(|ack| view.end() <= ack) {
            return;
        }
        match &mut self.rules {
            AckRules::SackAware(rules) => rules.on_data(state, view, packet, context),
            AckRules::Ns2(rules) => rules.on_data(state, view, packet, context),
        }
        if state.seen.is_none_or(|seen| view.end() > seen) {
            state.seen = Some(view.end());
        }
    }

    /// A packet comes from the receiver: `snoop_ack` of the papers.
    pub(super) fn on_ack(
        &mut self,
        view: &SegmentView<'_, P::Endpoint>,
        context: &mut Context<'_, P>,
    ) -> Verdict {
        if !view.flags.contains(Flags::ACK) {
            return Verdict::Pass;
        }
        let known = self.state.ack.or(self.state.seen);
        if known.is_some_and(|known| !plausible(view.ack, known)) {
            *self = Self::new(context.config);
        }
        let before = self.state.ack;
        if before.is_some_and(|before| view.ack < before) {
            return Verdict::Pass;
        }
        let duplicate = before == Some(view.ack) && self.is_plain(view);
        self.last = Some((view.window, significant_flags(view.flags)));
        let state = &mut self.state;
        if state.seen.is_none_or(|seen| seen < view.ack) {
            state.seen = Some(view.ack);
        }
        let advances = before != Some(view.ack);
        match &mut self.rules {
            AckRules::SackAware(rules) if advances => rules.advance(state, view, context),
            AckRules::Ns2(rules) if advances => rules.advance(state, view, context),
            AckRules::SackAware(rules) if duplicate => {
                return rules.duplicate(state, view, context);
            }
            AckRules::Ns2(rules) if duplicate => return rules.duplicate(state, view, context),
            AckRules::SackAware(rules) => rules.news(state, view, context),
            AckRules::Ns2(_) => {}
        }
        Verdict::Pass
    }

    /// The deadline has come.
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_, P>) {
        self.state.deadline = None;
        match &mut self.rules {
            AckRules::SackAware(rules) => rules.on_timeout(&mut self.state, context),
            AckRules::Ns2(rules) => rules.on_timeout(&mut self.state, context),
        }
    }

    /// Whether it says what the last acknowledgement said, but for SACK blocks, and nothing else. An answer to a probe of a
    /// zero window looks the same, but its sender waits for it: a window of zero is never plain.
    fn is_plain(&self, view: &SegmentView<'_, P::Endpoint>) -> bool {
        let speaks = [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG];
        view.payload == 0
            && view.window != 0
            && !speaks.iter().any(|&flag| view.flags.contains(flag))
            && self.last == Some((view.window, significant_flags(view.flags)))
    }
}

impl<P: Packet> DirectionState<P> {
    /// Whether a copy of `size` may be kept.
    pub(super) fn has_room(&self, size: Bytes, context: &Context<'_, P>) -> bool {
        self.cache.len() < context.config.packets
            && self.cache.bytes() + size <= context.config.bytes
            && context.buffered + size <= context.config.total
    }

    /// The first copy, if it is what the receiver waits for.
    pub(super) fn awaited(&self) -> Option<&super::cache::Cached<P>> {
        let ack = self.ack?;
        self.cache.front().filter(|front| front.seq <= ack)
    }

    /// Sends the copy at `index` again, unless the limit of retransmissions is met. Returns the number of the transmission.
    pub(super) fn retransmit(
        &mut self,
        index: usize,
        timed: bool,
        context: &mut Context<'_, P>,
    ) -> Option<u64> {
        let entry = self.cache.get_mut(index)?;
        if entry.tries >= context.config.tries {
            return None;
        }
        self.order += 1;
        entry.tries += 1;
        entry.order = self.order;
        entry.sent = context.now;
        entry.timed = timed;
        context.out.push_back((context.to, entry.packet.clone()));
        if timed {
            context.counters.timeouts += 1;
        } else {
            context.counters.retransmitted += 1;
        }
        Some(self.order)
    }

    /// Starts the timer anew, or stops it when nothing is cached.
    pub(super) fn restart(&mut self, now: Instant) {
        self.deadline = (!self.cache.is_empty()).then(|| now + self.rtt.timeout());
    }
}

fn plausible(seq: Seq, known: Seq) -> bool {
    seq.offset_from(known).unsigned_abs() <= PLAUSIBLE
}

/// The flags without PSH, which says nothing of the receiver's state.
fn significant_flags(flags: Flags) -> Flags {
    Flags::from_bits(flags.bits() & !Flags::PSH.bits())
}
