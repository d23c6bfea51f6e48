//! Handshakes that began in space and that nobody has answered: anyone there can begin some, from forged addresses, and to where nobody
//! is.
//!
//! They count apart from the limit of flows. Where there are too many, the oldest gives way of the host in space that has most of them,
//! if that has more than its share, else of those to the host on the ground that has most. So a flood from few addresses, or to one,
//! has only its own forgotten, and one from forged addresses to many hosts has to be faster than the answer of the far end to
//! keep a connection from being split.

use super::Split;
use super::flow::Phase;
use crate::flow_table::FlowId;
use crate::{BuildPacket, Side};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The share of one host in space is this part of all, where all are taken.
const SHARE: usize = 8;

/// The flows of such handshakes, by their hosts.
#[derive(Debug)]
pub(super) struct HalfOpen<H> {
    begun: u64,
    /// Each by its place in the order in which they began, and its hosts in space and on the ground.
    flows: BTreeMap<FlowId, (u64, H, H)>,
    in_space: ByHost<H>,
    on_ground: ByHost<H>,
}

/// The flows of each of several hosts.
#[derive(Debug)]
struct ByHost<H> {
    /// The oldest first.
    flows: BTreeMap<H, BTreeMap<u64, FlowId>>,
    /// The hosts by how many they have; of those with as many, the one with the oldest last.
    ranks: BTreeSet<(usize, Reverse<u64>, H)>,
}

impl<H> Default for ByHost<H> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            ranks: BTreeSet::new(),
        }
    }
}

impl<H: Copy + Ord> ByHost<H> {
    fn change(&mut self, host: H, change: impl FnOnce(&mut BTreeMap<u64, FlowId>)) {
        let flows = self.flows.entry(host).or_default();
        let rank = |flows: &BTreeMap<u64, FlowId>| {
            let (oldest, _) = flows.first_key_value()?;
            Some((flows.len(), Reverse(*oldest), host))
        };
        if let Some(before) = rank(flows) {
            self.ranks.remove(&before);
        }
        change(flows);
        match rank(flows) {
            Some(now) => {
                self.ranks.insert(now);
            }
            None => {
                self.flows.remove(&host);
            }
        }
    }

    /// How many the host has that has most, and the oldest of them.
    fn most(&self) -> Option<(usize, FlowId)> {
        let (count, _, host) = self.ranks.last()?;
        let oldest = self.flows.get(host)?.values().next()?;
        Some((*count, *oldest))
    }
}

impl<H> Default for HalfOpen<H> {
    fn default() -> Self {
        Self {
            begun: 0,
            flows: BTreeMap::new(),
            in_space: ByHost::default(),
            on_ground: ByHost::default(),
        }
    }
}

impl<H: Copy + Ord> HalfOpen<H> {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn end(&mut self, id: FlowId) {
        if let Some((place, space, ground)) = self.flows.remove(&id) {
            let remove = |flows: &mut BTreeMap<u64, FlowId>| {
                flows.remove(&place);
            };
            self.in_space.change(space, remove);
            self.on_ground.change(ground, remove);
        }
    }

    fn begin(&mut self, id: FlowId, space: H, ground: H) {
        self.begun += 1;
        let place = self.begun;
        self.flows.insert(id, (place, space, ground));
        let insert = |flows: &mut BTreeMap<u64, FlowId>| {
            flows.insert(place, id);
        };
        self.in_space.change(space, insert);
        self.on_ground.change(ground, insert);
    }

    /// The one that gives way where there are more than `most`.
    fn first_to_go(&self, most: usize) -> Option<FlowId> {
        let (count, oldest) = self.in_space.most()?;
        if count > most / SHARE {
            return Some(oldest);
        }
        Some(self.on_ground.most()?.1)
    }
}

impl<P: BuildPacket> Split<P> {
    /// The handshake of flow `id` has begun, from side `from`.
    pub(super) fn bound_half_open(&mut self, id: FlowId, from: Side) {
        let most = self.config.half_open.filter(|_| from == Side::Space);
        let (Some(most), Some((ground, space))) = (most, self.flows.key(id)) else {
            return;
        };
        self.half_open.begin(id, P::host(space), P::host(ground));
        if self.half_open.len() > most
            && let Some(first) = self.half_open.first_to_go(most)
        {
            self.counters.over_half_open += 1;
            self.forget(first);
        }
    }

    /// Flow `id`, of which a packet has come, counts towards the limit of flows once it is answered; returns false where that leaves no room
    /// for it.
    pub(super) fn has_room(&mut self, id: FlowId) -> bool {
        let answered = match self.flows.get(id).map(|flow| &flow.phase) {
            Some(Phase::Handshake(tracker)) => tracker.is_answered(),
            _ => false,
        };
        if !answered || !self.half_open.flows.contains_key(&id) {
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.half_open.end(id);
        true
    }
}
