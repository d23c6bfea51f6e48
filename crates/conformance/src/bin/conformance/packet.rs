//! Packets as octets, written and read by etherparse: not by the code under test.

use crate::script::{Cookie, Flags, TcpOption};
use anyhow::{Context, Result, bail, ensure};
use core::net::{IpAddr, SocketAddr};
use etherparse::{
    Icmpv4Type, IpEcn, IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetSlice,
    PacketBuilder, SlicedPacket, TcpHeader, TransportSlice, icmpv4::DestUnreachableHeader,
};

/// A segment with true addresses and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<TcpOption>,
    /// Bytes of payload, all zero.
    pub(crate) length: u32,
}

const HOPS: u8 = 255;
/// The kind of TCP Fast Open's option (RFC 7413, section 4.1.1).
const FAST_OPEN: u8 = 34;

impl Segment {
    /// Its octets, with right checksums.
    pub(crate) fn emit(&self) -> Result<Vec<u8>> {
        let ip = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = Ipv4Header::new(0, HOPS, IpNumber::TCP, from.octets(), to.octets())?;
                ip.ecn = IpEcn::try_new(self.ecn)?;
                ip.dont_fragment = true;
                IpHeaders::Ipv4(ip, Default::default())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let ip = Ipv6Header {
                    traffic_class: self.ecn,
                    flow_label: Ipv6FlowLabel::ZERO,
                    payload_length: 0,
                    next_header: IpNumber::TCP,
                    hop_limit: HOPS,
                    source: from.octets(),
                    destination: to.octets(),
                };
                IpHeaders::Ipv6(ip, Default::default())
            }
            _ => bail!("the two ends of a packet are of different families"),
        };
        let (source, destination) = (self.source.port(), self.destination.port());
        let mut tcp = TcpHeader::new(source, destination, self.seq, self.window);
        let has = |flag: u16| self.flags.0 & flag != 0;
        (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (has(0x01), has(0x02), has(0x04), has(0x08));
        (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (has(0x10), has(0x20), has(0x40), has(0x80));
        (tcp.ns, tcp.acknowledgment_number) = (has(0x100), self.ack);
        tcp.urgent_pointer = self.urgent;
        let options = emit_options(&self.options);
        ensure!(
            options.len().is_multiple_of(4),
            "TCP options are padded by `nop` or `eol` to whole words"
        );
        tcp.set_options_raw(&options)
            .context("TCP options take at most 40 octets")?;
        let mut out = Vec::new();
        let payload = vec![0; self.length as usize];
        PacketBuilder::ip(ip)
            .tcp_header(tcp)
            .write(&mut out, &payload)?;
        Ok(out)
    }

    /// Reads the octets of a packet: `None` where it is no TCP.
    ///
    /// # Errors
    /// Wrong checksums, wrong lengths, and payload that is not zero.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let packet = SlicedPacket::from_ip(bytes).context("the stack sent a malformed packet")?;
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
            return Ok(None);
        };
        let (from, to, ecn, sum): (IpAddr, IpAddr, u8, u16) = match packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let whole = header.to_header();
                ensure!(
                    header.header_checksum() == whole.calc_header_checksum(),
                    "the checksum of the IP header is wrong"
                );
                ensure!(
                    usize::from(header.total_len()) == bytes.len(),
                    "the IP header tells {} octets of {}",
                    header.total_len(),
                    bytes.len()
                );
                let sum = tcp.calc_checksum_ipv4(header.source(), header.destination())?;
                let ends = (header.source_addr(), header.destination_addr());
                (ends.0.into(), ends.1.into(), header.ecn().value(), sum)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header();
                let sum = tcp.calc_checksum_ipv6(header.source(), header.destination())?;
                let ends = (header.source_addr(), header.destination_addr());
                let ecn = header.traffic_class() & 3;
                (ends.0.into(), ends.1.into(), ecn, sum)
            }
            _ => return Ok(None),
        };
        ensure!(
            tcp.checksum() == sum,
            "the checksum of the segment is wrong"
        );
        let bits = [
            (tcp.fin(), 0x01),
            (tcp.syn(), 0x02),
            (tcp.rst(), 0x04),
            (tcp.psh(), 0x08),
            (tcp.ack(), 0x10),
            (tcp.urg(), 0x20),
            (tcp.ece(), 0x40),
            (tcp.cwr(), 0x80),
            (tcp.ns(), 0x100),
        ];
        let flags = bits.into_iter().filter(|(set, _)| *set);
        ensure!(
            tcp.payload().iter().all(|byte| *byte == 0),
            "the payload is not what was written"
        );
        Ok(Some(Self {
            source: SocketAddr::new(from, tcp.source_port()),
            destination: SocketAddr::new(to, tcp.destination_port()),
            ecn,
            flags: Flags(flags.fold(0, |all, (_, bit)| all | bit)),
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            window: tcp.window_size(),
            urgent: tcp.urgent_pointer(),
            options: read_options(tcp.options())?,
            length: u32::try_from(tcp.payload().len())?,
        }))
    }
}

/// An ICMP error about a segment of `length` bytes from `seq` on that `about` sent.
pub(crate) fn icmp(
    (kind, code, mtu): (u8, u8, u16),
    about: &Segment,
    seq: u32,
    length: u32,
) -> Result<Vec<u8>> {
    let quoted = Segment {
        seq,
        length,
        flags: Flags::ACK,
        options: Vec::new(),
        ..about.clone()
    };
    let quoted = quoted.emit()?;
    let (IpAddr::V4(from), IpAddr::V4(to)) = (about.destination.ip(), about.source.ip()) else {
        bail!("of ICMP only IPv4's is known here");
    };
    ensure!(kind == 3, "of ICMP only `unreachable` is known here");
    let header = DestUnreachableHeader::from_values(code, mtu).context("ICMP has no such code")?;
    let mut out = Vec::new();
    PacketBuilder::ipv4(from.octets(), to.octets(), HOPS)
        .icmpv4(Icmpv4Type::DestinationUnreachable(header))
        .write(&mut out, &quoted[..quoted.len().min(28)])?;
    Ok(out)
}

fn emit_options(options: &[TcpOption]) -> Vec<u8> {
    let mut out = Vec::new();
    for option in options {
        match option {
            TcpOption::Eol => out.push(0),
            TcpOption::Nop => out.push(1),
            TcpOption::Mss(size) => {
                out.extend([2, 4]);
                out.extend(size.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => out.extend([3, 3, *shift]),
            TcpOption::SackPermitted => out.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                out.extend([5, (2 + 8 * blocks.len()) as u8]);
                for (left, right) in blocks {
                    out.extend(left.to_be_bytes());
                    out.extend(right.to_be_bytes());
                }
            }
            TcpOption::Timestamps { value, echo } => {
                out.extend([8, 10]);
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            TcpOption::FastOpen(cookie) => {
                let octets = match cookie {
                    Cookie::Octets(octets) => octets.as_slice(),
                    Cookie::Request | Cookie::OfStack => &[],
                };
                out.extend([FAST_OPEN, (2 + octets.len()) as u8]);
                out.extend(octets);
            }
        }
    }
    out
}

fn read_options(mut bytes: &[u8]) -> Result<Vec<TcpOption>> {
    let word = |at: &[u8]| u32::from_be_bytes([at[0], at[1], at[2], at[3]]);
    let mut list = Vec::new();
    loop {
        let (option, length) = match *bytes {
            [] => return Ok(list),
            [0, ..] => (TcpOption::Eol, 1),
            [1, ..] => (TcpOption::Nop, 1),
            [2, 4, high, low, ..] => (TcpOption::Mss(u16::from_be_bytes([high, low])), 4),
            [3, 3, shift, ..] => (TcpOption::WindowScale(shift), 3),
            [4, 2, ..] => (TcpOption::SackPermitted, 2),
            [5, length, ..] if usize::from(length) <= bytes.len() && length % 8 == 2 => {
                let blocks = bytes[2..usize::from(length)]
                    .chunks_exact(8)
                    .map(|block| (word(block), word(&block[4..])));
                (TcpOption::Sack(blocks.collect()), usize::from(length))
            }
            [8, 10, ..] if bytes.len() >= 10 => {
                let (value, echo) = (word(&bytes[2..]), word(&bytes[6..]));
                (TcpOption::Timestamps { value, echo }, 10)
            }
            [FAST_OPEN, 2, ..] => (TcpOption::FastOpen(Cookie::Request), 2),
            [FAST_OPEN, length, ..] if (3..=bytes.len()).contains(&usize::from(length)) => {
                let octets = bytes[2..usize::from(length)].to_vec();
                (
                    TcpOption::FastOpen(Cookie::Octets(octets)),
                    usize::from(length),
                )
            }
            [kind, ..] => bail!(
                "the stack sent a TCP option of kind {kind} that is malformed or unknown here"
            ),
        };
        list.push(option);
        bytes = &bytes[length..];
    }
}
