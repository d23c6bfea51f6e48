//! What the proxy moves: a packet that waits in a queue, or one that it has made.

use bentpipe_base::{Bytes, Seq};
use bentpipe_pep::{BuildPacket, Packet, SegmentView, host_of};
use bentpipe_sockets::nfqueue::Waiting;
use bentpipe_sockets::udp;
use bentpipe_wire::{
    self as wire, Checksums, Ecn, Flags, IcmpError, IcmpKind, Ipv6, Payload, Segment, Transport,
    told_path_mtu,
};
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

/// The destination and the source of a TCP segment that could not be [`read`] because its checksum is wrong, as far as anybody
/// can tell of what is damaged.
pub(crate) fn damaged(
    waiting: &Waiting<'_>,
    error: wire::Error,
) -> Option<(SocketAddr, SocketAddr)> {
    let wire::Error::Checksum { .. } = error else {
        return None;
    };
    let packet = wire::Packet::parse_headers(waiting.packet, Checksums::Ignore).ok()?;
    let Transport::Tcp(tcp) = &packet.transport else {
        return None;
    };
    let to = SocketAddr::new(packet.ip.destination(), tcp.destination);
    Some((to, SocketAddr::new(packet.ip.source(), tcp.source)))
}

/// What `packet`, if it is an ICMP error that says so, says of a packet of ours that was too long: its ends, its number, and what the path
/// takes.
pub(crate) fn too_long(packet: &wire::Packet) -> Option<((SocketAddr, SocketAddr), Seq, u16)> {
    let (Transport::Other { .. }, Payload::Bytes(body)) = (&packet.transport, &packet.payload)
    else {
        return None;
    };
    let error = IcmpError::parse(&packet.ip, body).ok()??;
    let IcmpKind::TooBig(next_hop) = error.kind else {
        return None;
    };
    let mtu = told_path_mtu(error.destination.ip(), next_hop, error.length)?;
    Some(((error.source, error.destination), error.seq, mtu))
}

/// A packet of ours, made of `bytes`, that is longer than its interface takes: its ends and its number.
pub(crate) fn ends_and_number(bytes: &[u8]) -> Option<((SocketAddr, SocketAddr), Seq)> {
    let packet = wire::Packet::parse(bytes, Checksums::Ignore).ok()?;
    let (view, segment) = (packet.view()?, packet.segment()?);
    Some(((view.source, view.destination), segment.seq))
}

/// What the path to `remote` takes, whose first hop does not take `length` bytes.
pub(crate) fn path_mtu(remote: SocketAddr, length: Bytes) -> Option<u16> {
    let known = udp::path_mtu(remote).map_or(Bytes(0), |mtu| Bytes(mtu.into()));
    // By the table that the question is answered from, the packet goes another way.
    let next_hop = if known < length { known } else { Bytes(0) };
    told_path_mtu(remote.ip(), next_hop, length)
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

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::Tcp;

    fn gathered(version: u8, length: usize) -> Vec<u8> {
        let end = |host: u8| match version {
            4 => SocketAddr::from(([10, 0, 0, host], 80)),
            _ => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, host.into()], 80)),
        };
        let segment = Segment {
            seq: Seq(7),
            flags: Flags::ACK | Flags::FIN,
            payload: Payload::from(vec![5; length]),
            ..Segment::default()
        };
        let packet = wire::Packet::build(end(1), end(2), segment, Bytes(0));
        packet.unwrap().to_vec().unwrap()
    }

    /// A packet that does not fit into a message is read as its first part, without the end behind the rest; with a checksum that
    /// is missing, whose packet is verified elsewhere.
    #[test]
    fn of_a_packet_that_is_cut_the_first_part_is_read() {
        for version in [4, 6] {
            let bytes = gathered(version, 3_000);
            let headers = bytes.len() - 3_000;
            let waiting = |packet, is_cut| Waiting {
                packet,
                is_cut,
                is_unverified: true,
                ..Waiting::default()
            };
            let whole = read(&waiting(&bytes, false)).unwrap();
            assert_eq!(whole.payload.len(), 3_000);
            assert!(read(&waiting(&bytes[..2_000], false)).is_err());
            let part = read(&waiting(&bytes[..2_000], true)).unwrap();
            assert_eq!(part.payload.len(), 2_000 - headers);
            let Transport::Tcp(Tcp { seq, flags, .. }) = part.transport else {
                panic!("{part:?}");
            };
            assert_eq!((seq, flags), (Seq(7), Flags::ACK));
        }
        let mut damaged = gathered(4, 100);
        damaged[60] ^= 1;
        for (is_unverified, is_read) in [(true, false), (false, true)] {
            let waiting = Waiting {
                packet: &damaged,
                is_unverified,
                ..Waiting::default()
            };
            let read = read(&waiting);
            assert_eq!(read.is_ok(), is_read);
            if let Err(error) = read {
                let ends = [2, 1].map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
                assert_eq!(super::damaged(&waiting, error), Some(ends.into()));
            }
        }
    }
}
