//! Flows whose two directions have both ended, and whose last bytes are still on their way.
//!
//! The gateway has acknowledged these bytes to their sender, so it must deliver them. It therefore keeps both sockets
//! open until both peers have acknowledged everything. Sockets that are closed earlier become orphans of the kernel,
//! which gives them up after some eight retransmissions, when a window has stayed closed for five minutes, beyond
//! `net.ipv4.tcp_max_orphans`, or when memory is short.
//! Nor would anybody reset them when the gateway ends, after which their packets no longer reach them.

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::Bytes;
use bentpipe_sockets::{socket, tcp};
use std::io;

/// With so few bytes a flow is closed at once and left to the kernel if all are in flight already. Most short connections
/// end so.
pub(super) const LITTLE: Bytes = Bytes(16 << 10);
/// Any window has room for as much: the least segment that all hosts take (RFC 9293, section 3.7.1).
const ONE_SEGMENT: Bytes = Bytes(536);

impl Worker {
    /// Ends a flow of which both directions have ended: unsent bytes go out, then the FIN.
    pub(super) fn finish(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        self.counters.finished.one();
        let owes = |side: Side| {
            // The kernel need not be asked where no more was ever sent.
            let pump = flow.pump(side.other());
            let [much, little] = [LITTLE, ONE_SEGMENT].map(|size| pump.has_read_more_than(size));
            let is_more = |rest: io::Result<Bytes>, size| rest.is_ok_and(|rest| rest > size);
            much && is_more(tcp::unacknowledged(flow.socket(side)), LITTLE)
                || little && is_more(tcp::unsent(flow.socket(side)), Bytes(0))
        };
        if !Side::BOTH.into_iter().any(owes) {
            return self.close(index);
        }
        for side in Side::BOTH {
            let shut = socket::shutdown_send(flow.socket(side));
            if shut.is_err() && !tcp::is_over(flow.socket(side)) {
                // The shutdown failed, so only closing the socket tells the peer of the end.
                return self.close(index);
            }
            flow.pump(side).release(&mut self.buffers);
        }
        flow.phase = Phase::Closing;
        self.on_closing(index);
    }

    /// Something has happened to a socket of a flow that is closing.
    pub(super) fn on_closing(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        // Everything is acknowledged, or the connection has broken.
        let is_over = |side| tcp::is_over(flow.socket(side));
        if Side::BOTH.into_iter().all(is_over) {
            self.close(index);
        }
    }

    fn close(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        for side in Side::BOTH {
            if let Err(error) = socket::abort_on_close(flow.socket(side), false) {
                tracing::warn!(%error, "cannot close a connection orderly: it ends by a reset");
            }
        }
        self.drop_flow(index);
    }
}
