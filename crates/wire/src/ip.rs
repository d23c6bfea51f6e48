//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers.

use crate::bytes::{array, be16, split};
use crate::checksum::{Sum, checksum};
use crate::ipv6_extensions::Extensions;
use crate::{Checksums, Error};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Numbers of the protocols that this crate reads (IANA).
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// TCP under compressed headers of SCPS-TP.
    pub const SCPS_TP: u8 = 105;
}

/// The network header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ip {
    /// Version 4.
    V4(Ipv4),
    /// Version 6; out of line, for it is twice as long as all else.
    V6(Box<Ipv6>),
}

/// An IPv4 header; version, lengths, protocol and checksum follow from the rest of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Who shall get it.
    pub destination: Ipv4Addr,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Hops left.
    pub ttl: u8,
    /// Common to the fragments of one packet.
    pub identification: u16,
    /// The three flags above the 13 bits of the fragment's offset in units of 8 bytes.
    pub flags_and_offset: u16,
    /// Options as they are on the wire: a multiple of 4 bytes, at most 40.
    pub options: Box<[u8]>,
}

/// An IPv6 header; version, length and next header follow from the rest of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Who sent it.
    pub source: Ipv6Addr,
    /// Who shall get it.
    pub destination: Ipv6Addr,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Extension headers, if any.
    pub extensions: Option<Box<Extensions>>,
}

impl Ipv4 {
    /// `flags_and_offset`: not to be fragmented.
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// Header bytes without options.
    pub const BARE: usize = 20;
    const MORE_FRAGMENTS: u16 = 0x2000;
    const OFFSET: u16 = 0x1fff;
    const WHAT: &'static str = "the IPv4 header";

    /// A header as hosts send it: 64 hops, not to be fragmented.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            source,
            destination,
            traffic_class: 0,
            ttl: 64,
            identification: 0,
            flags_and_offset: Self::DONT_FRAGMENT,
            options: Box::default(),
        }
    }

    /// The header, its protocol, and what the packet holds behind it.
    pub(crate) fn parse(bytes: &[u8], checksums: Checksums) -> Result<(Self, u8, &[u8]), Error> {
        let (fixed, _) = array::<20>(bytes, Self::WHAT)?;
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let total = usize::from(be16(fixed[2], fixed[3]));
        let malformed = |why| Error::Malformed {
            what: Self::WHAT,
            why,
        };
        if header_len < Self::BARE {
            return Err(malformed("its length field is below 5 words"));
        }
        if total < header_len {
            return Err(malformed("the total length is below the header's"));
        }
        let (whole, _) = split(bytes, total, "the IPv4 packet")?;
        let (header, body) = split(whole, header_len, Self::WHAT)?;
        if checksums == Checksums::Verify && checksum(header) != 0 {
            return Err(Error::Checksum { what: Self::WHAT });
        }
        let (source, destination) = (&fixed[12..16], &fixed[16..20]);
        let parsed = Self {
            source: address(source),
            destination: address(destination),
            traffic_class: fixed[1],
            ttl: fixed[8],
            identification: be16(fixed[4], fixed[5]),
            flags_and_offset: be16(fixed[6], fixed[7]),
            options: header[Self::BARE..].into(),
        };
        Ok((parsed, fixed[9], body))
    }

    /// Whether it is a piece of a larger packet: then no transport header can be read.
    pub const fn is_fragment(&self) -> bool {
        self.flags_and_offset & (Self::MORE_FRAGMENTS | Self::OFFSET) != 0
    }

    fn emit(&self, protocol: u8, body: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let header_len = Self::BARE + self.options.len();
        if header_len > 60 || !header_len.is_multiple_of(4) {
            return Err(Error::Inconsistent {
                why: "IPv4 options must be a multiple of 4 bytes and at most 40",
            });
        }
        let total = length_field("the IPv4 packet", header_len + body)?;
        let start = out.len();
        out.extend_from_slice(&[0x40 | (header_len / 4) as u8, self.traffic_class]);
        out.extend_from_slice(&total.to_be_bytes());
        out.extend_from_slice(&self.identification.to_be_bytes());
        out.extend_from_slice(&self.flags_and_offset.to_be_bytes());
        out.extend_from_slice(&[self.ttl, protocol, 0, 0]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&self.destination.octets());
        out.extend_from_slice(&self.options);
        let sum = checksum(&out[start..]);
        out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        Ok(())
    }
}

impl Ipv6 {
    /// Header bytes without extensions.
    pub const BARE: usize = 40;
    const WHAT: &'static str = "the IPv6 header";

    /// A header as hosts send it: 64 hops.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            source,
            destination,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            extensions: None,
        }
    }

    /// The header, the protocol after its extensions, and what the packet holds behind them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, u8, &[u8]), Error> {
        let (fixed, rest) = array::<40>(bytes, Self::WHAT)?;
        let (body, _) = split(
            rest,
            usize::from(be16(fixed[4], fixed[5])),
            "the IPv6 packet",
        )?;
        let (extensions, protocol, body) = Extensions::parse(fixed[6], body)?;
        let word = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        let (source, destination) = (&fixed[8..24], &fixed[24..40]);
        let parsed = Self {
            source: address(source),
            destination: address(destination),
            traffic_class: (word >> 20) as u8,
            hop_limit: fixed[7],
            flow_label: word & 0xf_ffff,
            extensions: extensions.map(Box::new),
        };
        Ok((parsed, protocol, body))
    }

    /// Whether it is a piece of a larger packet: then no transport header can be read.
    pub fn is_fragment(&self) -> bool {
        self.extensions
            .as_ref()
            .is_some_and(|extensions| extensions.is_fragment())
    }

    fn emit(&self, protocol: u8, body: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.flow_label > 0xf_ffff {
            return Err(Error::Inconsistent {
                why: "an IPv6 flow label has 20 bits",
            });
        }
        let extensions = self.extensions.as_deref();
        let (first, bytes) = match extensions {
            Some(extensions) => (extensions.first(), extensions.bytes()),
            None => (protocol, [].as_slice()),
        };
        if extensions.is_some_and(|extensions| extensions.protocol() != protocol) {
            return Err(Error::Inconsistent {
                why: "the last IPv6 extension header names another protocol than the packet's",
            });
        }
        let length = length_field("the IPv6 packet", bytes.len() + body)?;
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[first, self.hop_limit]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&self.destination.octets());
        out.extend_from_slice(bytes);
        Ok(())
    }
}

impl Ip {
    /// A header as hosts send it, from `source` to `destination`; `None` where these are of different families.
    pub fn between(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::V4(Ipv4::new(source, destination)))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6(Box::new(Ipv6::new(source, destination))))
            }
            _ => None,
        }
    }

    /// The header with `hops` hops left.
    #[must_use]
    pub fn with_hops(mut self, hops: u8) -> Self {
        match &mut self {
            Self::V4(ip) => ip.ttl = hops,
            Self::V6(ip) => ip.hop_limit = hops,
        }
        self
    }

    /// Who sent it.
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.source),
            Self::V6(ip) => IpAddr::V6(ip.source),
        }
    }

    /// Who shall get it.
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.destination),
            Self::V6(ip) => IpAddr::V6(ip.destination),
        }
    }

    /// Whether it is a piece of a larger packet: then no transport header can be read.
    pub fn is_fragment(&self) -> bool {
        match self {
            Self::V4(ip) => ip.is_fragment(),
            Self::V6(ip) => ip.is_fragment(),
        }
    }

    /// Bytes of the header, options and extensions included.
    pub fn header_len(&self) -> usize {
        match self {
            Self::V4(ip) => Ipv4::BARE + ip.options.len(),
            Self::V6(ip) => {
                let extensions = ip.extensions.as_ref();
                Ipv6::BARE + extensions.map_or(0, |extensions| extensions.bytes().len())
            }
        }
    }

    /// The part of the sum over TCP or UDP that covers addresses, protocol and length.
    pub(crate) fn pseudo_header(&self, protocol: u8, len: usize) -> Sum {
        let sum = match self {
            Self::V4(ip) => Sum::new()
                .with(&ip.source.octets())
                .with(&ip.destination.octets()),
            Self::V6(ip) => Sum::new()
                .with(&ip.source.octets())
                .with(&ip.destination.octets()),
        };
        // No packet is longer than 65,575 bytes, so the upper word is 0 or 1.
        sum.with_word(u16::from(protocol))
            .with_word((len >> 16) as u16)
            .with_word(len as u16)
    }

    pub(crate) fn emit(&self, protocol: u8, body: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Self::V4(ip) => ip.emit(protocol, body, out),
            Self::V6(ip) => ip.emit(protocol, body, out),
        }
    }
}

fn address<const N: usize, A: From<[u8; N]>>(bytes: &[u8]) -> A {
    let mut octets = [0; N];
    octets.copy_from_slice(bytes);
    octets.into()
}

fn length_field(what: &'static str, have: usize) -> Result<u16, Error> {
    u16::try_from(have).map_err(|_| Error::TooLong {
        what,
        have,
        most: usize::from(u16::MAX),
    })
}
