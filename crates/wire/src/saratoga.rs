//! Saratoga version 1, a file transfer over UDP port 7542 (draft-wood-tsvwg-saratoga-22): its five
//! frames, big-endian, one a datagram.
//!
//! Offsets and sizes are *descriptors* of 16, 32, 64 or 128 bits ([`Width`]). A [`Data`] frame is its
//! header alone: [`Frame::parse`] hands the payload on as a slice, and whoever emits appends it, so
//! that the content of a file crosses no protocol machine. `parse(emit(f)) == f` for every frame
//! that `emit` accepts. Bits that the draft does not define are sent as 0 and not looked at.

mod beacon;
mod data;
mod descriptor;
mod entry;
mod error;
mod frame;
mod metadata;
mod reader;
mod request;
mod status;

pub use beacon::{Beacon, FreeSpace};
pub use data::{Data, Timestamp};
pub use descriptor::Width;
pub use entry::{Entry, EntryKind, Time, entries};
pub use error::FrameError;
pub use frame::{Capabilities, Frame, Kind, Willingness};
pub use metadata::{Checksum, Metadata};
pub use request::{MAX_PATH, Request, RequestKind};
pub use status::{Code, Hole, Status};

use std::net::{Ipv4Addr, Ipv6Addr};

/// The UDP port of every peer.
pub const PORT: u16 = 7542;
/// Where beacons go over IPv4; of the local link.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 108);
/// Where beacons go over IPv6; of the local link.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6c);
