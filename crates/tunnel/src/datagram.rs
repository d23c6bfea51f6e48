//! UDP on tunnels (RFC 9298): payloads in HTTP Datagrams (RFC 9297), which travel in QUIC's DATAGRAM frames. A peer's DATAGRAM capsules are
//! understood as well; what leaves never goes in one on HTTP/3, since a stream would repeat and order what UDP does not.

use crate::endpoint::{Event, Role, Side, TunnelId};
use crate::http3::engine_id;
use crate::tunnel_stream::Phase;
use bentpipe_connect_tcp::{Framing, NoPayload, UDP_CONTEXT, udp_payload};
use bentpipe_quic::{ConnectionId, Quic, StreamId, StreamRef, Unsent};
use bytes::{BufMut, Bytes, BytesMut};
use h3wire::{Datagram, H3Code};
use std::collections::VecDeque;
use thiserror::Error;

/// HTTP Datagrams kept of a tunnel that does not stand yet.
const EARLY: usize = 16;
/// And of a connection's requests that have not come.
const STRAYS: usize = 32;

/// What became of UDP payloads, of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounters {
    /// Handed to the stack.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// Not sent: longer than the path carries.
    pub too_long: u64,
    /// Not sent: as much waited already as is kept.
    pub full: u64,
    /// Received and dropped: of an unknown context.
    pub unknown_context: u64,
    /// Received and dropped: of no tunnel, or one that did not stand yet and had enough of them.
    pub unwanted: u64,
    /// Received: cut short, or of a tunnel that is none of UDP, which was aborted therefore.
    pub malformed: u64,
}

impl core::ops::Add for DatagramCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            too_long: self.too_long + other.too_long,
            full: self.full + other.full,
            unknown_context: self.unknown_context + other.unknown_context,
            unwanted: self.unwanted + other.unwanted,
            malformed: self.malformed + other.malformed,
        }
    }
}

/// A UDP payload was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotSent {
    /// It is longer than the path carries now: at most so many bytes.
    #[error("it is longer than the {0} bytes that the path carries")]
    TooLong(usize),
    /// As much waits already as is kept.
    #[error("as much waits already as is kept")]
    Full,
    /// The tunnel does not stand, or is none of UDP.
    #[error("the tunnel carries no UDP")]
    Closed,
}

impl<Q: Quic> Side<Q> {
    /// What became of UDP payloads.
    pub const fn datagrams(&self) -> &DatagramCounters {
        &self.datagrams
    }

    /// What stands before a payload on a tunnel; `None`: it carries no UDP, or not yet.
    fn datagram_head(&mut self, tunnel: TunnelId) -> Option<BytesMut> {
        let near = self.role == Role::Near;
        let http = self.connections.get_mut(&tunnel.connection)?;
        let stream = http.streams.get(&tunnel.stream.0)?;
        let stands = stream.phase == Phase::Open || (near && stream.phase == Phase::Asking);
        if !stands || stream.finishing || stream.framing != Framing::Datagrams {
            return None;
        }
        let mut prefix = [0; 8];
        let id = engine_id(tunnel.stream);
        let length = http.engine.datagram_prefix(id, &mut prefix).ok()?;
        let mut head = BytesMut::from(&prefix[..length]);
        head.put_u8(UDP_CONTEXT);
        Some(head)
    }

    /// The longest payload that a tunnel carries now; `None`: it carries no UDP, or not yet.
    pub fn udp_room(&mut self, tunnel: TunnelId) -> Option<usize> {
        let head = self.datagram_head(tunnel)?.len();
        let room = self.quic.datagram_room(tunnel.connection)?;
        room.checked_sub(head)
    }

    /// Sends a UDP payload, once. A near side may before the answer has come.
    ///
    /// # Errors
    /// [`NotSent`]; it is counted.
    pub fn send_udp(&mut self, tunnel: TunnelId, payload: &[u8]) -> Result<(), NotSent> {
        let mut datagram = self.datagram_head(tunnel).ok_or(NotSent::Closed)?;
        let head = datagram.len();
        datagram.put_slice(payload);
        match { &mut self.quic }.send_datagram(tunnel.connection, datagram.freeze()) {
            Ok(()) => {
                self.datagrams.sent += 1;
                Ok(())
            }
            Err(Unsent::TooLong(most)) => {
                self.datagrams.too_long += 1;
                Err(NotSent::TooLong(most.saturating_sub(head)))
            }
            Err(Unsent::Full) => {
                self.datagrams.full += 1;
                Err(NotSent::Full)
            }
            Err(Unsent::NoDatagrams) => Err(NotSent::Closed),
        }
    }

    /// A DATAGRAM frame has come.
    pub(crate) fn datagram_came(&mut self, connection: ConnectionId, frame: &Bytes) {
        let Some(http) = self.connections.get_mut(&connection) else {
            return;
        };
        match http.engine.parse_datagram(frame) {
            Ok(Datagram::Deliver(stream, range)) => {
                let stream = StreamId(stream.0);
                let tunnel = StreamRef { connection, stream };
                self.datagram_of(tunnel, frame.slice(range));
            }
            Ok(Datagram::NotYetOpen(stream, range)) if self.role == Role::Far => {
                if http.strays.len() >= STRAYS {
                    http.strays.pop_front();
                    self.datagrams.unwanted += 1;
                }
                http.strays.push_back((stream.0, frame.slice(range)));
            }
            Ok(Datagram::NotYetOpen(..) | Datagram::Drop) => self.datagrams.unwanted += 1,
            // There is an action for it, which closes the connection.
            Err(_) => self.settle(connection),
        }
    }

    /// An HTTP Datagram of a request has come.
    fn datagram_of(&mut self, tunnel: TunnelId, datagram: Bytes) {
        let far = self.role == Role::Far;
        let Some(stream) = self.stream(tunnel) else {
            self.datagrams.unwanted += 1;
            return;
        };
        match stream.phase {
            Phase::Refused => self.datagrams.unwanted += 1,
            // What it asks for has not come whole.
            Phase::Asking if far => {
                if let Some(http) = self.connections.get_mut(&tunnel.connection)
                    && http.strays.len() < STRAYS
                {
                    http.strays.push_back((tunnel.stream.0, datagram));
                } else {
                    self.datagrams.unwanted += 1;
                }
            }
            _ if stream.framing != Framing::Datagrams => self.malformed(tunnel),
            Phase::Asking | Phase::Dialling => {
                if stream.early.len() < EARLY {
                    stream.early.push_back(datagram);
                } else {
                    self.datagrams.unwanted += 1;
                }
            }
            Phase::Open => match udp_payload(&datagram) {
                Ok(payload) => {
                    self.datagrams.received += 1;
                    self.events.push_back(Event::Udp(tunnel, payload));
                }
                Err(NoPayload::Context(_)) => self.datagrams.unknown_context += 1,
                Err(NoPayload::Malformed) => self.malformed(tunnel),
            },
        }
    }

    /// A peer must not have sent that: its request is aborted (RFC 9297, section 2.1; RFC 9298, section 5).
    fn malformed(&mut self, tunnel: TunnelId) {
        self.datagrams.malformed += 1;
        self.gone(tunnel);
        self.cancel_with(tunnel, H3Code::DATAGRAM_ERROR);
    }

    /// Far: a request for UDP has come, before which some of its payloads may have.
    pub(crate) fn adopt_strays(&mut self, tunnel: TunnelId) {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return;
        };
        let strays = core::mem::take(&mut http.strays);
        let (own, others): (VecDeque<_>, _) =
            { strays.into_iter() }.partition(|(id, _)| *id == tunnel.stream.0);
        http.strays = others;
        for (_, datagram) in own {
            self.datagram_of(tunnel, datagram);
        }
    }

    /// The tunnel stands: what came before is handed on.
    pub(crate) fn hand_early(&mut self, tunnel: TunnelId) {
        let early = { self.stream(tunnel) }.map(|stream| core::mem::take(&mut stream.early));
        for datagram in early.into_iter().flatten() {
            self.datagram_of(tunnel, datagram);
        }
    }

    /// Bytes of a stream were taken apart, in which there may have been DATAGRAM capsules.
    pub(crate) fn capsules_came(&mut self, tunnel: TunnelId) {
        let Some(stream) = self.stream(tunnel) else {
            return;
        };
        for datagram in core::mem::take(&mut stream.capsules) {
            self.datagram_of(tunnel, datagram);
        }
    }
}
