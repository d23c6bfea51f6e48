//! Flows one of whose sides has said its end and has failed since, most often because its host answers by a reset what the other
//! end still says: it has closed, and sees all that it said acknowledged. The other end gets all of it and the end, as it
//! would without a gateway, where that host would have waited for its acknowledgements.
//!
//! Then that end hears the reset: what it had said may have come to nobody, and what it says meanwhile is not read here. Only where the
//! failed side has vanished without a word, and nothing was on its way to it, there is none; what is said later is
//! answered by a reset of the kernel's.

use super::Worker;
use super::pending_resets::delivered;
use crate::flow::{Phase, Side};
use bentpipe_base::Bytes;
use bentpipe_sockets::epoll::Event;
use bentpipe_sockets::{socket, tcp};

impl Worker {
    /// Begins to deliver to the `alive` side of a flow what the other one said, which was reset, or has `vanished`.
    pub(super) fn begin_delivery(&mut self, index: u32, alive: Side, vanished: bool) {
        self.answer_again(index);
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        // An end that has been passed on is in the count of what is not acknowledged.
        let end = Bytes(flow.pump(alive).has_ended().into());
        let resets = !vanished
            || flow.pump(alive).holds()
            || tcp::unacknowledged(flow.socket(alive.other())).is_ok_and(|bytes| bytes > end);
        flow.phase = Phase::Delivering { alive, resets };
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
        let Some(Phase::Delivering { alive, resets }) = phase else {
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
        if resets || matches!(socket::receive(flow.socket(alive), &mut [0]), Ok(1..)) {
            self.counters.reset.one();
            return self.drop_flow(index);
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
