//! What the proxy moves: a packet that waits in a queue, or one that it has made.

use bentpipe_base::Bytes;
use bentpipe_pep::{BuildPacket, Packet, SegmentView, host_of};
use bentpipe_wire::{Ecn, Segment};
use std::net::{IpAddr, SocketAddr};

/// A packet.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) packet: bentpipe_wire::Packet,
    /// It waits in a queue; otherwise the proxy has made it.
    pub(crate) waits: bool,
}

impl Packet for Carried {
    type Endpoint = SocketAddr;
    type Host = IpAddr;

    fn host(end: SocketAddr) -> IpAddr {
        host_of(end.ip())
    }

    fn view(&self) -> Option<SegmentView<'_, SocketAddr>> {
        self.packet.view()
    }

    fn wire_length(&self) -> Bytes {
        self.packet.wire_length()
    }
}

impl BuildPacket for Carried {
    fn segment(&self) -> Option<Segment> {
        self.packet.segment()
    }

    fn is_plain(&self) -> bool {
        self.packet.is_plain()
    }

    fn ip_header(&self) -> Option<u16> {
        self.packet.ip_header()
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }

    fn with_ecn(self, ecn: Ecn) -> Self {
        Self {
            packet: self.packet.with_ecn(ecn),
            ..self
        }
    }

    fn code_point(&self) -> u8 {
        self.packet.code_point()
    }

    fn with_code_point(self, code_point: u8) -> Self {
        Self {
            packet: self.packet.with_code_point(code_point),
            ..self
        }
    }

    fn build(from: SocketAddr, to: SocketAddr, segment: Segment, length: Bytes) -> Option<Self> {
        let packet = bentpipe_wire::Packet::build(from, to, segment, length)?;
        Some(Self {
            packet,
            waits: false,
        })
    }
}
