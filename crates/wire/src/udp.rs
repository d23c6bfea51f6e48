use crate::Error;
use crate::bytes::{array, be16};

/// A UDP header (RFC 768); length and checksum follow from the rest of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
}

impl Udp {
    /// Header bytes.
    pub const LEN: usize = 8;
    const WHAT: &'static str = "the UDP header";

    /// The header, whether its checksum is filled in, and the payload.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, bool, &[u8]), Error> {
        let (fixed, payload) = array::<8>(bytes, Self::WHAT)?;
        let len = usize::from(be16(fixed[4], fixed[5]));
        if len != bytes.len() {
            return Err(Error::Malformed {
                what: Self::WHAT,
                why: "its length is not that of the IP payload",
            });
        }
        let parsed = Self {
            source: be16(fixed[0], fixed[1]),
            destination: be16(fixed[2], fixed[3]),
        };
        Ok((parsed, be16(fixed[6], fixed[7]) != 0, payload))
    }

    /// Appends the header for `payload` bytes, its checksum zero.
    pub(crate) fn emit(self, payload: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.destination.to_be_bytes());
        // The IP header was emitted first and has refused what does not fit 16 bits.
        out.extend_from_slice(&((Self::LEN + payload) as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
    }
}
