//! What the layer sends: each packet of QUIC behind a header of its own, and repairs between them.
//!
//! ```text
//! octet   0      1 2        3          4 5 6 7
//! source  0x0c   loss       burst      id              the packet
//! repair  0x0d   loss       burst      first id        8 9: count   10 11: key   12 13: length   14...: symbol
//! ```
//!
//! All numbers are in network byte order. `loss` and `burst` tell what the sender has measured of the other direction
//! ([`Report`]). `length` and `symbol` are the lengths and the packets of the window, combined; key and window are the
//! repair key, NSS and FSS_ESI of RFC 8681, section 4.1.3. The first octets are below 64, where RFC 9443 has no QUIC packet begin whose
//! fixed bit is set, and between STUN's and DTLS's: a receiver tells packets of QUIC that come without a header, as
//! those of a handshake do.

use crate::{MAX_WINDOW, Report};
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

const SOURCE: u8 = 0x0c;
const REPAIR: u8 = 0x0d;

/// Octets in front of a packet.
pub const SOURCE_HEADER: usize = 8;
/// Octets by which a repair is longer than the longest packet that it protects: QUIC's packets must leave them.
pub const REPAIR_HEADER: usize = 14;

/// Whether a datagram begins as a frame does, and so as no packet of QUIC whose fixed bit is set.
pub fn is_frame(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(&(SOURCE | REPAIR)))
}

/// Whether a datagram begins as a repair does.
pub fn is_repair(datagram: &[u8]) -> bool {
    datagram.first() == Some(&REPAIR)
}

/// The source packets that a repair is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The id of the first.
    pub first: u32,
    /// How many follow one another, at least 1 and at most [`MAX_WINDOW`].
    pub count: u16,
}

/// A datagram of the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet of QUIC.
    Source {
        /// What its sender has measured.
        report: Report,
        /// Its number, which each packet increases by 1.
        id: u32,
        /// The packet.
        packet: Bytes,
    },
    /// A combination of packets.
    Repair {
        /// What its sender has measured.
        report: Report,
        /// What is combined.
        window: Window,
        /// What the factors are drawn from.
        key: u16,
        /// The lengths of the packets, combined.
        length: [u8; 2],
        /// The packets, combined, as long as the longest.
        symbol: Bytes,
    },
}

/// Why a datagram is no frame of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// It begins as no frame does.
    #[error("a datagram that does not begin as a source packet or a repair")]
    Foreign,
    /// It ends within its header.
    #[error("a frame of {0} octets, shorter than its header")]
    Short(usize),
    /// It says that it is made of no packet, or of more than there may be.
    #[error("a repair of {0} packets, where 1 to {MAX_WINDOW} are possible")]
    Window(u16),
}

impl Frame {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It is none of the layer's, or not whole.
    pub fn parse(datagram: &Bytes) -> Result<Self, ParseError> {
        let header = match datagram.first() {
            Some(&SOURCE) => SOURCE_HEADER,
            Some(&REPAIR) => REPAIR_HEADER,
            _ => return Err(ParseError::Foreign),
        };
        if datagram.len() < header {
            return Err(ParseError::Short(datagram.len()));
        }
        let at = |index: usize| u16::from_be_bytes([datagram[index], datagram[index + 1]]);
        let report = Report::from_wire([datagram[1], datagram[2], datagram[3]]);
        let id = u32::from(at(4)) << 16 | u32::from(at(6));
        let rest = datagram.slice(header..);
        if header == SOURCE_HEADER {
            return Ok(Self::Source {
                report,
                id,
                packet: rest,
            });
        }
        let count = at(8);
        if count == 0 || usize::from(count) > MAX_WINDOW {
            return Err(ParseError::Window(count));
        }
        Ok(Self::Repair {
            report,
            window: Window { first: id, count },
            key: at(10),
            length: [datagram[12], datagram[13]],
            symbol: rest,
        })
    }

    /// Writes it as a datagram.
    pub fn emit(&self) -> Bytes {
        let (kind, report, id, rest) = match self {
            Self::Source { report, id, packet } => (SOURCE, report, *id, packet),
            Self::Repair {
                report,
                window,
                symbol,
                ..
            } => (REPAIR, report, window.first, symbol),
        };
        let mut datagram = BytesMut::with_capacity(REPAIR_HEADER + rest.len());
        datagram.put_u8(kind);
        datagram.put_slice(&report.to_wire());
        datagram.put_u32(id);
        if let Self::Repair {
            window,
            key,
            length,
            ..
        } = self
        {
            datagram.put_u16(window.count);
            datagram.put_u16(*key);
            datagram.put_slice(length);
        }
        datagram.put_slice(rest);
        datagram.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: Report = Report {
        loss: 0x0102,
        burst: 0x18,
    };

    #[test]
    fn frames_are_laid_out_as_the_page_says() {
        let source = Frame::Source {
            report: REPORT,
            id: 0x0a0b_0c0d,
            packet: Bytes::from_static(b"packet"),
        };
        let wire = b"\x0c\x01\x02\x18\x0a\x0b\x0c\x0dpacket";
        assert_eq!(source.emit(), &wire[..]);
        let repair = Frame::Repair {
            report: REPORT,
            window: Window {
                first: 7,
                count: 0x0123,
            },
            key: 0x4567,
            length: [0x89, 0xab],
            symbol: Bytes::from_static(b"symbol"),
        };
        let wire = b"\x0d\x01\x02\x18\0\0\0\x07\x01\x23\x45\x67\x89\xabsymbol";
        assert_eq!(repair.emit(), &wire[..]);
    }

    #[test]
    fn what_is_no_frame_is_told_by_what_it_lacks() {
        let parse = |octets: &[u8]| Frame::parse(&Bytes::copy_from_slice(octets));
        assert_eq!(parse(b""), Err(ParseError::Foreign));
        assert_eq!(parse(b"\x40 a short header"), Err(ParseError::Foreign));
        assert_eq!(parse(b"\xc3 a long header"), Err(ParseError::Foreign));
        assert_eq!(parse(b"\x0c234567"), Err(ParseError::Short(7)));
        assert_eq!(parse(b"\x0d234567890123"), Err(ParseError::Short(13)));
        assert_eq!(parse(&[0x0d; 14]), Err(ParseError::Window(0x0d0d)));
        let mut none = [0; 14];
        none[0] = 0x0d;
        assert_eq!(parse(&none), Err(ParseError::Window(0)));
    }

    proptest! {
        #[test]
        fn any_datagram_that_parses_is_written_as_it_was(mut octets: Vec<u8>, kind in 0x0cu8..0x0e) {
            if let Some(first) = octets.first_mut() {
                *first = kind;
            }
            let datagram = Bytes::from(octets);
            if let Ok(frame) = Frame::parse(&datagram) {
                prop_assert_eq!(frame.emit(), datagram);
            }
        }
    }
}
