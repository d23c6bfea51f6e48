use super::frame::{STATUS, bit, first_word, two};
use super::reader::Reader;
use super::{FrameError, Timestamp, Width};
use core::fmt;

/// What has arrived and what is missing, or why the session ends (section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The session.
    pub session: u32,
    /// The width of this session's descriptors.
    pub width: Width,
    /// The timestamp of the DATA which asked; in a voluntary STATUS, of the DATA with the highest offset.
    pub timestamp: Option<Timestamp>,
    /// METADATA has not arrived.
    pub metadata_missing: bool,
    /// There are more holes than are listed here.
    pub incomplete: bool,
    /// Nobody asked for it.
    pub voluntary: bool,
    /// The state of the session. If not [`Code::OK`], the fields below mean nothing.
    pub code: Code,
    /// The lowest octet that has not arrived.
    pub progress: u128,
    /// The octet after the DATA which asked; of a voluntary one, after the highest that has arrived.
    pub in_response_to: u128,
    /// What is missing between the two, rising.
    pub holes: Vec<Hole>,
}

/// Octets that are missing, as they are written in STATUS. The draft's `last` is the last that is
/// missing; some peers write the octet after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    /// The first.
    pub first: u128,
    /// The last, inclusive.
    pub last: u128,
}

/// The state of a session, or why it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// All is well.
    pub const OK: Self = Self(0x00);
    /// Unspecified.
    pub const UNSPECIFIED: Self = Self(0x01);
    /// The peer cannot send, for want of resources.
    pub const CANNOT_SEND: Self = Self(0x02);
    /// The peer cannot receive, for want of resources.
    pub const CANNOT_RECEIVE: Self = Self(0x03);
    /// No such file.
    pub const NOT_FOUND: Self = Self(0x04);
    /// Not allowed.
    pub const DENIED: Self = Self(0x05);
    /// No such session.
    pub const UNKNOWN_ID: Self = Self(0x06);
    /// The file was not deleted.
    pub const NOT_DELETED: Self = Self(0x07);
    /// The file is too long for the receiver.
    pub const TOO_LONG: Self = Self(0x08);
    /// Descriptors of another width than METADATA's.
    pub const DESCRIPTOR_MISMATCH: Self = Self(0x09);
    /// A frame of a type that was not expected.
    pub const BAD_FRAME: Self = Self(0x0a);
    /// A kind of REQUEST that is not known.
    pub const BAD_REQUEST: Self = Self(0x0b);
    /// Given up, or timed out.
    pub const TERMINATED: Self = Self(0x0c);
    /// DATA of another kind than METADATA's.
    pub const KIND_CHANGED: Self = Self(0x0d);
    /// The receiver wants no more.
    pub const NO_LONGER_WANTED: Self = Self(0x0e);
    /// The file is in use.
    pub const IN_USE: Self = Self(0x0f);
    /// The receiver cannot go on without METADATA.
    pub const METADATA_REQUIRED: Self = Self(0x10);
    /// An error STATUS that was not expected.
    pub const UNEXPECTED_STATUS: Self = Self(0x11);
    /// The sender has fallen silent.
    pub const SENDER_SILENT: Self = Self(0x12);

    const MEANINGS: [&'static str; 19] = [
        "all is well",
        "unspecified error",
        "cannot send, for want of resources",
        "cannot receive, for want of resources",
        "file not found",
        "access denied",
        "unknown session",
        "file not deleted",
        "file too long for the receiver",
        "descriptor does not match the METADATA",
        "unexpected frame type",
        "unknown request type",
        "terminated, or timed out",
        "flags of the DATA changed",
        "the receiver is no longer interested",
        "file in use",
        "METADATA required",
        "unexpected error STATUS",
        "the sender has fallen silent",
    ];
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::MEANINGS.get(usize::from(self.0)) {
            Some(meaning) => f.write_str(meaning),
            None => write!(f, "unknown status code {:#04x}", self.0),
        }
    }
}

impl Status {
    const WHAT: &'static str = "the STATUS";

    pub(super) fn parse(word: u32, body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(body, Self::WHAT);
        let session = reader.word()?;
        let timestamp = if bit(word, 12) {
            Some(Timestamp(reader.array()?))
        } else {
            None
        };
        // The answer to a delete has fields of 16 bits, whatever its descriptor bits say: in no
        // other frame are there just four octets left.
        let width = match reader.rest().len() {
            4 => Width::Bits16,
            _ => Width::from_code(two(word, 8)),
        };
        let code = Code(word as u8);
        let mut status = Self {
            session,
            width,
            timestamp,
            metadata_missing: bit(word, 13),
            incomplete: bit(word, 14),
            voluntary: bit(word, 15),
            code,
            progress: 0,
            in_response_to: 0,
            holes: Vec::new(),
        };
        if code != Code::OK {
            return Ok(status);
        }
        status.progress = reader.value(width)?;
        status.in_response_to = reader.value(width)?;
        // A partial hole at the end is the habit of a peer that counts its octets wrong.
        let holes = reader.rest().chunks_exact(2 * width.octets());
        for hole in holes {
            let mut ends = Reader::new(hole, Self::WHAT);
            let first = ends.value(width)?;
            let last = ends.value(width)?;
            status.holes.push(Hole { first, last });
        }
        Ok(status)
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let meaningless = self.progress != 0 || self.in_response_to != 0 || !self.holes.is_empty();
        if self.code != Code::OK && meaningless {
            return Err(FrameError::Inconsistent {
                why: "a STATUS that ends a session tells no progress",
            });
        }
        let word = first_word(
            STATUS,
            &[
                (8, 2, self.width.code()),
                (12, 1, u32::from(self.timestamp.is_some())),
                (13, 1, u32::from(self.metadata_missing)),
                (14, 1, u32::from(self.incomplete)),
                (15, 1, u32::from(self.voluntary)),
                (24, 8, self.code.0.into()),
            ],
        );
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        if let Some(Timestamp(octets)) = self.timestamp {
            out.extend_from_slice(&octets);
        }
        self.width.emit(self.progress, "the progress", out)?;
        let response = self.in_response_to;
        self.width.emit(response, "the in-response-to", out)?;
        for hole in &self.holes {
            self.width.emit(hole.first, "a hole", out)?;
            self.width.emit(hole.last, "a hole", out)?;
        }
        Ok(())
    }
}
