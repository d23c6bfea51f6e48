//! Flows of which one side has broken: the other side hears of it as it would have without us.
//!
//! On a plain path the segments before a reset arrive before it. So what the broken side had sent
//! goes out first, for at most [`GRACE`], and then the reset: never a FIN.

use super::Worker;
use crate::flow::{Phase, Side};
use bentpipe_base::Bytes;
use bentpipe_os::{tcp, timer};
use std::io;
use std::time::Duration;

/// The longest that a reset waits for the bytes before it.
const GRACE: Duration = Duration::from_secs(5);

impl Worker {
    /// `side` is broken, by `error` where one was met on reading or writing.
    pub(super) fn break_flow(&mut self, index: u32, side: Side, error: Option<io::Error>) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        self.counters.reset.one();
        tracing::debug!(?side, ?error, "a side broke");
        let mut moved = 0;
        let (lane, from, to) = flow.parts(side);
        let holds = lane.rescue(from, to, &mut self.tools, &mut moved);
        flow.lane(side.other()).release(&mut self.tools);
        let alive = side.other();
        if !holds && delivered(flow.socket(alive)) {
            return self.drop_flow(index);
        }
        let until = timer::now() + GRACE;
        flow.phase = Phase::Breaking { alive, until };
        self.breaking.push(index);
    }

    /// Looks at all breaking flows.
    pub(super) fn on_breaking(&mut self) {
        if self.breaking.is_empty() {
            return;
        }
        let now = timer::now();
        for index in self.breaking.clone() {
            let Some(flow) = self.flows.get_mut(index) else {
                continue;
            };
            let Phase::Breaking { alive, until } = flow.phase else {
                continue;
            };
            // What did not fit at first still lies in the broken socket.
            let (lane, from, to) = flow.parts(alive.other());
            let over = match lane.flush(to, &mut self.tools) {
                Ok(_) => {
                    !lane.rescue(from, to, &mut self.tools, &mut 0) && delivered(flow.socket(alive))
                }
                Err(_) => true,
            };
            if over || now >= until {
                self.drop_flow(index);
            }
        }
    }
}

/// Whether the peer has acknowledged everything.
fn delivered(socket: std::os::fd::BorrowedFd<'_>) -> bool {
    tcp::unacknowledged(socket).is_ok_and(|bytes| bytes == Bytes(0))
}
