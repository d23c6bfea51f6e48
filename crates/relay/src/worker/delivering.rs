//! Flows one of whose sides has said its end and has failed since, most often because its host answers by a reset what the other
//! end still says: it has closed, and sees all that it said acknowledged. The other end gets all of it and the end, as it
//! would without a gateway, where that host would have waited for its acknowledgements.
//!
//! What the other end says meanwhile is not read, and falls when all is delivered. What it says after that is answered by a reset
//! of the kernel's, as by the host that has gone.

use super::Worker;
use super::pending_resets::delivered;
use crate::flow::{Phase, Side};
use bentpipe_sockets::epoll::Event;
use bentpipe_sockets::socket;

/// The most reads of what falls; the kernel resets the connection where there is more.
const READS: usize = 1024;

impl Worker {
    /// Begins to deliver to the `alive` side of a flow what the other one said.
    pub(super) fn begin_delivery(&mut self, index: u32, alive: Side) {
        self.answer_again(index);
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        flow.phase = Phase::Delivering { alive };
        flow.pump(alive).release(&mut self.buffers);
        // It also tells when the end is acknowledged.
        if self.watch_room(index, alive) {
            self.deliver_rest(index);
        }
    }

    /// Something has happened to the side that is alive.
    pub(super) fn on_delivering(&mut self, index: u32, event: Event) {
        if event.failed() {
            self.counters.reset.one();
            return self.drop_flow(index);
        }
        self.deliver_rest(index);
    }

    /// Delivers more, as far as there is room, and ends the flow when all is acknowledged.
    pub(super) fn deliver_rest(&mut self, index: u32) {
        let phase = self.flows.get_mut(index).map(|flow| flow.phase);
        let Some(Phase::Delivering { alive }) = phase else {
            return;
        };
        if !self.pump(index, alive.other()) {
            return;
        }
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        if !flow.pump(alive.other()).has_ended() || !delivered(flow.socket(alive)) {
            return;
        }
        // With bytes that are not read the kernel would close by a reset, which some hosts' programs hear of before they have read all.
        for _ in 0..READS {
            if !matches!(
                socket::receive(flow.socket(alive), &mut self.buffers.buffer),
                Ok(1..)
            ) {
                break;
            }
        }
        if let Err(error) = socket::abort_on_close(flow.socket(alive), false) {
            tracing::warn!(%error, "cannot close a connection orderly: it ends by a reset");
        }
        // The other side is aborted, should it not have failed at all: what the alive one said has not come to it.
        flow.phase = Phase::Closing;
        self.counters.finished.one();
        self.drop_flow(index);
    }
}
