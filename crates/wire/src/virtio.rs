//! The header of virtio's network devices (virtio 1.2, section 5.1.6), which also stands before each packet of a TUN
//! interface with `IFF_VNET_HDR`. It tells what the sender of a packet left to the device: the checksum, and cutting it
//! into segments.
//!
//! TUN's is the short form in the byte order of the machine (Linux, include/uapi/linux/virtio_net.h).

use crate::Error;

const WHAT: &str = "the virtio header";
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_IS_VALID: u8 = 2;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

/// A checksum that covers the pseudo-header alone so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The first byte that it is to cover, counted from the packet's first: the transport header.
    pub start: usize,
    /// Where it stands, counted from there.
    pub offset: usize,
}

/// The protocol of a packet of several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentedProtocol {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either.
    Udp,
}

/// A packet that stands for several segments, with one header for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// What is cut up.
    pub protocol: SegmentedProtocol,
    /// Payload of each segment but the last, in bytes; not 0.
    pub size: u16,
    /// CWR is set in the first segment alone (RFC 3168).
    pub ecn: bool,
}

/// The header: what is still to be done to the packet behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// The transport checksum is not complete.
    pub partial_checksum: Option<PartialChecksum>,
    /// Somebody has looked at the checksums already.
    pub checksum_is_valid: bool,
    /// The packet stands for several.
    pub segmentation: Option<Segmentation>,
    /// Bytes of all headers of a packet with `segmentation`: a hint.
    pub headers: u16,
}

impl VirtioHeader {
    /// Its bytes.
    pub const LEN: usize = 10;

    /// Reads the header, and says where the packet begins.
    ///
    /// # Errors
    /// What is cut short, and kinds of segmentation that are not known.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let Some((head, packet)) = bytes.split_first_chunk::<{ Self::LEN }>() else {
            return Err(Error::Truncated {
                what: WHAT,
                need: Self::LEN,
                have: bytes.len(),
            });
        };
        let word = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let malformed = |why| Error::Malformed { what: WHAT, why };
        let (flags, kind, size) = (head[0], head[1], word(4));
        let protocol = match kind & !ECN {
            0 => None,
            TCP_V4 => Some(SegmentedProtocol::TcpV4),
            TCP_V6 => Some(SegmentedProtocol::TcpV6),
            UDP => Some(SegmentedProtocol::Udp),
            _ => return Err(malformed("its kind of segmentation is not known")),
        };
        if protocol.is_some() && size == 0 {
            return Err(malformed("segments of no bytes"));
        }
        let header = Self {
            partial_checksum: (flags & NEEDS_CHECKSUM != 0).then(|| PartialChecksum {
                start: usize::from(word(6)),
                offset: usize::from(word(8)),
            }),
            checksum_is_valid: flags & CHECKSUM_IS_VALID != 0,
            segmentation: protocol.map(|protocol| Segmentation {
                protocol,
                size,
                ecn: kind & ECN != 0,
            }),
            headers: word(2),
        };
        Ok((header, packet))
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut flags = 0;
        let (mut start, mut offset) = (0, 0);
        if let Some(partial) = self.partial_checksum {
            flags |= NEEDS_CHECKSUM;
            // Both lie within the longest headers, which are far shorter.
            (start, offset) = (partial.start as u16, partial.offset as u16);
        }
        if self.checksum_is_valid {
            flags |= CHECKSUM_IS_VALID;
        }
        let (kind, size) = self.segmentation.map_or((0, 0), |segmentation| {
            let kind = match segmentation.protocol {
                SegmentedProtocol::TcpV4 => TCP_V4,
                SegmentedProtocol::TcpV6 => TCP_V6,
                SegmentedProtocol::Udp => UDP,
            };
            let ecn = if segmentation.ecn { ECN } else { 0 };
            (kind | ecn, segmentation.size)
        });
        let mut bytes = [0; Self::LEN];
        bytes[0] = flags;
        bytes[1] = kind;
        let words = [self.headers, size, start, offset];
        for (at, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            at.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes: [u8; 12]) {
            if let Ok((header, packet)) = VirtioHeader::parse(&bytes) {
                prop_assert_eq!(packet, &bytes[10..]);
                let again = header.to_bytes();
                prop_assert_eq!(VirtioHeader::parse(&again), Ok((header, &[][..])));
            }
        }
    }

    #[test]
    fn short_and_strange_headers_are_refused() {
        assert!(matches!(
            VirtioHeader::parse(&[0; 9]),
            Err(Error::Truncated { .. })
        ));
        let mut bytes = [0; 10];
        bytes[1] = 3;
        assert!(matches!(
            VirtioHeader::parse(&bytes),
            Err(Error::Malformed { .. })
        ));
        bytes[1] = TCP_V4;
        assert!(matches!(
            VirtioHeader::parse(&bytes),
            Err(Error::Malformed { .. })
        ));
    }
}
