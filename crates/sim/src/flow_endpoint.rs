//! One end of a flow, at a host: a TCP connection with its application, or an end of a Saratoga file; and when it is due.

use crate::app::{App, Application};
use crate::saratoga::SaratogaEndpoint;
use crate::socket::{Record, Socket};
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_cc::Congestion;
use bentpipe_tcp::{Config, Connection};
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
    /// The link its packets leave by.
    pub(crate) link: usize,
    /// The host of the other end.
    pub(crate) peer_host: u16,
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
    /// In place of the congestion control of `config`, until the flow starts: one that shares its
    /// link with other flows.
    pub(crate) shared: Option<Box<dyn Congestion>>,
    /// None before the flow starts.
    pub(crate) connection: Option<Connection>,
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
        self.tcp()?.connection.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.tcp_mut()?.connection.as_mut()
    }

    /// When it has something to do next.
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
        // Far from the numbers of the last connection, of which packets may still be in flight.
        self.iss = self.iss + Connection::ROUND;
        self.start = start;
        self.done = None;
    }

    /// Takes the events of the connection; returns whether there were any.
    #[inline]
    pub(crate) fn take_events(&mut self, now: Instant) -> bool {
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
        any
    }

    /// Calls the application, once the connection is established: as with `connect()`, applications see nothing of the
    /// handshake.
    #[inline]
    pub(crate) fn call(&mut self, now: Instant) {
        if let Protocol::Tcp(Tcp {
            connection: Some(connection),
            app,
            ..
        }) = &mut self.protocol
            && self.record.connected.is_some()
        {
            let mut socket = Socket {
                connection,
                record: &mut self.record,
                now,
            };
            app.ready(&mut socket, now);
        }
    }
}
