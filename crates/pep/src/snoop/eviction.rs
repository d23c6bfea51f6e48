//! Eviction from the cache of all flows where it is full: copies of flows that stand still go, then those of the host that
//! has most.
//!
//! Without it, whoever fills the cache first has it until his flows have been silent for long.

use super::{Flow, Snoop};
use crate::Packet;
use crate::flow_table::FlowId;
use bentpipe_base::{Bytes, Instant};
use core::time::Duration;
use std::collections::BTreeMap;

/// A direction whose acknowledgement has not advanced for so long is helped by its sender, or not at all.
const STILL: Duration = Duration::from_secs(30);
/// One part of so many of the cache is made free at a time, so that flows are seldom looked through.
const PART: u64 = 16;
/// A host that has less than one part of so many keeps it.
const SHARE: u64 = 4;
/// Where there was no room to be had, it is looked for again so much later: for nobody, or not for whoever has most.
const PAUSE: Duration = Duration::from_millis(100);

impl<P: Packet> Snoop<P> {
    /// Has flows forget their copies until there is room again for this flow; those whose acknowledgement has not advanced for
    /// longest first. Whoever has most himself takes it from nobody but those that stand still.
    pub(super) fn make_room(&mut self, id: FlowId, now: Instant) {
        let Some(asks) = self.flows.get(id).map(|flow| flow.client) else {
            return;
        };
        let none_for = self.none_until.filter(|&(_, until)| now < until);
        if none_for.is_some_and(|(host, _)| host.is_none_or(|host| host == asks)) {
            return;
        }
        let mut holders: Vec<(Instant, FlowId, P::Host, Bytes)> = Vec::new();
        let mut hosts: BTreeMap<P::Host, Bytes> = BTreeMap::new();
        for (id, flow) in self.flows.iter() {
            let bytes = flow.bytes(&self.config);
            if bytes > Bytes(0) {
                holders.push((flow.advanced(&self.config), id, flow.client, bytes));
                let of_host = hosts.entry(flow.client).or_default();
                *of_host += bytes;
            }
        }
        holders.sort_unstable_by_key(|&(advanced, id, ..)| (advanced, id));
        let greatest = hosts.iter().max_by_key(|(_, bytes)| **bytes);
        let greedy = greatest
            .filter(|(_, bytes)| bytes.0 > self.config.total.0 / SHARE)
            .map(|(host, _)| *host);
        let wanted = Bytes(self.config.total.0 / PART);
        let mut freed = Bytes(0);
        for (advanced, id, host, bytes) in holders {
            let still = advanced + STILL <= now;
            if still || (freed < wanted && Some(host) == greedy && host != asks) {
                self.evict(id, now);
                freed += bytes;
            }
        }
        if freed == Bytes(0) {
            self.none_until = Some((greedy, now + PAUSE));
        }
    }

    fn evict(&mut self, id: FlowId, now: Instant) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        self.buffered = self.buffered - flow.bytes(&self.config);
        for direction in &mut flow.directions {
            self.counters.evicted += direction.clear(&self.config);
        }
        let due = flow.due(&self.config);
        self.flows.reschedule(id, due, now);
    }
}

impl<P: Packet> Flow<P> {
    /// When the acknowledgement of its data advanced last: that of the direction with copies that stands longest.
    fn advanced(&self, config: &super::Config) -> Instant {
        let holding = self
            .directions
            .iter()
            .filter(|one| one.bytes(config) > Bytes(0));
        let advanced = holding.map(super::FlowDirection::advanced).min();
        advanced.unwrap_or(Instant::MAX)
    }
}
