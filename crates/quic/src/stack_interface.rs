//! What a QUIC stack is to the layers above, whichever stack it is.

use crate::keys::PublicKey;
use bentpipe_base::{Instant, Machine};
use bytes::{Bytes, BytesMut};
use core::fmt;
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

/// A UDP datagram, or several of one length that leave together (GSO).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who it is from, or for.
    pub peer: SocketAddr,
    /// At which address of this host it came, or from which it is to go, where that is known.
    pub local: Option<IpAddr>,
    /// Its payload.
    pub data: BytesMut,
    /// Where `data` is several datagrams: the length of each but the last.
    pub segment: Option<usize>,
}

/// A connection of an endpoint. No two of an endpoint have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The bit that connections of an endpoint do not reach.
    const ELSEWHERE: u64 = 1 << 63;

    /// A connection of something else than an endpoint, that is driven beside one: no two of the same number are told apart.
    pub const fn elsewhere(number: u64) -> Self {
        Self(number | Self::ELSEWHERE)
    }

    /// Whether it is such a one.
    pub const fn is_elsewhere(self) -> bool {
        self.0 & Self::ELSEWHERE != 0
    }
}

/// A stream of a connection, as QUIC numbers them (RFC 9000, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A stream of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    /// Its connection.
    pub connection: ConnectionId,
    /// The stream.
    pub stream: StreamId,
}

/// Which ways a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both.
    Both,
    /// From who opened it.
    One,
}

/// An application's error code (RFC 9000, section 20.2), at most 2^62 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code(pub u64);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How a side of a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All that was written, and no more.
    Finish,
    /// Nothing more is sent, of what was written neither.
    Reset(Code),
    /// Nothing more is read; the peer is asked to send no more.
    Stop(Code),
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, at least one.
    Data(Bytes),
    /// Nothing for now: [`Event::Readable`] will come.
    Blocked,
    /// The peer has finished: there is no more.
    Finished,
    /// The peer has reset the stream.
    Reset(Code),
}

/// The stream, or its connection, is gone, or this side of it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stream has ended")]
pub struct Closed;

/// No stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unopened {
    /// The peer allows no more at once: [`Event::Available`] will come.
    #[error("the peer allows no more streams for now")]
    Limited,
    /// The connection is gone.
    #[error("the connection has ended")]
    Gone,
}

/// What an endpoint tells its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Streams may be opened, though the handshake is not through. On the side that connects what is written leaves with the first
    /// flight, by a ticket of the peer; a peer that has forgotten it is written it again after the handshake. On the side that is connected
    /// to, who the peer is is not known yet: it may be sent what anybody may know, and nothing comes of it.
    Early {
        /// The connection.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer's key is known: the handshake is through, or the peer that connects has resumed by a ticket what it was through with, and
    /// data may come with its first flight. That data comes once, however often the flight is sent. On the side that connected it is [`Endpoint::connect`](crate::Endpoint::connect)'s connection.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// The peer's key: one of those that are trusted.
        key: PublicKey,
    },
    /// The connection is gone, and all its streams.
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
    /// The peer has opened a stream.
    Opened(StreamRef),
    /// There may be something to read.
    Readable(StreamRef),
    /// There may be room to write.
    Writable(StreamRef),
    /// All of a stream that was finished has been acknowledged.
    Delivered(StreamRef),
    /// The peer wants no more of the stream.
    Stopped(StreamRef, Code),
    /// More streams may be opened.
    Available(ConnectionId, Direction),
    /// A DATAGRAM frame has come (RFC 9221).
    Datagram(ConnectionId, Bytes),
}

/// A DATAGRAM frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsent {
    /// It is longer than the path carries now, or than the peer takes: at most so many bytes.
    #[error("it is longer than the {0} bytes that the path carries")]
    TooLong(usize),
    /// As much waits already as is kept.
    #[error("as much waits already as is kept")]
    Full,
    /// The connection is gone, or its peer takes no DATAGRAM frames.
    #[error("the peer takes no DATAGRAM frames")]
    NoDatagrams,
}

/// A QUIC endpoint: a machine of datagrams, three verbs on streams, and DATAGRAM frames.
pub trait Quic: Machine<Packet = Datagram, Port = (), Event = Event> {
    /// Opens a stream.
    ///
    /// # Errors
    /// [`Unopened`].
    fn open(
        &mut self,
        connection: ConnectionId,
        direction: Direction,
    ) -> Result<StreamId, Unopened>;

    /// Writes as much of `data` as there is room for, and takes that off it. [`Event::Writable`] comes when there is room for
    /// more.
    ///
    /// # Errors
    /// [`Closed`].
    fn write(&mut self, stream: StreamRef, data: &mut Bytes) -> Result<usize, Closed>;

    /// Reads at most `most` bytes. What is not read holds the stream's window, so that the peer waits.
    ///
    /// # Errors
    /// [`Closed`].
    fn read(&mut self, stream: StreamRef, most: usize) -> Result<Read, Closed>;

    /// Ends a side of a stream.
    ///
    /// # Errors
    /// [`Closed`].
    fn end(&mut self, stream: StreamRef, end: End) -> Result<(), Closed>;

    /// The longest DATAGRAM frame's content that the path carries now; `None`: the connection is gone, or not ready, or its peer takes
    /// none.
    fn datagram_room(&mut self, connection: ConnectionId) -> Option<usize>;

    /// Sends a DATAGRAM frame, once: what is lost is not repeated. Streams and datagrams take turns where both have something to
    /// send.
    ///
    /// # Errors
    /// [`Unsent`].
    fn send_datagram(&mut self, connection: ConnectionId, data: Bytes) -> Result<(), Unsent>;

    /// Ends a connection and all its streams; the peer is told `code` and `reason`.
    fn close(&mut self, connection: ConnectionId, code: Code, reason: &str, now: Instant);
}
