//! connect-tcp tunnels on HTTP/2 over TLS and TCP, where UDP does not get through: the same calls and events as [`Side`](crate::Side)'s.
//!
//! The driver has the sockets: [`Http2::receive`] and [`Http2::send`] read and write them, [`Http2::work`] does what follows. h2 is
//! polled there, in the driver's thread, and wakes a list of numbers.

mod http2_connection;
mod http2_datagrams;
mod http2_tunnel;
mod settings_count;
mod tls_pipe;
mod wakes;

use crate::datagram::DatagramCounters;
use crate::endpoint::{Closed, Event, OpenError, Read, Role, TunnelId};
use bentpipe_base as base;
use bentpipe_connect_tcp::{DialError, Target, Template};
use bentpipe_quic::{Config, ConfigError, ConnectionId, Endpoint, TlsServer};
use bytes::Bytes;
use core::time::Duration;
use http2_connection::Http2Connection;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// What TLS agrees on.
const ALPN: &[u8] = b"h2";
/// The largest window of HTTP/2.
const WINDOW_MAX: u64 = (1 << 31) - 1;
/// Bytes of a tunnel that wait to be sent, besides what the socket holds.
const UNSENT: usize = 256 << 10;
/// Most of a request's or an answer's fields.
const FIELDS_MAX: u32 = 16 * 1024;
/// For so long what comes on a stream that was reset here is dropped unseen: some round trips of a satellite link.
const AFTER_RESET: Duration = Duration::from_secs(10);
/// Streams that may be in that state, or be reset by the peer before we have seen its request: what comes after an outage comes at once.
const RESETS: usize = 16_384;
/// What TCP connects to is asked to be called by; nobody looks at it, for keys are pinned.
const SERVER_NAME: &str = "bentpipe";

enum Tls {
    Near(Arc<rustls::ClientConfig>),
    Far(TlsServer),
}

/// What all connections have in common.
struct Settings {
    role: Role,
    templates: Vec<Template>,
    name: &'static str,
    /// Bytes that may wait unread: on a tunnel, on a connection.
    windows: [u32; 2],
    /// Tunnels that a peer may have on a connection.
    streams: u32,
}

impl Settings {
    fn client(&self) -> h2::client::Builder {
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(self.windows[0])
            .initial_connection_window_size(self.windows[1])
            .max_header_list_size(FIELDS_MAX)
            .max_send_buffer_size(UNSENT)
            .reset_stream_duration(AFTER_RESET)
            .max_concurrent_reset_streams(RESETS)
            .max_local_error_reset_streams(Some(RESETS));
        builder
    }

    fn server(&self) -> h2::server::Builder {
        let mut builder = h2::server::Builder::new();
        builder
            .enable_connect_protocol()
            .max_concurrent_streams(self.streams)
            .max_pending_accept_reset_streams(RESETS)
            .initial_window_size(self.windows[0])
            .initial_connection_window_size(self.windows[1])
            .max_header_list_size(FIELDS_MAX)
            .max_send_buffer_size(UNSENT)
            .reset_stream_duration(AFTER_RESET)
            .max_concurrent_reset_streams(RESETS)
            .max_local_error_reset_streams(Some(RESETS));
        builder
    }
}

fn window(size: base::Bytes) -> u32 {
    u32::try_from(size.0.min(WINDOW_MAX)).unwrap_or(u32::MAX >> 1)
}

/// One side of tunnels over connections of HTTP/2. See the head of the module.
pub struct Http2 {
    settings: Settings,
    tls: Tls,
    connections: BTreeMap<ConnectionId, Http2Connection>,
    next: u64,
    events: VecDeque<Event>,
    datagrams: DatagramCounters,
}

impl Http2 {
    /// With the keys and the trust of `endpoint`, which was made by `config`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        endpoint: &Endpoint,
        config: &Config,
        role: Role,
        templates: Vec<Template>,
    ) -> Result<Self, ConfigError> {
        let tls = match role {
            Role::Near => Tls::Near(endpoint.tls_client(ALPN)?),
            Role::Far => Tls::Far(endpoint.tls_server(ALPN)?),
        };
        let settings = Settings {
            role,
            templates,
            name: "bentpipe",
            windows: [config.path.stream_window(), config.limits.memory].map(window),
            streams: config.limits.streams,
        };
        Ok(Self {
            settings,
            tls,
            connections: BTreeMap::new(),
            next: 0,
            events: VecDeque::new(),
            datagrams: DatagramCounters::default(),
        })
    }

    /// A TCP connection to or from `peer` stands. [`Event::Connected`] comes, or [`Event::Lost`].
    ///
    /// # Errors
    /// What TLS says.
    pub fn begin(&mut self, peer: SocketAddr) -> io::Result<ConnectionId> {
        let tls = match &self.tls {
            Tls::Near(config) => {
                let name = SERVER_NAME.try_into().map_err(io::Error::other)?;
                rustls::ClientConnection::new(Arc::clone(config), name).map(Into::into)
            }
            Tls::Far(server) => {
                rustls::ServerConnection::new(server.for_connection()).map(Into::into)
            }
        };
        let id = ConnectionId::elsewhere(self.next);
        self.next += 1;
        let connection = Http2Connection::new(id, peer, tls.map_err(io::Error::other)?);
        self.connections.insert(id, connection);
        Ok(id)
    }

    /// Whether a connection's peer is trusted still by `endpoint`, by what it showed in its handshake.
    pub fn is_trusted(&self, connection: ConnectionId, endpoint: &Endpoint) -> bool {
        let found = self.connections.get(&connection);
        found.is_some_and(|it| {
            let shown =
                |tls: &rustls::Connection| tls.peer_certificates().map(|it| endpoint.admits(it));
            it.pipe.with(|tls| shown(tls)) == Some(true)
        })
    }

    /// Takes what the connection's socket has, once; whether it may have more, and there is room for it. Where there is none,
    /// [`Self::has_more`] tells when there is.
    pub fn receive<S: io::Read + io::Write>(
        &mut self,
        connection: ConnectionId,
        socket: &mut S,
    ) -> bool {
        let Some(found) = self.connections.get_mut(&connection) else {
            return false;
        };
        let mut counting = Counting(socket, 0);
        let received = found.pipe.receive(&mut counting);
        found.received += counting.1;
        found.wakes.ring(wakes::CONNECTION);
        match received {
            Ok(more) => more,
            Err(error) => {
                // The peer is told what TLS has against it, as far as there is room.
                let _ = found.pipe.send(socket);
                let words = error.to_string();
                self.lose(connection, Endpoint::refusal(&words));
                false
            }
        }
    }

    /// Writes what waits for the connection's socket, until it takes no more.
    ///
    /// # Errors
    /// What the socket says.
    pub fn send(&mut self, connection: ConnectionId, socket: &mut dyn io::Write) -> io::Result<()> {
        match self.connections.get(&connection) {
            Some(found) => found.pipe.send(socket),
            None => Ok(()),
        }
    }

    /// Does what there is to do; the connections that may have something to send then.
    pub fn work(&mut self) -> Vec<ConnectionId> {
        let mut worked = Vec::new();
        let mut lost = Vec::new();
        for (&id, connection) in &mut self.connections {
            match connection.work(&self.settings, &mut self.datagrams, &mut self.events) {
                Ok(()) => {}
                Err(reason) => lost.push((id, reason)),
            }
            if connection.pipe.with(|tls| tls.wants_write()) {
                worked.push(id);
            }
        }
        for (id, reason) in lost {
            self.lose(id, reason);
        }
        worked
    }

    /// Whether a connection has more to do now: what has left made room to write, or its socket was left unread and has room.
    pub fn has_more(&self, connection: ConnectionId) -> bool {
        { self.connections.get(&connection) }
            .is_some_and(|found| !found.wakes.are_empty() || found.pipe.has_room_again())
    }

    fn lose(&mut self, connection: ConnectionId, reason: String) {
        if let Some(found) = self.connections.remove(&connection) {
            let peer = found.peer();
            self.events.push_back(Event::Lost {
                connection,
                peer,
                reason,
                may_return: false,
            });
        }
    }

    /// The connection's socket has failed, or does not go on.
    pub fn fail(&mut self, connection: ConnectionId, reason: &str) {
        self.lose(connection, reason.to_owned());
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether a connection is there still.
    pub fn has_connection(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Whether a connection's handshakes are through.
    pub fn stands(&self, connection: ConnectionId) -> bool {
        { self.connections.get(&connection) }.is_some_and(Http2Connection::stands)
    }

    /// Bytes that have come on a connection, those of TLS included.
    pub fn received(&self, connection: ConnectionId) -> u64 {
        { self.connections.get(&connection) }.map_or(0, |found| found.received)
    }

    /// Asks the peer for a sign of life: if it lives, [`Self::received`] grows.
    pub fn ping(&mut self, connection: ConnectionId) {
        if let Some(found) = self.connections.get_mut(&connection) {
            found.ping();
        }
    }

    /// Has a connection hold so many bytes that were received and not read.
    pub fn set_window(&mut self, connection: ConnectionId, size: base::Bytes) {
        if let Some(found) = self.connections.get_mut(&connection) {
            found.set_window(window(size));
        }
    }

    /// Tunnels of a connection.
    pub fn tunnels(&self, connection: ConnectionId) -> usize {
        { self.connections.get(&connection) }.map_or(0, |found| found.tunnels.len())
    }

    /// Whether a tunnel is there still.
    pub fn has(&self, tunnel: TunnelId) -> bool {
        { self.connections.get(&tunnel.connection) }
            .is_some_and(|found| found.tunnels.contains_key(&tunnel.stream.0))
    }

    /// Near: asks for a tunnel, as [`Side::open`](crate::Side::open).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        { self.connections.get_mut(&connection) }
            .ok_or(OpenError::NotReady)?
            .open((target, client), &self.settings, false)
    }

    /// Far: the tunnel's target was dialled, or was not, for that reason.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn answer(&mut self, tunnel: TunnelId, why: Option<DialError>) -> Result<(), Closed> {
        { self.connections.get_mut(&tunnel.connection) }
            .ok_or(Closed)?
            .answer(tunnel.stream.0, why, &self.settings)
    }

    /// Writes as [`Side::write`](crate::Side::write).
    ///
    /// # Errors
    /// [`Closed`].
    pub fn write(&mut self, tunnel: TunnelId, data: &mut Bytes) -> Result<usize, Closed> {
        let near = self.settings.role == Role::Near;
        let found = { self.connections.get_mut(&tunnel.connection) }.ok_or(Closed)?;
        let stream = { found.tunnels.get_mut(&tunnel.stream.0) }.ok_or(Closed)?;
        stream.write(data, near)
    }

    /// Reads as [`Side::read`](crate::Side::read).
    ///
    /// # Errors
    /// [`Closed`].
    pub fn read(&mut self, tunnel: TunnelId) -> Result<Read, Closed> {
        let found = { self.connections.get_mut(&tunnel.connection) }.ok_or(Closed)?;
        let stream = { found.tunnels.get_mut(&tunnel.stream.0) }.ok_or(Closed)?;
        match stream.read() {
            Ok(read) => {
                found.end_if_over(tunnel.stream.0, &mut self.events);
                Ok(read)
            }
            Err(_) => {
                found.gone(tunnel.stream.0, &mut self.events);
                Err(Closed)
            }
        }
    }

    /// Nothing more is written: TCP's FIN.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn finish(&mut self, tunnel: TunnelId) -> Result<(), Closed> {
        let found = { self.connections.get_mut(&tunnel.connection) }.ok_or(Closed)?;
        let stream = { found.tunnels.get_mut(&tunnel.stream.0) }.ok_or(Closed)?;
        stream.state.finishing = true;
        stream.flush();
        found.end_if_over(tunnel.stream.0, &mut self.events);
        Ok(())
    }

    /// The socket was reset behind what it has said, as [`Side::break_off`](crate::Side::break_off).
    pub fn break_off(&mut self, tunnel: TunnelId) -> bool {
        let Some(found) = self.connections.get_mut(&tunnel.connection) else {
            return false;
        };
        let stream = found.tunnels.get_mut(&tunnel.stream.0);
        let tells = stream.is_some_and(|stream| {
            let tells = stream.state.break_off();
            if tells {
                stream.flush();
            }
            tells
        });
        found.end_if_over(tunnel.stream.0, &mut self.events);
        tells
    }

    /// The tunnel is given up: TCP's RST.
    pub fn reset(&mut self, tunnel: TunnelId) {
        if let Some(found) = self.connections.get_mut(&tunnel.connection)
            && let Some(mut stream) = found.tunnels.remove(&tunnel.stream.0)
        {
            stream.cancel();
        }
    }

    /// Far: no more tunnels are taken on any connection; those that stand go on.
    pub fn shut_down(&mut self) {
        { self.connections.values_mut() }.for_each(Http2Connection::shut_down);
    }

    /// Ends a connection, whose tunnels are gone with it. Nothing more is told of them. The peer sees its socket close.
    pub fn close(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }
}

/// Counts what is read.
struct Counting<'a, S>(&'a mut S, u64);

impl<S: io::Read> io::Read for Counting<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1 += read as u64;
        Ok(read)
    }
}
