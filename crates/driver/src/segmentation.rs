//! Gathers consecutive segments of one connection into one packet for the kernel (generic segmentation offload), so
//! that up to 64 kB take one call and one passage through its stack.

use bentpipe_wire::{
    Error, Flags, Ip, Packet, PartialChecksum, Segmentation, SegmentedProtocol, Tcp, Transport,
    VirtioHeader,
};

/// The longest IPv4 packet, and about as long a one of IPv6.
const LONGEST: usize = 65_535;

/// Segments that are gathered to one packet.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// The first of them.
    first: Option<Packet>,
    /// Room for the headers, then all payloads.
    bytes: Vec<u8>,
    /// Where the payloads begin.
    headers: usize,
    /// Payload of the first: no other has more, and all but the last have as much.
    size: usize,
    count: u64,
    /// The last has less, or its flags end what can be gathered.
    closed: bool,
    scratch: Vec<u8>,
}

impl Segments {
    /// Takes `packet` where it goes on what was gathered, or nothing was; gives it back where it does not.
    pub(crate) fn push(&mut self, packet: Packet) -> Option<Packet> {
        let Some(first) = &mut self.first else {
            self.begin(packet);
            return None;
        };
        let gathered = self.bytes.len() - self.headers;
        let follows = !self.closed
            && packet.payload.len() <= self.size
            && self.bytes.len() - VirtioHeader::LEN + packet.payload.len() <= LONGEST
            && follows(first, gathered, &packet);
        if !follows {
            return Some(packet);
        }
        let Transport::Tcp(next) = &packet.transport else {
            return Some(packet);
        };
        self.closed = packet.payload.len() < self.size || next.flags != Flags::ACK;
        // When the kernel cuts the packet up, it sets these flags in the last segment alone.
        if let Transport::Tcp(tcp) = &mut first.transport {
            tcp.flags = tcp.flags | next.flags;
        }
        packet.payload.emit(&mut self.bytes);
        self.count += 1;
        None
    }

    fn begin(&mut self, packet: Packet) {
        self.headers = VirtioHeader::LEN + packet.ip.header_len() + packet.transport.header_len();
        self.bytes.clear();
        self.bytes.resize(self.headers, 0);
        packet.payload.emit(&mut self.bytes);
        self.size = packet.payload.len();
        self.count = 1;
        self.closed = !is_first(&packet);
        self.first = Some(packet);
    }

    /// What was gathered, with its virtio header, and how many segments it is; nothing is gathered any more.
    pub(crate) fn take(&mut self) -> Result<Option<(&[u8], u64)>, Error> {
        let Some(first) = self.first.take() else {
            return Ok(None);
        };
        self.scratch.clear();
        self.scratch.resize(VirtioHeader::LEN, 0);
        let payload = self.bytes.len() - self.headers;
        let partial = first.emit_headers(payload, &mut self.scratch)?;
        let virtio = self.virtio(&first, partial).to_bytes();
        self.scratch[..VirtioHeader::LEN].copy_from_slice(&virtio);
        self.bytes[..self.headers].copy_from_slice(&self.scratch);
        Ok(Some((&self.bytes, self.count)))
    }

    fn virtio(&self, first: &Packet, partial_checksum: Option<PartialChecksum>) -> VirtioHeader {
        let protocol = match first.ip {
            Ip::V4(_) => SegmentedProtocol::TcpV4,
            Ip::V6(_) => SegmentedProtocol::TcpV6,
        };
        let segmentation = (self.count > 1).then_some(Segmentation {
            protocol,
            size: self.size as u16,
            ecn: false,
        });
        VirtioHeader {
            partial_checksum,
            checksum_is_valid: false,
            segmentation,
            headers: (self.headers - VirtioHeader::LEN) as u16,
        }
    }
}

/// Whether others may follow: a TCP segment with payload and no flag that would hold for those too.
fn is_first(packet: &Packet) -> bool {
    let Transport::Tcp(tcp) = &packet.transport else {
        return false;
    };
    tcp.flags == Flags::ACK && !packet.payload.is_empty()
}

/// Whether `next` goes on the stream of `first`, which has `gathered` bytes by now, and differs in nothing else.
fn follows(first: &Packet, gathered: usize, next: &Packet) -> bool {
    let (Transport::Tcp(head), Transport::Tcp(tcp)) = (&first.transport, &next.transport) else {
        return false;
    };
    let ends = Flags::PSH | Flags::FIN;
    let expected = Tcp {
        seq: head.seq + gathered as u32,
        flags: tcp.flags,
        ..head.clone()
    };
    let fits =
        tcp.flags.contains(Flags::ACK) && (tcp.flags.bits() & !(Flags::ACK | ends).bits()) == 0;
    fits && !next.payload.is_empty() && *tcp == expected && first.ip == next.ip
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Seq;
    use bentpipe_wire::{Checksums, Ipv4, Payload};
    use core::net::Ipv4Addr;

    fn segment(seq: u32, flags: Flags, len: usize) -> Packet {
        let bytes: Vec<u8> = (0..len).map(|i| (seq as usize + i) as u8).collect();
        Packet {
            ip: Ip::V4(Ipv4::new(
                Ipv4Addr::new(10, 0, 0, 1),
                Ipv4Addr::new(10, 0, 0, 2),
            )),
            transport: Transport::Tcp(Tcp {
                source: 5_000,
                destination: 80,
                seq: Seq(seq),
                ack: Seq(7),
                flags,
                window: 100,
                ..Tcp::default()
            }),
            payload: Payload::from(bytes.as_slice()),
        }
    }

    /// What the kernel is given for `packets`.
    fn gathered(packets: &[Packet]) -> Vec<(VirtioHeader, Packet)> {
        let mut segments = Segments::default();
        let mut given = Vec::new();
        let mut take = |segments: &mut Segments| {
            let (bytes, _) = segments.take().unwrap().unwrap();
            let (header, packet) = VirtioHeader::parse(bytes).unwrap();
            given.push((header, Packet::parse(packet, Checksums::Ignore).unwrap()));
        };
        for packet in packets {
            if let Some(packet) = segments.push(packet.clone()) {
                take(&mut segments);
                assert_eq!(segments.push(packet), None);
            }
        }
        take(&mut segments);
        given
    }

    #[test]
    fn what_follows_each_other_is_one_packet() {
        let sent = [
            segment(0, Flags::ACK, 1_000),
            segment(1_000, Flags::ACK, 1_000),
            segment(2_000, Flags::ACK | Flags::PSH, 300),
            segment(2_300, Flags::ACK, 1_000),
        ];
        let [(header, long), (alone, last)] = &gathered(&sent)[..] else {
            panic!("two packets");
        };
        let segmentation = Segmentation {
            protocol: SegmentedProtocol::TcpV4,
            size: 1_000,
            ecn: false,
        };
        assert_eq!(header.segmentation, Some(segmentation));
        assert_eq!(header.headers, 40);
        let whole = segment(0, Flags::ACK | Flags::PSH, 2_300);
        assert_eq!(*long, whole);
        assert_eq!((alone.segmentation, last), (None, &sent[3]));
    }

    #[test]
    fn nothing_is_gathered_that_differs() {
        let first = segment(0, Flags::ACK, 1_000);
        let gap = segment(1_001, Flags::ACK, 1_000);
        let longer = segment(1_000, Flags::ACK, 1_001);
        let reset = segment(1_000, Flags::ACK | Flags::RST, 1_000);
        let empty = segment(1_000, Flags::ACK, 0);
        let mut newer = segment(1_000, Flags::ACK, 1_000);
        if let Transport::Tcp(tcp) = &mut newer.transport {
            tcp.ack = Seq(8);
        }
        for other in [gap, longer, reset, empty, newer] {
            assert_eq!(gathered(&[first.clone(), other]).len(), 2);
        }
        let syn = segment(0, Flags::SYN, 1_000);
        assert_eq!(gathered(&[syn, segment(1_001, Flags::ACK, 10)]).len(), 2);
    }

    #[test]
    fn no_packet_is_longer_than_an_ip_packet_can_be() {
        let all: Vec<Packet> = (0..100)
            .map(|i| segment(i * 1_448, Flags::ACK, 1_448))
            .collect();
        let given = gathered(&all);
        assert!(given.len() > 2);
        let bytes: usize = given.iter().map(|(_, packet)| packet.payload.len()).sum();
        assert_eq!(bytes, 144_800);
    }
}
