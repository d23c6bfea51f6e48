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
use std::cell::Cell;
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
    /// A copy found no room among those of all flows.
    pub(super) full: Cell<bool>,
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
    /// When the acknowledgement advanced last.
    pub(super) advanced: Instant,
    /// What has become of the copies that were sent again.
    pub(super) record: Record,
}

/// What has become of the copies that were sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// The last so many have not arrived.
    failures: u8,
    /// One has arrived.
    proven: bool,
    /// The sender is left alone with this direction.
    given_up: bool,
}

impl Record {
    /// A copy has arrived.
    pub(super) fn arrived(&mut self) {
        self.failures = 0;
        self.proven = true;
    }

    /// The copy that the receiver waits for has not arrived. Where that is usual, what stops copies is no loss, and whoever is kept from
    /// its sender's help for their sake is worse off. Of other copies a queue that overflows may stop hundreds in a row.
    pub(super) fn failed(&mut self, config: &Config) {
        let Some(shared_limits) = config.shared_limits else {
            return;
        };
        self.failures = self.failures.saturating_add(1);
        let most = if self.proven {
            shared_limits.failures.saturating_mul(4)
        } else {
            shared_limits.failures
        };
        self.given_up |= self.failures >= most;
    }
}

enum AckRules {
    SackAware(SackAware),
    Ns2(Ns2),
}

impl AckRules {
    fn new(config: &Config) -> Self {
        match config.rules {
            Rules::SackAware => Self::SackAware(SackAware::default()),
            Rules::Ns2 => Self::Ns2(Ns2::default()),
        }
    }
}

/// One direction of a flow.
pub(super) struct FlowDirection<P> {
    state: DirectionState<P>,
    rules: AckRules,
    /// Window and flags of the last acknowledgement. One that repeats its number with others is no duplicate.
    last: Option<(u16, Flags)>,
    /// It is not given up.
    helps: bool,
}

/// Sequence numbers further apart cannot be in one window (RFC 7323, section 2.3): they are of another connection.
const PLAUSIBLE: u32 = 1 << 30;
/// More sequence numbers than any packet carries.
const LONGEST: u32 = 1 << 24;

impl<P: Packet> FlowDirection<P> {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        Self {
            state: DirectionState {
                cache: Cache::new(),
                rtt: Rtt::new(config),
                ack: None,
                seen: None,
                order: 0,
                deadline: None,
                advanced: now,
                record: Record::default(),
            },
            rules: AckRules::new(config),
            last: None,
            helps: true,
        }
    }

    /// What its copies take of the room of all flows.
    pub(super) fn bytes(&self, config: &Config) -> Bytes {
        let overhead = config
            .shared_limits
            .map_or(0, |shared_limits| shared_limits.overhead.0);
        self.state.cache.bytes() + Bytes(overhead * self.state.cache.len() as u64)
    }

    /// When its acknowledgement advanced last.
    pub(super) const fn advanced(&self) -> Instant {
        self.state.advanced
    }

    /// Forgets its copies: the sender helps itself. Returns how many there were.
    pub(super) fn clear(&mut self, config: &Config) -> u64 {
        let count = self.state.cache.len() as u64;
        self.state.cache.clear();
        self.state.deadline = None;
        // With what was noted of these copies.
        self.rules = AckRules::new(config);
        count
    }

    /// Nobody takes its copies: the sender is left alone with it.
    pub(super) fn refuse(&mut self, config: &Config, counters: &mut Counters) {
        self.state.record.given_up = true;
        self.leave(config, counters);
    }

    /// Leaves it to the sender, where it is given up. Returns whether it is.
    fn leave(&mut self, config: &Config, counters: &mut Counters) -> bool {
        let given_up = self.state.record.given_up;
        if given_up && self.helps {
            self.helps = false;
            self.clear(config);
            counters.given_up += 1;
        }
        given_up
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
            *self = Self::new(context.config, context.now);
        }
        // Whoever says that he sends to somebody has to have been answered.
        let unheard = context.config.shared_limits.is_some() && self.state.ack.is_none();
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
            _ if unheard || !self.helps => {}
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
            *self = Self::new(context.config, context.now);
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
        if advances {
            state.advanced = context.now;
        }
        let mut verdict = Verdict::Pass;
        match &mut self.rules {
            AckRules::SackAware(rules) if advances => rules.advance(state, view, context),
            AckRules::Ns2(rules) if advances => rules.advance(state, view, context),
            AckRules::SackAware(rules) if duplicate => {
                verdict = rules.duplicate(state, view, context);
            }
            AckRules::Ns2(rules) if duplicate => verdict = rules.duplicate(state, view, context),
            AckRules::SackAware(rules) => rules.news(state, view, context),
            AckRules::Ns2(_) => {}
        }
        if self.leave(context.config, context.counters) {
            Verdict::Pass
        } else {
            verdict
        }
    }

    /// The deadline has come.
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_, P>) {
        self.state.deadline = None;
        match &mut self.rules {
            AckRules::SackAware(rules) => rules.on_timeout(&mut self.state, context),
            AckRules::Ns2(rules) => rules.on_timeout(&mut self.state, context),
        }
        self.leave(context.config, context.counters);
    }

    /// Whether it says what the last acknowledgement said, but for SACK blocks, and nothing else. An answer to a probe of a
    /// zero window looks the same, but its sender waits for it: a window of zero is never plain. With SACK blocks it is
    /// plain with a larger window too: Linux's receivers open theirs by a little with each segment that arrives, beyond a gap
    /// also, and whoever repairs the gap brings the sender an acknowledgement that says how much there is by then.
    fn is_plain(&self, view: &SegmentView<'_, P::Endpoint>) -> bool {
        let speaks = [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG];
        view.payload == 0
            && view.window != 0
            && !speaks.iter().any(|&flag| view.flags.contains(flag))
            && self.last.is_some_and(|(window, flags)| {
                let opens = window != 0 && window < view.window && !view.sack.is_empty();
                (window == view.window || opens) && flags == significant_flags(view.flags)
            })
    }
}

impl<P: Packet> DirectionState<P> {
    /// Whether a copy of `size` may be kept.
    pub(super) fn has_room(&self, size: Bytes, context: &Context<'_, P>) -> bool {
        self.cache.len() < context.config.packets
            && self.cache.bytes() + size <= context.config.bytes
            && self.has_room_among_all(size, context)
    }

    fn has_room_among_all(&self, size: Bytes, context: &Context<'_, P>) -> bool {
        let overhead = context
            .config
            .shared_limits
            .map_or(Bytes(0), |shared_limits| shared_limits.overhead);
        let fits = context.buffered + size + overhead <= context.config.total;
        context.full.set(context.full.get() || !fits);
        fits
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
        if entry.tries > 0 && index == 0 {
            self.record.failed(context.config);
        }
        if entry.tries >= context.config.tries || self.record.given_up {
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
