//! A host's half of TCP, without I/O: what stands between a network interface and many connections.
//!
//! [`Host`] is a machine ([`bentpipe_base::Machine`]): packets and the time go in, packets, events and a deadline come
//! out. It finds the connection of a packet, keeps listeners with a bounded backlog and SYN cookies behind it (RFC
//! 4987), chooses ports (RFC 6056) and initial sequence numbers (RFC 6528), answers what belongs to nobody with a
//! reset, hears ICMP errors (RFC 5927), keeps what it knows of paths (RFC 1191, 8201, 8899) and the connections in
//! TIME-WAIT (RFC 6191, 1337), makes cookies of TCP Fast Open and keeps those of servers (RFC 7413). What one connection does is [`bentpipe_tcp::Connection`]'s affair.
//!
//! It leaves out routing, neighbours and fragments: its driver hands it the packets for its addresses, whole.
//! Nothing here is drawn by chance or read from a clock: keys and times come as arguments, so that a simulation of a
//! host is repeated bit for bit.
//!
//! Begin with [`Host`]; `Tuple` names a connection, `table` finds it.
#![forbid(unsafe_code)]

mod config;
mod connect;
mod cookie;
mod counters;
mod fast_open;
mod host;
mod icmp;
mod input;
mod isn;
mod listener;
mod memory;
mod mtu_discovery;
mod path_mtu;
mod ports;
mod rate_limit;
mod secret;
mod table;
mod time_wait;
mod tuple;

pub use config::Config;
pub use connect::ConnectError;
pub use counters::Counters;
pub use fast_open::ServerCookie;
pub use host::{Event, Host, ListenError};
pub use listener::ListenerId;
pub use secret::Secret;
pub use table::ConnectionId;
pub use tuple::Tuple;
