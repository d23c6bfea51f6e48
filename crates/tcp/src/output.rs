//! Transmission of segments (RFC 9293, section 3.8).

use crate::connection::Connection;
use crate::sender::NextSend;
use crate::{Scps, State};
use bentpipe_base::{Bytes, Instant};
use bentpipe_wire::{Ecn, Flags, Payload, Segment, TcpOptions, Timestamps};

impl Connection {
    /// The next segment to send, if one is due.
    #[inline]
    pub fn transmit(&mut self, now: Instant) -> Option<Segment> {
        let mut segment = Segment::default();
        self.transmit_into(&mut segment, now).then_some(segment)
    }

    /// Writes the next segment to send over `segment`, where its owner wants it: a segment that is returned is copied once a
    /// call, and a processor waits for the last of its fields before it copies one. Returns whether a segment is due.
    #[inline]
    pub fn transmit_into(&mut self, segment: &mut Segment, now: Instant) -> bool {
        self.ecn = Ecn::NotCapable;
        if self.reply.is_some() {
            self.tx.counters.segments_sent += 1;
            *segment = self.reply.take().unwrap_or_default();
            return true;
        }
        match self.state {
            State::Closed | State::Listen | State::SynSent => {
                return self.transmit_syn(segment, now);
            }
            // Who took data of the SYN may answer before the handshake is complete (RFC 7413).
            State::SynReceived if self.tx.next > 0 && self.has_fast_open() => {}
            State::SynReceived => return self.transmit_syn(segment, now),
            _ => {}
        }
        if self.probe {
            *segment = self.transmit_probe(now);
            return true;
        }
        // An acknowledgement with SACK blocks goes on its own: data would leave no room for them.
        let alone = self.rx.ack_now && (self.has_sack_blocks() || self.has_holes_to_announce());
        if !alone && self.transmit_data(segment, now) {
            return true;
        }
        self.acknowledge_if_due(segment, now)
    }

    /// An acknowledgement without data, if one is due.
    #[inline]
    fn acknowledge_if_due(&mut self, segment: &mut Segment, now: Instant) -> bool {
        let due = self.rx.ack_now;
        if due {
            self.acknowledgement(segment, now);
        }
        due
    }

    #[cold]
    fn transmit_syn(&mut self, out: &mut Segment, now: Instant) -> bool {
        if matches!(self.state, State::Closed | State::Listen) {
            return false;
        }
        if self.tx.next > 0 {
            return self.acknowledge_if_due(out, now);
        }
        let again = self.tx.max > 0;
        self.tx.sent_syn(now);
        let answer = self.state == State::SynReceived;
        let flags = if answer {
            Flags::SYN | Flags::ACK | self.ecn_answer()
        } else {
            Flags::SYN | self.ecn_syn(again)
        };
        let mut segment = self.segment(0, flags, 0, Payload::Absent, now);
        let config = &self.config;
        let offer = |wanted: bool, agreed: bool| wanted && (!answer || agreed);
        segment.timestamps = offer(config.timestamps, self.agreed.timestamps).then(|| Timestamps {
            value: self.clock(now),
            echo: self.rx.echo(),
        });
        let scales = config.window_scaling && (!answer || self.agreed.scaled);
        segment.options = Some(Box::new(TcpOptions {
            mss: Some(config.mss.max(1)),
            window_scale: scales.then_some(self.rx.scale),
            sack_permitted: offer(config.sack_blocks > 0, self.agreed.sack),
            unknown: { config.scps.as_ref() }
                .filter(|_| !answer || self.agreed.snack.is_some())
                .and_then(Scps::offer),
            ..TcpOptions::default()
        }));
        if !answer {
            segment.ack = bentpipe_base::Seq(0);
        }
        // The peer is to hear of the whole window at once, not with the first acknowledgement of its data, a round trip
        // later (the reference implementation of SCPS-TP does so too).
        let more = answer && self.agreed.snack.is_some() && self.agreed.scaled;
        self.add_fast_open(&mut segment, again);
        // A SYN's window is never scaled (RFC 7323, section 2.2).
        segment.window = self.rx.acknowledge().min(65_535) as u16;
        self.rx.ack_now = more;
        *out = segment;
        true
    }

    /// Sends data by the recovery's choice, within the peer's window, the pacer and Nagle's rule; whether any is due.
    #[inline]
    fn transmit_data(&mut self, segment: &mut Segment, now: Instant) -> bool {
        if self.paced != Instant::MAX {
            self.tx.pacer_due(self.paced, now);
            self.paced = Instant::MAX;
        }
        if self.tx.una == self.tx.end() || self.frozen.is_some() {
            return false;
        }
        let pick = self.recovery.pick(&mut self.tx.recovery_context());
        let (from, to) = match pick {
            NextSend::Nothing => {
                self.tx.cwnd_limited = true;
                self.tx.window_full();
                return false;
            }
            NextSend::Next => match self.tx.cut() {
                Some(to) => (self.tx.next, to),
                None => {
                    self.tx.cwnd_limited = false;
                    self.watch_window(now);
                    return false;
                }
            },
            NextSend::Again(from, to) => {
                let end = self.tx.data_end();
                let most = from + u64::from(self.tx.mss);
                // The FIN goes again with the last bytes, or alone.
                let whole = to > end && most >= end;
                (from, if whole { to } else { to.min(most).min(end) })
            }
        };
        if self.tx.held_back(now) {
            self.paced = self.tx.pace;
            self.tx.cwnd_limited = true;
            return false;
        }
        self.tx.wake(now);
        self.data(segment, (from, to), now);
        true
    }

    /// Writes the segment with stream offsets `[from, to)`, FIN included, over `segment`.
    #[inline]
    fn data(&mut self, segment: &mut Segment, (from, to): (u64, u64), now: Instant) {
        let end = self.tx.data_end();
        let len = to.min(end).saturating_sub(from) as u32;
        let mut flags = self.ack_flags();
        if to >= end && len > 0 {
            flags = flags | Flags::PSH;
        }
        if to > end {
            flags = flags | Flags::FIN;
        }
        if len > 0 {
            let fresh = from >= self.tx.max;
            self.ecn = self.ecn_of_data(&mut flags, fresh);
            self.rx.on_data_sent(now);
        }
        self.tx.sent(from, to, u64::from(len), now);
        self.recovery
            .on_sent(&mut self.tx.recovery_context(), from, to);
        let window = self.acknowledge();
        // Field by field: a segment that is made elsewhere first is copied here.
        segment.seq = self.tx.seq(from);
        segment.ack = self.rx.irs + self.rx.next as u32;
        (segment.flags, segment.window) = (flags, window);
        segment.timestamps = self.stamp(now);
        segment.options = None;
        segment.payload = self.tx.stream.payload(from - 1, len);
    }

    /// Arms the persist timer where only the peer's window keeps bytes back.
    fn watch_window(&mut self, now: Instant) {
        if self.tx.timer == Instant::MAX && self.tx.stuck() {
            self.tx.persisting = true;
            self.tx.stalled = now;
            self.tx.timer = self.tx.rto.expiry(now);
        }
    }

    /// A probe is a segment that the peer has had: it must answer with what it expects and its
    /// window (RFC 9293, section 3.8.4; Linux probes shut windows so too).
    fn transmit_probe(&mut self, now: Instant) -> Segment {
        self.probe = false;
        self.tx.counters.segments_sent += 1;
        let (flags, window) = (self.ack_flags(), self.acknowledge());
        let before = self.tx.una.wrapping_sub(1);
        self.segment(before, flags, window, Payload::Absent, now)
    }

    fn acknowledgement(&mut self, segment: &mut Segment, now: Instant) {
        let hole = self.announce(now);
        let mut options = None;
        if self.has_sack_blocks() || hole.is_some() || self.received_damaged {
            // Beside timestamps there is room for three SACK blocks, beside a SNACK for one less.
            let room = if self.agreed.timestamps { 3 } else { 4 } - usize::from(hole.is_some());
            let most = usize::from(self.config.sack_blocks).min(room);
            let mut others = TcpOptions::default();
            if self.has_sack_blocks() {
                others.sack = self.rx.blocks(most);
            }
            others.unknown = self.scps_options(hole, others.sack.len());
            options = others.boxed();
        }
        self.tx.counters.segments_sent += 1;
        let (flags, window) = (self.ack_flags(), self.acknowledge());
        self.rx.await_holes();
        // The segment has the highest number that was sent, also where sending has gone back, because the peer would
        // drop an older one together with its acknowledgement.
        *segment = Segment {
            options,
            ..self.segment(self.tx.max, flags, window, Payload::Absent, now)
        };
        if self.config.scps.is_some() {
            let length = Bytes(self.config.wire_len(segment) as u64);
            self.tx.congestion.sent_unpaced(length);
        }
    }

    /// Whether the next acknowledgement is to carry SACK blocks.
    fn has_sack_blocks(&self) -> bool {
        self.agreed.sack && (self.rx.has_gap() || self.rx.has_duplicate())
    }

    /// Whether the next acknowledgement may carry a SNACK.
    fn has_holes_to_announce(&self) -> bool {
        self.agreed.snack.is_some() && self.rx.has_gap()
    }

    /// The flags of all segments but SYNs and resets.
    #[inline]
    pub(crate) fn ack_flags(&self) -> Flags {
        if self.agreed.echoes {
            Flags::ACK | Flags::ECE
        } else {
            Flags::ACK
        }
    }

    /// A segment with `payload` at `offset`.
    #[inline]
    pub(crate) fn segment(
        &self,
        offset: u64,
        flags: Flags,
        window: u16,
        payload: Payload,
        now: Instant,
    ) -> Segment {
        Segment {
            seq: self.tx.seq(offset),
            ack: self.rx.irs + self.rx.next as u32,
            flags,
            window,
            timestamps: self.stamp(now),
            options: None,
            payload,
        }
    }

    /// The timestamps of a segment that leaves now, where both ends agreed on them.
    #[inline]
    fn stamp(&self, now: Instant) -> Option<Timestamps> {
        self.agreed.timestamps.then(|| Timestamps {
            value: self.clock(now),
            echo: self.rx.echo(),
        })
    }

    /// An acknowledgement goes out; returns the window field of its segment.
    #[inline]
    pub(crate) fn acknowledge(&mut self) -> u16 {
        let window = self.rx.acknowledge() >> self.rx.scale;
        window.min(65_535) as u16
    }

    /// The timestamp clock: milliseconds (RFC 7323, section 5.4: 1 ms to 1 s a tick).
    pub(crate) fn clock(&self, now: Instant) -> u32 {
        milliseconds(now).wrapping_add(self.epoch)
    }

    /// A reset at the end of what was sent. It has timestamps too (RFC 7323, section 3.2: SHOULD), by which a peer that
    /// protects itself against old segments knows it as new.
    pub(crate) fn reset(&self, now: Instant) -> Segment {
        Segment {
            seq: self.tx.seq(self.tx.max),
            ack: self.rx.irs + self.rx.next as u32,
            flags: Flags::RST | Flags::ACK,
            timestamps: self.stamp(now),
            ..Segment::default()
        }
    }
}

/// Milliseconds since the start, modulo 2^32.
pub(crate) fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}
