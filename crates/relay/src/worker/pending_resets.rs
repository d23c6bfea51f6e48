//! Resets that wait for the bytes before them: flows of which one side has failed. The other side learns of it as it would without a gateway.
//!
//! Without a gateway the segments that were sent before a reset arrive before it. So the bytes of the failed side are
//! delivered first, for at most [`GRACE`], and then the reset is sent, never a FIN. A side that has said its end before it failed
//! has lost nothing: all that it said is here, and is delivered however long that takes ([`super::delivery_after_reset`]).
//!
//! No epoll event tells that the last byte was acknowledged. So each flow is looked at again after a quarter of the
//! time that it has waited so far, some thirty times in all.

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::{Bytes, Instant};
use bentpipe_sockets::{socket, tcp, timer};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::Duration;

/// The longest that a reset waits for the bytes before it.
const GRACE: Duration = Duration::from_secs(5);
/// A flow is not looked at again sooner.
const LOOK: Duration = Duration::from_millis(10);

/// When each flow with a pending reset is looked at next: its number and its last moment. An entry whose flow has
/// ended meanwhile is passed over when its time comes.
#[derive(Debug, Default)]
pub(super) struct PendingResets(BinaryHeap<Reverse<(Instant, u32, Instant)>>);

impl PendingResets {
    /// How long until the next is due.
    pub(super) fn patience(&self) -> Option<Duration> {
        let Reverse((next, ..)) = self.0.peek()?;
        Some(next.since(timer::now()))
    }

    /// The next that is due at `now`, with its last moment.
    fn due(&mut self, now: Instant) -> Option<(u32, Instant)> {
        let Reverse((next, ..)) = self.0.peek()?;
        if *next > now {
            return None;
        }
        self.0
            .pop()
            .map(|Reverse((_, index, until))| (index, until))
    }

    fn look_again(&mut self, now: Instant, index: u32, until: Instant) {
        let waited = GRACE.saturating_sub(until.since(now));
        let next = (now + (waited / 4).max(LOOK)).min(until);
        self.0.push(Reverse((next, index, until)));
    }
}

impl Worker {
    /// Begins to end a flow whose `side` has failed, with `error` where reading or writing met one.
    pub(super) fn break_flow(&mut self, index: u32, side: Side, error: Option<io::Error>) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let alive = side.other();
        let error = error.or_else(|| socket::take_error(flow.socket(side)).err());
        let kind = error.as_ref().map(io::Error::kind);
        if kind == Some(io::ErrorKind::TimedOut) {
            self.counters.vanished.one();
        }
        tracing::debug!(?side, ?error, "a side broke");
        if matches!(flow.phase, Phase::Delivering { alive, .. } if alive == side) {
            self.counters.reset.one();
            return self.drop_flow(index);
        }
        // That is the kernel's error for a reset that comes after the end.
        let has_said_end = flow.pump(side).has_said_end()
            || kind == Some(io::ErrorKind::BrokenPipe) && tcp::is_over(flow.socket(side));
        if flow.phase == Phase::Open
            && has_said_end
            && !(flow.pump(side).has_ended() && delivered(flow.socket(alive)))
        {
            let vanished = matches!(
                kind,
                Some(
                    io::ErrorKind::TimedOut
                        | io::ErrorKind::HostUnreachable
                        | io::ErrorKind::NetworkUnreachable
                )
            );
            return self.begin_delivery(index, alive, vanished);
        }
        self.counters.reset.one();
        let mut moved = 0;
        let (pump, from, to) = flow.parts(side);
        let holds = pump.flush_failed_source(from, to, &mut self.buffers, &mut moved);
        flow.pump(alive).release(&mut self.buffers);
        if !holds && delivered(flow.socket(alive)) {
            return self.drop_flow(index);
        }
        let now = timer::now();
        let until = now + GRACE;
        flow.phase = Phase::ResetPending { alive, until };
        self.pending_resets.look_again(now, index, until);
    }

    /// Looks at the flows with a pending reset whose time has come.
    pub(super) fn on_pending_resets(&mut self) {
        if self.pending_resets.0.is_empty() {
            return;
        }
        let now = timer::now();
        while let Some((index, until)) = self.pending_resets.due(now) {
            if self.has_pending_reset(index, until) {
                if now >= until || self.has_delivered(index) {
                    self.drop_flow(index)
                } else {
                    self.pending_resets.look_again(now, index, until)
                }
            }
        }
    }

    /// Whether slot `index` still has the same flow, and not another one that began later.
    fn has_pending_reset(&mut self, index: u32, last: Instant) -> bool {
        let flow = self.flows.get_mut(index);
        flow.is_some_and(
            |flow| matches!(flow.phase, Phase::ResetPending { until, .. } if until == last),
        )
    }

    /// Moves bytes to the side that is alive; returns whether it has acknowledged all of them, or has failed too.
    fn has_delivered(&mut self, index: u32) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return true;
        };
        let Phase::ResetPending { alive, .. } = flow.phase else {
            return true;
        };
        // What did not fit at first still lies in the broken socket.
        let (pump, from, to) = flow.parts(alive.other());
        match pump.flush(to, &mut self.buffers) {
            Ok(_) => {
                !pump.flush_failed_source(from, to, &mut self.buffers, &mut 0)
                    && delivered(flow.socket(alive))
            }
            Err(_) => true,
        }
    }
}

/// Whether the peer has acknowledged everything.
pub(super) fn delivered(socket: std::os::fd::BorrowedFd<'_>) -> bool {
    tcp::unacknowledged(socket).is_ok_and(|bytes| bytes == Bytes(0))
}
