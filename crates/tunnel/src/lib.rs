//! connect-tcp tunnels on the HTTP/3 connections of a QUIC endpoint, without I/O: what stands between the sockets of a gateway and
//! its satellite leg, on either side of it.
//!
//! ```text
//! near                                      far
//! open(target) → TunnelId, write at once  → Asked(tunnel, request)
//!                                           the driver dials
//! Answered(tunnel, Ok | Err(why))         ← accept | refuse
//! write, read, finish, reset              ↔ write, read, finish, reset
//! ```
//!
//! [`Side`] drives the endpoint ([`bentpipe_quic::Quic`], whichever stack), one HTTP/3 connection (h3wire) for each QUIC one, and
//! each tunnel's capsules ([`bentpipe_connect_tcp`]). It holds at most one piece of what was written to a tunnel until the stack
//! takes it, and nothing of what comes that is not read: there the stack's window is what bounds it.
//!
//! A tunnel of UDP (CONNECT-UDP) has no bytes but payloads: [`Side::send_udp`] and [`Event::Udp`], by QUIC's DATAGRAM frames, unordered
//! and never repeated.
//!
//! [`Http2`] carries the same tunnels on HTTP/2 over TCP, where UDP does not get through.
//!
//! It dials nothing and decides on nobody: that is the driver's.
//!
//! Begin with [`Side`].
#![forbid(unsafe_code)]

mod byte_relay;
mod datagram;
mod endpoint;
mod http2;
mod http3;
mod remembered_settings;
mod tunnel_requests;
mod tunnel_stream;

pub use datagram::{DatagramCounters, NotSent};
pub use endpoint::{Closed, Event, OpenError, Read, Role, Side, TunnelId};
pub use http2::Http2;
