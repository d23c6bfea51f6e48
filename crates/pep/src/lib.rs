//! Performance-enhancing proxies as machines without I/O; the simulator runs them in virtual time, and
//! nothing yet runs them on real packets.
//!
//! A proxy sits at the ground end of a satellite link ([`Side::Ground`] is the terrestrial network,
//! [`Side::Space`] the link), or at its other end with the sides exchanged. It is generic over the
//! packets that it moves ([`Packet`]), which it forwards as they are: what it cannot read passes
//! untouched and in order. A new proxy is one file here and one line in [`registry()`].
#![forbid(unsafe_code)]

pub mod ack_filter;
mod flow_table;
mod packet;
mod proxy;
mod registry;
pub mod snoop;
pub mod split;

pub use bentpipe_tcp::Segment;
pub use packet::{BuildPacket, Packet, SegmentView};
pub use proxy::{AnyPep, Pep, Side};
pub use registry::{RegistryEntry, Settings, find, registry};
