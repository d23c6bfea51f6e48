//! ICMP errors about TCP packets of ours: ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443).
//!
//! An error quotes the beginning of the packet that it is about. Of TCP at least ports and sequence number are
//! there (RFC 792 asks for 8 bytes behind the IP header): enough to tell a true one from one that somebody made up
//! who has not seen the connection (RFC 5927, section 4.1).

use crate::bytes::be16;
use crate::checksum::checksum;
use crate::ip::protocol;
use crate::{Error, Extensions, Ip, Ipv4};
use bentpipe_base::{Bytes, Seq};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What an ICMP error says of a TCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What went wrong.
    pub kind: IcmpKind,
    /// Who had sent the packet.
    pub source: SocketAddr,
    /// Where it went.
    pub destination: SocketAddr,
    /// Its sequence number.
    pub seq: Seq,
    /// How long it was, from the first byte of its IP header to its end, as that header says.
    pub length: Bytes,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// No way leads there, or the host is down.
    Unreachable,
    /// The host has nobody at the port, or no TCP (ICMP 3/2 and 3/3, ICMPv6 1/4).
    Refused,
    /// A firewall forbids it (ICMP 3/9, 3/10 and 3/13, ICMPv6 1/1).
    Prohibited,
    /// The packet is too large for a link that takes this much (ICMP 3/4, ICMPv6 type 2); 0: the router does not say
    /// how much (RFC 1191, section 5).
    TooBig(Bytes),
    /// It was on its way for too long.
    TimeExceeded,
    /// Somebody did not understand its header.
    Parameter,
}

impl IcmpError {
    /// Reads the ICMP message `body` that came behind `ip`; `None` where it is no error, or none about TCP.
    ///
    /// # Errors
    /// A message that is cut short or damaged.
    pub fn parse(ip: &Ip, body: &[u8]) -> Result<Option<Self>, Error> {
        let Some((head, quoted)) = body.split_at_checked(8) else {
            return Err(Error::Truncated {
                what: "the ICMP message",
                need: 8,
                have: body.len(),
            });
        };
        let sum = match ip {
            Ip::V4(_) => checksum(body),
            Ip::V6(_) => ip
                .pseudo_header(protocol::ICMPV6, body.len())
                .with(body)
                .finish(),
        };
        if sum != 0 {
            return Err(Error::Checksum {
                what: "the ICMP message",
            });
        }
        let kind = match ip {
            Ip::V4(_) => v4(head),
            Ip::V6(_) => v6(head),
        };
        let Some(kind) = kind else {
            return Ok(None);
        };
        let packet = match ip {
            Ip::V4(_) => quoted_v4(quoted),
            Ip::V6(_) => quoted_v6(quoted),
        };
        Ok(packet.map(|((source, destination, seq), length)| Self {
            kind,
            source,
            destination,
            seq,
            length: Bytes(length),
        }))
    }
}

/// The least MTU of a path that is believed: what every IPv6 link takes (RFC 8200, section 5), and of IPv4 what Linux believes
/// (`net.ipv4.route.min_pmtu`, 512 + 20 + 20); smaller packets would serve an attacker more than a user.
pub const fn least_path_mtu(remote: IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => 552,
        IpAddr::V6(_) => 1_280,
    }
}

/// The sizes of links that are met (RFC 1191, section 7.1), for routers that do not say theirs.
const PLATEAUS: [u16; 7] = [8_166, 4_352, 2_002, 1_492, 1_006, 576, 552];

/// The largest packet that the path to `remote` takes, where one of `length` bytes was too large for a hop that takes `next_hop`
/// (RFC 1191, section 4; 0: the router does not say); `None` where that cannot be true.
pub fn told_path_mtu(remote: IpAddr, next_hop: Bytes, length: Bytes) -> Option<u16> {
    let told = match next_hop.0 {
        // The estimate is not lowered again for packets of the same length, because a burst of errors is about one
        // narrow link.
        0 => PLATEAUS
            .into_iter()
            .find(|size| u64::from(*size) < length.0)?,
        // A packet of this length would have passed, so the message is not believed.
        next_hop if length.0 <= next_hop => return None,
        next_hop => u16::try_from(next_hop).unwrap_or(u16::MAX),
    };
    Some(told.max(least_path_mtu(remote)))
}

/// What a message of ICMP says (RFC 792; codes of type 3 in RFC 1122, section 3.2.2.1 and RFC 1812, section 5.2.7.1).
fn v4(head: &[u8]) -> Option<IcmpKind> {
    Some(match (head[0], head[1]) {
        (3, 2 | 3) => IcmpKind::Refused,
        (3, 4) => IcmpKind::TooBig(Bytes(be16(head[6], head[7]).into())),
        (3, 9 | 10 | 13) => IcmpKind::Prohibited,
        (3, _) => IcmpKind::Unreachable,
        (11, _) => IcmpKind::TimeExceeded,
        (12, _) => IcmpKind::Parameter,
        _ => return None,
    })
}

/// What a message of ICMPv6 says (RFC 4443, section 3).
fn v6(head: &[u8]) -> Option<IcmpKind> {
    let mtu = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    Some(match (head[0], head[1]) {
        (1, 4) => IcmpKind::Refused,
        (1, 1) => IcmpKind::Prohibited,
        (1, _) => IcmpKind::Unreachable,
        (2, _) => IcmpKind::TooBig(Bytes(mtu.into())),
        (3, _) => IcmpKind::TimeExceeded,
        (4, _) => IcmpKind::Parameter,
        _ => return None,
    })
}

type Quoted = (SocketAddr, SocketAddr, Seq);

fn quoted_v4(bytes: &[u8]) -> Option<(Quoted, u64)> {
    let fixed = bytes.first_chunk::<20>()?;
    let header = usize::from(fixed[0] & 0xf) * 4;
    if fixed[0] >> 4 != 4 || header < Ipv4::BARE || fixed[9] != protocol::TCP {
        return None;
    }
    // Behind the first fragment there are no ports.
    if be16(fixed[6], fixed[7]) & 0x1fff != 0 {
        return None;
    }
    let source = Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]);
    let destination = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
    let length = be16(fixed[2], fixed[3]).into();
    let quoted = quoted_tcp(source.into(), destination.into(), bytes.get(header..)?)?;
    Some((quoted, length))
}

fn quoted_v6(bytes: &[u8]) -> Option<(Quoted, u64)> {
    let fixed = bytes.first_chunk::<40>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let (extensions, next, body) = Extensions::parse(fixed[6], &bytes[40..]).ok()?;
    if next != protocol::TCP || extensions.is_some_and(|extensions| extensions.is_fragment()) {
        return None;
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let length = 40 + u64::from(be16(fixed[4], fixed[5]));
    Some((quoted_tcp(address(8), address(24), body)?, length))
}

fn quoted_tcp(source: IpAddr, destination: IpAddr, tcp: &[u8]) -> Option<Quoted> {
    let head = tcp.first_chunk::<8>()?;
    Some((
        SocketAddr::new(source, be16(head[0], head[1])),
        SocketAddr::new(destination, be16(head[2], head[3])),
        Seq(u32::from_be_bytes([head[4], head[5], head[6], head[7]])),
    ))
}
