//! Flows on which no byte moves for too long, if the configuration sets a bound: they are reset.

use super::Worker;
use crate::flow::{Flow, Phase, Side};
use bentpipe_base::Instant;
use bentpipe_sockets::{tcp, timer};
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

fn unacknowledged(flow: &Flow) -> u32 {
    let waiting = Side::BOTH.map(|side| tcp::unacknowledged(flow.socket(side)));
    let bytes: u64 = waiting.into_iter().flatten().map(|bytes| bytes.0).sum();
    u32::try_from(bytes).unwrap_or(u32::MAX)
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
            if !matches!(
                flow.phase,
                Phase::Open | Phase::Delivering { .. } | Phase::Closing
            ) {
                continue;
            }
            // What has passed the worker moves as long as its receiver acknowledges of it.
            if now.since(flow.active) >= bound / PARTS {
                let waiting = unacknowledged(flow);
                if core::mem::replace(&mut flow.waiting, waiting) != waiting {
                    flow.active = now;
                }
            }
            if now.since(flow.active) >= bound {
                self.counters.idle.one();
                self.drop_flow(index);
            }
        }
    }
}
