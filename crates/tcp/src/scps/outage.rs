//! A connection whose link is out is frozen: nothing but probes is sent, and the window stays, until the peer is heard or
//! somebody says that the link is back (CCSDS 714.0-B-2, "link outage").

use crate::connection::Connection;
use bentpipe_base::Instant;
use std::time::Duration;

/// When a link is taken for out, and how its return is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Retransmission timeouts in a row after which nothing but probes is sent.
    pub timeouts: u32,
    /// The time between probes; the smoothed round-trip time where that is longer.
    pub probe_interval: Duration,
    /// A connection whose link is out this long is given up.
    pub most: Duration,
}

impl Connection {
    /// The link is out, says who knows (a modem): from now on nothing but probes is sent.
    pub fn link_out(&mut self, now: Instant) {
        if self.config.outage.is_some() && self.may_freeze() {
            self.freeze(now);
        }
    }

    /// The link is back, says who knows: what was under way goes again at once.
    pub fn link_restored(&mut self, now: Instant) {
        if self.frozen.is_some() {
            self.thaw(now);
        }
    }

    /// Whether the link is taken for out.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    fn may_freeze(&self) -> bool {
        self.frozen.is_none() && self.tx.una > 0 && self.tx.una < self.tx.max && !self.tx.persisting
    }

    /// Whether the timeout that just came begins an outage.
    pub(crate) fn loses_the_link(&self) -> bool {
        let outage = self.config.outage;
        outage.is_some_and(|outage| self.tx.retries >= outage.timeouts) && self.may_freeze()
    }

    pub(crate) fn freeze(&mut self, now: Instant) {
        self.frozen = Some(now);
        self.tx.counters.outages += 1;
        self.probe_link(now);
    }

    /// A probe goes out now, and the next one an interval later.
    pub(crate) fn probe_link(&mut self, now: Instant) {
        let (Some(outage), Some(since)) = (self.config.outage, self.frozen) else {
            return;
        };
        if now.since(since) >= outage.most {
            return self.time_out(now);
        }
        self.probe = true;
        self.tx.counters.link_probes += 1;
        let srtt = self.tx.rto.srtt().unwrap_or_default();
        self.tx.timer = now + outage.probe_interval.max(srtt);
    }

    /// The peer was heard, or somebody said that the link is back.
    #[cold]
    pub(crate) fn thaw(&mut self, now: Instant) {
        self.frozen = None;
        self.probe = false;
        self.tx.retries = 0;
        self.tx.rto.reset_backoff();
        self.recovery
            .on_resume(&mut self.tx.recovery_context(), now);
        self.tx.settle(now);
    }
}
