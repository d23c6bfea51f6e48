//! The interface of an endpoint, which drivers and applications call: open, write, read, close, deadline and events.

use crate::ecn::EcnMode;
use crate::fast_open::FastOpen;
use crate::output::milliseconds;
use crate::recovery::{self, Recovery};
use crate::scps::SnackTerms;
use crate::sender::Sender;
use crate::{Cause, Config, Counters, Event, Gauges, State, Takeover};
use bentpipe_base::{Instant, Seq};
use bentpipe_cc::Congestion;
use bentpipe_receiver::Receiver;
use bentpipe_wire::{Ecn, Segment, Timestamps};
use bytes::Bytes;
use core::time::Duration;
use std::sync::Arc;

/// One endpoint of one connection, without I/O.
///
/// After each `input`, `timeout` or call of the application, drain [`transmit`](Self::transmit) and
/// [`event`](Self::event) until `None`, then wait until [`deadline`](Self::deadline) or the next
/// segment. `now` never goes backwards.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Arc<Config>,
    pub(crate) state: State,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    pub(crate) recovery: Box<dyn Recovery>,
    pub(crate) agreed: Negotiated,
    /// What the IP header says of the segment that was sent last.
    pub(crate) ecn: Ecn,
    pub(crate) pending: Pending,
    /// What is said and heard of Fast Open until the handshake is complete; `None` where nothing is.
    pub(crate) fast_open: Option<Box<FastOpen>>,
    /// The largest segment that the peer takes, in bytes.
    pub(crate) peer_mss: u16,
    /// How far the timestamp clock is ahead of the driver's time, in milliseconds.
    pub(crate) epoch: u32,
    /// The connection was opened by the peer. A reset during its handshake returns it to LISTEN (RFC 9293, section
    /// 3.10.7.4).
    pub(crate) passive: bool,
    /// SND.WL1 and SND.WL2 (RFC 9293, section 3.3.1): the segment, and its acknowledgement, that last told the peer's window.
    pub(crate) snd_wl: (i64, u64),
    /// The application reads no more.
    pub(crate) read_shut: bool,
    /// A reset that waits to be sent, in answer to a segment that cannot be processed.
    pub(crate) reply: Option<Segment>,
    /// A zero-window probe or a keep-alive probe is due.
    pub(crate) probe: bool,
    /// The peer is to hear that a packet of it arrived damaged.
    pub(crate) received_damaged: bool,
    /// When TIME-WAIT ends.
    pub(crate) expiry: Instant,
    /// When the next keep-alive probe is due.
    pub(crate) keep: Instant,
    /// Keep-alive probes sent since the peer was last heard.
    pub(crate) probes: u32,
    pub(crate) heard: Instant,
    /// How long the peer is silent before it is probed, where that is less than the idle time.
    pub(crate) silence: Duration,
    /// Since when the link is taken for out.
    pub(crate) frozen: Option<Instant>,
    /// The pacer holds a segment back until then.
    pub(crate) paced: Instant,
    /// Challenge acknowledgements sent in the current interval, and when that interval began (RFC 5961, section 7).
    pub(crate) challenges: (u32, Instant),
    /// When a segment from outside the window that has no data was answered last.
    pub(crate) answered_old: Option<Instant>,
}

/// What both ends agreed on in the handshake: options of TCP, and ECN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// A marked segment came: what goes out echoes it (RFC 3168).
    pub(crate) echoes: bool,
    /// What SNACKs count in, where both ends offered them.
    pub(crate) snack: Option<SnackTerms>,
    /// By how many bits the peer's window field is shifted.
    pub(crate) scale: u8,
    /// Window scaling was agreed on, if only with a shift of 0.
    pub(crate) scaled: bool,
}

/// Events that the application has not fetched yet, as a set: each kind waits at most once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    bits: u8,
    cause: Option<Cause>,
}

impl Pending {
    pub(crate) fn push(&mut self, event: Event) {
        if let Event::Aborted(cause) = event {
            self.cause.get_or_insert(cause);
        }
        self.bits |= Self::bit(event);
    }

    const fn bit(event: Event) -> u8 {
        match event {
            Event::Connected => 1,
            Event::Readable => 2,
            Event::Writable => 4,
            Event::Drained => 8,
            Event::PeerClosed => 16,
            Event::Closed => 32,
            Event::Aborted(_) => 64,
        }
    }

    /// Forgets all, if they are but [`Event::Readable`] and [`Event::Writable`]; returns whether they were.
    #[inline]
    fn take_io(&mut self) -> bool {
        let others = self.bits & !(Self::bit(Event::Readable) | Self::bit(Event::Writable));
        if others == 0 {
            self.bits = 0;
        }
        others == 0
    }

    fn pop(&mut self) -> Option<Event> {
        if self.bits == 0 {
            return None;
        }
        let bit = self.bits & self.bits.wrapping_neg();
        self.bits &= !bit;
        Some(match bit {
            1 => Event::Connected,
            2 => Event::Readable,
            4 => Event::Writable,
            8 => Event::Drained,
            16 => Event::PeerClosed,
            32 => Event::Closed,
            _ => Event::Aborted(self.cause.unwrap_or(Cause::Local)),
        })
    }
}

impl Connection {
    /// An active open: the first segment out is a SYN numbered `iss`.
    pub fn connect(config: Arc<Config>, iss: Seq, now: Instant) -> Self {
        let fast_open = config.fast_open.then(FastOpen::ask);
        Self {
            fast_open,
            ..Self::new(config, State::SynSent, iss, now)
        }
    }

    /// A passive open: waits for one SYN and answers it from `iss`.
    pub fn listen(config: Arc<Config>, iss: Seq, now: Instant) -> Self {
        Self {
            passive: true,
            ..Self::new(config, State::Listen, iss, now)
        }
    }

    /// Initial sequence numbers of connections that start without a handshake are multiples of this number. A proxy on
    /// the path sees no SYN, but by rounding down it finds where the stream began.
    pub const ROUND: u32 = 1 << 30;

    /// A connection that is established from the start, as if a handshake had agreed on the options of `config` on both
    /// sides. `iss` is the number of our SYN and `irs` that of the peer's; the first bytes follow these.
    pub fn established(config: Arc<Config>, iss: Seq, irs: Seq, now: Instant) -> Self {
        let mut connection = Self::new(config, State::Established, iss, now);
        connection.rx.synchronise(irs);
        connection.rx.acknowledge();
        let (tx, rx) = (&mut connection.tx, &connection.rx);
        (tx.una, tx.next, tx.max) = (1, 1, 1);
        tx.offer(1, rx.window());
        connection.agreed = Negotiated {
            timestamps: connection.config.timestamps,
            sack: connection.config.sack_blocks > 0,
            snack: None,
            scale: connection.rx.scale,
            scaled: true,
            ..Negotiated::default()
        };
        connection.agree_on_ecn(connection.config.ecn == EcnMode::Ask);
        let mss = connection.config.mss;
        connection.settle_on(mss, now);
        connection
    }

    fn new(config: Arc<Config>, state: State, iss: Seq, now: Instant) -> Self {
        Self {
            state,
            tx: Sender::new(Arc::clone(&config), iss),
            rx: Receiver::new(&config.receiver()),
            recovery: (config.recovery.new)(),
            agreed: Negotiated::default(),
            ecn: Ecn::default(),
            pending: Pending::default(),
            fast_open: None,
            peer_mss: 0,
            epoch: 0,
            passive: false,
            snd_wl: (0, 0),
            read_shut: false,
            reply: None,
            probe: false,
            received_damaged: false,
            expiry: Instant::MAX,
            keep: Instant::MAX,
            probes: 0,
            heard: now,
            silence: Duration::MAX,
            frozen: None,
            paced: Instant::MAX,
            challenges: (0, now),
            answered_old: None,
            config,
        }
    }

    /// Takes over a connection whose handshake somebody else did, in `state`, before the first byte in either
    /// direction.
    pub fn taken_over(config: Arc<Config>, state: &Takeover, now: Instant) -> Self {
        let mut connection = Self::new(config, State::Established, state.iss, now);
        let (tx, rx) = (&mut connection.tx, &mut connection.rx);
        rx.synchronise(state.irs);
        rx.scaled(state.scales.map_or(0, |(ours, _)| ours));
        rx.acknowledge();
        (tx.una, tx.next, tx.max) = (1, 1, 1);
        tx.offer(1, state.window);
        connection.agreed = Negotiated {
            timestamps: state.clocks.is_some(),
            sack: state.sack && connection.config.sack_blocks > 0,
            snack: None,
            scale: state.scales.map_or(0, |(_, peer)| peer.min(14)),
            scaled: state.scales.is_some(),
            ..Negotiated::default()
        };
        connection.agree_on_ecn(state.ecn);
        if let Some(handshake) = state.scps {
            connection.agree_on_scps(handshake);
        }
        if let Some((ours, peer)) = state.clocks {
            connection.epoch = ours.wrapping_sub(milliseconds(now));
            let stamp = Timestamps {
                value: peer,
                echo: 0,
            };
            connection.rx.remember(stamp, 0, now);
        }
        if let Some(rtt) = state.rtt {
            connection.tx.sample_handshake(rtt, now);
        }
        connection.settle_on(state.mss, now);
        connection
    }

    /// Ends the handshake: takes what was agreed on with a peer that accepts segments of `mss` bytes.
    pub(crate) fn settle_on(&mut self, mss: u16, now: Instant) {
        self.tx.has_sack = self.agreed.sack;
        let wanted = self.config.recovery;
        let fallback = match wanted.without_snack {
            Some(_) if self.agreed.snack.is_some() => None,
            Some(with_sack) if self.agreed.sack => Some(with_sack),
            _ => wanted.without_sack.filter(|_| !self.agreed.sack),
        };
        if let Some(fallback) = fallback.and_then(recovery::find) {
            self.recovery = (fallback.new)();
        }
        self.rx.set_patience(self.tx.rto.timeout());
        self.peer_mss = mss;
        // A segment too small for the option carries one byte all the same.
        let payload = self.payload_in(self.longest_segment());
        self.tx.establish(payload, now);
        self.heard = now;
        if let Some(idle) = self.config.keep_alive {
            self.keep = now + idle;
        }
    }

    /// Replaces the configuration's congestion control, for instance by one that shares its link with other flows. It
    /// must be called before anything is sent.
    pub fn set_congestion(&mut self, congestion: Box<dyn Congestion>) {
        self.tx.set_congestion(congestion);
        if self.state == State::Established {
            let (rtt, since) = (self.tx.rto.srtt(), self.heard);
            self.tx.congestion.init(&mut self.tx.window, since, rtt);
        }
    }

    /// Sets the timestamp clock `ahead` milliseconds ahead of the time; each connection should have an offset of its
    /// own (RFC 7323, section 7.1). It must be called before anything is sent.
    pub fn set_clock(&mut self, ahead: u32) {
        self.epoch = ahead;
    }

    /// Whether there is an event.
    #[inline]
    pub fn has_event(&self) -> bool {
        self.pending.bits != 0
    }

    /// Takes all events, if they only say that there are bytes to read or that there is room for more; returns whether that
    /// is so. For who reads and writes after every event anyhow.
    #[inline]
    pub fn take_io_events(&mut self) -> bool {
        self.pending.take_io()
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.pending.pop()
    }

    /// When to call [`timeout`](Self::timeout) next, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        let timers = self.tx.timer.min(self.rx.delack).min(self.tx.reorder);
        let rest = self.expiry.min(self.keep).min(self.paced);
        let first = timers.min(rest);
        (first != Instant::MAX).then_some(first)
    }

    /// Appends to the stream; returns how many bytes the send buffer took. Takes none after
    /// [`close`](Self::close) or [`write_virtual`](Self::write_virtual).
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if !self.may_write() {
            return 0;
        }
        self.tx.stream.write(bytes, self.config.send_buffer.0)
    }

    /// Appends bytes to the stream that are shared, not copied: takes those that the send buffer has room for off the
    /// front of `bytes`, and returns how many. Takes none where [`write`](Self::write) would not.
    pub fn write_bytes(&mut self, bytes: &mut Bytes) -> usize {
        if !self.may_write() {
            return 0;
        }
        self.tx.stream.write_bytes(bytes, self.config.send_buffer.0)
    }

    /// Appends `len` bytes of [`bentpipe_wire::Payload::pattern`] that exist only as a count;
    /// `u64::MAX` is a stream without end. Returns how many were taken: none after `close` or
    /// [`write`](Self::write).
    pub fn write_virtual(&mut self, len: u64) -> u64 {
        if !self.may_write() {
            return 0;
        }
        self.tx.stream.write_virtual(len)
    }

    /// Whether a small segment waits while data is in flight, in place of what [`Config::nagle`] says (`TCP_NODELAY`
    /// switches it off).
    pub fn set_nagle(&mut self, on: bool) {
        self.tx.nagle = on;
    }

    /// Holds a small segment at the end of what was written back until more is written, it is uncorked or the connection
    /// is closed (Linux `TCP_CORK` and `MSG_MORE`, but without their timeout of 200 ms).
    pub fn set_corked(&mut self, on: bool) {
        self.tx.corked = on;
    }

    fn may_write(&mut self) -> bool {
        let open = matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        );
        self.tx.check_app_limited();
        open && !self.tx.fin
    }

    /// Bytes in order that wait to be read.
    pub fn readable(&self) -> u64 {
        self.rx.readable()
    }

    /// The next bytes in order, at most `most`, as they came and without a copy; `None` when none wait, and where the
    /// stream is but a count.
    pub fn read_bytes(&mut self, most: usize) -> Option<Bytes> {
        self.rx.read_bytes(most)
    }

    /// Reads into `out`; returns how many bytes. Those of a stream that is but a count are
    /// [`bentpipe_wire::Payload::pattern`].
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        self.rx.read(out)
    }

    /// Discards up to `len` bytes that wait to be read; returns how many.
    pub fn consume(&mut self, len: u64) -> u64 {
        self.rx.consume(len)
    }

    /// Bytes written and not acknowledged, sent or not.
    pub fn unacknowledged(&self) -> u64 {
        self.tx.data_end().saturating_sub(self.tx.una.max(1))
    }

    /// The peer's window, in bytes beyond what it has acknowledged.
    pub fn peer_window(&self) -> u64 {
        self.tx.limit.saturating_sub(self.tx.una)
    }

    /// Memory that the connection's buffers take, in bytes: data written and not acknowledged, and data received and
    /// not read.
    pub fn buffered(&self) -> u64 {
        self.tx.stream.stored() + self.rx.stored()
    }

    /// Whether `seq` numbers the byte that is expected next.
    pub fn expects(&self, seq: Seq) -> bool {
        seq == self.rx.irs + self.rx.next as u32
    }

    /// Whether bytes arrived that are more than a count: then they must be read, not consumed.
    pub fn has_bytes(&self) -> bool {
        self.rx.has_bytes()
    }

    /// Counts `held` bytes that were read as still in the receive buffer, because a proxy that read them has not passed
    /// them on. The offered window shrinks by them. Each call replaces the one before.
    pub fn hold(&mut self, held: u64) {
        self.rx.hold(held);
    }

    /// Tells the peer the window at the next [`transmit`](Self::transmit), though nothing came that asks for it.
    pub fn announce_window(&mut self) {
        self.rx.ack_now = true;
    }

    /// Offers the peer a window of no more than `most` bytes from now on, whatever room the receive buffer has. What
    /// was offered already is not taken back.
    pub fn limit_window(&mut self, most: u64) {
        self.rx.limit_window(most);
    }

    /// The application reads no more. Once its own direction is closed, data that comes is answered by a reset, as by a closed
    /// port (RFC 1122, section 4.2.2.13; Linux), and the connection is over.
    pub fn shut_read(&mut self) {
        self.read_shut = true;
    }

    /// Closes the sending direction: a FIN follows the last byte written. What the peer sends is still received
    /// (half-close).
    pub fn close(&mut self, _now: Instant) {
        match self.state {
            State::Listen | State::SynSent => self.finish(Event::Closed),
            // The FIN waits for the handshake.
            State::SynReceived => self.tx.fin = true,
            State::Established => {
                self.tx.fin = true;
                self.state = State::FinWait1;
            }
            State::CloseWait => {
                self.tx.fin = true;
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// Ends the connection with a reset.
    pub fn abort(&mut self, now: Instant) {
        if matches!(self.state, State::Closed) {
            return;
        }
        let answers = !matches!(self.state, State::Listen | State::SynSent | State::TimeWait);
        self.finish(Event::Aborted(Cause::Local));
        if answers {
            self.reply = Some(self.reset(now));
        }
    }

    /// Moves to CLOSED, tells `event`, and stops all timers.
    pub(crate) fn finish(&mut self, event: Event) {
        self.state = State::Closed;
        self.pending.push(event);
        self.tx.timer = Instant::MAX;
        self.tx.reorder = Instant::MAX;
        self.rx.delack = Instant::MAX;
        self.rx.ack_now = false;
        self.expiry = Instant::MAX;
        self.keep = Instant::MAX;
        self.paced = Instant::MAX;
        self.probe = false;
        self.frozen = None;
        self.reply = None;
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Counts since the connection began.
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    /// The sender's inner figures.
    pub fn gauges(&self) -> Gauges {
        let window = &self.tx.window;
        Gauges {
            cwnd: f64::from(window.cwnd),
            ssthresh: (window.ssthresh != u32::MAX).then_some(window.ssthresh),
            srtt: self.tx.rto.srtt(),
            rto: self.tx.rto.timeout(),
            flight: self.tx.flight(),
            unsent: self.tx.data_end().saturating_sub(self.tx.next.max(1)),
            peer_window: self.tx.limit.saturating_sub(self.tx.una),
            pacing: self.tx.pacing().map(|rate| rate.bits_per_sec()),
            phase: self.tx.phase,
        }
    }

    /// The congestion control's inner figures.
    pub fn congestion_gauges(&self) -> Vec<bentpipe_cc::Gauge> {
        self.tx.congestion.gauges()
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Bytes that `segment` takes on the link, by [`Config::wire_len`].
    #[inline]
    pub fn wire_len(&self, segment: &Segment) -> usize {
        self.config.wire_len(segment)
    }
}
