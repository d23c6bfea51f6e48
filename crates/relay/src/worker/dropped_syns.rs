//! Handles held SYNs that the kernel has dropped. When any netfilter hook of the namespace is unregistered, for
//! instance a base chain of another program, the kernel flushes all its NFQUEUE queues. The worker notices when it
//! gives its verdict: the kernel no longer has the packet.
//!
//! The client sends its SYN again after a second. Usually that SYN finds the connection that was dialled for the first
//! one, and is served ([`crate::handshake::HandshakeTable::meet`]). But if new connections pass unsplit by then, or
//! belong to a successor, the SYN would reach a server that already has a connection with the same addresses and ports,
//! and would be refused until that one times out. So in these cases the dialled connection is reset at once.

use super::Worker;
use crate::handshake::QueuedPacket;

impl Worker {
    /// Learns from the kernel's errors which SYNs were gone when their verdicts came.
    pub(super) fn on_gone(&mut self) {
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let gone: Vec<_> = syn_queue
            .queues
            .gone()
            .map(|(queue, id)| QueuedPacket { queue, id })
            .collect();
        if gone.is_empty() {
            return;
        }
        tracing::debug!(
            count = gone.len(),
            "the kernel has dropped SYNs that were held: an nft table or chain, or another hook of netfilter, has gone"
        );
        syn_queue.table.were_dropped(&gone);
        self.make_way();
    }

    /// Resets the connections that were dialled for dropped SYNs, unless this worker will get the SYNs when they come
    /// again.
    pub(super) fn make_way(&mut self) {
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        if self.shared.splits() {
            return;
        }
        for ends in syn_queue.table.dropped() {
            let Some(syn_queue) = &mut self.syn_queue else {
                return;
            };
            if syn_queue.table.lose(&ends) {
                self.forget_tracked(ends);
            }
        }
    }
}
