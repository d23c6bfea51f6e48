//! QUIC for one leg of a pair of gateways, without I/O: quinn-proto behind the contract of all machines here
//! ([`Machine`](bentpipe_base::Machine): datagrams and the time go in, datagrams, events and a deadline come out) and
//! three verbs on streams ([`Quic`]: write, read, end), so that another stack can replace it.
//!
//! What a satellite's leg wants otherwise than the web:
//!
//! - **pace**: each connection sends at the rate of its congestion control by a token bucket of its own. quinn's pacer follows
//!   window and round-trip time alone, so that a window with room for repairs would be a queue.
//! - **congestion control** is one of [`bentpipe_cc`], as on the TCP legs: the share of the link's known rate, Hybla, CUBIC.
//! - **windows of flow control** follow from the link: data is read in order, so that one more product of rate and delay waits for
//!   each repetition that a packet may need ([`Path::stream_window`]). That of the connection is a bound of memory.
//! - **trust** is a list of public keys on either side ([`Identity`], [`PublicKey`]): no names, no authorities, no expiry; beside it
//!   [`Certificates`] for others' clients, by key or by authorities.
//!
//! - **the first flight** of a connection that is made again carries data, which is acted on once however often it is sent
//!   ([`Event::Early`]).
//! - **forward error correction** below QUIC's packets where both ends ask for it ([`Config::fec`]).
//!
//! Time is an argument; the stack's own instants are one base that the maker gives, and what has passed since. With a
//! seed, connection ids, packet numbers and grease follow from it, so that a run in virtual time repeats itself: times and
//! lengths of all datagrams, though not their bytes, for keys stay random.
//!
//! It leaves out what travels on the streams, HTTP/3 and connect-tcp. Not yet here: ECN.
//!
//! Begin with [`Quic`] and [`Endpoint`].
#![forbid(unsafe_code)]

mod address_validation_tokens;
mod certificates;
mod clock;
mod config;
mod congestion;
mod connection;
mod early_data;
mod endpoint;
mod hold_back;
mod keys;
mod network_path;
mod peer_verifier;
mod protection;
mod session_tickets;
mod stack_interface;
mod token_bucket;
mod trust;

pub use bentpipe_fec::{Overhead, Strength, is_repair};
pub use certificates::{Certificates, TlsServer, UnusableCertificate};
pub use config::{Config, ConfigError, Limits};
pub use congestion::{CongestionControl, UnusableControl};
pub use connection::ConnectionStats;
pub use endpoint::{ConnectError, Endpoint};
pub use keys::{Identity, IdentityError, ParseKeyError, PublicKey};
pub use network_path::{Path, TooManyGaps};
pub use protection::FecStats;
pub use stack_interface::{
    Closed, Code, ConnectionId, Datagram, Direction, End, Event, Quic, Read, StreamId, StreamRef,
    Unopened, Unsent,
};
