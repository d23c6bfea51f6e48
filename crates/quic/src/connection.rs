//! One connection of an endpoint: the stack's, paced by a bucket of ours.

use crate::clock::Base;
use crate::config::varint;
use crate::early_data::EarlyData;
use crate::endpoint::Endpoint;
use crate::protection::{self, FecStats, Protection, RepairShare, eliciting};
use crate::stack_interface::{Closed, Code, ConnectionId, Datagram, End, Read, StreamId, Unsent};
use crate::token_bucket::Bucket;
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_fec::REPAIR_HEADER;
use bytes::{Bytes as Chunk, BytesMut};
use core::time::Duration;
use quinn_proto::{
    ConnectionHandle, Dir, ReadError, SendDatagramError, Transmit, VarInt, WriteError,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Most of what datagrams that leave together may hold: what the kernel takes at once is a little more.
const SEGMENTED_MAX: usize = 60_000;
/// Streams go before others that have sent more, in two steps: what has sent less than this has the first priority.
const URGENT: [u64; 2] = [256 << 10, 2 << 20];

/// What an operator may want to know of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Smallest round-trip time.
    pub min_rtt: Duration,
    /// The congestion window.
    pub window: Bytes,
    /// The rate that it is paced at, on the wire.
    pub pace: Option<Rate>,
    /// UDP datagrams sent.
    pub sent: u64,
    /// Their payload.
    pub sent_bytes: Bytes,
    /// UDP datagrams received.
    pub received: u64,
    /// Packets found lost.
    pub lost: u64,
    /// Its forward error correction; `None`: it has none.
    pub fec: Option<FecStats>,
}

impl Endpoint {
    /// Paces a connection no faster than `limit`, on the wire, whatever its congestion control says; `None`: as that says.
    pub fn limit_pace(&mut self, connection: ConnectionId, limit: Option<Rate>) {
        if let Some(found) = self.connections.get_mut(&connection) {
            found.limit = limit;
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) handle: ConnectionHandle,
    pub(crate) stack: quinn_proto::Connection,
    /// Waits to be asked for datagrams.
    pub(crate) queued: bool,
    /// Its handshake is through.
    pub(crate) connected: bool,
    /// The driver was told that it stands.
    pub(crate) told: bool,
    /// What was written so far, where the handshake is not through and a ticket lets it leave all the same.
    pub(crate) early: Option<EarlyData>,
    /// Its entry among the endpoint's timers.
    pub(crate) timer: Option<Instant>,
    /// Where the peer is.
    pub(crate) peer: SocketAddr,
    /// What protects its packets, once both ends have agreed on it.
    pub(crate) protection: Option<Protection>,
    /// What its congestion control leaves to repairs, until there is a protection.
    pub(crate) share: RepairShare,
    bucket: Bucket,
    /// It is paced no faster, whatever its congestion control says.
    limit: Option<Rate>,
    /// The bucket had no tokens until then.
    paced: Option<Instant>,
    /// What headers of IP and UDP and the link add to a datagram.
    overhead: Bytes,
    /// Bytes written to each stream that can still be written to.
    written: BTreeMap<StreamId, u64>,
    /// What it may hold that is not read, where that was changed.
    window: Option<Bytes>,
    /// Contents of DATAGRAM frames that wait, their bytes, and the most that these may be. The stack sends all that it has of them before
    /// any stream, so that it is given them in turns.
    datagrams: VecDeque<Chunk>,
    waiting: usize,
    most_waiting: usize,
    /// What left last was datagrams: now it is the streams' turn.
    streams_next: bool,
}

/// How urgent a stream is that has sent so much.
fn urgency(written: u64) -> i32 {
    URGENT.iter().filter(|&&step| written < step).count() as i32
}

fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

impl Connection {
    pub(crate) fn new(
        handle: ConnectionHandle,
        stack: quinn_proto::Connection,
        overhead: Bytes,
        most_waiting: usize,
    ) -> Self {
        Self {
            handle,
            peer: stack.remote_address(),
            protection: None,
            share: RepairShare::default(),
            stack,
            queued: false,
            connected: false,
            told: false,
            early: None,
            timer: None,
            bucket: Bucket::new(),
            limit: None,
            paced: None,
            overhead,
            written: BTreeMap::new(),
            window: None,
            datagrams: VecDeque::new(),
            waiting: 0,
            most_waiting,
            streams_next: false,
        }
    }

    /// The longest DATAGRAM frame's content that the path carries now.
    pub(crate) fn datagram_room(&mut self) -> Option<usize> {
        let closed = self.stack.is_closed();
        { self.stack.datagrams().max_size() }.filter(|_| !closed)
    }

    pub(crate) fn send_datagram(&mut self, data: Chunk) -> Result<(), Unsent> {
        let most = self.datagram_room().ok_or(Unsent::NoDatagrams)?;
        if data.len() > most {
            return Err(Unsent::TooLong(most));
        }
        if self.waiting + data.len() > self.most_waiting {
            return Err(Unsent::Full);
        }
        self.waiting += data.len();
        self.datagrams.push_back(data);
        Ok(())
    }

    /// Gives the stack the next datagrams, as many as packets may leave; whether there were any.
    fn hand_datagrams(&mut self, packets: usize) -> bool {
        let mut any = false;
        for _ in 0..packets {
            let Some(data) = self.datagrams.pop_front() else {
                break;
            };
            let length = data.len();
            match self.stack.datagrams().send(data, false) {
                Ok(()) => {}
                Err(SendDatagramError::Blocked(data)) => {
                    // The congestion window keeps those that it has.
                    self.datagrams.push_front(data);
                    return true;
                }
                // The path has become narrower meanwhile: it is dropped, as any may be on the way.
                Err(_) => {
                    self.waiting -= length;
                    continue;
                }
            }
            self.waiting -= length;
            any = true;
        }
        any
    }

    /// Asks the stack for what leaves next.
    fn poll(&mut self, at: std::time::Instant, packets: usize) -> Option<(Transmit, Vec<u8>)> {
        let mut data = Vec::new();
        let first = core::mem::take(&mut self.streams_next) || self.datagrams.is_empty();
        if first && let Some(sent) = self.stack.poll_transmit(at, packets, &mut data) {
            return Some((sent, data));
        }
        if self.hand_datagrams(packets) {
            self.streams_next = true;
            let sent = self.stack.poll_transmit(at, packets, &mut data)?;
            return Some((sent, data));
        }
        None
    }

    /// The next datagram, or up to `segments` of one length, as far as the bucket allows.
    pub(crate) fn transmit(
        &mut self,
        base: Base,
        segments: usize,
        now: Instant,
    ) -> Option<Datagram> {
        self.paced = None;
        let mtu = u64::from(self.stack.current_mtu());
        let rate = self.pace();
        let protects = { &self.protection }
            .as_ref()
            .is_some_and(|it| it.sends(now));
        let header = if protects { REPAIR_HEADER as u64 } else { 0 };
        let full = Bytes(mtu + header) + self.overhead;
        let allowed = rate.map_or(segments, |rate| self.bucket.allows(full, rate, now));
        if allowed == 0 {
            self.paced = Some(self.bucket.deadline());
            return None;
        }
        if let Some(repair) = { &mut self.protection }
            .as_mut()
            .and_then(|it| it.repair(now))
        {
            return Some(self.leaves(repair, rate, now));
        }
        let most = if protects {
            1
        } else {
            segments.min(SEGMENTED_MAX / mtu as usize).max(1)
        };
        let before = protects.then(|| eliciting(&self.stack.stats().frame_tx));
        let (sent, mut data) = self.poll(base.to_std(now), allowed.min(most))?;
        data.truncate(sent.size);
        let mut datagram = Datagram {
            peer: sent.destination,
            local: sent.src_ip,
            data: BytesMut::from(Chunk::from(data)),
            segment: sent.segment_size,
        };
        let matters = before.is_some_and(|before| {
            sent.destination == self.peer && eliciting(&self.stack.stats().frame_tx) > before
        });
        if let Some(protection) = self.protection.as_mut().filter(|_| matters) {
            datagram = protection.protect(datagram, now);
        }
        Some(self.leaves(datagram, rate, now))
    }

    /// Takes what a datagram costs from the bucket.
    fn leaves(&mut self, datagram: Datagram, rate: Option<Rate>, now: Instant) -> Datagram {
        if let Some(rate) = rate {
            let length = datagram.data.len();
            let count = length.div_ceil(datagram.segment.unwrap_or(length).max(1));
            let size = Bytes(length as u64) + self.overhead * count as u64;
            self.bucket.take(size, rate, now);
        }
        datagram
    }

    /// The handshake agrees on forward error correction.
    pub(crate) fn protect(&mut self, config: bentpipe_fec::Config) {
        let mut protection = Protection::new(config);
        protection.share_with(self.share.clone());
        self.protection = Some(protection);
    }

    /// It has another congestion control, which heeds `share`.
    pub(crate) fn share_with(&mut self, share: RepairShare) {
        self.share = share;
        if let Some(protection) = &mut self.protection {
            protection.share_with(self.share.clone());
        }
    }

    /// Looks whether the peer has moved; from where.
    pub(crate) fn moved(&mut self, now: Instant) -> Option<SocketAddr> {
        let peer = self.stack.remote_address();
        let before = core::mem::replace(&mut self.peer, peer);
        if before == peer {
            return None;
        }
        // As long as QUIC takes for it (RFC 9000, section 8.2.4).
        let patience = self.stack.rtt() * 3;
        if let Some(protection) = &mut self.protection {
            protection.moved(patience, now);
        }
        Some(before)
    }

    /// A datagram of the peer, at the address `local` of this host: the packets for the stack.
    pub(crate) fn arrive(
        &mut self,
        datagram: Chunk,
        local: Option<IpAddr>,
        now: Instant,
    ) -> Vec<Chunk> {
        let round_trip = self.stack.rtt();
        match &mut self.protection {
            Some(protection) => protection.arrive(datagram, local, round_trip, now),
            None => protection::packet(&datagram).into_iter().collect(),
        }
    }

    /// The time is `now`: packets that have waited for long enough below the stack, and at which address of this host they came.
    pub(crate) fn timeout(&mut self, base: Base, now: Instant) -> (Vec<Chunk>, Option<IpAddr>) {
        self.stack.handle_timeout(base.to_std(now));
        let round_trip = self.stack.rtt();
        { self.protection.as_mut() }.map_or_else(Default::default, |it| it.timeout(round_trip, now))
    }

    fn pace(&self) -> Option<Rate> {
        let pace = self.stack.congestion_state().metrics().pacing_rate;
        let pace = pace.map(|bits| Rate::from_bits_per_sec(bits.max(8)));
        [pace, self.limit].into_iter().flatten().min()
    }

    /// When it wants to be asked or told the time.
    pub(crate) fn deadline(&mut self, base: Base) -> Option<Instant> {
        let stack = self.stack.poll_timeout().map(|at| base.to_ours(at));
        let silence = self.protection.as_ref().and_then(Protection::deadline);
        [stack, self.paced, silence].into_iter().flatten().min()
    }

    /// The stack's id of a stream that this side may write to (`outward`), or read from.
    fn id(&self, stream: StreamId, outward: bool) -> Result<quinn_proto::StreamId, Closed> {
        let id = VarInt::from_u64(stream.0).map_err(|_| Closed)?;
        let id = quinn_proto::StreamId::from(id);
        let ours = id.initiator() == self.stack.side();
        if id.dir() == Dir::Bi || ours == outward {
            Ok(id)
        } else {
            Err(Closed)
        }
    }

    pub(crate) fn write(&mut self, stream: StreamId, data: &mut Chunk) -> Result<usize, Closed> {
        let id = self.id(stream, true)?;
        let written = self.written.entry(stream).or_default();
        let mut side = self.stack.send_stream(id);
        if { &mut side }.set_priority(urgency(*written)).is_err() {
            self.written.remove(&stream);
            return Err(Closed);
        }
        // The stack takes a whole chunk off the slice without shortening what it was given.
        let whole = data.clone();
        match side.write_chunks(core::slice::from_mut(data)) {
            Ok(taken) => {
                if taken.chunks == 1 {
                    *data = Chunk::new();
                }
                debug_assert_eq!(data.len(), whole.len() - taken.bytes);
                *written += taken.bytes as u64;
                if let Some(early) = &mut self.early {
                    early.written(stream, whole.slice(..taken.bytes));
                }
                Ok(taken.bytes)
            }
            Err(WriteError::Blocked) => Ok(0),
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                self.written.remove(&stream);
                Err(Closed)
            }
        }
    }

    pub(crate) fn read(&mut self, stream: StreamId, most: usize) -> Result<Read, Closed> {
        let id = self.id(stream, false)?;
        let mut side = self.stack.recv_stream(id);
        let mut chunks = side.read(true).map_err(|_| Closed)?;
        let read = match chunks.next(most) {
            Ok(Some(chunk)) => Read::Data(chunk.bytes),
            Ok(None) => Read::Finished,
            Err(ReadError::Blocked) => Read::Blocked,
            Err(ReadError::Reset(code)) => Read::Reset(Code(code.into_inner())),
        };
        // What it tells of, credit to send, leaves at the end of the turn in any case.
        let _ = chunks.finalize();
        Ok(read)
    }

    pub(crate) fn end(&mut self, stream: StreamId, end: End) -> Result<(), Closed> {
        let id = self.id(stream, !matches!(end, End::Stop(_)))?;
        if !matches!(end, End::Stop(_)) {
            self.written.remove(&stream);
        }
        let done = match end {
            End::Finish => self.stack.send_stream(id).finish().is_ok(),
            End::Reset(with) => self.stack.send_stream(id).reset(code(with)).is_ok(),
            End::Stop(with) => self.stack.recv_stream(id).stop(code(with)).is_ok(),
        };
        if !done {
            return Err(Closed);
        }
        if let Some(early) = &mut self.early {
            early.ended(stream, end);
        }
        Ok(())
    }

    /// Streams are as if nothing had been written to any.
    pub(crate) fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Whether that changes anything.
    pub(crate) fn set_window(&mut self, window: Bytes) -> bool {
        if self.window == Some(window) {
            return false;
        }
        self.window = Some(window);
        self.stack.set_receive_window(varint(window));
        true
    }

    pub(crate) fn close(&mut self, with: Code, reason: &str, base: Base, now: Instant) {
        let reason = Chunk::copy_from_slice(reason.as_bytes());
        self.share.let_last_out();
        self.stack.close(base.to_std(now), code(with), reason);
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        let stats = self.stack.stats();
        ConnectionStats {
            srtt: self.stack.rtt(),
            min_rtt: self.stack.min_rtt(),
            window: Bytes(stats.path.cwnd),
            pace: self.pace(),
            sent: stats.udp_tx.datagrams,
            sent_bytes: Bytes(stats.udp_tx.bytes),
            received: stats.udp_rx.datagrams,
            lost: stats.path.lost_packets,
            fec: self.protection.as_ref().map(Protection::stats),
        }
    }
}
