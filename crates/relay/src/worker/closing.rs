//! Flows whose both directions have ended, and whose last bytes are still on their way.
//!
//! Each end has been told that all it sent has arrived: the rest is our debt. So the sockets stay ours until both
//! peers have acknowledged everything. Closed before, they would be orphans of the kernel's, which it gives up by
//! itself (after eight retransmissions or so, beyond `net.ipv4.tcp_max_orphans`, short of memory), and which nobody
//! would reset if this gateway ended, without which their packets no longer reach them.

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::Bytes;
use bentpipe_sockets::{socket, tcp};

/// What is left to the kernel: it is in flight already, and most short connections end with no more.
const LITTLE: Bytes = Bytes(16 << 10);

impl Worker {
    /// Both directions have ended: what is still unsent goes out, then FIN.
    pub(super) fn finish(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        self.counters.finished.one();
        let owes = |side: Side| {
            // The kernel need not be asked where no more was ever sent.
            flow.pump(side.other()).has_read_more_than(LITTLE)
                && tcp::unacknowledged(flow.socket(side)).is_ok_and(|waiting| waiting > LITTLE)
        };
        if !Side::BOTH.into_iter().any(owes) {
            return self.close(index);
        }
        for side in Side::BOTH {
            let shut = socket::shutdown_send(flow.socket(side));
            if shut.is_err() && !tcp::is_over(flow.socket(side)) {
                // Without it the peer never hears the end; the kernel's own close says it.
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
