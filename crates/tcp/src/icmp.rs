//! What ICMP messages do to a connection: a host checks the number that the message quotes (RFC 5927, section 4.1), lowers
//! the segment size where a packet was too long, and ends a connection that the network refuses. Reading the messages and
//! finding the connection is the crate `host`'s business.

use crate::connection::Connection;
use crate::{Cause, Event, State};
use bentpipe_base::{Bytes, Instant, Seq};

impl Connection {
    /// Whether the byte, SYN or FIN numbered `seq` was sent and is not acknowledged.
    pub fn is_in_flight(&self, seq: Seq) -> bool {
        let at = self.tx.offset(seq);
        self.tx.una as i64 <= at && at < self.tx.max as i64
    }

    /// Payload of a full segment, in bytes.
    pub fn segment_size(&self) -> u32 {
        self.tx.mss
    }

    /// Lowers the segment size to `mss` bytes, options included, because the path takes no longer packets (RFC 1191,
    /// RFC 8201, RFC 8899). Data in flight in longer segments is sent again at once in shorter ones. The congestion
    /// window keeps its size in bytes, because a packet that was too long is no sign of congestion (RFC 8899, section
    /// 3, point 9).
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

    /// Ends a connection that is still being opened, because the network says that the peer cannot be reached. An
    /// established connection ignores such errors (RFC 1122, section 4.2.3.9: they may pass).
    pub fn give_up(&mut self, cause: Cause) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.finish(Event::Aborted(cause));
        }
    }
}
