//! Tunnels between real sockets: a thread that drives a QUIC endpoint over UDP and carries TCP connections on it, at either end of
//! a satellite link.
//!
//! ```text
//! near: [`Near::carry`] hands in a client's socket and its target → a tunnel; [`Near::ask`] asks for one before there is a socket;
//!       [`Driver::carry_udp`] takes clients' datagrams from a [`ClientPort`] → a tunnel for each flow
//! far:  a tunnel is asked for → [`Policy`] → a dial by the kernel's TCP → a tunnel; or a connected UDP socket, where UDP is asked for
//! both: socket ↔ tunnel, half-closes and resets as they come
//! ```
//!
//! One loop ([`Driver`]) waits for all descriptors; the endpoint's deadline is its time-out, so that the pace of each connection is
//! kept by it. What a flow holds is at most one piece each way: the kernel's buffers and the tunnels' windows do the rest.
//!
//! Begin with [`Driver`].

mod awaited;
mod carriers;
mod certificate_files;
mod client_addresses;
mod client_udp;
mod datagram_flow;
mod dial;
mod driver;
mod driver_handle;
mod fall_back;
mod far_end;
mod far_end_limit;
mod first_flight;
mod flow;
mod identity_file;
mod link_settings;
mod near_end;
mod peer_liveness;
mod policing;
mod silence;
mod stalled;
mod target_policy;
mod tcp_port;
mod ticket;
mod udp_health;
mod udp_port;

pub use certificate_files::{CertificateFileError, CertificateFiles, read_certificate_key};
pub use client_addresses::ClientAddresses;
pub use client_udp::{ClientDatagram, ClientPort, ClientVerdict, UdpBounds, UdpEnds};
pub use datagram_flow::UdpStatus;
pub use driver::{Driver, DriverError};
pub use driver_handle::{ConnectionStatus, Counters, FecCounters, FecStatus, Handle, Status};
pub use far_end::{ClientLimits, Far};
pub use identity_file::{IdentityFileError, make_identity, read_identity};
pub use link_settings::Link;
pub use near_end::{Keep, Near, NoTunnel};
pub use target_policy::{Policy, Rule};
pub use tcp_port::TcpSettings;
pub use ticket::Ticket;
