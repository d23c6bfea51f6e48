//! Does what a virtio header leaves to the device: cuts a packet that stands for several into these, and completes checksums.
//!
//! The packets come out as a device would put them on the wire: headers byte for byte as in the packet that was cut (options
//! that nobody reads included), but for lengths, checksums, IPv4 identification, sequence numbers, and the flags that are of
//! the first or the last alone (RFC 9293; RFC 3168 for CWR).

use crate::ip::protocol;
use crate::{Checksums, Error, Ip, Packet, SegmentedProtocol, Transport, Udp, VirtioHeader};

const WHAT: &str = "the packet behind a virtio header";
/// Flags of the last segment alone, and of the first.
const LAST: u8 = 0x01 | 0x08;
const FIRST: u8 = 0x80;

impl VirtioHeader {
    /// The packets for which `bytes` stands, each with what is before its IP header, which begins at byte `network`, and
    /// with checksums that are complete. A packet that stands for itself, and lacks nothing, is given back as it is.
    ///
    /// # Errors
    /// What cannot be read, or is not what the header says.
    pub fn cut(&self, bytes: &[u8], network: usize) -> Result<Vec<Vec<u8>>, Error> {
        if self.segmentation.is_some() {
            return Parts::find(bytes, network)?.cut(self);
        }
        let mut whole = bytes.to_vec();
        if let Some(partial) = self.partial_checksum {
            // What is behind the packet is padding of the link. A packet that cannot be read has none that we know of.
            let end = Parts::find(bytes, network).map_or(bytes.len(), |parts| parts.end);
            let at = partial.start.saturating_add(partial.offset);
            let body = whole
                .get(partial.start..end)
                .filter(|_| at.saturating_add(2) <= end);
            let sum =
                crate::checksum::checksum(body.ok_or(malformed("its checksum is not in it"))?);
            // In UDP zero means "not computed", and any other has both zeros mean the same.
            let sum = if sum == 0 { 0xffff } else { sum };
            whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(vec![whole])
    }
}

const fn malformed(why: &'static str) -> Error {
    Error::Malformed { what: WHAT, why }
}

/// Where the parts of a packet begin.
struct Parts<'a> {
    bytes: &'a [u8],
    ip: Ip,
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    is_tcp: bool,
}

impl<'a> Parts<'a> {
    fn find(bytes: &'a [u8], network: usize) -> Result<Self, Error> {
        let packet = bytes.get(network..).unwrap_or_default();
        let read = Packet::parse_headers(packet, Checksums::Ignore)?;
        let transport = network + read.ip.header_len();
        let is_tcp = match read.transport {
            Transport::Tcp(_) => true,
            Transport::Udp(_) => false,
            Transport::Other { .. } => return Err(malformed("it is neither TCP nor UDP")),
        };
        let header = if is_tcp {
            // The upper four bits of this byte count words.
            usize::from(bytes[transport + 12] >> 4) * 4
        } else {
            Udp::LEN
        };
        let payload = transport + header;
        Ok(Self {
            end: payload + read.payload.len(),
            ip: read.ip,
            bytes,
            network,
            transport,
            payload,
            is_tcp,
        })
    }

    fn cut(&self, header: &VirtioHeader) -> Result<Vec<Vec<u8>>, Error> {
        let Some(segmentation) = header.segmentation else {
            return Ok(Vec::new());
        };
        let is_v4 = matches!(self.ip, Ip::V4(_));
        let fits = match segmentation.protocol {
            SegmentedProtocol::TcpV4 => self.is_tcp && is_v4,
            SegmentedProtocol::TcpV6 => self.is_tcp && !is_v4,
            SegmentedProtocol::Udp => !self.is_tcp,
        };
        let size = usize::from(segmentation.size);
        if !fits || size == 0 {
            return Err(malformed("it is not what its virtio header says"));
        }
        let payload = &self.bytes[self.payload..self.end];
        // One without payload is a packet too.
        let count = payload.len().div_ceil(size).max(1);
        let pieces = (0..count).map(|i| {
            let piece = &payload[i * size..payload.len().min((i + 1) * size)];
            self.piece(i, piece, (i * size, i + 1 == count))
        });
        Ok(pieces.collect())
    }

    /// Piece number `i`, which begins at byte `offset` of the payload.
    fn piece(&self, i: usize, piece: &[u8], (offset, is_last): (usize, bool)) -> Vec<u8> {
        let mut out = [&self.bytes[..self.payload], piece].concat();
        let length = out.len() - self.network;
        let put = |out: &mut [u8], at: usize, value: u16| {
            out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let ip = self.network;
        if let Ip::V4(header) = &self.ip {
            put(&mut out, ip + 2, length as u16);
            put(
                &mut out,
                ip + 4,
                header.identification.wrapping_add(i as u16),
            );
            put(&mut out, ip + 10, 0);
            let sum = crate::checksum::checksum(&out[ip..self.transport]);
            put(&mut out, ip + 10, sum);
        } else {
            put(&mut out, ip + 4, (length - 40) as u16);
        }
        let at = self.transport;
        let (number, place) = if self.is_tcp {
            let seq: [u8; 4] = out[at + 4..at + 8].try_into().expect("four bytes");
            let seq = u32::from_be_bytes(seq).wrapping_add(offset as u32);
            out[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
            if !is_last {
                out[at + 13] &= !LAST;
            }
            if i > 0 {
                out[at + 13] &= !FIRST;
            }
            (protocol::TCP, at + 16)
        } else {
            put(&mut out, at + 4, (Udp::LEN + piece.len()) as u16);
            (protocol::UDP, at + 6)
        };
        put(&mut out, place, 0);
        let body = &out[at..];
        let sum = self
            .ip
            .pseudo_header(number, body.len())
            .with(body)
            .finish();
        put(&mut out, place, if sum == 0 { 0xffff } else { sum });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, Ipv4, Ipv6, PartialChecksum, Payload, Segmentation, Tcp, TcpOptions};
    use bentpipe_base::Seq;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    const LINK: [u8; 14] = [7; 14];

    fn ip(v6: bool) -> Ip {
        if v6 {
            Ip::V6(Box::new(Ipv6::new(
                Ipv6Addr::LOCALHOST,
                Ipv6Addr::UNSPECIFIED,
            )))
        } else {
            Ip::V4(Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST))
        }
    }

    fn packet(v6: bool, tcp: bool, payload: Vec<u8>) -> Packet {
        let transport = if tcp {
            Transport::Tcp(Tcp {
                seq: Seq(u32::MAX - 1_000),
                flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR,
                options: TcpOptions {
                    mss: Some(1_000),
                    ..TcpOptions::default()
                }
                .boxed(),
                ..Tcp::default()
            })
        } else {
            Transport::Udp(Udp {
                source: 5,
                destination: 6,
            })
        };
        Packet {
            ip: ip(v6),
            transport,
            payload: Payload::from(payload),
        }
    }

    fn protocol_of(v6: bool, tcp: bool) -> SegmentedProtocol {
        match (tcp, v6) {
            (true, false) => SegmentedProtocol::TcpV4,
            (true, true) => SegmentedProtocol::TcpV6,
            (false, _) => SegmentedProtocol::Udp,
        }
    }

    proptest! {
        /// The pieces are right packets (the checksums are verified), and one behind the other the packet's payload; only the
        /// first may have CWR, only the last FIN and PSH.
        #[test]
        fn pieces_are_whole_packets_of_the_same_stream(
            v6: bool, tcp: bool, size in 1u16..2_000, payload in prop::collection::vec(any::<u8>(), 1..6_000), pad in 0usize..8,
        ) {
            let whole = packet(v6, tcp, payload.clone());
            let mut bytes = LINK.to_vec();
            whole.emit(&mut bytes).unwrap();
            bytes.resize(bytes.len() + pad, 0xee);
            let segmentation = Segmentation { protocol: protocol_of(v6, tcp), size, ecn: false };
            let header = VirtioHeader { segmentation: Some(segmentation), ..VirtioHeader::default() };
            let pieces = header.cut(&bytes, LINK.len()).unwrap();
            prop_assert_eq!(pieces.len(), payload.len().div_ceil(size.into()));
            let mut stream = Vec::new();
            for (i, piece) in pieces.iter().enumerate() {
                prop_assert_eq!(&piece[..LINK.len()], &LINK);
                let read = Packet::parse(&piece[LINK.len()..], Checksums::Verify).unwrap();
                prop_assert!(read.payload.len() <= size.into());
                prop_assert_eq!(read.length().0 as usize, piece.len() - LINK.len());
                if let (Transport::Tcp(now), Transport::Tcp(all)) = (&read.transport, &whole.transport) {
                    prop_assert_eq!(now.seq, all.seq + stream.len() as u32);
                    prop_assert_eq!(now.options.clone(), all.options.clone());
                    prop_assert_eq!(now.flags.contains(Flags::CWR), i == 0);
                    let ends = [Flags::FIN, Flags::PSH].map(|flag| now.flags.contains(flag));
                    prop_assert_eq!(ends, [i + 1 == pieces.len(); 2]);
                }
                read.payload.emit(&mut stream);
            }
            prop_assert_eq!(stream, payload);
        }

        /// A packet whose checksum is left to the device gets it; what lacks nothing stays as it is.
        #[test]
        fn checksums_are_completed(v6: bool, tcp: bool, payload in prop::collection::vec(any::<u8>(), 0..1_400)) {
            let whole = packet(v6, tcp, payload);
            let mut bytes = LINK.to_vec();
            whole.emit(&mut bytes).unwrap();
            prop_assert_eq!(VirtioHeader::default().cut(&bytes, LINK.len()).unwrap(), [bytes.clone()]);
            let mut left = LINK.to_vec();
            let partial = whole.emit_headers(whole.payload.len(), &mut left).unwrap().unwrap();
            whole.payload.emit(&mut left);
            let start = partial.start + LINK.len();
            let header = VirtioHeader {
                partial_checksum: Some(PartialChecksum { start, ..partial }),
                ..VirtioHeader::default()
            };
            // Both zeros are right for TCP; here the one is written that is for UDP too.
            let at = start + partial.offset;
            if bytes[at..at + 2] == [0, 0] {
                bytes[at..at + 2].fill(0xff);
            }
            prop_assert_eq!(header.cut(&left, LINK.len()).unwrap(), [bytes]);
        }

        /// Nonsense is refused or cut, and what comes out is bounded by what went in.
        #[test]
        fn anything_may_come(
            bytes in prop::collection::vec(any::<u8>(), 0..200), head: [u8; VirtioHeader::LEN], network in 0usize..300,
        ) {
            if let Ok((header, _)) = VirtioHeader::parse(&head)
                && let Ok(pieces) = header.cut(&bytes, network)
            {
                prop_assert!(pieces.iter().all(|piece| piece.len() <= bytes.len()));
                prop_assert!(pieces.len() <= bytes.len().max(1));
            }
        }
    }

    #[test]
    fn what_contradicts_its_header_is_refused() {
        let bytes = packet(false, true, vec![1; 3_000]).to_vec().unwrap();
        let says = |protocol, size| VirtioHeader {
            segmentation: Some(Segmentation {
                protocol,
                size,
                ecn: false,
            }),
            ..VirtioHeader::default()
        };
        for protocol in [SegmentedProtocol::TcpV6, SegmentedProtocol::Udp] {
            assert!(says(protocol, 1_000).cut(&bytes, 0).is_err());
        }
        assert!(says(SegmentedProtocol::TcpV4, 0).cut(&bytes, 0).is_err());
        assert!(
            says(SegmentedProtocol::TcpV4, 1_000)
                .cut(&bytes, 1)
                .is_err()
        );
        let beyond = PartialChecksum {
            start: 40,
            offset: usize::MAX,
        };
        let header = VirtioHeader {
            partial_checksum: Some(beyond),
            ..VirtioHeader::default()
        };
        assert!(header.cut(&bytes, 0).is_err());
    }
}
