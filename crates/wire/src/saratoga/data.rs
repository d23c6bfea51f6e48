use super::frame::{DATA, bit, first_word, two, version_and_type};
use super::reader::Reader;
use super::{FrameError, Kind, Width};

/// The header of a piece of content (section 4.4); the payload is what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The session.
    pub session: u32,
    /// The width of this session's descriptors.
    pub width: Width,
    /// What travels, as METADATA says.
    pub kind: Kind,
    /// To be echoed in STATUS.
    pub timestamp: Option<Timestamp>,
    /// STATUS is wanted at once.
    pub status_wanted: bool,
    /// The last octet of the content is in this payload, or before it.
    pub end: bool,
    /// Where the payload begins.
    pub offset: u128,
    /// Octets of payload.
    pub len: u32,
}

/// A timestamp or nonce: sixteen octets that mean something only to who made them (section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamp(pub [u8; 16]);

impl Timestamp {
    /// A timestamp of layout 0, "local": fifteen octets of one's own, and the layout's number.
    pub const fn local(own: [u8; 15]) -> Self {
        let mut octets = [0; 16];
        octets.split_at_mut(15).0.copy_from_slice(&own);
        Self(octets)
    }
}

impl Data {
    const WHAT: &'static str = "the DATA";

    /// Where the payload ends; `None` beyond all that Saratoga can name, which only who lies sends.
    #[inline]
    pub fn payload_end(&self) -> Option<u128> {
        self.offset.checked_add(self.len.into())
    }

    /// Reads a datagram that is DATA, and its payload; `None` for every other and for what is malformed,
    /// of which [`super::Frame::parse`] tells more. Nearly all datagrams are DATA: this is the short way.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (word, body) = bytes.split_first_chunk()?;
        let word = u32::from_be_bytes(*word);
        if version_and_type(word) == version_and_type(first_word(DATA, &[])) {
            Self::parse(word, body).ok()
        } else {
            None
        }
    }

    #[inline]
    pub(super) fn parse(word: u32, body: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let mut reader = Reader::new(body, Self::WHAT);
        let session = reader.word()?;
        let timestamp = if bit(word, 12) {
            Some(Timestamp(reader.array()?))
        } else {
            None
        };
        let width = Width::from_code(two(word, 8));
        let offset = reader.value(width)?;
        let payload = reader.rest();
        let data = Self {
            session,
            width,
            kind: Kind::from_code(two(word, 10)),
            timestamp,
            status_wanted: bit(word, 15),
            end: bit(word, 16),
            offset,
            len: u32::try_from(payload.len())
                .map_err(|_| FrameError::TooLong { what: Self::WHAT })?,
        };
        Ok((data, payload))
    }

    /// Appends the header's octets to `out`, which is unchanged on error.
    ///
    /// # Errors
    /// An offset that the width does not hold.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        if self.offset > self.width.limit() {
            return Err(FrameError::TooLong { what: "the offset" });
        }
        let word = first_word(
            DATA,
            &[
                (8, 2, self.width.code()),
                (10, 2, self.kind as u32),
                (12, 1, u32::from(self.timestamp.is_some())),
                (15, 1, u32::from(self.status_wanted)),
                (16, 1, u32::from(self.end)),
            ],
        );
        // One append of a known length at most, for each packet has a header.
        let mut header = [0; 40];
        header[..4].copy_from_slice(&word.to_be_bytes());
        header[4..8].copy_from_slice(&self.session.to_be_bytes());
        if let Some(Timestamp(octets)) = self.timestamp {
            header[8..24].copy_from_slice(&octets);
        }
        let len = self.header_len();
        let width = self.width.octets();
        header[len - width..len].copy_from_slice(&self.offset.to_be_bytes()[16 - width..]);
        out.extend_from_slice(&header[..len]);
        Ok(())
    }

    /// Octets of the header.
    pub const fn header_len(&self) -> usize {
        let timestamp = if self.timestamp.is_some() { 16 } else { 0 };
        8 + timestamp + self.width.octets()
    }
}
