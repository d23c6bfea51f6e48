//! One endpoint of one connection: what drivers and applications call.

use crate::{Config, Counters, Event, Gauges, Segment, State};
use bentpipe_base::{Instant, Seq};
use bentpipe_cc::Congestion;
use std::sync::Arc;

/// One endpoint of one connection, without I/O.
///
/// After each `input`, `timeout` or call of the application, drain [`transmit`](Self::transmit) and
/// [`event`](Self::event) until `None`, then wait until [`deadline`](Self::deadline) or the next
/// segment. `now` never goes backwards.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    state: State,
    counters: Counters,
}

impl Connection {
    /// An active open: the first segment out is a SYN numbered `iss`.
    pub fn connect(config: Arc<Config>, iss: Seq, now: Instant) -> Self {
        let _ = (iss, now);
        Self::new(config, State::SynSent)
    }

    /// A passive open: waits for one SYN and answers it from `iss`.
    pub fn listen(config: Arc<Config>, iss: Seq, now: Instant) -> Self {
        let _ = (iss, now);
        Self::new(config, State::Listen)
    }

    /// A connection that stands from the start, as if the handshake had settled on the options of
    /// `config` on both sides: `iss` numbers our SYN, `irs` the peer's (the first bytes follow).
    pub fn established(config: Arc<Config>, iss: Seq, irs: Seq, now: Instant) -> Self {
        let _ = (iss, irs, now);
        Self::new(config, State::Established)
    }

    fn new(config: Arc<Config>, state: State) -> Self {
        Self {
            config,
            state,
            counters: Counters::default(),
        }
    }

    /// Another congestion control than the configuration's, such as one that shares its link with
    /// other flows. Only before anything is sent.
    pub fn set_congestion(&mut self, congestion: Box<dyn Congestion>) {
        let _ = congestion;
    }

    /// A segment of the peer arrived. Nothing it holds can make this panic.
    pub fn input(&mut self, segment: Segment, now: Instant) {
        let _ = (segment, now);
    }

    /// The time is `now`: act on every deadline up to it.
    pub fn timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next segment to send, if one is due.
    pub fn transmit(&mut self, now: Instant) -> Option<Segment> {
        let _ = now;
        None
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        None
    }

    /// When to call [`timeout`](Self::timeout) next, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Appends to the stream; returns how many bytes the send buffer took. Takes none after
    /// [`close`](Self::close) or [`write_virtual`](Self::write_virtual).
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let _ = bytes;
        0
    }

    /// Appends `len` bytes of [`bentpipe_wire::Payload::pattern`] that exist only as a count;
    /// saturates, so that `u64::MAX` is a stream without end. Returns how many were taken: none
    /// after `close` or [`write`](Self::write).
    pub fn write_virtual(&mut self, len: u64) -> u64 {
        len
    }

    /// Bytes in order that wait to be read.
    pub fn readable(&self) -> u64 {
        0
    }

    /// Reads into `out`; returns how many bytes.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let _ = out;
        0
    }

    /// Takes up to `len` bytes without looking at them; returns how many.
    pub fn consume(&mut self, len: u64) -> u64 {
        let _ = len;
        0
    }

    /// Nothing more will be written: a FIN follows the last byte.
    pub fn close(&mut self, now: Instant) {
        let _ = now;
    }

    /// Ends the connection with a reset.
    pub fn abort(&mut self, now: Instant) {
        let _ = now;
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Counts since the connection began.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The sender's inner figures.
    pub fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    /// The congestion control's inner figures.
    pub fn congestion_gauges(&self) -> Vec<bentpipe_cc::Gauge> {
        Vec::new()
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Bytes that `segment` takes on the link, by [`Config::wire_size`]: IPv4 and TCP headers
    /// included.
    pub fn wire_len(&self, segment: &Segment) -> usize {
        segment.payload.len() + 40
    }
}
