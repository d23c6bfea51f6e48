//! An endpoint of one UDP socket, and its connections.

mod connection_events;

use crate::clock::{Base, Calendar};
use crate::config::{Config, ConfigError, Limits};
use crate::congestion::Maker;
use crate::connection::{Connection, ConnectionStats};
use crate::early_data::EarlyData;
use crate::keys::{Identity, PublicKey, TrustedKeys};
use crate::protection;
use crate::session_tickets::{HeldTickets, IssuedTickets};
use crate::stack_interface::{
    Closed, Code, ConnectionId, Datagram, Direction, End, Event, Quic, Read, StreamId, StreamRef,
    Unopened, Unsent,
};
use bentpipe_base::{Bytes, Instant, Machine};
use bytes::{Bytes as Chunk, BytesMut};
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Incoming, Transmit, VarInt,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use thiserror::Error;

/// Answers to datagrams of no connection that may wait to be sent; more are dropped.
const ANSWERS: usize = 1024;
/// Said to who comes with a ticket that was used.
const USED_TICKET: &str = "this ticket was used";

/// A datagram's peer, and the address of this host at which it came.
type Ends = (SocketAddr, Option<IpAddr>);

/// No connection was begun.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// As many as are admitted stand already.
    #[error("{0} connections stand already, as many as are admitted")]
    Limit(usize),
    /// The stack refuses the address.
    #[error("no connection to {peer}: {reason}")]
    Address {
        /// Where to.
        peer: SocketAddr,
        /// What the stack says.
        reason: String,
    },
}

/// A QUIC endpoint. See the head of the crate.
pub struct Endpoint {
    base: Base,
    pub(crate) calendar: Calendar,
    stack: quinn_proto::Endpoint,
    client: ClientConfig,
    limits: Limits,
    segments: usize,
    overhead: Bytes,
    /// Bytes of DATAGRAM frames that may wait on a connection.
    datagrams: usize,
    /// Connections have numbers of their own, since the stack gives a handle again.
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    by_handle: BTreeMap<usize, ConnectionId>,
    next: u64,
    /// Those that have to be asked for datagrams.
    queue: VecDeque<ConnectionId>,
    timers: BTreeSet<(Instant, ConnectionId)>,
    answers: VecDeque<Datagram>,
    events: VecDeque<Event>,
    pub(crate) trusted: TrustedKeys,
    pub(crate) identity: Identity,
    pub(crate) issued: Arc<IssuedTickets>,
    pub(crate) held: Arc<HeldTickets>,
    maker: Arc<Maker>,
    fec: Option<bentpipe_fec::Config>,
    /// The newest connection of each peer's address that has forward error correction.
    protected: BTreeMap<SocketAddr, ConnectionId>,
}

impl Endpoint {
    /// An endpoint that accepts connections if `listens`, and may connect in any case.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config, listens: bool) -> Result<Self, ConfigError> {
        let parts = config.parts()?;
        let server = listens.then_some(parts.server);
        Ok(Self {
            base: Base(config.base),
            calendar: parts.calendar,
            stack: quinn_proto::Endpoint::new(parts.endpoint, server, true, None),
            client: parts.client,
            limits: config.limits,
            segments: config.segments.max(1),
            overhead: config.path.datagram_overhead(),
            datagrams: config.path.datagram_queue(),
            connections: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next: 0,
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            trusted: parts.trusted,
            identity: config.identity.clone(),
            issued: parts.issued,
            held: parts.held,
            maker: parts.maker,
            fec: parts.fec,
            protected: BTreeMap::new(),
        })
    }

    /// Begins a connection. [`Event::Connected`] comes, or [`Event::Lost`]; before them [`Event::Early`] where a ticket of the peer is
    /// held.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        now: Instant,
    ) -> Result<ConnectionId, ConnectError> {
        if self.connections.len() >= self.limits.connections {
            return Err(ConnectError::Limit(self.limits.connections));
        }
        self.calendar.set(now);
        let at = self.base.to_std(now);
        // Nobody looks at the name, for keys are pinned: tickets are held by it.
        let name = peer.ip().to_string();
        let begun = { &mut self.stack }.connect(at, self.client.clone(), peer, &name);
        let (handle, connection) = begun.map_err(|reason| ConnectError::Address {
            peer,
            reason: reason.to_string(),
        })?;
        let early = connection.has_0rtt();
        let id = self.admit(handle, connection, now);
        if early && let Some(connection) = self.connections.get_mut(&id) {
            connection.early = Some(EarlyData::default());
            self.events.push_back(Event::Early {
                connection: id,
                peer,
            });
        }
        Ok(id)
    }

    /// Begins a connection as [`Self::connect`] does, by a whole handshake: what makes one early is kept for another.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_without_ticket(
        &mut self,
        peer: SocketAddr,
        now: Instant,
    ) -> Result<ConnectionId, ConnectError> {
        self.held.withhold(true);
        let begun = self.connect(peer, now);
        self.held.withhold(false);
        begun
    }

    /// Whether a ticket of the peer is held, by which a connection may begin early.
    pub fn holds_ticket(&self, peer: SocketAddr) -> bool {
        self.held.has(peer.ip())
    }

    /// Accepts no more connections; those that stand go on.
    pub fn stop_listening(&mut self) {
        self.stack.set_server_config(None);
    }

    /// Sends something that the peer acknowledges.
    pub fn ping(&mut self, connection: ConnectionId) {
        if let Some(found) = self.connections.get_mut(&connection) {
            found.stack.ping();
            self.touch(connection);
        }
    }

    /// Has a connection hold so many bytes that were received and not read, in the place of [`Limits::memory`].
    pub fn set_window(&mut self, connection: ConnectionId, window: Bytes) {
        if let Some(found) = self.connections.get_mut(&connection)
            && found.set_window(window)
        {
            self.touch(connection);
        }
    }

    /// What an operator may want to know of a connection; `None`: it is gone.
    pub fn stats(&self, connection: ConnectionId) -> Option<ConnectionStats> {
        self.connections.get(&connection).map(Connection::stats)
    }

    /// Connections that stand or are being made or closed.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn admit(
        &mut self,
        handle: ConnectionHandle,
        stack: quinn_proto::Connection,
        now: Instant,
    ) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        self.by_handle.insert(handle.0, id);
        let mut connection = Connection::new(handle, stack, self.overhead, self.datagrams);
        if let Some(share) = self.maker.take_latest() {
            connection.share_with(share);
        }
        self.connections.insert(id, connection);
        self.settle(id, now);
        id
    }

    /// Queues a connection to be asked for datagrams.
    fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(id);
        }
    }

    /// Frames are looked for where the peer is now.
    fn follow(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(before) = connection.moved(now)
            && connection.protection.is_some()
        {
            if self.protected.get(&before) == Some(&id) {
                self.protected.remove(&before);
            }
            self.protected.insert(connection.peer, id);
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.by_handle.remove(&connection.handle.0);
            if self.protected.get(&connection.peer) == Some(&id) {
                self.protected.remove(&connection.peer);
            }
            if let Some(at) = connection.timer {
                self.timers.remove(&(at, id));
            }
        }
    }

    /// Enters when a connection wants the time next.
    fn schedule(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let due = connection.deadline(self.base);
        if connection.timer != due {
            if let Some(at) = connection.timer {
                self.timers.remove(&(at, id));
            }
            if let Some(at) = due {
                self.timers.insert((at, id));
            }
            connection.timer = due;
        }
    }

    fn half_open(&self) -> usize {
        { self.connections.values() }
            .filter(|connection| !connection.connected)
            .count()
    }

    /// A peer begins a connection.
    fn accept(&mut self, incoming: Incoming, now: Instant) {
        let half_open = self.half_open();
        let mut data = Vec::new();
        let full = self.connections.len() >= self.limits.connections;
        if full || half_open >= 2 * self.limits.half_open {
            let answer = self.stack.refuse(incoming, &mut data);
            return self.answer(&answer, data);
        }
        let unknown = !incoming.remote_address_validated() && incoming.may_retry();
        if half_open >= self.limits.half_open && unknown {
            match self.stack.retry(incoming, &mut data) {
                Ok(answer) => self.answer(&answer, data),
                // It was asked before whether it may; nothing is left to be said to the peer.
                Err(refused) => self.stack.ignore(refused.into_incoming()),
            }
            return;
        }
        let at = self.base.to_std(now);
        match self.stack.accept(incoming, at, &mut data, None) {
            Ok((handle, mut connection)) => {
                if self.issued.came_again() {
                    connection.close(at, VarInt::from_u32(0), USED_TICKET.into());
                }
                self.admit(handle, connection, now);
            }
            Err(error) => {
                if let Some(answer) = error.response {
                    self.answer(&answer, data);
                }
            }
        }
    }

    /// Queues an answer that belongs to no connection.
    fn answer(&mut self, sent: &Transmit, mut data: Vec<u8>) {
        data.truncate(sent.size);
        if self.answers.len() < ANSWERS {
            self.answers.push_back(Datagram {
                peer: sent.destination,
                local: sent.src_ip,
                data: BytesMut::from(Chunk::from(data)),
                segment: sent.segment_size,
            });
        }
    }

    /// One datagram of a peer.
    fn receive(&mut self, ends: Ends, data: BytesMut, now: Instant) {
        if self.fec.is_none() {
            return self.receive_packet(ends, data, now);
        }
        let datagram = data.freeze();
        let id = self.protected.get(&ends.0).copied();
        let connection = id.and_then(|id| Some((id, self.connections.get_mut(&id)?)));
        let packets = match connection {
            Some((id, connection)) => {
                let packets = connection.arrive(datagram, ends.1, now);
                // What waits has a deadline.
                self.touch(id);
                packets
            }
            // A peer that has moved: QUIC knows it by what it says.
            None => protection::packet(&datagram).into_iter().collect(),
        };
        for packet in packets {
            self.receive_packet(ends, BytesMut::from(packet), now);
        }
    }

    /// One packet of QUIC, or several that came together.
    fn receive_packet(&mut self, (peer, local): Ends, data: BytesMut, now: Instant) {
        let mut answer = Vec::new();
        let at = self.base.to_std(now);
        match self.stack.handle(at, peer, local, None, data, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(&id) = self.by_handle.get(&handle.0)
                    && let Some(connection) = self.connections.get_mut(&id)
                {
                    connection.stack.handle_event(event);
                    if self.issued.came_again() {
                        connection.close(Code(0), USED_TICKET, self.base, now);
                    }
                    if let Some(share) = self.maker.take_latest() {
                        connection.share_with(share);
                    }
                    self.follow(id, now);
                    self.settle(id, now);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(incoming, now),
            Some(DatagramEvent::Response(sent)) => self.answer(&sent, answer),
            None => {}
        }
    }

    /// A connection's stream, to do something to it.
    fn with<T>(
        &mut self,
        stream: StreamRef,
        act: impl FnOnce(&mut Connection) -> Result<T, Closed>,
    ) -> Result<T, Closed> {
        let connection = self.connections.get_mut(&stream.connection);
        let done = act(connection.ok_or(Closed)?)?;
        self.touch(stream.connection);
        Ok(done)
    }
}

/// What is said where a peer refuses the key that it was shown.
pub(crate) const KEY_REFUSED: &str = "the peer does not trust this side's key";
/// And where it was shown none that it knows.
pub(crate) const NO_CERTIFICATE: &str =
    "the peer wants a certificate of this side, which shows none";

/// What is said where a peer refuses what it was shown, by an alert of TLS (RFC 8446, section 6.2: bad_certificate to certificate_unknown,
/// access_denied, certificate_required) as a code of QUIC (RFC 9001, section 4.8).
fn refusal(code: u64) -> Option<&'static str> {
    match code {
        0x12a..=0x12e | 0x131 => Some(KEY_REFUSED),
        0x174 => Some(NO_CERTIFICATE),
        _ => None,
    }
}

/// Why a connection is gone, for an operator.
fn words(reason: &ConnectionError) -> String {
    match reason {
        ConnectionError::TransportError(error) => match PublicKey::untrusted(&error.reason) {
            Some(key) => format!("the peer's key {key} is not trusted here"),
            None => error.to_string(),
        },
        ConnectionError::ConnectionClosed(close) => {
            refusal(close.error_code.into()).map_or_else(|| reason.to_string(), str::to_owned)
        }
        ConnectionError::ApplicationClosed(close) => {
            format!(
                "the peer closed it: {}",
                String::from_utf8_lossy(&close.reason)
            )
        }
        ConnectionError::Reset => "the peer knows nothing of it: it has started anew".to_owned(),
        ConnectionError::TimedOut => "nothing is heard of the peer".to_owned(),
        other => other.to_string(),
    }
}

impl Machine for Endpoint {
    type Packet = Datagram;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), datagram: Datagram, now: Instant) {
        self.calendar.set(now);
        let ends = (datagram.peer, datagram.local);
        let mut data = datagram.data;
        if let Some(segment) = datagram.segment.filter(|&segment| segment > 0) {
            while data.len() > segment {
                let first = data.split_to(segment);
                self.receive(ends, first, now);
            }
        }
        self.receive(ends, data, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.calendar.set(now);
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, id));
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.timer = None;
                let (packets, local) = connection.timeout(self.base, now);
                let ends = (connection.peer, local);
                for packet in packets {
                    self.receive_packet(ends, BytesMut::from(packet), now);
                }
                self.follow(id, now);
                self.settle(id, now);
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Datagram)> {
        self.calendar.set(now);
        if let Some(answer) = self.answers.pop_front() {
            return Some(((), answer));
        }
        while let Some(id) = self.queue.pop_front() {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            if let Some(datagram) = connection.transmit(self.base, self.segments, now) {
                // Connections take turns.
                self.queue.push_back(id);
                return Some(((), datagram));
            }
            connection.queued = false;
            self.schedule(id);
        }
        None
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let waits = !self.queue.is_empty() || !self.answers.is_empty();
        if waits {
            return Some(Instant::ZERO);
        }
        self.timers.first().map(|&(at, _)| at)
    }
}

impl Quic for Endpoint {
    fn open(
        &mut self,
        connection: ConnectionId,
        direction: Direction,
    ) -> Result<StreamId, Unopened> {
        let dir = match direction {
            Direction::Both => Dir::Bi,
            Direction::One => Dir::Uni,
        };
        let found = { self.connections.get_mut(&connection) }.ok_or(Unopened::Gone)?;
        if found.stack.is_closed() {
            return Err(Unopened::Gone);
        }
        let opened = found.stack.streams().open(dir).ok_or(Unopened::Limited)?;
        if let Some(early) = &mut found.early {
            early.opened(dir);
        }
        Ok(StreamId(opened.into()))
    }

    fn write(&mut self, stream: StreamRef, data: &mut Chunk) -> Result<usize, Closed> {
        if data.is_empty() {
            return Ok(0);
        }
        self.with(stream, |connection| connection.write(stream.stream, data))
    }

    fn read(&mut self, stream: StreamRef, most: usize) -> Result<Read, Closed> {
        self.with(stream, |connection| connection.read(stream.stream, most))
    }

    fn end(&mut self, stream: StreamRef, end: End) -> Result<(), Closed> {
        self.with(stream, |connection| connection.end(stream.stream, end))
    }

    fn datagram_room(&mut self, connection: ConnectionId) -> Option<usize> {
        self.connections.get_mut(&connection)?.datagram_room()
    }

    fn send_datagram(&mut self, connection: ConnectionId, data: Chunk) -> Result<(), Unsent> {
        let found = self.connections.get_mut(&connection);
        found.ok_or(Unsent::NoDatagrams)?.send_datagram(data)?;
        self.touch(connection);
        Ok(())
    }

    fn close(&mut self, connection: ConnectionId, code: Code, reason: &str, now: Instant) {
        if let Some(found) = self.connections.get_mut(&connection) {
            found.close(code, reason, self.base, now);
            self.settle(connection, now);
        }
    }
}
