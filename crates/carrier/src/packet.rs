//! What the proxy moves: a packet that waits in a queue, or one that it has made.

use bentpipe_base::Bytes;
use bentpipe_pep::{BuildPacket, Packet, SegmentView, host_of};
use bentpipe_sockets::nfqueue::Waiting;
use bentpipe_wire::{self as wire, Checksums, Ecn, Flags, Ipv6, Segment, Transport};
use std::net::{IpAddr, SocketAddr};

/// A packet.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) packet: wire::Packet,
    /// Where it waits; `None`: the proxy has made it.
    pub(crate) waits: Option<Held>,
}

/// The place of a packet that waits for its verdict: which queue, and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) place: usize,
    pub(crate) id: u32,
}

/// Reads a packet that waits. One that is longer than what a queue shows is read as its first part; the rest comes again.
pub(crate) fn read(waiting: &Waiting<'_>) -> Result<wire::Packet, wire::Error> {
    let checksums = match waiting.is_unverified {
        true => Checksums::Verify,
        false => Checksums::Ignore,
    };
    if !waiting.is_cut {
        return wire::Packet::parse(waiting.packet, checksums);
    }
    let mut bytes = waiting.packet.to_vec();
    let (at, header) = match bytes.first().map(|first| first >> 4) {
        Some(4) => (2, 0),
        _ => (4, Ipv6::BARE),
    };
    let length = (bytes.len().saturating_sub(header) as u16).to_be_bytes();
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&length);
    }
    let mut packet = wire::Packet::parse(&bytes, Checksums::Ignore)?;
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.flags = Flags::from_bits(tcp.flags.bits() & !Flags::FIN.bits());
    }
    Ok(packet)
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
        let packet = wire::Packet::build(from, to, segment, length)?;
        Some(Self {
            packet,
            waits: None,
        })
    }
}
