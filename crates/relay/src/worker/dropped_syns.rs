//! SYNs that the kernel drops while they are held: when a base chain or another hook of netfilter goes from the
//! namespace, whose ever it is, it empties all queues there. That shows when the verdict comes: the packet is gone.
//!
//! The client sends its SYN again, a second after the first. It then meets what was dialled for it, and is served
//! ([`crate::handshake::HandshakeTable::meet`]). But where new connections pass by then, or are a successor's, it would meet at the server
//! a connection of its own four numbers, and wait until that is given up: what was dialled goes at once.

use super::Worker;
use crate::handshake::QueuedPacket;

impl Worker {
    /// Hears of SYNs that were gone when their verdicts came.
    pub(super) fn on_gone(&mut self) {
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let gone = syn_queue.queues.gone();
        let gone: Vec<_> = gone.map(|(queue, id)| QueuedPacket { queue, id }).collect();
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

    /// Resets what was dialled for SYNs that the kernel has dropped, unless they are ours when they come again.
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
