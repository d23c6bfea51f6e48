//! One end of a flow: its connection, its application, and when it is due.

use crate::app::{App, Application};
use crate::saratoga::SaratogaEndpoint;
use crate::socket::{Record, Socket};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_cc::Congestion;
use bentpipe_tcp::{Config, Connection};
use std::sync::Arc;

pub(crate) struct End {
    pub(crate) config: Arc<Config>,
    /// In place of the congestion control of `config`, until the flow starts: one that shares its
    /// link with other flows.
    pub(crate) shared: Option<Box<dyn Congestion>>,
    /// None before the flow starts.
    pub(crate) connection: Option<Connection>,
    pub(crate) app: Application,
    /// In place of connection and application, where the flow is a file by Saratoga.
    pub(crate) file: Option<Box<SaratogaEndpoint>>,
    pub(crate) record: Record,
    /// Number of its first byte less one.
    pub(crate) iss: Seq,
    /// When the flow starts.
    pub(crate) start: Instant,
    /// Whether it is the end that starts it.
    pub(crate) opens: bool,
    /// When the flow's time is over: then it resets the connection. Only at the flow's source.
    pub(crate) cut: Option<Instant>,
    /// When its application was done.
    pub(crate) done: Option<Instant>,
    /// The line its packets leave by.
    pub(crate) line: usize,
    /// The host of the other end.
    pub(crate) peer_host: u16,
}

impl End {
    /// When it has something to do next.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        let Some(connection) = &self.connection else {
            let own = self.file.as_ref().filter(|file| file.is_open());
            return match own {
                Some(file) => file.deadline().unwrap_or(Instant::MAX),
                None if self.opens => self.start,
                None => Instant::MAX,
            };
        };
        let timer = connection.deadline().unwrap_or(Instant::MAX);
        let app = self.app_due();
        let cut = self.cut.unwrap_or(Instant::MAX);
        timer.min(app).min(cut)
    }

    /// When its application wants to be called.
    #[inline]
    pub(crate) fn app_due(&self) -> Instant {
        match self.record.connected {
            Some(_) => self.app.deadline().unwrap_or(Instant::MAX),
            None => Instant::MAX,
        }
    }

    /// Becomes an end of a new connection that starts at `start` and carries `amount`.
    pub(crate) fn renew(&mut self, start: Instant, amount: Bytes) {
        self.connection = None;
        self.app.renew(amount);
        self.record = Record::new(self.record.until, self.record.reads);
        // Far from the last connection's, of which packets may still be under way.
        self.iss = self.iss + Connection::ROUND;
        self.start = start;
        self.done = None;
    }

    /// Hears the events of the connection; whether there were any.
    #[inline]
    pub(crate) fn hear(&mut self, now: Instant) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let mut any = false;
        while let Some(event) = connection.event() {
            self.record.heard(event, now);
            any = true;
        }
        any
    }

    /// Calls the application, once the connection stands: like `connect()`, the handshake is no
    /// business of it.
    #[inline]
    pub(crate) fn call(&mut self, now: Instant) {
        let stands = self.record.connected.is_some();
        if let Some(connection) = self.connection.as_mut().filter(|_| stands) {
            let mut socket = Socket {
                connection,
                record: &mut self.record,
                now,
            };
            self.app.ready(&mut socket, now);
        }
    }
}
