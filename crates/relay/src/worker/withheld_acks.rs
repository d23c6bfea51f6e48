//! The acknowledgements by which the handshakes of dials for accepted clients end.
//!
//! The kernel is asked to keep such an acknowledgement back (TCP_QUICKACK), so that it goes with the client's first bytes: that
//! is a packet less, and the server, which learns of the connection by it, wakes once and not twice. Where the client
//! says nothing at first, the server is not to wait, nor to measure a long round trip: after a moment the worker has the acknowledgement
//! sent alone. The kernel would do that after 200 ms.
//!
//! The kernel then also keeps back what acknowledges the server's first bytes, for some 40 ms. A server that sends its answer in two small
//! pieces waits for that (Nagle's algorithm), so that this ends after a moment too.
//!
//! It is not done for held SYNs. A server that has not heard of the connection answers each packet of the client's that comes to it
//! by a reset, where a server that has would ignore it; and Linux forwards one now and then that comes just when a client is being
//! accepted, because for an instant there is no socket of its four numbers (kernel 6.18).

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::Instant;
use bentpipe_sockets::{tcp, timer};
use std::collections::VecDeque;
use std::time::Duration;

/// How long the client may take to say something, once both legs stand.
const FIRST_BYTES: Duration = Duration::from_millis(3);
/// How long what acknowledges the server's first bytes is kept back, from when the client has spoken on.
const ANSWER: Duration = Duration::from_millis(10);

/// A flow that was begun: its slot, and when that was. The slot may have been given to another since.
type Begun = (u32, Instant);

/// The flows whose acknowledgements are kept back, each with when that ends.
#[derive(Debug, Default)]
pub(super) struct WithheldAcks {
    /// Those whose clients had not spoken yet, and those whose clients had.
    silent: VecDeque<(Instant, Begun)>,
    spoken: VecDeque<(Instant, Begun)>,
}

impl WithheldAcks {
    /// How long the worker may sleep for their sake.
    pub(super) fn patience(&self) -> Option<Duration> {
        let due = self.due()?;
        Some(due.since(timer::now()))
    }

    /// When the first is due.
    fn due(&self) -> Option<Instant> {
        let first = |flows: &VecDeque<(Instant, Begun)>| flows.front().map(|(due, _)| *due);
        let both = [first(&self.silent), first(&self.spoken)];
        both.into_iter().flatten().min()
    }
}

/// Takes the first that is due at `now`.
fn pop(flows: &mut VecDeque<(Instant, Begun)>, now: Instant) -> Option<Begun> {
    let (due, _) = flows.front()?;
    if *due > now {
        return None;
    }
    flows.pop_front().map(|(_, flow)| flow)
}

impl Worker {
    /// The flow in slot `index` has begun to relay.
    pub(super) fn withhold_ack(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let (begun, now) = ((index, flow.begun), timer::now());
        let acks = &mut self.withheld_acks;
        if flow.is_silent() {
            acks.silent.push_back((now + FIRST_BYTES, begun));
        } else {
            acks.spoken.push_back((now + ANSWER, begun));
        }
    }

    /// Sends the acknowledgements that have been kept back for long enough.
    pub(super) fn on_withheld_acks(&mut self) {
        if self.withheld_acks.due().is_none() {
            return;
        }
        let now = timer::now();
        while let Some(begun) = pop(&mut self.withheld_acks.silent, now) {
            if self
                .flows
                .get_mut(begun.0)
                .is_some_and(|flow| flow.is_silent())
            {
                self.acknowledge(begun);
            } else {
                let due = now + ANSWER;
                self.withheld_acks.spoken.push_back((due, begun));
            }
        }
        while let Some(begun) = pop(&mut self.withheld_acks.spoken, now) {
            self.acknowledge(begun);
        }
    }

    /// Acknowledges at once what the server of a flow has sent, and what it sends next.
    fn acknowledge(&mut self, (index, begun): Begun) {
        if let Some(flow) = self.flows.get_mut(index)
            && flow.begun == begun
            && flow.phase == Phase::Open
            && let Err(error) = tcp::set_quick_ack(flow.socket(Side::Far), true)
        {
            tracing::debug!(%error, "a server hears late that its client is there");
        }
    }
}
