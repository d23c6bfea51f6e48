//! Snoop: local retransmission before a lossy link, and silence about it towards the sender.
//!
//! H. Balakrishnan, S. Seshan, R. Katz, "Improving reliable transport and handoff performance in
//! cellular wireless networks", Wireless Networks 1(4), 1995; applied to geostationary links by
//! J. Sing, B. Soh, "On the use of Snoop with Geostationary Satellite Links", 2005. The two sets of
//! rules are in `standard.rs` and `ns2.rs`; each says where it departs from the paper.
//!
//! What holds for both: a packet is forwarded as it came, in its order, or it is a duplicate
//! acknowledgement and is suppressed; what cannot be read is forwarded; nothing is made up, only
//! copies are sent again. An acknowledgement passes if it carries data, SYN, FIN, RST or URG, a
//! window or flags unlike those of the one before it, or announces a window of zero. For data from
//! space to ground the copy would lie behind the lossy link: it passes, unless both sides are lossy
//! ([`Toward::Both`]). Every flow has bounds, all together have them, and silent flows are forgotten.

mod cache;
mod config;
mod half;
mod ns2;
mod rtt;
mod standard;

pub use config::{Config, Gain, Preset, Rules, Toward};

use crate::{Packet, Pep, Side, View};
use bentpipe_base::{Bytes, Instant, Machine};
use bentpipe_wire::Flags;
use core::convert::Infallible;
use core::time::Duration;
use half::{Desk, Half};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What an agent has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data segments cached.
    pub cached: u64,
    /// Data segments that passed uncached, for there was no room.
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
    key: Key<P::Endpoint>,
    /// Data towards space, and towards the ground.
    halves: [Half<P>; 2],
    /// When its last packet came.
    active: Instant,
    /// Where it stands in `deadlines`: never later than what is due.
    entry: Instant,
}

/// The agent: see the module's head.
pub struct Snoop<P: Packet> {
    config: Config,
    index: BTreeMap<Key<P::Endpoint>, usize>,
    flows: Vec<Option<Flow<P>>>,
    free: Vec<usize>,
    /// The flow of the last packet: most packets follow one of their own flow.
    recent: Option<(Key<P::Endpoint>, usize)>,
    /// One entry a flow.
    deadlines: BTreeSet<(Instant, usize)>,
    out: VecDeque<(Side, P)>,
    buffered: Bytes,
    counters: Counters,
}

impl<P: Packet> Snoop<P> {
    /// An agent that has seen nothing.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            index: BTreeMap::new(),
            flows: Vec::new(),
            free: Vec::new(),
            recent: None,
            deadlines: BTreeSet::new(),
            out: VecDeque::new(),
            buffered: Bytes(0),
            counters: Counters::default(),
        }
    }

    /// What it has done so far.
    pub const fn tally(&self) -> Counters {
        self.counters
    }

    /// Flows that it watches.
    pub fn flows(&self) -> usize {
        self.index.len()
    }

    fn watch(
        &mut self,
        from: Side,
        view: &View<'_, P::Endpoint>,
        packet: &P,
        now: Instant,
    ) -> Verdict {
        let key = match from {
            Side::Ground => (view.source, view.destination),
            Side::Space => (view.destination, view.source),
        };
        // Ports are used again: a SYN begins another connection.
        if view.flags.contains(Flags::RST) || view.flags.contains(Flags::SYN) {
            self.forget(key);
        }
        if !view.flags.contains(Flags::ACK) || view.flags.contains(Flags::RST) {
            return Verdict::Pass;
        }
        let Some(id) = self.find_or_add(key, now) else {
            self.counters.unwatched += 1;
            return Verdict::Pass;
        };
        let verdict = self.on_half(id, from.opposite(), now, |half, desk| {
            half.on_data(view, packet, desk);
            Verdict::Pass
        });
        let judged = self.on_half(id, from, now, |half, desk| half.on_ack(view, desk));
        if let Some(flow) = &mut self.flows[id] {
            flow.active = now;
        }
        self.schedule(id);
        judged.or(verdict).unwrap_or(Verdict::Pass)
    }

    /// Runs `work` on the half of flow `id` whose data goes to `to`, if that is watched.
    fn on_half<R>(
        &mut self,
        id: usize,
        to: Side,
        now: Instant,
        work: impl FnOnce(&mut Half<P>, &mut Desk<'_, P>) -> R,
    ) -> Option<R> {
        if to == Side::Ground && self.config.toward == Toward::Space {
            return None;
        }
        let half = &mut self.flows[id].as_mut()?.halves[side(to)];
        let before = half.bytes();
        let mut desk = Desk {
            config: &self.config,
            now,
            to,
            buffered: self.buffered,
            out: &mut self.out,
            counters: &mut self.counters,
        };
        let result = work(half, &mut desk);
        self.buffered = self.buffered - before + half.bytes();
        Some(result)
    }

    fn find_or_add(&mut self, key: Key<P::Endpoint>, now: Instant) -> Option<usize> {
        if let Some((recent, id)) = self.recent
            && recent == key
        {
            return Some(id);
        }
        let known = self.index.get(&key).copied();
        let id = known.or_else(|| self.add(key, now))?;
        self.recent = Some((key, id));
        Some(id)
    }

    fn add(&mut self, key: Key<P::Endpoint>, now: Instant) -> Option<usize> {
        if self.index.len() >= self.config.flows {
            return None;
        }
        let flow = Flow {
            key,
            halves: [Half::new(&self.config), Half::new(&self.config)],
            active: now,
            entry: now + self.config.idle,
        };
        let entry = flow.entry;
        let id = match self.free.pop() {
            Some(id) => {
                self.flows[id] = Some(flow);
                id
            }
            None => {
                self.flows.push(Some(flow));
                self.flows.len() - 1
            }
        };
        self.index.insert(key, id);
        self.deadlines.insert((entry, id));
        Some(id)
    }

    fn forget(&mut self, key: Key<P::Endpoint>) {
        let Some(id) = self.index.remove(&key) else {
            return;
        };
        self.recent = None;
        if let Some(flow) = self.flows[id].take() {
            self.deadlines.remove(&(flow.entry, id));
            let held: Bytes = flow.halves.iter().map(Half::bytes).sum();
            self.buffered = self.buffered - held;
            self.free.push(id);
        }
    }

    /// Moves the flow's entry when something is due earlier; one that is too early is left until
    /// it comes up.
    fn schedule(&mut self, id: usize) {
        let Some(flow) = &mut self.flows[id] else {
            return;
        };
        let due = flow.due(self.config.idle);
        if due < flow.entry {
            self.deadlines.remove(&(flow.entry, id));
            flow.entry = due;
            self.deadlines.insert((due, id));
        }
    }

    /// The flow's entry has come up.
    fn wake(&mut self, id: usize, now: Instant) {
        let Some(flow) = &self.flows[id] else {
            return;
        };
        if flow.active + self.config.idle <= now {
            self.forget(flow.key);
            return;
        }
        for to in [Side::Space, Side::Ground] {
            self.on_half(id, to, now, |half, desk| {
                if half.deadline().is_some_and(|deadline| deadline <= now) {
                    half.on_timeout(desk);
                }
            });
        }
        if let Some(flow) = &mut self.flows[id] {
            self.deadlines.remove(&(flow.entry, id));
            let later = now + Duration::from_nanos(1);
            flow.entry = flow.due(self.config.idle).max(later);
            self.deadlines.insert((flow.entry, id));
        }
    }
}

impl<P: Packet> Flow<P> {
    fn due(&self, idle: Duration) -> Instant {
        let [space, ground] = &self.halves;
        let silent = self.active + idle;
        let timer = |half: &Half<P>| half.deadline().unwrap_or(Instant::MAX);
        silent.min(timer(space)).min(timer(ground))
    }
}

/// The index of the half whose data goes to `to`.
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
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                break;
            }
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
        self.deadlines.first().map(|&(at, _)| at)
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
        ]
    }
}
