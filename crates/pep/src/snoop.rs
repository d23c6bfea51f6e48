//! Snoop: retransmits segments that the lossy link loses from a cache before it, and suppresses the duplicate
//! acknowledgements that would tell the sender.
//!
//! H. Balakrishnan, S. Seshan, R. Katz, "Improving reliable transport and handoff performance in
//! cellular wireless networks", Wireless Networks 1(4), 1995; applied to geostationary links by
//! J. Sing, B. Soh, "On the use of Snoop with Geostationary Satellite Links", 2005. The two sets of
//! rules are in `sack_aware.rs` and `ns2.rs`; each says where it departs from the paper.
//!
//! Both sets of rules keep the following. Every packet is forwarded as it came and in order, but for duplicate
//! acknowledgements, which may be suppressed; packets that cannot be read are forwarded; the agent makes no packets, it
//! only sends copies again. An acknowledgement is never suppressed if it carries data, SYN, FIN, RST or URG, if its flags
//! differ from those of the one before it, if its window does (but for a larger one beside SACK blocks), or if its window is zero. Data from space to ground is not cached,
//! because it has crossed the lossy link already, unless both sides are lossy ([`Toward::Both`]). The cache of each flow
//! is bounded, so is that of all together, and silent flows are forgotten. Among strangers ([`SharedAgentLimits`]) a full cache takes room from flows
//! that stand still, and from the host that has most.

mod cache;
mod config;
mod eviction;
mod flow_direction;
mod ns2;
mod rtt;
mod sack_aware;

pub use config::{Config, Gain, Preset, Rules, Settings, SharedAgentLimits, Toward};

use crate::flow_table::{FlowId, FlowTable};
use crate::{Packet, Pep, SegmentView, Side};
use bentpipe_base::{Bytes, Instant, Machine};
use bentpipe_wire::Flags;
use core::convert::Infallible;
use core::time::Duration;
use flow_direction::{Context, FlowDirection};
use std::cell::Cell;
use std::collections::VecDeque;

/// Counts since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data segments cached.
    pub cached: u64,
    /// Data segments that were not cached for want of room.
    pub uncached: u64,
    /// Data segments sent again by their sender, or out of order.
    pub resent: u64,
    /// Local retransmissions upon acknowledgements.
    pub retransmitted: u64,
    /// Local retransmissions by the timer.
    pub timeouts: u64,
    /// Duplicate acknowledgements kept from the sender.
    pub suppressed: u64,
    /// Packets that could not be read.
    pub unread: u64,
    /// Packets of flows beyond the bound.
    pub unwatched: u64,
    /// Data segments whose copies gave way to others.
    pub evicted: u64,
    /// Directions of flows left to their sender, because copies did not arrive.
    pub given_up: u64,
}

/// What becomes of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Suppress,
}

/// A flow's two ends: on the ground, in space.
type Key<E> = (E, E);

struct Flow<P: Packet> {
    /// Data towards space, and towards the ground.
    directions: [FlowDirection<P>; 2],
    /// Who has begun it, or is on the ground where that was not seen.
    client: P::Host,
    /// When its last packet came.
    active: Instant,
    /// From which sides packets without SYN, and from which FINs have come.
    heard: [bool; 2],
    ended: [bool; 2],
}

/// The agent: see the module's head.
pub struct Snoop<P: Packet> {
    config: Config,
    flows: FlowTable<Key<P::Endpoint>, Flow<P>>,
    out: VecDeque<(Side, P)>,
    buffered: Bytes,
    /// No room is looked for among other flows until then, for this host or for any: there was none.
    none_until: Option<(Option<P::Host>, Instant)>,
    counters: Counters,
}

impl<P: Packet> Snoop<P> {
    /// An agent that has seen nothing.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            flows: FlowTable::new(),
            out: VecDeque::new(),
            buffered: Bytes(0),
            none_until: None,
            counters: Counters::default(),
        }
    }

    /// What it has done so far.
    pub const fn tally(&self) -> Counters {
        self.counters
    }

    /// Flows that it watches.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Nobody takes this copy, which was to go to `to`: its sender is left alone with that direction, as without the agent.
    pub fn refused(&mut self, to: Side, packet: &P) {
        let Some(view) = packet.view() else {
            return;
        };
        let found = self.flows.find(Self::key(to.opposite(), &view));
        let Some((id, flow)) = found.and_then(|id| Some((id, self.flows.get_mut(id)?))) else {
            return;
        };
        let direction = &mut flow.directions[side(to)];
        let before = direction.bytes(&self.config);
        direction.refuse(&self.config, &mut self.counters);
        self.buffered = self.buffered - before;
        let due = flow.due(&self.config);
        self.flows.schedule(id, due);
    }

    fn key(from: Side, view: &SegmentView<'_, P::Endpoint>) -> Key<P::Endpoint> {
        match from {
            Side::Ground => (view.source, view.destination),
            Side::Space => (view.destination, view.source),
        }
    }

    fn watch(
        &mut self,
        from: Side,
        view: &SegmentView<'_, P::Endpoint>,
        packet: &P,
        now: Instant,
    ) -> Verdict {
        let key = Self::key(from, view);
        // Ports are used again: a SYN begins another connection.
        let begins = view.flags.contains(Flags::RST) || view.flags.contains(Flags::SYN);
        if begins && let Some(id) = self.flows.find(key) {
            self.forget(id);
        }
        if !view.flags.contains(Flags::ACK) || view.flags.contains(Flags::RST) {
            return Verdict::Pass;
        }
        let client = if view.flags.contains(Flags::SYN) {
            view.destination
        } else {
            key.0
        };
        let Some(id) = self.find_or_add(key, P::host(client), now) else {
            self.counters.unwatched += 1;
            return Verdict::Pass;
        };
        let verdict = self.on_direction(id, from.opposite(), now, |direction, context| {
            direction.on_data(view, packet, context);
            Verdict::Pass
        });
        let judged = self.on_direction(id, from, now, |direction, context| {
            direction.on_ack(view, context)
        });
        if let Some(flow) = self.flows.get_mut(id) {
            flow.active = now;
            flow.heard[side(from)] |= !view.flags.contains(Flags::SYN);
            flow.ended[side(from)] |= view.flags.contains(Flags::FIN);
            let due = flow.due(&self.config);
            self.flows.schedule(id, due);
        }
        judged.or(verdict).unwrap_or(Verdict::Pass)
    }

    /// Runs `work` on the direction of flow `id` whose data goes to side `to`, if that direction is cached.
    fn on_direction<R>(
        &mut self,
        id: FlowId,
        to: Side,
        now: Instant,
        work: impl FnOnce(&mut FlowDirection<P>, &mut Context<'_, P>) -> R,
    ) -> Option<R> {
        if to == Side::Ground && self.config.toward == Toward::Space {
            return None;
        }
        let direction = &mut self.flows.get_mut(id)?.directions[side(to)];
        let before = direction.bytes(&self.config);
        let mut context = Context {
            config: &self.config,
            now,
            to,
            buffered: self.buffered,
            out: &mut self.out,
            counters: &mut self.counters,
            full: Cell::new(false),
        };
        let result = work(direction, &mut context);
        let full = context.full.get();
        self.buffered = self.buffered - before + direction.bytes(&self.config);
        if full && self.config.shared_limits.is_some() {
            self.make_room(id, now);
        }
        Some(result)
    }

    fn find_or_add(
        &mut self,
        key: Key<P::Endpoint>,
        client: P::Host,
        now: Instant,
    ) -> Option<FlowId> {
        let known = self.flows.find(key);
        if known.is_some() || self.flows.len() >= self.config.flows {
            return known;
        }
        let flow = Flow {
            directions: [
                FlowDirection::new(&self.config, now),
                FlowDirection::new(&self.config, now),
            ],
            client,
            active: now,
            heard: [false; 2],
            ended: [false; 2],
        };
        let due = flow.due(&self.config);
        Some(self.flows.insert(key, flow, due))
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.remove(id) {
            self.buffered = self.buffered - flow.bytes(&self.config);
        }
    }

    /// The flow is due.
    fn wake(&mut self, id: FlowId, now: Instant) {
        let silent = |flow: &Flow<P>| flow.active + flow.idle(&self.config) <= now;
        if self.flows.get(id).is_none_or(silent) {
            self.forget(id);
            return;
        }
        for to in [Side::Space, Side::Ground] {
            self.on_direction(id, to, now, |direction, context| {
                if direction.deadline().is_some_and(|deadline| deadline <= now) {
                    direction.on_timeout(context);
                }
            });
        }
        if let Some(flow) = self.flows.get(id) {
            let due = flow.due(&self.config);
            self.flows.reschedule(id, due, now);
        }
    }
}

impl<P: Packet> Flow<P> {
    /// How long it may be silent.
    fn idle(&self, config: &Config) -> Duration {
        let settled = self.heard == [true; 2] && self.ended != [true; 2];
        match config.shared_limits {
            Some(shared_limits) if !settled => shared_limits.unsettled,
            _ => config.idle,
        }
    }

    /// What its copies take of the room of all flows.
    fn bytes(&self, config: &Config) -> Bytes {
        let each = self.directions.iter();
        each.map(|direction| direction.bytes(config)).sum()
    }

    fn due(&self, config: &Config) -> Instant {
        let [space, ground] = &self.directions;
        let silent = self.active + self.idle(config);
        let timer = |direction: &FlowDirection<P>| direction.deadline().unwrap_or(Instant::MAX);
        silent.min(timer(space)).min(timer(ground))
    }
}

/// The index of the direction whose data goes to `to`.
const fn side(to: Side) -> usize {
    match to {
        Side::Space => 0,
        Side::Ground => 1,
    }
}

impl<P: Packet> Machine for Snoop<P> {
    type Packet = P;
    type Port = Side;
    type Event = Infallible;

    fn input(&mut self, port: Side, packet: P, now: Instant) {
        let verdict = match packet.view() {
            Some(view) => self.watch(port, &view, &packet, now),
            None => {
                self.counters.unread += 1;
                Verdict::Pass
            }
        };
        if verdict == Verdict::Pass {
            self.out.push_back((port.opposite(), packet));
        }
    }

    fn timeout(&mut self, now: Instant) {
        while let Some(id) = self.flows.due(now) {
            self.wake(id, now);
        }
    }

    fn transmit(&mut self, _now: Instant) -> Option<(Side, P)> {
        self.out.pop_front()
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.flows.deadline()
    }
}

impl<P: Packet> Pep for Snoop<P> {
    fn kind(&self) -> &'static str {
        "snoop"
    }

    fn buffered(&self) -> Bytes {
        self.buffered
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters {
            cached,
            uncached,
            resent,
            retransmitted,
            timeouts,
            suppressed,
            unread,
            unwatched,
            evicted,
            given_up,
        } = self.counters;
        vec![
            ("cached", cached),
            ("uncached", uncached),
            ("resent", resent),
            ("retransmitted", retransmitted),
            ("timeouts", timeouts),
            ("suppressed", suppressed),
            ("unread", unread),
            ("unwatched", unwatched),
            ("evicted", evicted),
            ("given_up", given_up),
        ]
    }
}
