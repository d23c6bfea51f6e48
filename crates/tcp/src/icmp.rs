//! What ICMP messages and probes of the path do to a connection: a host checks the number that the message quotes (RFC 5927,
//! section 4.1), lowers the segment size where a packet was too long, raises it where a longer one arrived, and ends a
//! connection that the network refuses. Reading the messages, finding the connection and the search for the path's MTU are the crate `host`'s business.

use crate::connection::Connection;
use crate::{Cause, Event, State};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_cc::Phase;
use bentpipe_wire::Segment;

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

    /// The longest segment that both ends agreed on, in bytes, options included.
    pub fn longest_segment(&self) -> u16 {
        self.peer_mss.min(self.config.mss).max(1)
    }

    /// Payload of a segment of `mss` bytes, options included.
    pub(crate) fn payload_in(&self, mss: u16) -> u32 {
        let options = if self.agreed.timestamps { 12 } else { 0 };
        u32::from(mss).saturating_sub(options)
    }

    /// Lowers the segment size to `mss` bytes, options included, because the path takes no longer packets (RFC 1191,
    /// RFC 8201, RFC 8899). Data in flight in longer segments is sent again at once in shorter ones. The congestion
    /// window keeps its size in bytes, because a packet that was too long is no sign of congestion (RFC 8899, section
    /// 3, point 9).
    pub fn lower_segment_size(&mut self, mss: u16, now: Instant) {
        let new = self.payload_in(mss).max(1);
        if new >= self.tx.mss {
            return;
        }
        self.resize(new);
        let tx = &mut self.tx;
        let (cwnd, ssthresh) = (tx.window.cwnd, tx.window.ssthresh);
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

    /// Raises the segment size to `mss` bytes, options included, at most to what both ends agreed on, because a probe of that
    /// length has arrived (RFC 8899). What is in flight stays as it was cut.
    pub fn raise_segment_size(&mut self, mss: u16) {
        let new = self.payload_in(mss.min(self.longest_segment()));
        if new > self.tx.mss {
            self.resize(new);
        }
    }

    /// Segments have `new` bytes of payload from now on. The congestion window and the threshold keep their size in bytes.
    fn resize(&mut self, new: u32) {
        let tx = &mut self.tx;
        let old = core::mem::replace(&mut tx.mss, new);
        tx.window.mss = Bytes(u64::from(new));
        tx.window.wire = tx.config.on_the_wire(new);
        let anew = |segments: u32| {
            let bytes = u64::from(segments) * u64::from(old);
            u32::try_from(bytes / u64::from(new)).unwrap_or(u32::MAX)
        };
        tx.window.cwnd = anew(tx.window.cwnd).max(1);
        if tx.window.ssthresh != u32::MAX {
            tx.window.ssthresh = anew(tx.window.ssthresh).max(2);
        }
    }

    /// A probe of the path's MTU (RFC 8899): a segment of `mss` bytes, options included, with the oldest bytes in flight once
    /// more. A peer that has them already tells by D-SACK that it came, and if it is lost nothing is, so that it is
    /// neither counted as sent again nor asked of the congestion window. `None` where less is in flight, something is missing,
    /// SACK was not agreed on, or the segment would be no longer than others or longer than both ends agreed.
    pub fn path_probe(&mut self, mss: u16, now: Instant) -> Option<Segment> {
        let len = self.payload_in(mss);
        let from = self.tx.una;
        let sent = self.tx.max.min(self.tx.data_end());
        let longer = mss <= self.longest_segment() && len > self.tx.mss;
        let whole = self.tx.phase == Phase::Open && self.agreed.sack;
        if !longer || !whole || from == 0 || from + u64::from(len) > sent {
            return None;
        }
        self.tx.counters.segments_sent += 1;
        let (flags, window) = (self.ack_flags(), self.acknowledge());
        let payload = self.tx.stream.payload(from - 1, len);
        Some(self.segment(from, flags, window, payload, now))
    }

    /// Ends a connection that is still being opened, because the network says that the peer cannot be reached. An
    /// established connection ignores such errors (RFC 1122, section 4.2.3.9: they may pass).
    pub fn give_up(&mut self, cause: Cause) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.finish(Event::Aborted(cause));
        }
    }
}
