//! The contract of a packet: what a proxy must be able to read of it ([`Packet`]) and to make ([`BuildPacket`]).

use bentpipe_base::{Bytes, Seq};
use bentpipe_wire::{Ecn, Flags, Ip, Ipv4, Ipv6, SackBlock, Segment, Transport};
use core::fmt::Debug;
use core::hash::Hash;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A packet that a proxy can move, keep a copy of, and read if it is TCP in the clear.
///
/// A clone must be cheap: proxies keep one of each data segment under way.
pub trait Packet: Clone {
    /// One end of a connection: its address and port.
    type Endpoint: Copy + Ord + Debug;
    /// Who is at an end, as far as shares are concerned: its address, or the network that one host may have all addresses of.
    type Host: Copy + Ord + Hash + Debug;

    /// Who is at `end`.
    fn host(end: Self::Endpoint) -> Self::Host;

    /// Its TCP segment, or `None` when it carries none that can be read (another protocol, a
    /// fragment, encrypted).
    fn view(&self) -> Option<SegmentView<'_, Self::Endpoint>>;

    /// Bytes on the wire, from the first of the IP header to the last of the payload.
    fn wire_length(&self) -> Bytes;
}

/// A packet that a proxy can also make. Proxies that end connections themselves need this.
pub trait BuildPacket: Packet {
    /// Its TCP segment, as an endpoint takes it; `None` when it carries none that can be read.
    fn segment(&self) -> Option<Segment>;

    /// Whether [`Self::segment`] holds all that the packet says: it has no unknown options and no urgent data.
    fn is_plain(&self) -> bool;

    /// Bytes of its IP header without options or extensions: 20 of IPv4, 40 of IPv6. `None` where it does not say, as
    /// packets of the simulator: then all packets are of the version that the proxy is configured for.
    fn ip_header(&self) -> Option<u16>;

    /// The ECN field of its IP header.
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }

    /// This packet with `ecn` in its IP header.
    #[must_use]
    fn with_ecn(self, _ecn: Ecn) -> Self {
        self
    }

    /// The code point (DSCP) in its IP header.
    fn code_point(&self) -> u8 {
        0
    }

    /// This packet with `code_point` in its IP header.
    #[must_use]
    fn with_code_point(self, _code_point: u8) -> Self {
        self
    }

    /// Makes a packet of `segment`. It takes `length` bytes on the wire where that does not follow from the segment.
    /// `None`: no packet can go from `source` to `destination`, as from IPv4 to IPv6.
    fn build(
        source: Self::Endpoint,
        destination: Self::Endpoint,
        segment: Segment,
        length: Bytes,
    ) -> Option<Self>;
}

/// A TCP segment as proxies read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentView<'a, E> {
    /// Who sent it.
    pub source: E,
    /// Who it is for.
    pub destination: E,
    /// Number of the first payload byte, or of the SYN.
    pub seq: Seq,
    /// The byte expected next; valid with [`Flags::ACK`] only.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window field, before scaling.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// SACK blocks, the latest first.
    pub sack: &'a [SackBlock],
}

impl<E> SegmentView<'_, E> {
    /// Sequence numbers that it takes: payload, SYN and FIN (RFC 9293, SEG.LEN).
    pub fn sequence_length(&self) -> u32 {
        let counts = |flag| u32::from(self.flags.contains(flag));
        self.payload
            .saturating_add(counts(Flags::SYN) + counts(Flags::FIN))
    }

    /// The sequence number after its last byte.
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_length()
    }
}

/// Who has an address: its holder alone, and of IPv6 its network of 64 bits.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

impl Packet for bentpipe_wire::Packet {
    type Endpoint = SocketAddr;
    type Host = IpAddr;

    fn host(end: SocketAddr) -> IpAddr {
        host_of(end.ip())
    }

    fn view(&self) -> Option<SegmentView<'_, SocketAddr>> {
        let Transport::Tcp(tcp) = &self.transport else {
            return None;
        };
        let (source, destination): (IpAddr, IpAddr) = (self.ip.source(), self.ip.destination());
        Some(SegmentView {
            source: SocketAddr::new(source, tcp.source),
            destination: SocketAddr::new(destination, tcp.destination),
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: tcp.window,
            payload: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            sack: tcp.sack(),
        })
    }

    fn wire_length(&self) -> Bytes {
        self.length()
    }
}

impl BuildPacket for bentpipe_wire::Packet {
    fn segment(&self) -> Option<Segment> {
        let Transport::Tcp(tcp) = &self.transport else {
            return None;
        };
        Some(Segment::of_header(tcp.clone(), self.payload.clone()))
    }

    fn is_plain(&self) -> bool {
        match &self.transport {
            Transport::Tcp(tcp) => tcp.is_plain(),
            _ => false,
        }
    }

    fn ip_header(&self) -> Option<u16> {
        Some(match self.ip {
            Ip::V4(_) => Ipv4::BARE as u16,
            Ip::V6(_) => Ipv6::BARE as u16,
        })
    }

    fn ecn(&self) -> Ecn {
        self.ip.ecn()
    }

    fn with_ecn(self, ecn: Ecn) -> Self {
        Self::with_ecn(self, ecn)
    }

    fn code_point(&self) -> u8 {
        match &self.ip {
            Ip::V4(ip) => ip.traffic_class >> 2,
            Ip::V6(ip) => ip.traffic_class >> 2,
        }
    }

    fn with_code_point(mut self, code_point: u8) -> Self {
        let class = match &mut self.ip {
            Ip::V4(ip) => &mut ip.traffic_class,
            Ip::V6(ip) => &mut ip.traffic_class,
        };
        *class = code_point << 2 | *class & 0b11;
        self
    }

    fn build(from: SocketAddr, to: SocketAddr, segment: Segment, _: Bytes) -> Option<Self> {
        let ip = Ip::between(from.ip(), to.ip())?;
        Some(Self::of_segment(ip, from.port(), to.port(), segment))
    }
}
