//! Packet formats: the program works with typed headers, and bytes exist only at its edge.
//!
//! [`Packet`] is IPv4 or IPv6, then TCP, UDP or anything else, then a payload that may be absent, virtual (a stretch of
//! a stream whose bytes nobody needs) or real. It is small and moved by value; what is long or rare lies out of line.
//! `Packet::parse(emit(p)) == p` for every packet that `emit` accepts. A [`Segment`] is one of TCP without addresses
//! and ports, with which endpoints and proxies work, on real packets and in the simulator. What cannot be represented
//! is refused by [`Packet::parse`]: a driver passes its bytes on untouched.
//!
//! Lengths, checksums and the layout of TCP options are not part of a packet: they follow from the
//! rest when it is emitted. Sources: RFC 791, 8200, 9293, 7323, 2018, 3168, 768, 792, 4443, 1071;
//! virtio 1.2, section 5.1.6; CCSDS 714.0-B-2 ([`scps`]); draft-ietf-scone-protocol-08 ([`scone`]).
//!
//! Begin with [`Packet`].
#![forbid(unsafe_code)]

mod bytes;
pub mod checksum;
mod cut;
mod ecn;
mod error;
mod icmp;
mod ip;
mod ipv6_extensions;
mod packet;
mod payload;
pub mod pcapng;
mod plpmtu;
pub mod saratoga;
pub mod scone;
pub mod scps;
mod segment;
mod tcp;
mod udp;
mod virtio;

pub use ecn::{Ecn, ecn_of, mark};
pub use error::Error;
pub use icmp::{IcmpError, IcmpKind, least_path_mtu, told_path_mtu};
pub use ip::{Ip, Ipv4, Ipv6, protocol};
pub use ipv6_extensions::Extensions;
pub use packet::{Checksums, Packet, Transport};
pub use payload::Payload;
pub use plpmtu::{PlpmtuBounds, PlpmtuSearch};
pub use segment::Segment;
pub use tcp::{
    FastOpenCookie, FastOpenOption, Flags, RawOptions, SackBlock, SackBlocks, Tcp, TcpOptions,
    Timestamps,
};
pub use udp::Udp;
pub use virtio::{PartialChecksum, Segmentation, SegmentedProtocol, VirtioHeader};
