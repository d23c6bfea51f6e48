//! One end of a flow, at a host: a TCP connection with its application, or an end of a Saratoga file. Both are one machine,
//! whose packets the engine puts on the end's link.

use crate::app::{App, Application};
use crate::app_socket::{Record, Socket};
use crate::hosted_connection::EndConnection;
use crate::queueing_samples::QueueingSamples;
use crate::saratoga_endpoint::SaratogaEndpoint;
use crate::{Content, EndId, Packet};
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_cc::Congestion;
use bentpipe_tcp::{Config, Connection};
use bentpipe_wire::Ecn;
use bentpipe_wire::saratoga::Frame;
use std::sync::Arc;

pub(crate) struct FlowEndpoint {
    pub(crate) protocol: Protocol,
    pub(crate) record: Record,
    /// The initial sequence number.
    pub(crate) iss: Seq,
    /// When the flow starts.
    pub(crate) start: Instant,
    /// Whether this end opens the connection.
    pub(crate) opens: bool,
    /// When the flow's duration is over and the connection is reset. Only at the flow's source.
    pub(crate) cut: Option<Instant>,
    /// When its application was done.
    pub(crate) done: Option<Instant>,
    /// What is sampled of it while its flow lasts.
    pub(crate) queueing: QueueingSamples,
    /// The link its packets leave by.
    pub(crate) link: usize,
    /// The host of the other end.
    pub(crate) peer_host: u16,
    /// The other end.
    pub(crate) peer: EndId,
    /// What is to be done or told before its turn is over.
    pub(crate) pending: PendingWork,
}

/// What is to be done or told before a turn is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingWork {
    /// The application is to be called before the next segment leaves.
    calls: bool,
    /// The application was called, the last byte was acknowledged, or a frame was handled, so that more may have been
    /// received, and the end may be done, cut or broken.
    acted: bool,
    /// The duration was over, and the connection was reset.
    cut: bool,
    /// How many of the bytes received were told.
    reported: u64,
}

/// What sends or receives at an end.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all ends are of TCP, whose packets find their connection without a pointer more"
)]
pub(crate) enum Protocol {
    /// A connection and the application that uses it.
    Tcp(Tcp),
    /// An end of a file that Saratoga moves.
    Saratoga(Box<SaratogaEndpoint>),
}

/// An end of TCP.
pub(crate) struct Tcp {
    pub(crate) config: Arc<Config>,
    /// In place of the congestion control of `config`, until the flow starts: one that shares its link with other flows, or
    /// the caller's own.
    pub(crate) instead: Option<Box<dyn Congestion>>,
    /// The name of the control that it has.
    pub(crate) control: &'static str,
    /// None before the flow starts.
    pub(crate) connection: Option<EndConnection>,
    pub(crate) app: Application,
}

impl FlowEndpoint {
    /// Its TCP, if it is an end of TCP.
    #[inline]
    pub(crate) fn tcp(&self) -> Option<&Tcp> {
        match &self.protocol {
            Protocol::Tcp(tcp) => Some(tcp),
            Protocol::Saratoga(_) => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        match &mut self.protocol {
            Protocol::Tcp(tcp) => Some(tcp),
            Protocol::Saratoga(_) => None,
        }
    }

    /// Its connection, if it is an end of TCP whose flow has started.
    #[inline]
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.tcp()?.connection.as_ref()?.get()
    }

    /// When it has something to do next; [`Instant::MAX`] is never.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        let started = match &self.protocol {
            Protocol::Tcp(tcp) => tcp.connection.as_ref(),
            Protocol::Saratoga(file) => return file.deadline().unwrap_or(Instant::MAX),
        };
        let Some(connection) = started else {
            return if self.opens { self.start } else { Instant::MAX };
        };
        let timer = connection.deadline().unwrap_or(Instant::MAX);
        let app = self.app_due();
        let cut = self.cut.unwrap_or(Instant::MAX);
        timer.min(app).min(cut)
    }

    /// Whether it is an end of TCP whose connection is still to be made.
    pub(crate) fn is_unopened(&self) -> bool {
        self.tcp().is_some_and(|tcp| tcp.connection.is_none())
    }

    /// Gives it its connection, which stands from the start (`established`) or opens, and has its application called. To be
    /// drained after it.
    pub(crate) fn open(&mut self, connection: EndConnection, established: bool, now: Instant) {
        let Some(tcp) = self.tcp_mut() else {
            return;
        };
        let connection = tcp.connection.insert(connection);
        if let Some(control) = tcp.instead.take() {
            connection.set_congestion(control);
        }
        if established {
            self.record.connected = Some(now);
        }
        self.hear(now);
        self.pending.calls = true;
    }

    /// The deadline of its application.
    #[inline]
    pub(crate) fn app_due(&self) -> Instant {
        match (&self.protocol, self.record.connected) {
            (Protocol::Tcp(tcp), Some(_)) => tcp.app.deadline().unwrap_or(Instant::MAX),
            _ => Instant::MAX,
        }
    }

    /// Makes it an end of a new connection that starts at `start` and carries `amount`.
    pub(crate) fn renew(&mut self, start: Instant, amount: Bytes) {
        if let Some(tcp) = self.tcp_mut() {
            tcp.connection = None;
            tcp.app.renew(amount);
        }
        self.record = Record::new(self.record.until, self.record.reads);
        self.pending = PendingWork::default();
        // Far from the numbers of the last connection, of which packets may still be in flight.
        self.iss = self.iss + Connection::ROUND;
        self.start = start;
        self.done = None;
    }

    /// Takes the events of the connection; its application is called where there were any. Returns whether there were.
    #[inline]
    fn hear(&mut self, now: Instant) -> bool {
        // Most turns end without any, or with one of which nothing is noted.
        if let Protocol::Tcp(Tcp {
            connection: Some(EndConnection::Bare(connection)),
            ..
        }) = &mut self.protocol
        {
            if !connection.has_event() {
                return false;
            }
            if connection.take_io_events() {
                self.pending.calls = true;
                return true;
            }
        }
        self.hear_events(now)
    }

    #[inline(never)]
    fn hear_events(&mut self, now: Instant) -> bool {
        let Protocol::Tcp(Tcp {
            connection: Some(connection),
            ..
        }) = &mut self.protocol
        else {
            return false;
        };
        let mut any = false;
        while let Some(event) = connection.event() {
            self.record.heard(event, now);
            any = true;
        }
        self.pending.calls |= any;
        any
    }

    /// Calls the application, once the connection is established: as with `connect()`, applications see nothing of the
    /// handshake.
    #[inline]
    fn call(&mut self, now: Instant) {
        self.pending.calls = false;
        self.pending.acted = true;
        if let Protocol::Tcp(Tcp {
            connection: Some(connection),
            app,
            ..
        }) = &mut self.protocol
            && self.record.connected.is_some()
            && let Some(connection) = connection.get_mut()
        {
            let mut socket = Socket {
                connection,
                record: &mut self.record,
                now,
            };
            app.ready(&mut socket, now);
        }
    }

    /// Takes the samples that were due before `now`.
    #[cold]
    fn sample(&mut self, now: Instant) {
        let srtt = self.connection().and_then(|tcp| tcp.gauges().srtt);
        match self.done {
            None => self.queueing.take(srtt, now),
            Some(_) => self.queueing.next = Instant::MAX,
        }
    }

    /// A packet arrived.
    #[inline(never)]
    pub(crate) fn receive(&mut self, packet: &Packet, now: Instant) {
        if self.queueing.next < now {
            self.sample(now);
        }
        match (&mut self.protocol, &packet.content) {
            (Protocol::Tcp(tcp), Content::Tcp(segment)) => {
                if let Some(connection) = &mut tcp.connection {
                    connection.receive(segment, packet.ecn(), now);
                    self.hear(now);
                }
            }
            (Protocol::Saratoga(file), Content::Saratoga(frame)) => {
                // Of a timer and a frame that fall on one instant the timer comes first.
                if file.deadline().is_some_and(|due| due <= now) {
                    file.timeout(now);
                }
                file.input((), Frame::clone(frame), now);
                self.note_file(now);
            }
            // Ends of a flow are of one protocol.
            (Protocol::Tcp(_), _) | (Protocol::Saratoga(_), _) => {}
        }
    }

    #[cold]
    fn transmit_frame(&mut self, packet: &mut Packet, now: Instant) -> Option<(Ecn, Bytes)> {
        let Protocol::Saratoga(file) = &mut self.protocol else {
            return None;
        };
        let ((), frame) = file.transmit(now)?;
        let length = file.length(&frame);
        packet.content = Content::Saratoga(Box::new(frame));
        Some(self.address(packet, Ecn::NotCapable, length))
    }

    /// Addresses `packet`, whose content is of `length` bytes with all headers, to the other end; returns its ECN field and
    /// its length.
    #[inline]
    fn address(&self, packet: &mut Packet, ecn: Ecn, length: Bytes) -> (Ecn, Bytes) {
        // Links have an MTU of at most 65,535 bytes.
        packet.address(self.peer, (self.peer_host, ecn), length.0 as u16);
        (ecn, length)
    }

    /// Notes what became of its file.
    fn note_file(&mut self, now: Instant) {
        let Protocol::Saratoga(file) = &self.protocol else {
            return;
        };
        self.record.connected = self.record.connected.or(file.heard);
        let received = file.received();
        if received != self.record.received {
            self.record.received = received;
            self.record.last = Some(now);
        }
        self.pending.acted = true;
    }

    /// Whether anything happened since it was asked last that the engine has to look at.
    #[inline]
    pub(crate) fn take_acted(&mut self) -> bool {
        core::mem::take(&mut self.pending.acted)
    }

    /// How many bytes it has received so far, where that has changed since it was asked last.
    pub(crate) fn take_progress(&mut self) -> Option<u64> {
        let received = self.record.received;
        let before = core::mem::replace(&mut self.pending.reported, received);
        (before != received).then_some(received)
    }

    /// Whether its duration was over since it was asked last.
    pub(crate) fn take_cut(&mut self) -> bool {
        core::mem::take(&mut self.pending.cut)
    }

    /// Notes whether it is done or broken; returns whether either is the case.
    #[inline]
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        match &self.protocol {
            Protocol::Tcp(tcp) => {
                if self.done.is_none() && tcp.app.done() {
                    self.done = Some(now);
                }
            }
            Protocol::Saratoga(file) => {
                self.done = file.done;
                self.record.broken = file.broken;
            }
        }
        self.done.is_some() || self.is_broken()
    }

    /// Whether it will never be done.
    pub(crate) fn is_broken(&self) -> bool {
        self.record.broken.is_some() || self.record.damaged
    }

    /// The time is `now`: acts on every deadline up to it.
    pub(crate) fn timeout(&mut self, now: Instant) {
        match &mut self.protocol {
            Protocol::Saratoga(file) => {
                file.timeout(now);
                self.note_file(now);
            }
            Protocol::Tcp(tcp) => {
                let Some(connection) = &mut tcp.connection else {
                    return;
                };
                if self.cut.is_some_and(|cut| cut <= now) {
                    self.cut = None;
                    let srtt = connection.get().and_then(|tcp| tcp.gauges().srtt);
                    self.queueing.take(srtt, now);
                    self.queueing.next = Instant::MAX;
                    connection.abort(now);
                    (self.pending.cut, self.pending.acted) = (true, true);
                } else if connection.deadline().is_some_and(|due| due <= now) {
                    connection.timeout(now);
                }
                self.pending.calls |= self.app_due() <= now;
                self.hear(now);
            }
        }
    }

    /// Writes the next packet that leaves over `packet`; returns the ECN field of its IP header and its length, so that
    /// nobody has to read them back. The application is called, where the connection has events for it, before anything
    /// leaves: what it writes takes the acknowledgement of what it read along.
    #[inline(always)]
    pub(crate) fn transmit_into(
        &mut self,
        packet: &mut Packet,
        now: Instant,
    ) -> Option<(Ecn, Bytes)> {
        loop {
            if self.pending.calls {
                self.call(now);
            }
            let connection = match &mut self.protocol {
                Protocol::Tcp(Tcp {
                    connection: Some(connection),
                    ..
                }) => connection,
                Protocol::Tcp(_) => return None,
                Protocol::Saratoga(_) => return self.transmit_frame(packet, now),
            };
            let Content::Tcp(segment) = &mut packet.content else {
                packet.content = Content::default();
                continue;
            };
            if let Some((ecn, length)) = connection.transmit_into(segment, now) {
                if self.record.owes_final_ack() {
                    self.record.final_ack = Some(now);
                    self.pending.acted = true;
                }
                return Some(self.address(packet, ecn, Bytes(length as u64)));
            }
            // The application may have closed.
            if !self.hear(now) {
                return None;
            }
        }
    }
}
