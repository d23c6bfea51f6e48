//! Flows whose two directions have both ended, and whose last bytes are still on their way.
//!
//! The gateway has acknowledged these bytes to their sender, so it must deliver them. It therefore keeps both sockets
//! open until both peers have acknowledged everything. Sockets that are closed earlier become orphans of the kernel,
//! which gives them up after some eight retransmissions (100 s), when a window has stayed closed for five minutes, beyond
//! `net.ipv4.tcp_max_orphans`, or when memory is short.
//! Nor would anybody reset them when the gateway ends, after which their packets no longer reach them.
//!
//! Most short connections have nothing but an end on its way then, and are closed at once.

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::Bytes;
use bentpipe_sockets::{socket, tcp};

/// With no more bytes a connection is a short one.
pub(super) const LITTLE: Bytes = Bytes(16 << 10);

impl Worker {
    /// Ends a flow of which both directions have ended, that of `last` now: unsent bytes go out, then the FIN.
    pub(super) fn finish(&mut self, index: u32, last: Side) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        self.counters.finished.one();
        let owes = |side: Side| {
            // The end of the direction that ended first has been passed on, and is in the count of what is not acknowledged.
            let end = Bytes(u64::from(side == last));
            // The kernel need not be asked where nothing was ever sent.
            flow.pump(side.other()).has_read_more_than(Bytes(0))
                && tcp::unacknowledged(flow.socket(side)).is_ok_and(|waiting| waiting > end)
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
