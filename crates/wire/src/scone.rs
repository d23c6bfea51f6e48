//! SCONE (draft-ietf-scone-protocol-08): how a network tells QUIC's endpoints the rate that it has for them.
//!
//! A packet of a QUIC version of its own stands first in a datagram. Whoever forwards it may lower the rate in it, and
//! does nothing else: no key, no state, no packet more. This is the twin of `scone.bpf.c`, which does so in the kernel.
//!
//! ```text
//! octet  0                                1 2 3 4
//!        1, reserved, signal >> 1 (6)     version: signal & 1 (1), 0x6f7dc0fd (31)
//! ```
//!
//! Deviation: what stands behind these octets, lengths and connection IDs, is not looked at, as the draft's own pseudocode does not.

use crate::protocol;
use bentpipe_base::Rate;

/// The lower 31 bits of the version.
const VERSION: u32 = 0x6f7d_c0fd;
/// Octets that tell a SCONE packet, and its rate.
const LEN: usize = 5;

/// The rate that a network advises, as SCONE writes it: 100 kbit/s times 10^(n/20), or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Advice(u8);

impl Advice {
    /// No rate is known: what endpoints send, and above all that networks say.
    pub const UNKNOWN: Self = Self(127);

    /// The largest advice of no more than `rate`, or the smallest of all.
    pub fn within(rate: Rate) -> Self {
        let fits = |n: &u8| Self(*n).rate().is_some_and(|advised| advised <= rate);
        Self((0..127).rev().find(fits).unwrap_or(0))
    }

    /// The advice that stands as `signal` in packets, of 7 bits.
    pub const fn of_signal(signal: u8) -> Option<Self> {
        if signal > 127 {
            return None;
        }
        Some(Self(signal))
    }

    /// What it says; `None`: nothing.
    pub fn rate(self) -> Option<Rate> {
        let bits = 100_000.0 * 10f64.powf(f64::from(self.0) / 20.0);
        (self != Self::UNKNOWN).then_some(Rate::from_bits_per_sec(bits.round() as u64))
    }

    /// The number that stands in packets, of 7 bits.
    pub const fn signal(self) -> u8 {
        self.0
    }
}

/// The advice in a datagram that begins with a SCONE packet.
pub fn advice(datagram: &[u8]) -> Option<Advice> {
    let [first, version @ ..] = *datagram.first_chunk::<LEN>()?;
    let version = u32::from_be_bytes(version);
    if first & 0x80 == 0 || version & 0x7fff_ffff != VERSION {
        return None;
    }
    Some(Advice((first & 0x3f) << 1 | (version >> 31) as u8))
}

/// The first two octets of a SCONE packet that begins with `word`, with `advice` in them.
fn with(word: [u8; 2], Advice(signal): Advice) -> [u8; 2] {
    let [first, second] = word;
    [first & 0xc0 | signal >> 1, second & 0x7f | signal << 7]
}

/// Lowers the advice in an IP packet of UDP that begins with a SCONE packet, where it says more than `advice` or nothing, and mends the
/// checksum (RFC 1624, equation 3); whether it was lowered. Fragments, and IPv6 packets with extension headers, stay as they are.
pub fn lower(packet: &mut [u8], advice: Advice) -> bool {
    let Some(udp) = udp(packet) else {
        return false;
    };
    let Some(header) = packet.get(udp..udp + 8) else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let checksum = u16::from_be_bytes([header[6], header[7]]);
    let datagram = &mut packet[udp + 8..];
    if length < 8 + LEN || self::advice(datagram).is_none_or(|found| found <= advice) {
        return false;
    }
    let before = [datagram[0], datagram[1]];
    let after = with(before, advice);
    datagram[..2].copy_from_slice(&after);
    // Zero: there is none, in IPv4.
    if checksum != 0 {
        let [before, after] = [before, after].map(u16::from_be_bytes);
        let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
        let mended = if sum == 0xffff { sum } else { !sum };
        packet[udp + 6..udp + 8].copy_from_slice(&mended.to_be_bytes());
    }
    true
}

/// Where the UDP header of an IP packet begins; `None`: it is none of UDP, or the header stands elsewhere.
fn udp(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
            let length = usize::from(header[0] & 15) * 4;
            (length >= 20 && header[9] == protocol::UDP && !fragment).then_some(length)
        }
        6 => (*packet.get(6)? == protocol::UDP).then_some(40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checksums, Ip, Packet, Payload, Transport, Udp};
    use proptest::prelude::*;
    use std::net::IpAddr;

    /// A datagram that begins with a SCONE packet, and has a short header behind it.
    fn datagram(signal: u8) -> Vec<u8> {
        let mut octets = vec![0xc0, 0x6f, 0x7d, 0xc0, 0xfd, 2, 9, 9, 0, 0x40, 1, 2, 3];
        octets[0] |= signal >> 1;
        octets[1] |= signal << 7;
        octets
    }

    fn packet(ip: [IpAddr; 2], datagram: Vec<u8>) -> Vec<u8> {
        let packet = Packet {
            ip: Ip::between(ip[0], ip[1]).unwrap(),
            transport: Transport::Udp(Udp {
                source: 443,
                destination: 5000,
            }),
            payload: Payload::Bytes(Box::new(datagram.into())),
        };
        packet.to_vec().unwrap()
    }

    fn families() -> [[IpAddr; 2]; 2] {
        [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]]
            .map(|pair| pair.map(|ip| ip.parse().unwrap()))
    }

    #[test]
    fn rates_are_those_of_the_drafts_table() {
        let table = [
            (100_000, 0),
            (112_202, 1),
            (1_000_000, 20),
            (10_000_000, 40),
            (100_000_000, 60),
            (1_000_000_000, 80),
            (100_000_000_000, 120),
            (199_526_231_497, 126),
        ];
        for (bits, signal) in table {
            let rate = Rate::from_bits_per_sec(bits);
            assert_eq!(Advice(signal).rate(), Some(rate), "{signal}");
            assert_eq!(Advice::within(rate), Advice(signal), "{rate}");
        }
        assert_eq!(Advice::UNKNOWN.rate(), None);
        let rate = Rate::from_bits_per_sec;
        assert_eq!(Advice::within(rate(1)), Advice(0));
        assert_eq!(Advice::within(rate(9_999_999)), Advice(39));
        assert_eq!(Advice::within(rate(u64::MAX)), Advice(126));
    }

    #[test]
    fn advice_is_only_ever_lowered_and_the_checksum_is_right_again() {
        for ip in families() {
            for before in 0..=127 {
                let sent = packet(ip, datagram(before));
                for ours in [0, 1, 40, 41, 126] {
                    let mut passed = sent.clone();
                    let lowered = lower(&mut passed, Advice(ours));
                    assert_eq!(lowered, before > ours);
                    let expected = packet(ip, datagram(before.min(ours)));
                    assert_eq!(passed, expected);
                    assert!(Packet::parse(&passed, Checksums::Verify).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_gets_none() {
        let mut sent = packet(families()[0], datagram(127));
        sent[26..28].fill(0);
        assert!(lower(&mut sent, Advice(7)));
        assert_eq!(sent[26..28], [0, 0]);
        assert_eq!(advice(&sent[28..]), Some(Advice(7)));
    }

    #[test]
    fn what_is_no_scone_packet_stays_as_it_is() {
        let scone = datagram(127);
        let changed = |at: usize, value: u8| {
            let mut octets = scone.clone();
            octets[at] = value;
            octets
        };
        let others = [
            changed(0, 0x7f),
            changed(1, 0x6e),
            changed(4, 0xfc),
            scone[..4].to_vec(),
            Vec::new(),
        ];
        for ip in families() {
            for other in &others {
                let sent = packet(ip, other.clone());
                let mut passed = sent.clone();
                assert!(!lower(&mut passed, Advice(0)));
                assert_eq!(passed, sent);
            }
            // What is cut, of another protocol, or a fragment.
            let whole = packet(ip, scone.clone());
            for len in 0..whole.len() - scone.len() + LEN {
                assert!(!lower(&mut whole[..len].to_vec(), Advice(0)), "{len}");
            }
            let is_v4 = ip[0].is_ipv4();
            for (at, value) in [
                (if is_v4 { 9 } else { 6 }, 6),
                (if is_v4 { 6 } else { 0 }, 0x20),
            ] {
                let mut other = whole.clone();
                other[at] = value;
                assert!(!lower(&mut other, Advice(0)));
            }
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_lowered_once_or_not_touched(mut packet: Vec<u8>, first in 0x40u8..0x70, signal in 0u8..127) {
            if let Some(octet) = packet.first_mut() {
                *octet = first;
            }
            let before = packet.clone();
            if lower(&mut packet, Advice(signal)) {
                prop_assert!(!lower(&mut packet, Advice(signal)));
                let changed = before.iter().zip(&packet).filter(|(a, b)| a != b).count();
                prop_assert!((1..=4).contains(&changed));
            } else {
                prop_assert_eq!(packet, before);
            }
        }
    }
}
