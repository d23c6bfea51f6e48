use crate::bytes::{array, be16, split};
use crate::ip::protocol;
use crate::tcp::TcpOptions;
use crate::{Checksums, Error, Flags, Ip, Segment, Timestamps};
use bentpipe_base::Seq;

/// A TCP segment under a compressed header of SCPS-TP: IP protocol [`protocol::SCPS_TP`], between two hosts whose SYNs
/// both carried [`CapabilityVector::COMPRESSION`](super::CapabilityVector::COMPRESSION).
///
/// Fields are left out, not coded as differences, so that each header is read by itself. It is read, so that a capture
/// can be understood, and never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedTcp {
    /// The identity that its sender announced in its SYN: it stands for addresses and ports.
    pub connection: u8,
    /// Whether [`Segment::seq`] is in the header; 0 where not.
    pub has_seq: bool,
    /// Whether [`Segment::ack`] and [`Segment::window`] are in the header; 0 where not, as in segments with data.
    pub has_ack: bool,
    /// The segment, with what the header says. The acknowledgement flag is set unless the header clears it, also where
    /// no number is in the header.
    pub segment: Segment,
    /// The urgent pointer, with [`Flags::URG`].
    pub urgent: u16,
    /// The segment ends a record.
    pub record_boundary: bool,
}

const WHAT: &str = "the compressed SCPS-TP header";

/// Bits of the first byte of flags.
mod first {
    pub(super) const MORE: u8 = 0x80;
    pub(super) const TS_VALUE: u8 = 0x40;
    pub(super) const TS_ECHO: u8 = 0x20;
    pub(super) const RECORD_BOUNDARY: u8 = 0x10;
    pub(super) const PUSH: u8 = 0x04;
    pub(super) const SEQ: u8 = 0x02;
    pub(super) const ACK: u8 = 0x01;
}

/// Bits of the second byte of flags.
mod second {
    pub(super) const OPTIONS: u8 = 0x80;
    pub(super) const PAD: u8 = 0x40;
    pub(super) const URGENT: u8 = 0x20;
    pub(super) const NO_ACK: u8 = 0x10;
    pub(super) const RESET: u8 = 0x04;
    pub(super) const FIN: u8 = 0x01;
}

impl CompressedTcp {
    /// Reads what stands behind the IP header of a packet of this protocol.
    ///
    /// # Errors
    /// What is cut short, damaged, or has options that are malformed.
    pub fn parse(ip: &Ip, body: &[u8], checksums: Checksums) -> Result<Self, Error> {
        // The pseudo-header has TCP's number, not this protocol's.
        let sum = || {
            ip.pseudo_header(protocol::TCP, body.len())
                .with(body)
                .finish()
        };
        if checksums == Checksums::Verify && sum() != 0 {
            return Err(Error::Checksum {
                what: "the compressed SCPS-TP segment",
            });
        }
        let mut reader = Reader(body);
        let [connection, one] = reader.take()?;
        let two = if one & first::MORE != 0 {
            let [two] = reader.take()?;
            two
        } else {
            0
        };
        let urgent = reader.half(two & second::URGENT != 0)?;
        let has_ack = one & first::ACK != 0;
        let window = reader.half(has_ack)?;
        let ack = Seq(reader.word(has_ack)?);
        let has_seq = one & first::SEQ != 0;
        let seq = Seq(reader.word(has_seq)?);
        let (has_value, has_echo) = (one & first::TS_VALUE != 0, one & first::TS_ECHO != 0);
        let stamps = Timestamps {
            value: reader.word(has_value)?,
            echo: reader.word(has_echo)?,
        };
        let options = match two & second::OPTIONS {
            0 => None,
            _ => {
                let [len] = reader.take()?;
                let (options, rest) = split(reader.0, usize::from(len), WHAT)?;
                reader.0 = rest;
                // Timestamps have fields of their own.
                TcpOptions::parse(options)?.1
            }
        };
        if two & second::PAD != 0 {
            reader.take::<1>()?;
        }
        reader.take::<2>()?;
        let set = |bit: bool, flag| if bit { flag } else { Flags::empty() };
        let flags = set(two & second::NO_ACK == 0, Flags::ACK)
            | set(one & first::PUSH != 0, Flags::PSH)
            | set(two & second::URGENT != 0, Flags::URG)
            | set(two & second::RESET != 0, Flags::RST)
            | set(two & second::FIN != 0, Flags::FIN);
        let segment = Segment {
            seq,
            ack,
            flags,
            window,
            timestamps: (has_value || has_echo).then_some(stamps),
            options,
            payload: reader.0.into(),
        };
        Ok(Self {
            connection,
            has_seq,
            has_ack,
            segment,
            urgent,
            record_boundary: one & first::RECORD_BOUNDARY != 0,
        })
    }
}

/// What is left of the packet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = array(self.0, WHAT)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A field of 16 bits, or 0 where the flags leave it out.
    fn half(&mut self, present: bool) -> Result<u16, Error> {
        if !present {
            return Ok(0);
        }
        let [high, low] = self.take()?;
        Ok(be16(high, low))
    }

    /// A field of 32 bits, or 0 where the flags leave it out.
    fn word(&mut self, present: bool) -> Result<u32, Error> {
        if !present {
            return Ok(0);
        }
        self.take().map(u32::from_be_bytes)
    }
}
