//! What each split connection keeps in memory.

use super::Split;
use super::flow::{Flow, Phase};
use super::legs::Legs;
use crate::BuildPacket;
use bentpipe_base::{Bytes, Instant};

/// What the legs of a connection keep, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<E> {
    /// Its end on the ground.
    pub ground: E,
    /// Its end in space.
    pub space: E,
    /// Of what goes to the ground; what came from space out of order is among it.
    pub to_ground: u64,
    /// Of what goes to space.
    pub to_space: u64,
    /// Whether nobody is left on the ground who could end it.
    pub ground_is_over: bool,
}

impl<P: BuildPacket> Split<P> {
    /// Bytes that the legs keep, those too that came out of order.
    pub fn in_memory(&self) -> Bytes {
        let kept = self.flows.iter().filter_map(|(_, flow)| legs(flow));
        Bytes(kept.map(Legs::in_memory).sum())
    }

    /// The connections that keep something.
    pub fn kept(&self) -> impl Iterator<Item = Kept<P::Endpoint>> {
        self.flows.iter().filter_map(|(id, flow)| {
            let (legs, (ground, space)) = (legs(flow)?, self.flows.key(id)?);
            let all = legs.in_memory();
            let to_space = legs.to_space().min(all);
            (all > 0).then_some(Kept {
                ground,
                space,
                to_ground: all - to_space,
                to_space,
                ground_is_over: legs.is_over_on_ground(),
            })
        })
    }

    /// Resets both sides of the connection with these ends.
    pub fn abort(&mut self, ground: P::Endpoint, space: P::Endpoint, now: Instant) {
        if let Some(id) = self.flows.peek((ground, space)) {
            self.abort_flow(id, now);
        }
    }
}

fn legs(flow: &Flow) -> Option<&Legs> {
    match &flow.phase {
        Phase::Split(legs) => Some(legs),
        Phase::Handshake(_) => None,
    }
}
