//! Flows on which no byte moves for too long, if the configuration sets a bound: they are reset.

use super::Worker;
use crate::flow::{Flow, Phase, Side};
use bentpipe_base::{Bytes, Instant};
use bentpipe_sockets::{tcp, timer};
use std::collections::BTreeMap;
use std::time::Duration;

/// A reset may be late by the bound divided by this.
const PARTS: u32 = 8;

/// A worker's clock for idle flows.
#[derive(Debug)]
pub(super) struct Idle {
    /// When the worker last woke.
    pub(super) now: Instant,
    looked: Instant,
    /// By their numbers flows of which something was not acknowledged when they were last looked at.
    waiting: BTreeMap<u32, Bytes>,
}

impl Idle {
    pub(super) fn new() -> Self {
        let now = timer::now();
        Self {
            now,
            looked: now,
            waiting: BTreeMap::new(),
        }
    }
}

/// What the peers of `flow` have not acknowledged.
fn unacknowledged(flow: &Flow) -> Bytes {
    let waiting = Side::BOTH.map(|side| tcp::unacknowledged(flow.socket(side)));
    waiting.into_iter().flatten().sum()
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
                let before = match waiting {
                    Bytes(0) => self.idle.waiting.remove(&index),
                    _ => self.idle.waiting.insert(index, waiting),
                };
                if before.unwrap_or_default() != waiting {
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
