//! One side of tunnels: what its driver asks for, and is told.

use crate::datagram::DatagramCounters;
use crate::http3::Http;
use crate::remembered_settings::Remembered;
use crate::tunnel_stream::Stream;
use bentpipe_base::{Instant, Machine};
use bentpipe_connect_tcp::{DialError, Framing, Request, Target, Template};
use bentpipe_quic::{self as quic, Code, ConnectionId, Datagram, PublicKey, Quic, StreamRef};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use thiserror::Error;

/// H3_NO_ERROR (RFC 9114, section 8.1).
const NO_ERROR: Code = Code(0x100);

/// A tunnel of a side: its stream.
pub type TunnelId = StreamRef;

/// Which side it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It asks.
    Near,
    /// It is asked, and dials.
    Far,
}

/// What was read of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, at least one.
    Data(Bytes),
    /// There are no more: the peer's FIN.
    Final,
    /// There are no more, and no FIN: behind what it has said the peer's socket was reset. The tunnel is to be reset when that is delivered.
    BrokenOff,
    /// Nothing for now: [`Event::Readable`] will come.
    Blocked,
}

/// The tunnel is gone, or this side of it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the tunnel has ended")]
pub struct Closed;

/// No tunnel was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The connection is gone, or its peer has not said yet that it opens tunnels ([`Event::Ready`]).
    #[error("the far gateway is not ready")]
    NotReady,
    /// As many stand as the peer allows: [`Event::Room`] will come.
    #[error("the far gateway allows no more tunnels for now")]
    Limited,
    /// The peer shuts down, and takes no more.
    #[error("the far gateway shuts down")]
    GoingAway,
}

/// What a side tells its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection stands.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// And its key.
        key: PublicKey,
    },
    /// A connection is gone, and all its tunnels, of which nothing more is told.
    Lost {
        /// The connection.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// Why.
        reason: String,
        /// Whether the peer has said nothing against another connection: it was silent, or it has started anew.
        may_return: bool,
    },
    /// Near: tunnels may be opened before the handshake is through. What is written to them leaves with the first flight of a
    /// connection that is made again; whether the peer is there is not known. [`Event::Ready`] comes, or [`Event::Lost`].
    Early(ConnectionId),
    /// Near: tunnels may be opened.
    Ready(ConnectionId),
    /// Near: the peer is no proxy of connect-tcp.
    NoProxy(ConnectionId),
    /// Near: the peer takes no more tunnels; those that stand go on.
    GoingAway(ConnectionId),
    /// Near: more tunnels may be opened than before.
    Room(ConnectionId),
    /// Far: a tunnel is asked for. [`Side::accept`] or [`Side::refuse`] answers.
    Asked(TunnelId, Request),
    /// Near: the far side has dialled, or has not; then the tunnel is gone.
    Answered(TunnelId, Result<(), DialError>),
    /// A UDP payload has come.
    Udp(TunnelId, Bytes),
    /// There may be something to read.
    Readable(TunnelId),
    /// There is room to write, after there was none.
    Writable(TunnelId),
    /// Both sides of the tunnel have ended, and each has read all that the other has said.
    Done(TunnelId),
    /// The tunnel was reset by the peer, or broke the protocol, and is gone: TCP's RST.
    Reset(TunnelId),
}

/// One side of tunnels over the connections of an endpoint. See the head of the crate.
pub struct Side<Q> {
    pub(crate) quic: Q,
    pub(crate) role: Role,
    pub(crate) connections: BTreeMap<ConnectionId, Http>,
    /// Far: what paths are understood. Near: the first is how the far side is asked.
    pub(crate) templates: Vec<Template>,
    /// How the far side calls itself in `Proxy-Status`.
    pub(crate) name: &'static str,
    pub(crate) events: VecDeque<Event>,
    pub(crate) now: Instant,
    pub(crate) datagrams: DatagramCounters,
    /// Near: what peers allowed last.
    pub(crate) settings: BTreeMap<SocketAddr, Remembered>,
}

impl<Q: Quic> Side<Q> {
    /// A side over an endpoint.
    pub fn new(quic: Q, role: Role, templates: Vec<Template>) -> Self {
        Self {
            quic,
            role,
            connections: BTreeMap::new(),
            templates,
            name: "bentpipe",
            events: VecDeque::new(),
            now: Instant::ZERO,
            datagrams: DatagramCounters::default(),
            settings: BTreeMap::new(),
        }
    }

    /// The endpoint.
    pub const fn quic(&self) -> &Q {
        &self.quic
    }

    /// The endpoint, to connect by it.
    pub const fn quic_mut(&mut self) -> &mut Q {
        &mut self.quic
    }

    /// Tunnels of a connection.
    pub fn tunnels(&self, connection: ConnectionId) -> usize {
        let http = self.connections.get(&connection);
        http.map_or(0, |http| http.streams.len())
    }

    /// Whether a tunnel is there still: its peer may not have read all.
    pub fn has(&self, tunnel: TunnelId) -> bool {
        let http = self.connections.get(&tunnel.connection);
        http.is_some_and(|http| http.streams.contains_key(&tunnel.stream.0))
    }

    /// Whether a tunnel is one of UDP.
    pub fn is_udp(&self, tunnel: TunnelId) -> bool {
        let http = self.connections.get(&tunnel.connection);
        let stream = http.and_then(|http| http.streams.get(&tunnel.stream.0));
        stream.is_some_and(|stream| stream.framing == Framing::Datagrams)
    }

    /// Near: asks for a tunnel, and says that it is for `client`. It may be written to at once; [`Event::Answered`] comes, or [`Event::Lost`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        self.ask(connection, target, client, false)
    }

    /// Near: asks for a tunnel of UDP, as [`Self::open`] does for one of TCP.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::NotReady`] also where the peer takes no UDP.
    pub fn open_udp(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
    ) -> Result<TunnelId, OpenError> {
        self.ask(connection, target, client, true)
    }

    /// Far: the tunnel's target was dialled.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn accept(&mut self, tunnel: TunnelId) -> Result<(), Closed> {
        self.answer(tunnel, None)
    }

    /// Far: it was not.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn refuse(&mut self, tunnel: TunnelId, why: DialError) -> Result<(), Closed> {
        self.answer(tunnel, Some(why))
    }

    /// Far: no more tunnels are taken on any connection; those that stand go on.
    pub fn shut_down(&mut self) {
        let connections: Vec<_> = self.connections.keys().copied().collect();
        for connection in connections {
            if let Some(http) = self.connections.get_mut(&connection) {
                // It fails on a connection that has ended, which takes none either.
                let _ = http.engine.finish_shutdown();
            }
            self.settle(connection);
        }
    }

    /// Far: asks the peer of a connection to open no more tunnels there; those that stand or are asked for already go on.
    pub fn decline(&mut self, connection: ConnectionId) {
        if let Some(http) = self.connections.get_mut(&connection) {
            // It fails on a connection that has ended.
            let _ = http.engine.start_shutdown();
            self.settle(connection);
        }
    }

    /// Ends a connection, whose tunnels are gone with it. Nothing more is told of them.
    pub fn close(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        self.connections.remove(&connection);
        self.quic.close(connection, NO_ERROR, reason, now);
    }

    pub(crate) fn stream(&mut self, tunnel: TunnelId) -> Option<&mut Stream> {
        let http = self.connections.get_mut(&tunnel.connection)?;
        http.streams.get_mut(&tunnel.stream.0)
    }
}

impl<Q: Quic> Machine for Side<Q> {
    type Packet = Datagram;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), packet: Datagram, now: Instant) {
        self.now = now;
        self.quic.input((), packet, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        self.quic.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Datagram)> {
        self.now = now;
        // What was heard is acted on before anything leaves, so that answers take the acknowledgement along.
        while let Some(event) = self.quic.event() {
            self.heard(event);
        }
        self.quic.transmit(now)
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.quic.deadline()
    }
}

impl<Q: Quic> Side<Q> {
    /// The endpoint tells something.
    fn heard(&mut self, event: quic::Event) {
        match event {
            quic::Event::Early { connection, peer } => {
                let http = Http::new(self.role, peer);
                match self.role {
                    Role::Near => self.begin_early(connection, http),
                    // SETTINGS, which anybody may know, leave before the peer has shown its key, and arrive a round trip sooner.
                    Role::Far => {
                        self.connections.insert(connection, http);
                        self.settle(connection);
                    }
                }
            }
            quic::Event::Connected {
                connection,
                peer,
                key,
            } => {
                let role = self.role;
                { self.connections.entry(connection) }.or_insert_with(|| Http::new(role, peer));
                self.events.push_back(Event::Connected {
                    connection,
                    peer,
                    key,
                });
                self.settle(connection);
            }
            quic::Event::Lost {
                connection,
                peer,
                reason,
                may_return,
            } => {
                self.connections.remove(&connection);
                self.events.push_back(Event::Lost {
                    connection,
                    peer,
                    reason,
                    may_return,
                });
            }
            quic::Event::Opened(stream) => {
                self.opened(stream);
                self.receive(stream);
            }
            quic::Event::Readable(stream) => self.receive(stream),
            quic::Event::Writable(stream) => self.resume(stream),
            quic::Event::Stopped(stream, code) => self.stopped(stream, code),
            quic::Event::Available(connection, _) => {
                self.settle(connection);
                self.events.push_back(Event::Room(connection));
            }
            quic::Event::Datagram(connection, data) => self.datagram_came(connection, &data),
            quic::Event::Delivered(_) => {}
        }
    }
}
