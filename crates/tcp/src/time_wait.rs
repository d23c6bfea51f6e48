//! What is left of a connection in TIME-WAIT, so that a host can keep a small record in place of the whole connection
//! (as Linux keeps a `tcp_timewait_sock`).

use crate::State;
use crate::connection::Connection;
use bentpipe_base::Seq;

/// What is left of a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitState {
    /// SND.NXT: the number behind our FIN.
    pub next: Seq,
    /// RCV.NXT: the number behind the peer's.
    pub expected: Seq,
    /// The window that was last offered, as in the header.
    pub window: u16,
    /// Where timestamps were agreed on: what our clock is ahead of the time, in milliseconds, and what the peer's showed
    /// last.
    pub clocks: Option<(u32, u32)>,
}

impl Connection {
    /// What is left of the connection, where it is in TIME-WAIT.
    pub fn in_time_wait(&self) -> Option<TimeWaitState> {
        if self.state != State::TimeWait {
            return None;
        }
        let peer = self.rx.latest_stamp().filter(|_| self.agreed.timestamps);
        Some(TimeWaitState {
            next: self.tx.seq(self.tx.max),
            expected: self.rx.irs + self.rx.next as u32,
            window: (self.rx.window() >> self.rx.scale).min(65_535) as u16,
            clocks: peer.map(|peer| (self.epoch, peer)),
        })
    }
}
