//! What carries tunnels: HTTP/3 over QUIC, and HTTP/2 over TCP beside it. A connection's number tells which.

use bentpipe_base::{self as base, Instant, Machine};
use bentpipe_connect_tcp::{DialError, Target, Template};
use bentpipe_quic::{Config, ConfigError, ConnectionId, Datagram, Endpoint};
use bentpipe_tunnel::{
    Closed, DatagramCounters, Event, Http2, NotSent, OpenError, Read, Role, Side, TunnelId,
};
use bytes::Bytes;
use std::net::SocketAddr;

/// Both, with the calls that they have in common.
pub(crate) struct Carriers {
    quic: Side<Endpoint>,
    pub(crate) http2: Http2,
}

impl Carriers {
    pub(crate) fn new(
        endpoint: Endpoint,
        config: &Config,
        role: Role,
        templates: Vec<Template>,
    ) -> Result<Self, ConfigError> {
        let http2 = Http2::new(&endpoint, config, role, templates.clone())?;
        let quic = Side::new(endpoint, role, templates);
        Ok(Self { quic, http2 })
    }

    pub(crate) const fn quic(&self) -> &Endpoint {
        self.quic.quic()
    }

    pub(crate) const fn quic_mut(&mut self) -> &mut Endpoint {
        self.quic.quic_mut()
    }

    /// Whether a connection's peer is trusted still.
    pub(crate) fn is_trusted(&self, connection: ConnectionId) -> bool {
        if connection.is_elsewhere() {
            self.http2.is_trusted(connection, self.quic())
        } else {
            self.quic().is_trusted(connection)
        }
    }

    pub(crate) fn datagrams(&self) -> DatagramCounters {
        *self.quic.datagrams() + *self.http2.datagrams()
    }

    pub(crate) fn tunnels(&self, connection: ConnectionId) -> usize {
        if connection.is_elsewhere() {
            self.http2.tunnels(connection)
        } else {
            self.quic.tunnels(connection)
        }
    }

    pub(crate) fn has(&self, tunnel: TunnelId) -> bool {
        if tunnel.connection.is_elsewhere() {
            self.http2.has(tunnel)
        } else {
            self.quic.has(tunnel)
        }
    }

    pub(crate) fn is_udp(&self, tunnel: TunnelId) -> bool {
        if tunnel.connection.is_elsewhere() {
            self.http2.is_udp(tunnel)
        } else {
            self.quic.is_udp(tunnel)
        }
    }

    pub(crate) fn open(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        if connection.is_elsewhere() {
            self.http2.open(connection, target, client)
        } else {
            self.quic.open(connection, target, client)
        }
    }

    pub(crate) fn open_udp(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        if connection.is_elsewhere() {
            self.http2.open_udp(connection, target, client)
        } else {
            self.quic.open_udp(connection, target, client)
        }
    }

    pub(crate) fn accept(&mut self, tunnel: TunnelId) -> Result<(), Closed> {
        if tunnel.connection.is_elsewhere() {
            self.http2.answer(tunnel, None)
        } else {
            self.quic.accept(tunnel)
        }
    }

    pub(crate) fn refuse(&mut self, tunnel: TunnelId, why: DialError) -> Result<(), Closed> {
        if tunnel.connection.is_elsewhere() {
            self.http2.answer(tunnel, Some(why))
        } else {
            self.quic.refuse(tunnel, why)
        }
    }

    pub(crate) fn write(&mut self, tunnel: TunnelId, data: &mut Bytes) -> Result<usize, Closed> {
        if tunnel.connection.is_elsewhere() {
            self.http2.write(tunnel, data)
        } else {
            self.quic.write(tunnel, data)
        }
    }

    pub(crate) fn read(&mut self, tunnel: TunnelId) -> Result<Read, Closed> {
        if tunnel.connection.is_elsewhere() {
            self.http2.read(tunnel)
        } else {
            self.quic.read(tunnel)
        }
    }

    pub(crate) fn finish(&mut self, tunnel: TunnelId) -> Result<(), Closed> {
        if tunnel.connection.is_elsewhere() {
            self.http2.finish(tunnel)
        } else {
            self.quic.finish(tunnel)
        }
    }

    pub(crate) fn break_off(&mut self, tunnel: TunnelId) -> bool {
        if tunnel.connection.is_elsewhere() {
            self.http2.break_off(tunnel)
        } else {
            self.quic.break_off(tunnel)
        }
    }

    pub(crate) fn reset(&mut self, tunnel: TunnelId) {
        if tunnel.connection.is_elsewhere() {
            self.http2.reset(tunnel);
        } else {
            self.quic.reset(tunnel);
        }
    }

    pub(crate) fn close(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        if connection.is_elsewhere() {
            self.http2.close(connection);
        } else {
            self.quic.close(connection, reason, now);
        }
    }

    pub(crate) fn send_udp(&mut self, tunnel: TunnelId, payload: &[u8]) -> Result<(), NotSent> {
        if tunnel.connection.is_elsewhere() {
            self.http2.send_udp(tunnel, payload)
        } else {
            self.quic.send_udp(tunnel, payload)
        }
    }

    /// Far: asks for no more tunnels on a connection over QUIC.
    pub(crate) fn decline(&mut self, connection: ConnectionId) {
        self.quic.decline(connection);
    }

    pub(crate) fn shut_down(&mut self) {
        self.quic.quic_mut().stop_listening();
        self.quic.shut_down();
        self.http2.shut_down();
    }

    /// What has come on a connection, in packets or bytes: it grows while the peer lives.
    pub(crate) fn received(&self, connection: ConnectionId) -> u64 {
        if connection.is_elsewhere() {
            self.http2.received(connection)
        } else {
            { self.quic().stats(connection) }.map_or(0, |stats| stats.received)
        }
    }

    /// Has the peer of a connection give a sign of life.
    pub(crate) fn ping(&mut self, connection: ConnectionId) {
        if connection.is_elsewhere() {
            self.http2.ping(connection);
        } else {
            self.quic_mut().ping(connection);
        }
    }

    pub(crate) fn set_window(&mut self, connection: ConnectionId, window: base::Bytes) {
        if connection.is_elsewhere() {
            self.http2.set_window(connection, window);
        } else {
            self.quic_mut().set_window(connection, window);
        }
    }

    pub(crate) fn input(&mut self, datagram: Datagram, now: Instant) {
        self.quic.input((), datagram, now);
    }

    pub(crate) fn timeout(&mut self, now: Instant) {
        self.quic.timeout(now);
    }

    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Datagram> {
        Some(self.quic.transmit(now)?.1)
    }

    pub(crate) fn event(&mut self) -> Option<Event> {
        self.quic.event().or_else(|| self.http2.event())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.quic.deadline()
    }
}
