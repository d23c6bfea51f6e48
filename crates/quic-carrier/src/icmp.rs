//! Tells clients how long a datagram may be: ICMP's "fragmentation needed" (RFC 1191, section 4), ICMPv6's "packet too big" (RFC 4443,
//! section 3.2).

use bentpipe_wire::checksum::{Sum, checksum};
use bentpipe_wire::{Ip, Packet, Transport, protocol};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The most that are sent in a second: as many as an impatient client's probes need, and no more than a flood is worth.
pub(crate) const MOST: usize = 100;
/// Bytes of UDP's header.
const UDP: usize = 8;
/// What an error may be long at most: the least MTU of IPv6, less its own headers (RFC 4443, section 2.4); of IPv4 what hosts must take
/// (RFC 1812, section 4.3.2.3).
const QUOTED: [usize; 2] = [576 - 28, 1280 - 48];

/// Bounds what is sent.
#[derive(Debug)]
pub(crate) struct Budget {
    since: Instant,
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            left: MOST,
        }
    }
}

impl Budget {
    /// Whether one more may leave.
    pub(crate) fn take(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// The error about `packet`, of whose like a tunnel carries `room` bytes of payload; `None` where this machine has no address towards its
/// sender.
pub(crate) fn too_big(packet: &[u8], room: usize) -> Option<Vec<u8>> {
    let to = match packet.first()? >> 4 {
        4 => IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?),
    };
    message(packet, room, own_address(to)?, to)
}

/// The address by which this machine would ask `to` something.
fn own_address(to: IpAddr) -> Option<IpAddr> {
    let any = match to {
        IpAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        IpAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
    };
    let socket = UdpSocket::bind(any).ok()?;
    // Nothing is sent; the discard service's port stands for any.
    socket.connect((to, 9)).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

fn message(packet: &[u8], room: usize, own: IpAddr, to: IpAddr) -> Option<Vec<u8>> {
    let ip = Ip::between(own, to)?;
    let [v4, v6] = QUOTED.map(|most| packet.get(..most).unwrap_or(packet));
    let (protocol, mut body) = match ip {
        Ip::V4(_) => {
            let mtu = u16::try_from(room + 20 + UDP).ok()?;
            let head = [3, 4, 0, 0, 0, 0];
            let body = [&head[..], &mtu.to_be_bytes(), v4].concat();
            (protocol::ICMP, body)
        }
        Ip::V6(_) => {
            let mtu = u32::try_from(room + 40 + UDP).ok()?;
            let body = [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), v6].concat();
            (protocol::ICMPV6, body)
        }
    };
    let sum = match (own, to) {
        (IpAddr::V6(own), IpAddr::V6(to)) => {
            let length = body.len() as u32;
            let pseudo = [&own.octets()[..], &to.octets(), &length.to_be_bytes()].concat();
            let sum = Sum::default().with(&pseudo);
            sum.with_word(u16::from(protocol)).with(&body).finish()
        }
        _ => checksum(&body),
    };
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let packet = Packet {
        ip,
        transport: Transport::Other { protocol },
        payload: body.into(),
    };
    packet.to_vec().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;
    use bentpipe_wire::{Checksums, Udp};

    fn long_datagram(from: &str, to: &str) -> Vec<u8> {
        let packet = Packet {
            ip: Ip::between(from.parse().unwrap(), to.parse().unwrap()).unwrap(),
            transport: Transport::Udp(Udp {
                source: 5,
                destination: 443,
            }),
            payload: vec![7; 1452].into(),
        };
        packet.to_vec().unwrap()
    }

    #[test]
    fn the_error_tells_the_packet_that_would_fit_and_quotes_the_one_that_does_not() {
        for (from, to, own, header, longest) in [
            ("10.0.0.1", "192.0.2.9", "10.0.0.2", 20, 576),
            ("fd00::1", "2001:db8::9", "fd00::2", 40, 1280),
        ] {
            let packet = long_datagram(from, to);
            let (own, to) = (own.parse().unwrap(), from.parse().unwrap());
            let error = message(&packet, 1400, own, to).unwrap();
            assert!(error.len() <= longest, "{}", error.len());
            let parsed = Packet::parse(&error, Checksums::Verify).unwrap();
            assert_eq!((parsed.ip.source(), parsed.ip.destination()), (own, to));
            let body = &error[header..];
            let mtu = u16::from_be_bytes([body[6], body[7]]);
            assert_eq!(usize::from(mtu), 1400 + header + UDP);
            assert!(packet.starts_with(&body[8..]));
            let sum = match (own, to) {
                (IpAddr::V6(own), IpAddr::V6(to)) => Sum::default()
                    .with(&own.octets())
                    .with(&to.octets())
                    .with_word(body.len() as u16)
                    .with_word(58)
                    .with(body)
                    .finish(),
                _ => checksum(body),
            };
            assert_eq!(sum, 0);
        }
    }

    #[test]
    fn a_flood_gets_a_bounded_number() {
        let mut budget = Budget::default();
        let sent = (0..1000).filter(|_| budget.take()).count();
        assert_eq!(sent, MOST);
    }
}
