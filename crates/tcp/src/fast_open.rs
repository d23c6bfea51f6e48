//! TCP Fast Open (RFC 7413): a client that knows a cookie of the server sends data with its SYN, and a server that knows
//! the cookie for its own gives them to the application at once, which may answer before the handshake is complete. Which
//! cookies are good, and which were given, is the host's affair; here is what both ends do with one.
//!
//! Data that the SYN carried is not in flight as other data is: what the answer does not acknowledge is sent as if for
//! the first time. A SYN that is sent again has neither data nor option, as in Linux, so that a path that drops such SYNs
//! costs one timeout. Left out: data in a SYN-ACK (what comes so is not taken, and the peer sends it again), and the
//! option under its experimental number.

use crate::connection::Connection;
use crate::{Event, State};
use bentpipe_base::Instant;
use bentpipe_wire::{FastOpenCookie, FastOpenOption, Flags, Segment};

/// What is said and heard of Fast Open during a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastOpen {
    /// We connect.
    Client(Client),
    /// We answer a SYN.
    Server {
        /// Goes with the answer.
        cookie: Option<FastOpenCookie>,
        /// Data of the SYN is taken, and data sent before the handshake is complete.
        accepts: bool,
    },
}

/// A client's part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Client {
    /// The cookie that the server gave, and its MSS option; `None`: asks for one.
    known: Option<(FastOpenCookie, u16)>,
    /// What came of it.
    result: FastOpenResult,
}

/// What came of a client's attempt at TCP Fast Open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenResult {
    /// The cookie that the server gave now.
    pub cookie: Option<FastOpenCookie>,
    /// The server's MSS option, or what stands for it.
    pub mss: u16,
    /// Payload that went with the SYN.
    pub sent: u32,
    /// How much of it the answer acknowledged.
    pub acknowledged: u32,
    /// The first SYN had the option, and had no answer in time.
    pub syn_lost: bool,
}

impl FastOpen {
    /// The SYN asks for a cookie.
    pub(crate) fn ask() -> Box<Self> {
        Box::new(Self::Client(Client::default()))
    }
}

impl Connection {
    /// Before the SYN leaves: this `cookie` goes with it, and as much of what is written until then as a peer takes whose
    /// MSS option is `mss`. Does nothing where [`Config::fast_open`](crate::Config::fast_open) is off.
    pub fn use_fast_open(&mut self, cookie: FastOpenCookie, mss: u16) {
        if let Some(FastOpen::Client(client)) = self.fast_open.as_deref_mut() {
            client.known = Some((cookie, mss));
        }
    }

    /// Before the SYN leaves: it goes without the option, whatever [`Config::fast_open`](crate::Config::fast_open) says.
    pub fn forgo_fast_open(&mut self) {
        self.fast_open = None;
    }

    /// Before the SYN comes: the answer to it brings `cookie`, and with `accepts` the SYN's data is taken, and what is
    /// written is sent before the handshake is complete. The host has seen that the client's own cookie is good.
    pub fn grant_fast_open(&mut self, cookie: Option<FastOpenCookie>, accepts: bool) {
        self.fast_open = Some(Box::new(FastOpen::Server { cookie, accepts }));
    }

    /// What came of Fast Open, once the handshake of a client is over; told once.
    pub fn take_fast_open_result(&mut self) -> Option<FastOpenResult> {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return None;
        }
        match *self.fast_open.take()? {
            FastOpen::Client(client) => Some(client.result),
            FastOpen::Server { .. } => None,
        }
    }

    /// Whether data was taken with the peer's SYN, or would be, and the handshake is not complete.
    pub(crate) fn has_fast_open(&self) -> bool {
        let server = self.fast_open.as_deref();
        matches!(server, Some(FastOpen::Server { accepts: true, .. }))
    }

    /// Payload that went with our SYN.
    pub(crate) fn fast_open_sent(&self) -> u32 {
        match self.fast_open.as_deref() {
            Some(FastOpen::Client(client)) => client.result.sent,
            _ => 0,
        }
    }

    /// Adds the option to a SYN or its answer, and data to a SYN with a cookie; `again`: it was sent before.
    pub(crate) fn add_fast_open(&mut self, segment: &mut Segment, again: bool) {
        let asks = self.state == State::SynSent;
        let Some(fast_open) = self.fast_open.as_deref_mut() else {
            return;
        };
        let options = segment.options.get_or_insert_default();
        // SCPS-TP's offer leaves no room for a long cookie.
        if options.unknown.is_some() {
            return;
        }
        match fast_open {
            FastOpen::Client(client) if again => client.result.syn_lost |= asks,
            FastOpen::Client(client) => {
                let known = client.known;
                let option = match known {
                    Some((cookie, _)) => FastOpenOption::Cookie(cookie),
                    None => FastOpenOption::Request,
                };
                options.unknown = option.to_raw();
                let Some((_, mss)) = known else {
                    return;
                };
                let used = segment.header_len() - bentpipe_wire::Tcp::BARE;
                let room = usize::from(mss.min(self.config.mss)).saturating_sub(used);
                let len = self.tx.stream.end().min(room as u64) as u32;
                segment.payload = self.tx.stream.payload(0, len);
                client.result.sent = len;
                let counters = &mut self.tx.counters;
                counters.data_sent += u64::from(len > 0);
                counters.bytes_sent += u64::from(len);
            }
            FastOpen::Server { cookie, .. } => {
                let option = cookie.map(FastOpenOption::Cookie);
                options.unknown = option.and_then(FastOpenOption::to_raw);
            }
        }
    }

    /// The answer to our SYN acknowledges all before `acked`, data of the SYN included.
    pub(crate) fn fast_open_answered(&mut self, answer: &Segment, acked: u64) {
        let Some(FastOpen::Client(client)) = self.fast_open.as_deref_mut() else {
            return;
        };
        // What the server sends right behind its answer may be processed before our acknowledgement offers a window: our
        // SYN did.
        self.rx.acknowledge();
        self.rx.ack_now = true;
        let result = &mut client.result;
        result.mss = self.peer_mss;
        result.cookie = match offered(answer) {
            Some(FastOpenOption::Cookie(cookie)) => Some(cookie),
            _ => None,
        };
        result.acknowledged = (acked - 1) as u32;
        let lost = u64::from(result.sent - result.acknowledged);
        if acked > 1 && self.tx.stream.is_real() {
            self.pending.push(Event::Writable);
        }
        self.tx.max = acked;
        // What goes out once more is counted as sent again.
        self.tx.counters.retransmitted += u64::from(lost > 0);
        self.tx.counters.bytes_retransmitted += lost;
    }

    /// A SYN came that may bring data: takes it, and makes the connection fit to send.
    pub(crate) fn open_early(&mut self, syn: &Segment, now: Instant) {
        let mss = self.peer_mss;
        self.settle_on(mss, now);
        // What came was sent before any window was offered.
        self.rx.acknowledge();
        if syn.payload.is_empty() {
            return;
        }
        self.rx.take(1, &syn.payload, false, now);
        let counters = &mut self.tx.counters;
        counters.data_received += 1;
        counters.bytes_delivered += self.rx.readable();
        self.pending.push(Event::Readable);
    }

    /// Our answer to the SYN of a connection that was opened early is acknowledged.
    pub(crate) fn establish_early(&mut self, now: Instant) {
        self.heard = now;
        self.tx.retries = 0;
        self.tx.next = self.tx.max;
        if self.tx.counters.timeouts == 0 {
            return;
        }
        if self.tx.una < self.tx.max {
            // A client that had no answer to its SYN took no data either.
            self.recovery.on_rto(&mut self.tx.recovery_context(), now);
        }
        self.tx.heed_lost_syn();
        self.tx.settle(now);
    }
}

/// What a SYN or its answer says of Fast Open.
pub fn offered(segment: &Segment) -> Option<FastOpenOption> {
    if !segment.flags.contains(Flags::SYN) {
        return None;
    }
    let unknown = segment.options.as_deref()?.unknown.as_deref()?;
    FastOpenOption::parse(unknown)
}
