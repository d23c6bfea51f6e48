//! What a host does about the MTU of its connections' paths: it finds those that swallow large packets, fits its connections
//! to what is known, and has them probe for more (RFC 8899).

use crate::host::{Host, is_synchronised, largest_segment};
use crate::table::ConnectionId;
use bentpipe_base::Instant;
use bentpipe_wire::{SackBlock, Tcp};
use std::time::Duration;

/// A probe is taken for lost after so long, or after the retransmission timeout where that is longer (RFC 8899, section
/// 5.1.1, PROBE_TIMER: no less than this).
const PROBE_TIMER: Duration = Duration::from_secs(1);

impl Host {
    /// Detects a path that drops large packets in silence: several timeouts in a row of segments larger than every path
    /// must take (RFC 8899, section 4.3).
    pub(crate) fn watch_path(&mut self, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        if entry.paths_known != self.paths.changes() && is_synchronised(entry.connection.state()) {
            self.fit_path(id, now);
        }
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let counters = entry.connection.counters();
        if counters.bytes_acked > entry.acknowledged {
            entry.linger = None;
        }
        if counters.bytes_acked > entry.acknowledged || entry.timeouts > counters.timeouts {
            (entry.acknowledged, entry.timeouts) = (counters.bytes_acked, counters.timeouts);
        }
        let (after, since) = (
            self.config.black_hole_after,
            counters.timeouts - entry.timeouts,
        );
        if after == 0 || since < u64::from(after) || !is_synchronised(entry.connection.state()) {
            return;
        }
        entry.timeouts = counters.timeouts;
        let (remote, header) = (entry.tuple.remote.ip(), entry.tuple.ip_header());
        let flight = entry.connection.gauges().flight;
        let least = bentpipe_wire::least_path_mtu(remote);
        if flight <= u64::from(largest_segment(least, header)) {
            return;
        }
        let most = self.largest_packet(id);
        if self.paths.black_hole(remote, most, now).is_some() {
            self.counters.black_holes += 1;
        }
        self.fit_path(id, now);
    }

    /// The largest packet that the interface and both ends of a connection take.
    pub(crate) fn largest_packet(&self, id: ConnectionId) -> u16 {
        let agreed = self.table.get(id).map_or(u16::MAX, |entry| {
            let headers = entry.tuple.ip_header() + Tcp::BARE as u16;
            entry.connection.longest_segment().saturating_add(headers)
        });
        agreed.min(self.config.mtu)
    }

    /// The connection sends no larger packets from now on than its path is known to take, and as large ones as it is known
    /// to. Others on that path do so when they are next looked at.
    pub(crate) fn fit_path(&mut self, id: ConnectionId, now: Instant) {
        let known = self.paths.changes();
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        entry.paths_known = known;
        let Some(path) = self.paths.known(entry.tuple.remote.ip(), now) else {
            return;
        };
        if !is_synchronised(entry.connection.state()) {
            return;
        }
        let size = largest_segment(path.min(self.config.mtu), entry.tuple.ip_header());
        let before = entry.connection.segment_size();
        entry.connection.lower_segment_size(size, now);
        entry.connection.raise_segment_size(size);
        if entry.connection.segment_size() < before {
            self.wake(id);
        }
    }

    /// Sends a probe of a larger packet, where one is due on the connection's path and enough is in flight.
    pub(crate) fn probe_path(&mut self, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let tuple = entry.tuple;
        let Some(length) = self.paths.probe_due(tuple.remote.ip(), now) else {
            return;
        };
        if !is_synchronised(entry.connection.state()) {
            return;
        }
        let size = largest_segment(length, tuple.ip_header());
        let Some(probe) = entry.connection.path_probe(size, now) else {
            return;
        };
        let bytes = SackBlock {
            left: probe.seq,
            right: probe.seq + probe.payload.len() as u32,
        };
        let until = now + entry.connection.gauges().rto.max(PROBE_TIMER);
        self.paths.probed(tuple.remote.ip(), id, bytes, until);
        self.counters.path_probes += 1;
        let packet = self.packet(&tuple, probe);
        self.out.push_back(packet);
    }
}
