//! Performance-enhancing proxies (RFC 3135) as machines without I/O: [`snoop`] retransmits over the satellite link,
//! [`split`] ends connections on both sides, [`ack_filter`] thins acknowledgements.
//!
//! A proxy sits at the ground end of a satellite link ([`Side::Ground`] is the terrestrial network, [`Side::Space`] the
//! link), or at its other end with the sides exchanged. It is generic over the packets that it moves ([`Packet`]), which
//! it forwards as they are: a packet that it cannot read passes untouched and in order.
//!
//! The simulator runs them all in virtual time; the gateway runs the ACK filter on real acknowledgements
//! and [`snoop`] on connections whose policy says so. The gateway's
//! own splitting, with sockets of the kernel, is not here but in the crate `relay`; the TCP that a split's two legs speak is
//! in `tcp`. Begin with `packet.rs` and `proxy.rs`, the two contracts, then read one proxy. A new proxy is one file,
//! a variant of [`AnyPep`] and a line in [`REGISTRY`] here; what it is called in a scenario is in `scenario`
//! (`PepKind`, its parser and its writer), and the simulator's `build` makes it.
#![forbid(unsafe_code)]

pub mod ack_filter;
mod flow_table;
mod packet;
mod proxy;
mod registry;
pub mod snoop;
pub mod split;

pub use packet::{BuildPacket, Packet, SegmentView, host_of};
pub use proxy::{AnyPep, Pep, Side};
pub use registry::{REGISTRY, RegistryEntry};
