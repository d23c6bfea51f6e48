//! Reads a client's SYN: its addresses, and the options that matter for a split.

use bentpipe_base::Seq;
use bentpipe_wire::{Checksums, Flags, Ip, Ipv4, Packet, Transport, scps};
use std::net::{IpAddr, SocketAddr};

/// TCP Fast Open (RFC 7413): a listener that does not know the client's cookie ignores it, and its
/// data is sent again.
const FAST_OPEN: u8 = 34;

/// A connection by the addresses of its client and its server.
pub type Ends = (SocketAddr, SocketAddr);

/// A client's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Client and server.
    pub ends: Ends,
    /// The client's first sequence number: a SYN that comes again has the same.
    pub seq: Seq,
    /// What it asks of the way.
    pub service: SynOptions,
    /// The first option that a split would break: Multipath TCP (30), TCP-MD5 (19), TCP-AO (29), and
    /// any that this program does not know.
    pub foreign_option: Option<u8>,
    /// It offers SCPS-TP, which a split breaks, unless it speaks that itself.
    pub scps: bool,
}

/// What a SYN asks of the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// DSCP in the upper six bits; the lower two are 0.
    pub class: u8,
    /// Explicit congestion notification (RFC 3168, section 6.1.1).
    pub ecn: bool,
    /// The largest segment that it is to be sent, in bytes of payload, if it says so: as the operator's rules
    /// have left it.
    pub mss: Option<u16>,
    /// Its packets may be cut into fragments on the way (IPv4 without DF): whoever sent it does not look for the path's
    /// MTU.
    pub fragments: bool,
}

impl Syn {
    /// Reads a packet from its IP header on; `None` when it is no SYN that can be read, and split.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        Self::read(packet, Checksums::Ignore)
    }

    /// The same of a SYN's headers alone, though data came behind them (TCP Fast Open): the kernel saves no more of one.
    pub fn parse_headers(headers: &mut [u8]) -> Option<Self> {
        let length = u16::try_from(headers.len()).ok()?;
        let (at, length) = match headers.first()? >> 4 {
            4 => (2, length),
            _ => (4, length.checked_sub(40)?),
        };
        let told = headers.get_mut(at..at + 2)?;
        told.copy_from_slice(&length.to_be_bytes());
        Self::parse(headers)
    }

    /// The same as [`Self::parse`], and `None` when its checksum is wrong, so that no receiver would take it: for packets that are forwarded, which
    /// nobody has checked.
    pub fn parse_forwarded(packet: &[u8]) -> Option<Self> {
        Self::read(packet, Checksums::Verify)
    }

    fn read(packet: &[u8], checksums: Checksums) -> Option<Self> {
        let packet = Packet::parse(packet, checksums).ok()?;
        let Transport::Tcp(tcp) = packet.transport else {
            return None;
        };
        let (source, destination, traffic_class): (IpAddr, IpAddr, u8) = match &packet.ip {
            Ip::V4(ip) => (ip.source.into(), ip.destination.into(), ip.traffic_class),
            Ip::V6(ip) => (ip.source.into(), ip.destination.into(), ip.traffic_class),
        };
        // Sockets take ::ffff:a.b.c.d for a.b.c.d: a dial would go over IPv4, past what rules say of IPv4.
        if source.to_canonical() != source || destination.to_canonical() != destination {
            return None;
        }
        let fragments = match &packet.ip {
            Ip::V4(ip) => ip.flags_and_offset & Ipv4::DONT_FRAGMENT == 0,
            Ip::V6(_) => false,
        };
        let options = tcp.options.as_deref();
        let unknown = options.and_then(|options| options.unknown.as_deref());
        // A known kind appears among the unknown options when it is malformed.
        let kinds = || unknown.into_iter().flat_map(|unknown| unknown.kinds());
        let is_scps = |kind: &u8| scps::KINDS.contains(kind);
        Some(Self {
            ends: (
                SocketAddr::new(source, tcp.source),
                SocketAddr::new(destination, tcp.destination),
            ),
            seq: tcp.seq,
            service: SynOptions {
                class: traffic_class & !3,
                ecn: tcp.flags.contains(Flags::ECE | Flags::CWR),
                mss: options.and_then(|options| options.mss),
                fragments,
            },
            foreign_option: kinds().find(|kind| *kind != FAST_OPEN && !is_scps(kind)),
            scps: kinds().any(|kind| is_scps(&kind)),
        })
    }
}

/// Lowers the MSS option of the SYN `packet`, an IP packet with right checksums, to `mss`. Returns false, with nothing changed, where
/// it says no more anyway, and where the packet is not whole.
pub fn lower_mss(packet: &mut [u8], mss: u16) -> bool {
    let Some((tcp, at)) = find_mss(packet).filter(|(_, at)| number(packet, *at) > Some(mss)) else {
        return false;
    };
    let (Some(before), Some(sum)) = (number(packet, at), number(packet, tcp + 16)) else {
        return false;
    };
    // RFC 1624, equation 3. The words of the sum begin at even places.
    let word = |number: u16| {
        if (at - tcp).is_multiple_of(2) {
            number
        } else {
            number.swap_bytes()
        }
    };
    let mut all = u32::from(!sum) + u32::from(!word(before)) + u32::from(word(mss));
    while all > 0xffff {
        all = (all >> 16) + (all & 0xffff);
    }
    packet[at..at + 2].copy_from_slice(&mss.to_be_bytes());
    packet[tcp + 16..tcp + 18].copy_from_slice(&(!(all as u16)).to_be_bytes());
    true
}

fn number(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// Where the TCP header of `packet` begins, and where the number in its MSS option does.
fn find_mss(packet: &[u8]) -> Option<(usize, usize)> {
    let (tcp, protocol, length) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            (header, packet.get(9)?, usize::from(number(packet, 2)?))
        }
        _ => (40, packet.get(6)?, usize::from(number(packet, 4)?) + 40),
    };
    if *protocol != 6 || length != packet.len() {
        return None;
    }
    let end = tcp + usize::from(packet.get(tcp + 12)? >> 4) * 4;
    let mut at = tcp + 20;
    while at < end {
        let [kind, size] = [packet.get(at)?, packet.get(at + 1).unwrap_or(&0)];
        match (kind, size) {
            (0, _) => return None,
            (1, _) => at += 1,
            (2, 4) if at + 4 <= end.min(length) => return Some((tcp, at + 2)),
            (_, 2..) => at += usize::from(*size),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::{Ipv6, Payload, RawOptions, Tcp, TcpOptions};
    use proptest::prelude::*;

    fn syn(options: &[u8]) -> Vec<u8> {
        let mut ip = Ipv4::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
        ip.traffic_class = 0xb8;
        let tcp = Tcp {
            source: 40_000,
            destination: 80,
            seq: Seq(7),
            flags: Flags::SYN,
            options: TcpOptions {
                mss: Some(1460),
                sack_permitted: true,
                unknown: RawOptions::new(options).map(Box::new),
                ..TcpOptions::default()
            }
            .boxed(),
            ..Tcp::default()
        };
        let packet = Packet {
            ip: Ip::V4(ip),
            transport: Transport::Tcp(tcp),
            payload: Payload::Absent,
        };
        packet.to_vec().unwrap()
    }

    #[test]
    fn addresses_that_sockets_take_for_others_are_of_nobody_to_split() {
        let addresses =
            ["2001:db8::1", "::ffff:192.0.2.1", "::192.0.2.1"].map(|ip| ip.parse().unwrap());
        let parsed = |source, destination| {
            let packet = Packet {
                ip: Ip::V6(Ipv6::new(source, destination).into()),
                transport: Transport::Tcp(Tcp {
                    flags: Flags::SYN,
                    ..Tcp::default()
                }),
                payload: Payload::Absent,
            };
            Syn::parse_forwarded(&packet.to_vec().unwrap()).is_some()
        };
        let [plain, mapped, compatible] = addresses;
        assert!(parsed(plain, compatible) && parsed(compatible, plain));
        assert!(!parsed(plain, mapped) && !parsed(mapped, plain));
    }

    #[test]
    fn a_syn_tells_its_ends_and_its_class() {
        let expected = Syn {
            ends: (
                "192.0.2.1:40000".parse().unwrap(),
                "198.51.100.2:80".parse().unwrap(),
            ),
            seq: Seq(7),
            service: SynOptions {
                class: 0xb8,
                ecn: false,
                mss: Some(1460),
                fragments: false,
            },
            foreign_option: None,
            scps: false,
        };
        let mut packet = syn(&[]);
        assert_eq!(Syn::parse(&packet), Some(expected));
        assert_eq!(Syn::parse_forwarded(&packet), Some(expected));
        packet[20 + 3] ^= 1;
        assert_eq!(
            Syn::parse_forwarded(&packet),
            None,
            "another port by damage"
        );
        packet[20 + 3] ^= 1;
        packet[6] = 0;
        assert!(Syn::parse(&packet).unwrap().service.fragments);
        // ECE alone is no request.
        for (flags, ecn) in [(0x42, false), (0xc2, true)] {
            packet[20 + 13] = flags;
            assert_eq!(Syn::parse(&packet).unwrap().service.ecn, ecn);
        }
    }

    #[test]
    fn headers_are_read_whose_data_is_elsewhere() {
        let whole = syn(&[34, 2]);
        let mut headers = whole.clone();
        headers[3] += 100;
        assert_eq!(Syn::parse(&headers), None);
        assert_eq!(Syn::parse_headers(&mut headers), Syn::parse(&whole));
        for length in 0..whole.len() {
            assert_eq!(Syn::parse_headers(&mut whole.clone()[..length]), None);
        }
    }

    #[test]
    fn options_that_a_split_would_break_are_found() {
        for (options, found) in [
            (&[34, 2][..], None),
            (&[30, 4, 0, 1], Some(30)),
            (&[34, 2, 19, 4, 1, 1], Some(19)),
            (&[29, 4, 1, 1], Some(29)),
            (&[253, 4, 1, 1], Some(253)),
            // A window scale with a wrong length.
            (&[3, 4, 7, 7], Some(3)),
        ] {
            let syn = Syn::parse(&syn(options)).unwrap();
            assert_eq!(
                (syn.foreign_option, syn.scps),
                (found, false),
                "{options:?}"
            );
        }
        // As captured from the reference implementation of SCPS-TP, alone and beside MPTCP.
        for (options, found) in [
            (&[20, 4, 0x40, 0][..], None),
            (&[20, 4, 0x40, 0, 30, 4, 0, 1], Some(30)),
        ] {
            let syn = Syn::parse(&syn(options)).unwrap();
            assert_eq!((syn.foreign_option, syn.scps), (found, true), "{options:?}");
        }
    }

    #[test]
    fn an_mss_is_lowered_and_nothing_else() {
        for padding in [&[][..], &[1]] {
            // The option at an even place and at an odd one.
            let mut options = padding.to_vec();
            options.extend([2, 4, 5, 180]);
            options.resize(8, 1);
            let mut packet = syn(&[]);
            packet.truncate(40);
            packet.extend(options);
            (packet[3], packet[32]) = (48, 7 << 4);
            let mut packet = with_checksum(packet);
            let before = packet.clone();
            assert!(!lower_mss(&mut packet, 1460) && packet == before);
            assert!(lower_mss(&mut packet, 1360));
            let now = Syn::parse_forwarded(&packet).expect("a right checksum");
            let expected = Syn::parse(&before).unwrap();
            assert_eq!(now.service.mss, Some(1360));
            assert_eq!((now.ends, now.seq), (expected.ends, expected.seq));
            let mut cut = before[..47].to_vec();
            assert!(!lower_mss(&mut cut, 1000));
        }
    }

    /// `packet`, of IPv4, with the right checksum of its TCP segment.
    fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
        packet[10..12].fill(0);
        let sum = bentpipe_wire::checksum::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet[36..38].fill(0);
        let length = (packet.len() - 20) as u8;
        let pseudo = [&packet[12..20], &[0, 6, 0, length], &packet[20..]].concat();
        let sum = bentpipe_wire::checksum::checksum(&pseudo);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn what_is_no_tcp_is_no_syn() {
        let mut bytes = syn(&[]);
        assert!(Syn::parse(&bytes[..30]).is_none());
        assert!(Syn::parse(&[]).is_none());
        bytes[9] = 17;
        assert!(Syn::parse(&bytes).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Syn::parse(&bytes);
            let _ = lower_mss(&mut bytes, 100);
            let _ = Syn::parse_headers(&mut bytes);
        }

        /// A SYN that is damaged or cut off anywhere.
        #[test]
        fn any_damage_is_read_or_refused(
            damage in prop::collection::vec((0usize..60, any::<u8>()), 0..4),
            length in 0usize..=60,
        ) {
            let mut bytes = syn(&[30, 4, 0, 1, 34, 2]);
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            let _ = Syn::parse(&bytes);
            let _ = lower_mss(&mut bytes, 100);
            let _ = Syn::parse_headers(&mut bytes);
        }
    }
}
