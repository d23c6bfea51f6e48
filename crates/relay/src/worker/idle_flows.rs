//! Flows on which no byte moves for too long, if the configuration sets a bound: they are reset.

use super::Worker;
use crate::flow::Phase;
use bentpipe_base::Instant;
use bentpipe_sockets::timer;
use std::time::Duration;

/// A reset may be late by the bound divided by this.
const PARTS: u32 = 8;

/// A worker's clock for idle flows.
#[derive(Debug)]
pub(super) struct Idle {
    /// When the worker last woke.
    pub(super) now: Instant,
    looked: Instant,
}

impl Idle {
    pub(super) fn new() -> Self {
        let now = timer::now();
        Self { now, looked: now }
    }
}

impl Worker {
    /// How long the worker may sleep for the sake of idle flows.
    pub(super) fn idle_tick(&self) -> Option<Duration> {
        self.settings.idle.map(|bound| bound / PARTS)
    }

    /// Resets the flows that are over the bound.
    pub(super) fn on_idle(&mut self) {
        let Some(bound) = self.settings.idle else {
            return;
        };
        let now = self.idle.now;
        if now.since(self.idle.looked) < bound / PARTS {
            return;
        }
        self.idle.looked = now;
        for index in self.flows.numbers() {
            let Some(flow) = self.flows.get_mut(index) else {
                continue;
            };
            let is_open = matches!(flow.phase, Phase::Open | Phase::Delivering { .. });
            if is_open && now.since(flow.active) >= bound {
                self.counters.idle.one();
                self.drop_flow(index);
            }
        }
    }
}
