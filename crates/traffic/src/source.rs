use crate::Model;
use bentpipe_base::{Bytes, Stream};
use core::time::Duration;

/// Draws what follows the first transfer of one flow.
#[derive(Clone, Debug)]
pub struct Source {
    model: Model,
    chance: Stream,
}

impl Source {
    /// The source of flow number `flow` in a run with `seed`: each flow has a stream of its own, so that when
    /// one ends moves no other's draws.
    pub fn new(model: Model, seed: u64, flow: usize) -> Self {
        let chance = Stream::new(seed, &format!("traffic.{flow}"));
        Self { model, chance }
    }

    /// After a transfer has ended: how long the flow pauses, and how much it sends then.
    pub fn succeed(&mut self) -> (Duration, Bytes) {
        let pause = self.model.pause(&mut self.chance);
        (pause, self.model.size(&mut self.chance))
    }
}
