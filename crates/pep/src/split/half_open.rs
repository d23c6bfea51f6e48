//! Handshakes that began in space and that nobody has answered: anyone there can begin some, from forged addresses, and to where nobody
//! is.
//!
//! They count apart from the limit of flows. A new one takes the place of the oldest, so that a flood has to be faster than
//! the answer of the far end to keep a connection from being split.

use super::Split;
use super::flow::Phase;
use crate::flow_table::FlowId;
use crate::{BuildPacket, Side};
use std::collections::BTreeMap;

/// Their flows, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    begun: u64,
    oldest_first: BTreeMap<u64, FlowId>,
    places: BTreeMap<FlowId, u64>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn end(&mut self, id: FlowId) {
        if let Some(place) = self.places.remove(&id) {
            self.oldest_first.remove(&place);
        }
    }

    fn begin(&mut self, id: FlowId) {
        self.begun += 1;
        self.oldest_first.insert(self.begun, id);
        self.places.insert(id, self.begun);
    }

    fn oldest(&self) -> Option<FlowId> {
        self.oldest_first.values().next().copied()
    }
}

impl<P: BuildPacket> Split<P> {
    /// The handshake of flow `id` has begun, from side `from`.
    pub(super) fn bound_half_open(&mut self, id: FlowId, from: Side) {
        let Some(most) = self.config.half_open.filter(|_| from == Side::Space) else {
            return;
        };
        self.half_open.begin(id);
        if self.half_open.len() > most
            && let Some(oldest) = self.half_open.oldest()
        {
            self.counters.over_half_open += 1;
            self.forget(oldest);
        }
    }

    /// Flow `id`, of which a packet has come, counts towards the limit of flows once it is answered; returns false where that leaves no room
    /// for it.
    pub(super) fn has_room(&mut self, id: FlowId) -> bool {
        let answered = match self.flows.get(id).map(|flow| &flow.phase) {
            Some(Phase::Handshake(tracker)) => tracker.is_answered(),
            _ => false,
        };
        if !answered || !self.half_open.places.contains_key(&id) {
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.half_open.end(id);
        true
    }
}
