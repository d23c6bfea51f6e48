//! What a host tells a connection (its timestamp offset, a smaller path MTU, an ICMP error), and what it asks of it (bytes
//! held, what is left in TIME-WAIT).

use crate::connection::Connection;
use crate::{Cause, Event, State};
use bentpipe_base::{Bytes, Instant, Seq};

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
    /// The timestamp clock is `ahead` milliseconds ahead of the time (RFC 7323, section 7.1: another for each
    /// connection). Only before anything is sent.
    pub fn set_clock(&mut self, ahead: u32) {
        self.epoch = ahead;
    }

    /// Whether the byte, SYN or FIN numbered `seq` was sent and is not acknowledged.
    pub fn is_in_flight(&self, seq: Seq) -> bool {
        let at = self.tx.offset(seq);
        self.tx.una as i64 <= at && at < self.tx.max as i64
    }

    /// Whether `seq` numbers the byte that is expected next.
    pub fn expects(&self, seq: Seq) -> bool {
        seq == self.rx.irs + self.rx.next as u32
    }

    /// Payload of a full segment, in bytes.
    pub fn segment_size(&self) -> u32 {
        self.tx.mss
    }

    /// Bytes that the connection holds: written and not acknowledged, received and not read.
    pub fn buffered(&self) -> u64 {
        self.tx.stream.stored() + self.rx.stored()
    }

    /// Segments are at most `mss` bytes long from now on, options counted to it (RFC 1191, RFC 8201, RFC 8899): the path
    /// takes no longer ones. What is in flight in such is sent again at once, cut anew; the congestion window stays what
    /// it was in bytes, for a packet that was too long tells nothing of congestion (RFC 8899, section 3, point 9).
    pub fn lower_segment_size(&mut self, mss: u16, now: Instant) {
        let options = if self.agreed.timestamps { 12 } else { 0 };
        let (old, new) = (self.tx.mss, u32::from(mss).saturating_sub(options).max(1));
        if new >= old {
            return;
        }
        let tx = &mut self.tx;
        tx.mss = new;
        tx.window.mss = Bytes(u64::from(new));
        tx.window.wire = tx.config.on_the_wire(new);
        let anew = |segments: u32| {
            let bytes = u64::from(segments) * u64::from(old);
            u32::try_from(bytes / u64::from(new)).unwrap_or(u32::MAX)
        };
        let cwnd = anew(tx.window.cwnd).max(1);
        let ssthresh = match tx.window.ssthresh {
            u32::MAX => u32::MAX,
            ssthresh => anew(ssthresh).max(2),
        };
        (tx.window.cwnd, tx.window.ssthresh) = (cwnd, ssthresh);
        if !tx.board.cut_anew(new) || self.state == State::Closed {
            return;
        }
        let rto = tx.rto.clone();
        self.recovery.on_rto(&mut self.tx.recovery_context(), now);
        let tx = &mut self.tx;
        (tx.window.cwnd, tx.window.ssthresh) = (cwnd, ssthresh);
        tx.rto = rto;
        tx.settle(now);
    }

    /// Ends a connection that does not stand yet: the network says that it never will.
    pub fn give_up(&mut self, cause: Cause) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.finish(Event::Aborted(cause));
        }
    }

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
