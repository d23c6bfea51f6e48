//! The receiving half of a TCP connection, without I/O: what arrives in and out of order, the window offered, when to
//! acknowledge, and what the acknowledgement says (RFC 9293, section 3.8.6; RFC 5681, section 4.2; RFC 2018; RFC 2883).
//!
//! Sequence space is counted in 64-bit offsets: the peer's SYN is 0, its byte `k` is `k + 1`. Which states a connection
//! has, and what its segments look like, is the crate `tcp`'s business, which asks a [`Receiver`] what to put into
//! them. When an acknowledgement may wait is in `quick_acks.rs`; what SACK blocks tell of, in `sack_list.rs`; which holes SCPS-TP
//! announces, in `snack_announcer.rs`, and how a SNACK says so, in `snack.rs`.
#![forbid(unsafe_code)]

mod quick_acks;
mod sack_list;
mod settings;
mod snack;
mod snack_announcer;

pub use settings::Settings;

use bentpipe_base::{Instant, Ranges, Seq, TimerWheel};
use bentpipe_stream::ReceiveBuffer;
use bentpipe_wire::{Payload, SackBlock, SackBlocks, Timestamps};
use bytes::Bytes;
use quick_acks::QuickAcks;
use sack_list::SackList;
use snack_announcer::SnackAnnouncer;
use std::time::Duration;

/// The most stretches beyond gaps that are kept. Only a hostile sender makes more.
const STRETCHES: usize = 1 << 14;
/// The greatest shift of a window field (RFC 7323, section 2.3).
pub const MAX_SCALE: u8 = 14;
/// How long TS.Recent is believed: 24 days (RFC 7323, section 5.5).
const STAMPS_BELIEVED: Duration = Duration::from_secs(24 * 86_400);

/// What arrived with one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In-order bytes became readable.
    pub readable: bool,
    /// The peer's FIN is in order.
    pub fin: bool,
    /// It held no new bytes.
    pub stale: bool,
    /// It lies beyond a gap.
    pub beyond: bool,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Receiver {
    /// Number of the peer's SYN.
    pub irs: Seq,
    /// The offset expected next.
    pub next: u64,
    /// The right edge of the window offered; never moves left.
    edge: u64,
    buffer: ReceiveBuffer,
    beyond: Ranges,
    /// What SACK blocks tell of them.
    sacks: SackList,
    capacity: u64,
    /// A window that is wide enough not to be raised at a duplicate acknowledgement.
    ample_window: u64,
    /// Bytes that were read and still take room.
    held: u64,
    /// No more room than this is offered.
    most: u64,
    /// The shift of our window field.
    pub scale: u8,
    /// The offset of the peer's FIN.
    fin: Option<u64>,
    mss: u64,
    /// An acknowledgement is due at once.
    pub ack_now: bool,
    /// An acknowledgement is due then.
    pub delack: Instant,
    /// Segments not yet acknowledged.
    pending: u32,
    delay: Duration,
    timers: TimerWheel,
    /// Segments in order that one acknowledgement answers.
    ack_every: u32,
    quick: QuickAcks,
    acks_first_byte: bool,
    /// TS.Recent, and when it was taken.
    stamp: Option<(u32, Instant)>,
    /// How long it is believed.
    stamps_believed: Duration,
    /// Which holes the peer was told of by SNACK, where that was agreed on.
    announcer: Option<Box<SnackAnnouncer>>,
    /// The last offset acknowledged.
    acked: u64,
    /// A FIN beyond a gap is told by SACK.
    sacks_fin: bool,
    /// What arrived twice and was not told yet.
    duplicate: Option<(u64, u64)>,
    /// Whether the peer is told (RFC 2883).
    tells_duplicates: bool,
}

impl Receiver {
    /// One that has heard nothing yet.
    pub fn new(settings: &Settings) -> Self {
        let scale = settings.scale.min(MAX_SCALE);
        let most = 65_535u64 << scale;
        let capacity = settings.receive_buffer.0.clamp(1, most);
        let mss = u64::from(settings.mss.max(1));
        Self {
            irs: Seq(0),
            next: 0,
            edge: 0,
            buffer: ReceiveBuffer::default(),
            beyond: Ranges::default(),
            sacks: SackList::new(settings.linux_sack),
            capacity,
            ample_window: ample_window(capacity, mss),
            held: 0,
            most: u64::MAX,
            scale,
            fin: None,
            mss,
            ack_now: false,
            delack: Instant::MAX,
            pending: 0,
            delay: settings.delayed_ack,
            timers: settings.timers,
            ack_every: settings.ack_every.max(1),
            quick: QuickAcks::new(settings.quick_acks),
            acks_first_byte: settings.acks_first_byte,
            stamp: None,
            stamps_believed: STAMPS_BELIEVED,
            announcer: None,
            acked: 0,
            sacks_fin: settings.linux_sack,
            duplicate: None,
            tells_duplicates: settings.tells_duplicates,
        }
    }

    /// The peer's SYN was numbered `irs`.
    pub fn synchronise(&mut self, irs: Seq) {
        self.irs = irs;
        self.next = 1;
        self.edge = 1;
        self.acked = 1;
    }

    /// The peer hears of holes by SNACK, once they are `delay` old.
    pub fn announce_holes(&mut self, delay: Duration) {
        self.announcer = Some(Box::new(SnackAnnouncer::new(delay)));
    }

    /// The peer's timestamps are compared for so long, as its clock is faster than RFC 7323 has it.
    pub const fn believe_stamps_for(&mut self, time: Duration) {
        self.stamps_believed = time;
    }

    /// The hole that the next acknowledgement announces by SNACK.
    pub fn announce(&mut self, patience: Duration, now: Instant) -> Option<(u64, u64)> {
        let announcer = self.announcer.as_mut()?;
        announcer.next(self.next, &self.beyond, patience, now)
    }

    /// An acknowledgement went out: the next one is due when a hole is to be announced, whether anything comes or not.
    pub fn await_holes(&mut self) {
        if let Some(announcer) = &self.announcer
            && !self.beyond.is_empty()
            && let Some(due) = announcer.deadline()
        {
            self.delack = self.delack.min(due);
        }
    }

    /// Window scaling was not agreed on.
    pub fn unscaled(&mut self) {
        self.scaled(0);
    }

    /// The shift of our window field is `scale`, not what the buffer would need.
    pub fn scaled(&mut self, scale: u8) {
        self.scale = scale.min(MAX_SCALE);
        self.capacity = self.capacity.min(65_535 << self.scale);
        self.ample_window = ample_window(self.capacity, self.mss);
    }

    /// Bytes that take room, those beyond gaps among them.
    pub fn stored(&self) -> u64 {
        self.buffer.stored()
    }

    /// TS.Recent (RFC 7323, section 4.3).
    pub fn latest_stamp(&self) -> Option<u32> {
        self.stamp.map(|(stamp, _)| stamp)
    }

    /// Whether bytes arrived that are more than a count.
    pub fn has_bytes(&self) -> bool {
        self.buffer.is_real()
    }

    /// So many bytes that were read still take room.
    pub fn hold(&mut self, held: u64) {
        let less = held < self.held;
        self.held = held;
        if less {
            self.opened();
        }
    }

    /// No more room than `most` bytes is offered from now on.
    pub fn limit_window(&mut self, most: u64) {
        let more = most > self.most;
        self.most = most;
        if more {
            self.opened();
        }
    }

    /// The offset that `seq` stands for, by its distance from what is expected.
    #[inline]
    pub fn offset(&self, seq: Seq) -> i64 {
        let next = self.irs + self.next as u32;
        self.next as i64 + i64::from(seq.offset_from(next))
    }

    /// Room in the window, in bytes.
    #[inline]
    pub fn window(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }

    /// Whether a segment of `len` sequence numbers from `from` lies in the window (RFC 9293, section
    /// 3.10.7.4); one that begins where it should may bring an acknowledgement to a closed window.
    #[inline]
    pub fn acceptable(&self, from: i64, len: u64) -> bool {
        let (next, edge) = (self.next as i64, self.edge.max(self.next) as i64);
        let end = from + len as i64;
        from == next
            || (from < edge && (end > next || (len == 0 && from >= next)))
            || (len == 0 && from == edge)
    }

    /// PAWS (RFC 7323, section 5): whether the segment is from long ago.
    #[inline]
    pub fn outdated(&self, stamp: Timestamps, now: Instant) -> bool {
        self.stamp.is_some_and(|(recent, at)| {
            (stamp.value.wrapping_sub(recent) as i32) < 0 && now.since(at) < self.stamps_believed
        })
    }

    /// Takes TS.Recent from a segment that begins at or before what was last acknowledged
    /// (RFC 7323, section 4.3).
    #[inline]
    pub fn remember(&mut self, stamp: Timestamps, from: i64, now: Instant) {
        if from <= self.acked as i64 {
            self.stamp = Some((stamp.value, now));
        }
    }

    /// What to echo.
    #[inline]
    pub fn echo(&self) -> u32 {
        self.stamp.map_or(0, |(value, _)| value)
    }

    /// The peer's stream has ended, and all of it has arrived.
    pub fn finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Takes the data, and the FIN if `fin`, of an acceptable segment that begins at `from`.
    pub fn take(&mut self, from: i64, payload: &Payload, fin: bool, now: Instant) -> Taken {
        let mut taken = Taken::default();
        let len = payload.len() as i64;
        let fin_at = (from + len) as u64;
        let old = self.next;
        let gaps = !self.beyond.is_empty();
        if fin && !self.finished() && fin_at >= self.next && fin_at <= self.edge {
            // No FIN beyond a gap lies within what is held already.
            let behind = self.beyond.last().is_none_or(|(_, to)| fin_at >= to);
            if from <= self.next as i64 {
                // One in order counts whatever was said of another, and what lies behind it goes (Linux `tcp_fin`).
                if !behind && self.fin != Some(fin_at) {
                    self.beyond.clear();
                    self.sacks.advanced(self.next, &self.beyond);
                }
                self.fin = Some(fin_at);
            } else if self.fin.is_none() && behind {
                self.fin = Some(fin_at);
            }
        }
        // Bytes beyond the FIN do not belong to the stream.
        let edge = self.fin.unwrap_or(u64::MAX).min(self.edge.max(self.next));
        let start = from.max(self.next as i64) as u64;
        let end = (fin_at).min(edge);
        if self.tells_duplicates {
            self.note_duplicate(from, start, end);
        }
        if start < end {
            taken.stale = !self.store(start, end, from, payload);
        } else {
            taken.stale = len > 0;
        }
        if self.fin == Some(self.next) {
            self.next += 1;
        } else if fin && self.sacks_fin && self.fin == Some(fin_at) && self.next < fin_at {
            self.beyond.insert(fin_at, fin_at + 1);
            self.sacks.arrived((fin_at, fin_at + 1), &self.beyond);
        }
        taken.fin = self.fin.is_some_and(|at| old <= at && at < self.next);
        taken.beyond = self.next == old && !taken.stale;
        taken.readable = self.next > old + u64::from(taken.fin);
        if taken.stale {
            self.quick.on_duplicate();
        }
        if fin || gaps || !self.beyond.is_empty() || taken.stale {
            self.ack_now = true;
        } else if len > 0 {
            self.owe(old, len as u64, now);
        }
        taken
    }

    /// An acknowledgement is due, of a segment in order of `len` bytes that begins at `from`. A longer one than we take
    /// is several, gathered on the way (generic receive offload).
    #[inline]
    fn owe(&mut self, from: u64, len: u64, now: Instant) {
        self.pending += 1;
        let quick = self.quick.on_data(now);
        let first = self.acks_first_byte && from == 1;
        let at_once = self.delay.is_zero() || quick || first;
        if self.pending >= self.ack_every || len > self.mss || at_once {
            self.ack_now = true;
        } else if self.delack == Instant::MAX {
            self.delack = self.timers.expiry(now, now + self.delay);
        }
    }

    /// Data goes out.
    #[inline]
    pub fn on_data_sent(&mut self, now: Instant) {
        self.quick.on_sent(self.delay, now);
    }

    /// A silence of the peer longer than `timeout` was one of its retransmission timeouts, as far as is known.
    pub fn set_patience(&mut self, timeout: Duration) {
        self.quick.set_patience(timeout);
    }

    /// The acknowledgement that waited goes alone.
    pub fn delay_expired(&mut self) {
        self.delack = Instant::MAX;
        self.ack_now = true;
        self.quick.on_unanswered();
    }

    /// Whether `len` bytes that begin with the one expected next can only be taken whole: they fit the window, and
    /// no gap or end is known.
    #[inline]
    pub fn predicts(&self, len: u64) -> bool {
        self.next + len <= self.edge && self.beyond.is_empty() && self.fin.is_none()
    }

    /// Takes a payload that [`Self::predicts`] accepted; returns how many bytes.
    #[inline]
    pub fn take_next(&mut self, payload: &Payload, now: Instant) -> u64 {
        let (old, len) = (self.next, payload.len());
        if !self.buffer.put(old - 1, payload, 0, len) {
            self.ack_now = true;
            return 0;
        }
        self.next += len as u64;
        self.owe(old, len as u64, now);
        len as u64
    }

    /// Bytes `[from, to)`, none of which is new, arrived: where they are the peer's, the next acknowledgement says so.
    pub fn arrived_twice(&mut self, from: i64, to: i64) {
        let to = to.min(self.next as i64);
        if from < 1 || from >= to {
            return;
        }
        self.quick.on_duplicate();
        if !self.tells_duplicates {
            return;
        }
        let (from, to) = (from as u64, to as u64);
        // What arrived before the peer was told of the last one goes on with that, or takes its place (Linux
        // `tcp_dsack_extend`).
        self.duplicate = Some(match self.duplicate {
            Some((left, right)) if from <= right && left <= to => (left.min(from), right.max(to)),
            _ => (from, to),
        });
    }

    /// A segment from `from` holds bytes `[start, end)` that are not in order yet: notes what of it was here before.
    fn note_duplicate(&mut self, from: i64, start: u64, end: u64) {
        self.arrived_twice(from, start as i64);
        // Beyond a gap: from the first byte on that is held.
        if start >= end || start <= self.next {
            return;
        }
        let held = match self.beyond.uncovered(start, end) {
            None => Some((start, end)),
            Some((missing, _)) if missing > start => Some((start, missing)),
            Some((_, to)) if to < end => {
                let next = self.beyond.uncovered(to, end).map_or(end, |(from, _)| from);
                Some((to, next))
            }
            Some(_) => None,
        };
        self.duplicate = held.or(self.duplicate);
    }

    /// Whether the peer is to be told of what arrived twice.
    #[inline]
    pub fn has_duplicate(&self) -> bool {
        self.duplicate.is_some()
    }

    /// Stores bytes `[start, end)` of a payload that begins at `from`; whether any is new.
    fn store(&mut self, start: u64, end: u64, from: i64, payload: &Payload) -> bool {
        if start > self.next {
            if self.beyond.uncovered(start, end).is_none() {
                self.sacks.arrived((start, end), &self.beyond);
                return false;
            }
            if self.beyond.len() >= STRETCHES {
                return false;
            }
        }
        let skip = (start as i64 - from) as usize;
        let len = (end - start) as usize;
        if !self.buffer.put(start - 1, payload, skip, len) {
            return false;
        }
        if start > self.next {
            self.beyond.insert(start, end);
            self.sacks.arrived((start, end), &self.beyond);
        } else {
            self.next = end;
            if let Some((first, reach)) = self.beyond.first()
                && first <= end
            {
                self.next = end.max(reach);
                // More stretches may lie within what arrived.
                self.beyond.trim(self.next);
                while let Some((first, reach)) = self.beyond.first()
                    && first <= self.next
                {
                    self.next = self.next.max(reach);
                    self.beyond.trim(self.next);
                }
            }
            self.sacks.advanced(self.next, &self.beyond);
        }
        true
    }

    /// SACK blocks to send, at most `most`: the latest first.
    pub fn blocks(&self, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        self.sacks.tell(self.duplicate, &self.beyond, |(from, to)| {
            if blocks.len() < most {
                blocks.push(SackBlock {
                    left: self.irs + from as u32,
                    right: self.irs + to as u32,
                });
            }
        });
        blocks
    }

    /// Whether something lies beyond a gap.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Bytes in order that wait to be read.
    #[inline]
    pub fn readable(&self) -> u64 {
        let end = self.next - u64::from(self.finished());
        end.saturating_sub(1).saturating_sub(self.buffer.start)
    }

    /// Takes at most `most` bytes in order, as one buffer that is shared where it can be.
    pub fn read_bytes(&mut self, most: usize) -> Option<Bytes> {
        let ready = usize::try_from(self.readable()).unwrap_or(usize::MAX);
        let bytes = self.buffer.read_bytes(most.min(ready));
        self.opened();
        bytes
    }

    /// Takes bytes in order, as many as `out` has room for; returns how many.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let len = usize::try_from(self.readable()).map_or(out.len(), |most| most.min(out.len()));
        self.buffer.read(&mut out[..len]);
        self.opened();
        len
    }

    /// Passes over at most `len` bytes in order; returns over how many.
    pub fn consume(&mut self, len: u64) -> u64 {
        let len = len.min(self.readable());
        self.buffer.consume(len);
        self.opened();
        len
    }

    /// The window that may be offered now: it opens by a full segment or half the buffer, or not at
    /// all (RFC 9293, section 3.8.6.2.2).
    fn offer(&self) -> u64 {
        let unread = self
            .next
            .saturating_sub(1)
            .saturating_sub(self.buffer.start);
        let used = unread.saturating_add(self.held);
        let edge = self.next + self.capacity.saturating_sub(used).min(self.most);
        if edge >= self.edge + self.mss.min((self.capacity / 2).max(1)) {
            edge
        } else {
            self.edge
        }
    }

    /// Sends a window update where the application's reading has reopened a nearly closed window.
    fn opened(&mut self) {
        if self.window() < self.mss.min(self.capacity.div_ceil(2)) && self.offer() > self.edge {
            self.ack_now = true;
        }
    }

    /// An acknowledgement goes out; returns the window that it offers, unscaled.
    #[inline]
    pub fn acknowledge(&mut self) -> u64 {
        // A repeated acknowledgement offers the same window, or it would not count as a duplicate
        // (RFC 5681, section 2).
        if self.next != self.acked || self.window() < self.ample_window {
            self.edge = self.offer();
        }
        self.ack_now = false;
        self.delack = Instant::MAX;
        self.quick.on_acknowledged(self.pending);
        self.pending = 0;
        self.acked = self.next;
        self.duplicate = None;
        self.window()
    }
}

/// Three quarters of a buffer of `capacity`, unless that holds only a few segments.
fn ample_window(capacity: u64, mss: u64) -> u64 {
    if capacity >= 4 * mss {
        capacity / 4 * 3
    } else {
        u64::MAX
    }
}
