//! UDP on HTTP/2, which has no DATAGRAM frames: payloads go in DATAGRAM capsules (RFC 9297, section 3.5), in order, and are repeated by TCP.

use super::Http2;
use super::http2_connection::Http2Connection;
use crate::datagram::{DatagramCounters, NotSent};
use crate::endpoint::{Event, OpenError, Role, TunnelId};
use crate::tunnel_stream::Phase;
use bentpipe_connect_tcp::{Framing, NoPayload, Target, UDP_CAPSULE_MAX, udp_capsule, udp_payload};
use bentpipe_quic::ConnectionId;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;

impl Http2 {
    /// What became of UDP payloads.
    pub const fn datagrams(&self) -> &DatagramCounters {
        &self.datagrams
    }

    /// Whether a tunnel is one of UDP.
    pub fn is_udp(&self, tunnel: TunnelId) -> bool {
        let found = self.connections.get(&tunnel.connection);
        let stream = found.and_then(|found| found.tunnels.get(&tunnel.stream.0));
        stream.is_some_and(|stream| stream.state.framing == Framing::Datagrams)
    }

    /// Near: asks for a tunnel of UDP, as [`Side::open_udp`](crate::Side::open_udp).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_udp(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        { self.connections.get_mut(&connection) }
            .ok_or(OpenError::NotReady)?
            .open((target, client), &self.settings, true)
    }

    /// Sends a UDP payload, once as far as this end sees. A near side may before the answer has come. What finds the one before it still
    /// waiting for room is dropped: more would wait for longer than it is of use.
    ///
    /// # Errors
    /// [`NotSent`]; it is counted.
    pub fn send_udp(&mut self, tunnel: TunnelId, payload: &[u8]) -> Result<(), NotSent> {
        let near = self.settings.role == Role::Near;
        let found = { self.connections.get_mut(&tunnel.connection) }.ok_or(NotSent::Closed)?;
        let stream = { found.tunnels.get_mut(&tunnel.stream.0) }.ok_or(NotSent::Closed)?;
        let state = &stream.state;
        let stands = state.phase == Phase::Open || (near && state.phase == Phase::Asking);
        if !stands || state.finishing || state.framing != Framing::Datagrams {
            return Err(NotSent::Closed);
        }
        let Some(capsule) = udp_capsule(payload) else {
            self.datagrams.too_long += 1;
            return Err(NotSent::TooLong(UDP_CAPSULE_MAX));
        };
        if !stream.flush() {
            self.datagrams.full += 1;
            return Err(NotSent::Full);
        }
        self.datagrams.sent += 1;
        stream.state.put(&[], &capsule, Bytes::new());
        stream.flush();
        Ok(())
    }
}

impl Http2Connection {
    /// Takes apart what has come on a tunnel of UDP, once it stands; whether its peer has kept to the protocol.
    pub(super) fn take_datagrams(
        &mut self,
        number: u64,
        counters: &mut DatagramCounters,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let id = self.tunnel(number);
        let Some(tunnel) = self.tunnels.get_mut(&number) else {
            return true;
        };
        if tunnel.state.phase != Phase::Open || tunnel.state.framing != Framing::Datagrams {
            return true;
        }
        if tunnel.take_all().is_err() {
            return false;
        }
        for datagram in core::mem::take(&mut tunnel.state.capsules) {
            match udp_payload(&datagram) {
                Ok(payload) => {
                    counters.received += 1;
                    events.push_back(Event::Udp(id, payload));
                }
                Err(NoPayload::Context(_)) => counters.unknown_context += 1,
                Err(NoPayload::Malformed) => {
                    counters.malformed += 1;
                    return false;
                }
            }
        }
        true
    }
}
