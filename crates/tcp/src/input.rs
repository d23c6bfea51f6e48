//! Processing of segments that arrive: RFC 9293, section 3.10.7, with the checks of RFC 5961 and RFC 7323.

use crate::connection::{Connection, Negotiated};
use crate::ns2::RecoveryRules;
use crate::recovery::AckSample;
use crate::scps;
use crate::{Cause, Event, ScpsHandshake, State};
use bentpipe_base::Instant;
use bentpipe_wire::{Ecn, Flags, SackBlock, Segment, TcpOptions};
use std::time::Duration;

/// Challenge acknowledgements allowed in an [`INTERVAL`] (RFC 5961, section 7).
const CHALLENGES: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(5);
/// Between two answers to old segments without data (Linux `tcp_invalid_ratelimit`).
const OLD_INTERVAL: Duration = Duration::from_millis(500);

impl Connection {
    /// A segment of the peer arrived. Nothing it holds can make this panic.
    pub fn input(&mut self, segment: Segment, now: Instant) {
        self.receive(&segment, now);
    }

    /// As [`input`](Self::input), without taking the segment from its owner.
    #[inline]
    pub fn receive(&mut self, segment: &Segment, now: Instant) {
        self.receive_marked(segment, Ecn::NotCapable, now);
    }

    /// As [`receive`](Self::receive), of a segment whose IP header says `ecn`.
    #[inline]
    pub fn receive_marked(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        self.tx.counters.segments_received += 1;
        let common = self.state == State::Established && ecn != Ecn::Marked;
        if common && self.predicts(segment, now) {
            return self.on_predicted(segment, now);
        }
        match self.state {
            State::Closed => {}
            State::Listen => self.on_listen(segment, ecn, now),
            State::SynSent => self.on_syn_sent(segment, ecn, now),
            _ => self.on_segment(segment, ecn, now),
        }
    }

    /// V. Jacobson's header prediction (RFC 1323, appendix A; Linux `tcp_rcv_established`): whether `segment` is the
    /// common case, which needs few checks. It brings either the next bytes in order or an acknowledgement of new ones,
    /// with no flag but ACK and PSH, no option but the timestamps agreed on, and no gap before it. Unlike in Linux the
    /// window may change, because taking it costs no more than comparing it.
    #[inline]
    fn predicts(&self, segment: &Segment, now: Instant) -> bool {
        let (tx, rx) = (&self.tx, &self.rx);
        let plain = segment.flags | Flags::PSH == Flags::ACK | Flags::PSH;
        if !plain || segment.options.is_some() || segment.seq != rx.irs + rx.next as u32 {
            return false;
        }
        let timely = |stamp| !rx.outdated(stamp, now);
        if self.agreed.timestamps && !segment.timestamps.is_some_and(timely) {
            return false;
        }
        let acked = (segment.ack - tx.seq(tx.una).0).0;
        match segment.payload.len() as u64 {
            // At least one byte is acknowledged, and no more than was sent.
            0 => u64::from(acked.wrapping_sub(1)) < tx.max - tx.una,
            len => acked == 0 && rx.predicts(len),
        }
    }

    /// Processes a segment that [`Self::predicts`] accepted. The result is that of [`Self::on_segment`].
    #[inline]
    fn on_predicted(&mut self, segment: &Segment, now: Instant) {
        self.tx.counters.predicted += 1;
        self.heard = now;
        self.probes = 0;
        if self.frozen.is_some() {
            self.thaw(now);
        }
        let from = self.rx.next as i64;
        if self.agreed.timestamps
            && let Some(stamp) = segment.timestamps
        {
            self.rx.remember(stamp, from, now);
        }
        let ack = self.tx.una + u64::from((segment.ack - self.tx.seq(self.tx.una).0).0);
        let (wl1, wl2) = self.snd_wl;
        if from > wl1 || from == wl1 && ack >= wl2 {
            self.snd_wl = (from, ack);
            let window = u64::from(segment.window) << self.agreed.scale;
            // While data arrives, the window is nearly always what it was.
            if ack + window != self.tx.limit {
                self.tx.offer(ack, window);
            }
        }
        if ack > self.tx.una {
            self.on_new(segment, ack, &[], None, now);
            self.after_ack(now);
            return;
        }
        // A data segment that repeats the last acknowledgement is no duplicate acknowledgement (RFC 5681, section 2).
        if self.tx.una == self.tx.max {
            self.tx.retries = 0;
        }
        self.after_ack(now);
        let len = self.rx.take_next(&segment.payload, now);
        let counters = &mut self.tx.counters;
        counters.data_received += 1;
        counters.bytes_delivered += len;
        self.pending.push(Event::Readable);
        self.expect_more(now);
    }

    /// Takes the options and the window of the peer's SYN; returns the segment size that the peer accepts.
    fn synchronise(&mut self, segment: &Segment, now: Instant) -> u16 {
        self.rx.synchronise(segment.seq);
        let none = TcpOptions::default();
        let options = segment.options.as_deref().unwrap_or(&none);
        let config = &self.config;
        let scale = options.window_scale.filter(|_| config.window_scaling);
        self.agreed = Negotiated {
            timestamps: config.timestamps && segment.timestamps.is_some(),
            sack: config.sack_blocks > 0 && options.sack_permitted,
            snack: None,
            scale: scale.unwrap_or(0).min(14),
            scaled: scale.is_some(),
            ..Negotiated::default()
        };
        if scale.is_none() {
            self.rx.unscaled();
        }
        if let Some(peer) = scps::offered(segment) {
            self.agree_on_scps(ScpsHandshake {
                our_mss: config.mss,
                peer_mss: options.mss.unwrap_or(config.default_mss()),
                peer,
            });
        }
        if let Some(stamp) = segment.timestamps.filter(|_| self.agreed.timestamps) {
            self.rx.remember(stamp, 0, now);
        }
        // A SYN's window is never scaled.
        self.tx.offer(self.tx.una, u64::from(segment.window));
        self.snd_wl = (0, 0);
        let default = self.config.default_mss();
        let least = self.config.least_peer_mss.max(1);
        options.mss.unwrap_or(default).max(least)
    }

    fn on_listen(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if segment.flags.contains(Flags::ACK) {
            self.refuse(segment);
        } else if segment.flags.contains(Flags::SYN) {
            self.peer_mss = self.synchronise(segment, now);
            self.ecn_asked(segment, ecn);
            self.state = State::SynReceived;
            if self.has_fast_open() {
                self.open_early(segment, now);
            }
        }
    }

    fn on_syn_sent(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        let ack = segment.flags.contains(Flags::ACK);
        let acked = self.tx.offset(segment.ack);
        let sent = 1 + self.fast_open_sent() as i64;
        let acks_syn = ack && self.tx.max == 1 && (1..=sent).contains(&acked);
        if ack && !acks_syn {
            if !segment.flags.contains(Flags::RST) {
                self.refuse(segment);
            }
            return;
        }
        if segment.flags.contains(Flags::RST) {
            if ack {
                self.finish(Event::Aborted(Cause::Refused));
            }
            return;
        }
        if !segment.flags.contains(Flags::SYN) {
            return;
        }
        self.peer_mss = self.synchronise(segment, now);
        self.rx.ack_now = true;
        if acks_syn {
            let acked = acked as u64;
            self.ecn_answered(segment);
            self.fast_open_answered(segment, acked);
            let sample = &mut AckSample::at(now);
            self.tx.acknowledge(acked, &[], None, sample);
            self.tx.offer(acked, u64::from(segment.window));
            self.establish(now);
            self.after_ack(now);
        } else {
            // Both ends opened at once: the SYN is sent again under the same number, with an ACK (RFC 9293, section
            // 3.5).
            self.ecn_asked(segment, ecn);
            self.state = State::SynReceived;
            self.tx.next = 0;
        }
    }

    fn establish(&mut self, now: Instant) {
        self.state = if self.tx.fin {
            State::FinWait1
        } else {
            State::Established
        };
        self.tx.settle(now);
        if self.has_fast_open() {
            self.establish_early(now);
        } else {
            let mss = self.peer_mss;
            self.settle_on(mss, now);
        }
        if self.passive {
            self.fast_open = None;
        }
        self.pending.push(Event::Connected);
    }

    /// Resets the sender of a segment that acknowledges what was never sent (RFC 9293, section 3.5.2).
    fn refuse(&mut self, segment: &Segment) {
        self.reply = Some(Segment {
            seq: segment.ack,
            flags: Flags::RST,
            ..Segment::default()
        });
    }

    /// Sends a challenge acknowledgement, to which the true peer answers and a forger cannot (RFC 5961); at most ten in
    /// 5 s.
    fn challenge(&mut self, now: Instant) {
        let (sent, since) = self.challenges;
        if now.since(since) >= INTERVAL {
            self.challenges = (0, now);
        } else if sent >= CHALLENGES {
            return;
        }
        self.challenges.0 += 1;
        self.tx.counters.challenges += 1;
        self.rx.ack_now = true;
    }

    /// Answers a segment from outside the window, or from long ago. Of those without data one in half a second, or two ends
    /// that take each other's acknowledgements for old, as a path that reorders may have it, would answer each other for
    /// ever (Linux `tcp_oow_rate_limited`).
    fn answer_old(&mut self, segment: &Segment, now: Instant) {
        let bare = segment.payload.is_empty() && !segment.flags.contains(Flags::FIN);
        if bare {
            if self
                .answered_old
                .is_some_and(|at| now.since(at) < OLD_INTERVAL)
            {
                self.tx.counters.acks_skipped += 1;
                return;
            }
            self.answered_old = Some(now);
        }
        self.rx.ack_now = true;
    }

    /// Processes a segment in SYN-RECEIVED and later states.
    fn on_segment(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        let from = self.rx.offset(segment.seq);
        let flags = segment.flags;
        let fin = flags.contains(Flags::FIN);
        let len = segment.payload.len() as u64;
        let space = len + u64::from(fin) + u64::from(flags.contains(Flags::SYN));
        let repeated = flags.contains(Flags::SYN) && !flags.contains(Flags::RST) && from == 0;
        if self.state == State::SynReceived && repeated && !flags.contains(Flags::ACK) {
            // The peer has not had the answer to its SYN (Linux `tcp_check_req`).
            self.ecn_asked_again(segment);
            self.tx.next = 0;
            return;
        }
        if !self.acceptable(segment, from, space, now) {
            return;
        }
        if flags.contains(Flags::RST) {
            return self.on_reset(from, now);
        }
        if flags.contains(Flags::SYN) {
            return self.challenge(now);
        }
        if !flags.contains(Flags::ACK) {
            return;
        }
        self.heard = now;
        self.probes = 0;
        if self.frozen.is_some() {
            self.thaw(now);
        }
        if !self.on_ack(segment, from, now) {
            return;
        }
        // The timestamp is taken only after the acknowledgement was checked, because a segment that acknowledges the
        // impossible is not the peer's (RFC 5961, section 5).
        if let Some(stamp) = segment.timestamps.filter(|_| self.agreed.timestamps) {
            self.rx.remember(stamp, from, now);
        }
        if self.state == State::Closed {
            return;
        }
        if len > 0 || fin {
            self.on_data(segment, ecn, from, now);
        }
    }

    /// Checks PAWS and the window; returns whether the segment is to be processed further.
    fn acceptable(&mut self, segment: &Segment, from: i64, space: u64, now: Instant) -> bool {
        let reset = segment.flags.contains(Flags::RST);
        if self.agreed.timestamps && !reset {
            match segment.timestamps {
                Some(stamp) if self.rx.outdated(stamp, now) => {
                    self.tx.counters.paws += 1;
                    self.answer_old(segment, now);
                    return false;
                }
                Some(_) => {}
                // A segment without the agreed timestamps is dropped in silence (RFC 7323, section 3.2).
                None => return false,
            }
        }
        if self.rx.acceptable(from, space) {
            return true;
        }
        if !reset {
            self.answer_old(segment, now);
            if !segment.payload.is_empty() {
                let end = from + segment.payload.len() as i64;
                self.rx.arrived_twice(from, end);
                self.tx.counters.data_received += 1;
                self.tx.counters.duplicates += 1;
            }
            if self.state == State::TimeWait && segment.flags.contains(Flags::FIN) {
                self.expiry = now + self.config.time_wait;
            }
        }
        false
    }

    /// Processes a reset, which counts only if its number is exactly the one expected (RFC 5961, section 3).
    fn on_reset(&mut self, from: i64, now: Instant) {
        if from != self.rx.next as i64 {
            return self.challenge(now);
        }
        match self.state {
            State::SynReceived if self.passive && !self.has_fast_open() => {
                let (iss, epoch) = (self.tx.iss, self.epoch);
                *self = Self::listen(std::sync::Arc::clone(&self.config), iss, now);
                self.epoch = epoch;
            }
            State::SynReceived if !self.passive => self.finish(Event::Aborted(Cause::Refused)),
            // A reset must not end TIME-WAIT (RFC 1337, fix F1).
            State::TimeWait => {}
            State::Closing | State::LastAck => self.finish(Event::Closed),
            _ => self.finish(Event::Aborted(Cause::Reset)),
        }
    }

    /// Processes the acknowledgement field; returns whether the rest of the segment is to be processed.
    fn on_ack(&mut self, segment: &Segment, from: i64, now: Instant) -> bool {
        let ack = self.tx.offset(segment.ack);
        if self.state == State::SynReceived {
            if !(1..=self.tx.max as i64).contains(&ack) {
                self.refuse(segment);
                return false;
            }
            let sample = &mut AckSample::at(now);
            self.tx.acknowledge(1, &[], None, sample);
            self.establish(now);
        }
        let (una, max) = (self.tx.una as i64, self.tx.max as i64);
        if ack > max || ack < una - self.tx.largest as i64 - 1 {
            // It acknowledges what was never sent, or is far too old (RFC 5961, section 5.2).
            self.challenge(now);
            return false;
        }
        let scaled = u64::from(segment.window) << self.agreed.scale;
        if ack < una {
            self.on_overtaken(segment, ack.max(0) as u64, now);
            return true;
        }
        let ack = ack as u64;
        let (limit, fresh) = (ack + scaled, self.snd_wl <= (from, ack));
        // A SYN's window is not scaled and at most 65,535, so that the first scaled window is no window update.
        let known = self.snd_wl != (0, 0) || !self.agreed.scaled;
        let moved = known && fresh && limit != self.tx.limit && ack == self.tx.una;
        if fresh {
            self.snd_wl = (from, ack);
            self.tx.offer(ack, scaled);
        }
        self.ecn_echoed(segment, ack, now);
        self.on_new_or_duplicate(segment, ack, moved, now);
        self.after_ack(now);
        true
    }

    fn on_new_or_duplicate(&mut self, segment: &Segment, ack: u64, moved: bool, now: Instant) {
        let advanced = ack > self.tx.una;
        if !advanced && self.tx.una == self.tx.max {
            self.tx.retries = 0;
            if segment.payload.is_empty() {
                let (_, duplicate) = self.blocks(segment, ack, &mut [(0, 0); 4]);
                let tx = &mut self.tx.recovery_context();
                self.recovery.on_idle(tx, duplicate, now);
            }
            return;
        }
        if !advanced && self.tx.limit < self.tx.max {
            // The peer has shrunk its window but is alive, so the connection must not time out (RFC 9293, section
            // 3.8.6, SHLD-17).
            self.tx.retries = 0;
        }
        let mut blocks = [(0, 0); 4];
        let (count, duplicate) = self.blocks(segment, ack, &mut blocks);
        let blocks = &blocks[..count];
        if advanced {
            self.on_new(segment, ack, blocks, duplicate, now);
            return;
        }
        let mut sample = AckSample::at(now);
        self.take_sample(segment, ack, blocks, duplicate, &mut sample);
        let flags = segment.flags;
        let bare = segment.payload.is_empty() && !flags.contains(Flags::FIN) && !moved;
        if bare || sample.newly_acked.news || sample.snack {
            self.tx.counters.dupacks += 1;
            self.recovery
                .on_dupack(&mut self.tx.recovery_context(), &sample);
        }
    }

    /// An acknowledgement that a later one overtook: what its SACK blocks tell of bytes in flight is news all the same.
    fn on_overtaken(&mut self, segment: &Segment, ack: u64, now: Instant) {
        if !matches!(self.config.ns2.recovery_rules, RecoveryRules::Rfc) {
            return;
        }
        let mut blocks = [(0, 0); 4];
        let (count, _) = self.blocks(segment, ack, &mut blocks);
        let una = self.tx.una;
        let blocks = &mut blocks[..count];
        blocks
            .iter_mut()
            .for_each(|(from, _)| *from = una.max(*from));
        if !blocks.iter().any(|(from, to)| from < to) {
            return;
        }
        let mut sample = AckSample::at(now);
        self.tx.acknowledge(una, blocks, None, &mut sample);
        if sample.newly_acked.news {
            let tx = &mut self.tx.recovery_context();
            self.recovery.on_dupack(tx, &sample);
        }
    }

    /// Processes an acknowledgement of new bytes.
    #[inline]
    fn on_new(
        &mut self,
        segment: &Segment,
        ack: u64,
        blocks: &[(u64, u64)],
        duplicate: Option<(u64, u64)>,
        now: Instant,
    ) {
        let mut sample = AckSample::at(now);
        self.take_sample(segment, ack, blocks, duplicate, &mut sample);
        self.tx.settle_cwr(now);
        self.recovery
            .on_ack(&mut self.tx.recovery_context(), &sample);
        if self.tx.stream.is_real() {
            self.pending.push(Event::Writable);
        }
    }

    /// Takes the acknowledgement of `segment` to the sender; `sample` is told what it told about the segments in flight.
    #[inline]
    fn take_sample(
        &mut self,
        segment: &Segment,
        ack: u64,
        blocks: &[(u64, u64)],
        duplicate: Option<(u64, u64)>,
        sample: &mut AckSample,
    ) {
        let now = sample.now;
        let stamp = segment.timestamps.filter(|_| self.agreed.timestamps);
        let echo = stamp.filter(|stamp| stamp.echo != 0).map(|stamp| {
            Duration::from_millis(u64::from(self.clock(now).wrapping_sub(stamp.echo)))
        });
        self.tx.acknowledge(ack, blocks, echo, sample);
        sample.stamp = stamp.map(|stamp| stamp.value);
        sample.duplicate = duplicate;
        sample.snack = segment.options.is_some() && self.hear_scps(segment, ack, now);
    }

    /// The SACK blocks that name bytes in flight, as offsets; returns how many, and what the first block tells to have
    /// arrived twice: that lies below `ack`, or within the second block (RFC 2883, section 4).
    fn blocks(
        &self,
        segment: &Segment,
        ack: u64,
        out: &mut [(u64, u64); 4],
    ) -> (usize, Option<(u64, u64)>) {
        let sack = segment.sack();
        if sack.is_empty() || !self.agreed.sack {
            return (0, None);
        }
        let offsets = |block: &SackBlock| (self.tx.offset(block.left), self.tx.offset(block.right));
        let mut count = 0;
        for (left, right) in sack.iter().map(offsets) {
            if ack as i64 <= left && left < right && right <= self.tx.max as i64 {
                out[count] = (left as u64, right as u64);
                count += 1;
            }
        }
        let duplicate = match sack {
            [] => None,
            [first, rest @ ..] => {
                let (left, right) = offsets(first);
                let within = rest
                    .first()
                    .map(offsets)
                    .is_some_and(|(from, to)| from <= left && right <= to);
                let tells = left < right && (right <= ack as i64 || within);
                tells.then_some((left.max(0) as u64, right.max(0) as u64))
            }
        };
        (count, duplicate)
    }

    /// Changes state where the acknowledgement covers the FIN or all data.
    #[inline]
    fn after_ack(&mut self, now: Instant) {
        if self.tx.una == self.tx.end() && self.tx.una > 1 {
            self.pending.push(Event::Drained);
        }
        if !self.tx.fin_acked() {
            return;
        }
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.finish(Event::Closed),
            _ => {}
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.expiry = now + self.config.time_wait;
        self.keep = Instant::MAX;
    }

    fn on_data(&mut self, segment: &Segment, ecn: Ecn, from: i64, now: Instant) {
        let fin = segment.flags.contains(Flags::FIN);
        let counters = &mut self.tx.counters;
        if !segment.payload.is_empty() {
            counters.data_received += 1;
            self.expect_more(now);
        }
        let receives = matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        );
        if !receives {
            self.rx.ack_now = true;
            return;
        }
        let end = from + segment.payload.len() as i64;
        if self.read_shut && self.state != State::Established && end > self.rx.next as i64 {
            self.finish(Event::Aborted(Cause::Local));
            return self.refuse(segment);
        }
        self.ecn_received(segment, ecn);
        let counters = &mut self.tx.counters;
        let before = self.rx.readable();
        let taken = self.rx.take(from, &segment.payload, fin, now);
        counters.duplicates += u64::from(taken.stale);
        counters.out_of_order += u64::from(taken.beyond);
        counters.bytes_delivered += self.rx.readable() - before;
        if taken.readable {
            self.pending.push(Event::Readable);
        }
        if taken.fin {
            self.pending.push(Event::PeerClosed);
            match self.state {
                State::Established => self.state = State::CloseWait,
                State::FinWait1 => self.state = State::Closing,
                State::FinWait2 => self.enter_time_wait(now),
                _ => {}
            }
        }
    }
}
