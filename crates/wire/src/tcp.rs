//! The TCP header (RFC 9293, section 3.1) with its options.

mod fast_open;
mod options;

pub use fast_open::{FastOpenCookie, FastOpenOption};
pub(crate) use options::length as options_len;
pub use options::{RawOptions, SackBlock, SackBlocks, TcpOptions, Timestamps};

use crate::Error;
use crate::bytes::{array, be16, split};
use bentpipe_base::Seq;
use core::fmt;
use core::ops::BitOr;

/// A TCP header; data offset and checksum follow from the rest of the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// Number of the first payload byte, or of the SYN.
    pub seq: Seq,
    /// The byte expected next; means something with [`Flags::ACK`].
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// Room at the receiver, before scaling.
    pub window: u16,
    /// Means something with [`Flags::URG`].
    pub urgent: u16,
    /// The timestamps option (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// The other options; `None` where there are none.
    pub options: Option<Box<TcpOptions>>,
}

/// The 12 bits between data offset and window: flags, and three reserved bits that are carried.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Tcp {
    /// Header bytes without options.
    pub const BARE: usize = 20;
    const WHAT: &'static str = "the TCP header";

    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (fixed, _) = array::<20>(bytes, Self::WHAT)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < Self::BARE {
            return Err(Error::Malformed {
                what: Self::WHAT,
                why: "its data offset is below 5 words",
            });
        }
        let (header, payload) = split(bytes, header_len, Self::WHAT)?;
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let (timestamps, options) = TcpOptions::parse(&header[Self::BARE..])?;
        let parsed = Self {
            source: be16(fixed[0], fixed[1]),
            destination: be16(fixed[2], fixed[3]),
            seq: Seq(word(4)),
            ack: Seq(word(8)),
            flags: Flags(be16(fixed[12] & 0xf, fixed[13])),
            window: be16(fixed[14], fixed[15]),
            urgent: be16(fixed[18], fixed[19]),
            timestamps,
            options,
        };
        Ok((parsed, payload))
    }

    /// Bytes of the header, options included.
    pub fn header_len(&self) -> usize {
        Self::BARE + options_len(self.timestamps, self.options.as_deref())
    }

    /// Appends the header, its checksum zero.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let (options, len) = options::layout(self.timestamps, self.options.as_deref())?;
        let words = ((Self::BARE + len) / 4) as u16;
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.destination.to_be_bytes());
        out.extend_from_slice(&self.seq.0.to_be_bytes());
        out.extend_from_slice(&self.ack.0.to_be_bytes());
        out.extend_from_slice(&(words << 12 | self.flags.0).to_be_bytes());
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.urgent.to_be_bytes());
        out.extend_from_slice(&options[..len]);
        Ok(())
    }
}

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Hand the data on at once.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768), once the nonce sum.
    pub const AE: Self = Self(0x100);

    /// No bit set.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The bits as they are on the wire; the upper four of `bits` are dropped.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0xfff)
    }

    /// The bits as they are on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
        let set: Vec<&str> = (0..)
            .zip(NAMES)
            .filter(|(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
            .collect();
        write!(f, "Flags({})", set.join("|"))
    }
}
