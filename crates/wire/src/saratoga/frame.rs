use super::reader::Reader;
use super::{Beacon, Data, FrameError, Metadata, Request, Status, Width};

/// One datagram of Saratoga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Who and what a peer is.
    Beacon(Beacon),
    /// Asks for a transfer, a deletion or a list.
    Request(Request),
    /// What is transferred.
    Metadata(Metadata),
    /// A piece of it.
    Data(Data),
    /// What has arrived and what is missing, or why it ends.
    Status(Status),
}

/// What travels in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file.
    #[default]
    File,
    /// A list of directory entries.
    Directory,
    /// Reserved; a DTN bundle in older drafts.
    Bundle,
    /// A stream, whose end is not known beforehand.
    Stream,
}

/// Whether a peer sends, or receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Willingness {
    /// It cannot.
    #[default]
    Cannot,
    /// It could, but does not want to now.
    Capable,
    /// It does.
    Willing,
}

/// What a peer says of itself in BEACON and REQUEST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The widest descriptor.
    pub width: Width,
    /// It can take part in streams.
    pub streams: bool,
    /// Whether it sends.
    pub send: Willingness,
    /// Whether it receives.
    pub receive: Willingness,
    /// It takes DATA over UDP-Lite.
    pub udp_lite: bool,
}

const VERSION: u32 = 1;

pub(super) const BEACON: u32 = 0;
pub(super) const REQUEST: u32 = 1;
pub(super) const METADATA: u32 = 2;
pub(super) const DATA: u32 = 3;
pub(super) const STATUS: u32 = 4;

impl Frame {
    /// Reads a datagram; of DATA the payload too, which is empty for the others.
    ///
    /// # Errors
    /// What is cut short, malformed, or not of version 1.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let mut reader = Reader::new(bytes, "the Saratoga frame");
        let word = reader.word()?;
        if word >> 29 != VERSION {
            return Err(FrameError::Version((word >> 29) as u8));
        }
        let body = reader.rest();
        let frame = match word >> 24 & 0x1f {
            BEACON => Self::Beacon(Beacon::parse(word, body)?),
            REQUEST => Self::Request(Request::parse(word, body)?),
            METADATA => Self::Metadata(Metadata::parse(word, body)?),
            DATA => {
                let (data, payload) = Data::parse(word, body)?;
                return Ok((Self::Data(data), payload));
            }
            STATUS => Self::Status(Status::parse(word, body)?),
            other => return Err(FrameError::Type(other as u8)),
        };
        Ok((frame, &[]))
    }

    /// Appends the frame's octets to `out`; of DATA without the payload. `out` is unchanged on error.
    ///
    /// # Errors
    /// A value that does not fit its field, or a frame that would read back as another.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        let done = match self {
            Self::Beacon(beacon) => beacon.emit(out),
            Self::Request(request) => request.emit(out),
            Self::Metadata(metadata) => metadata.emit(out),
            Self::Data(data) => data.emit(out),
            Self::Status(status) => status.emit(out),
        };
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    /// The session that the frame belongs to; a beacon to none.
    pub const fn session(&self) -> Option<u32> {
        match self {
            Self::Beacon(_) => None,
            Self::Request(request) => Some(request.session),
            Self::Metadata(metadata) => Some(metadata.session),
            Self::Data(data) => Some(data.session),
            Self::Status(status) => Some(status.session),
        }
    }
}

/// Bit `at` of a first word, counted from the most significant as the draft does.
pub(super) const fn bit(word: u32, at: u32) -> bool {
    word >> (31 - at) & 1 == 1
}

/// Bits `at` and `at + 1` of a first word.
pub(super) const fn two(word: u32, at: u32) -> u32 {
    word >> (30 - at) & 3
}

/// The bits of a first word that say which frame follows.
pub(super) const fn version_and_type(word: u32) -> u32 {
    word >> 24
}

/// A first word of version 1, its type, and its fields: (first bit, bits, value).
pub(super) fn first_word(kind: u32, fields: &[(u32, u32, u32)]) -> u32 {
    let start = VERSION << 29 | kind << 24;
    fields.iter().fold(start, |word, &(at, bits, value)| {
        word | value << (32 - at - bits)
    })
}

impl Kind {
    pub(super) const fn from_code(code: u32) -> Self {
        match code & 3 {
            0 => Self::File,
            1 => Self::Directory,
            2 => Self::Bundle,
            _ => Self::Stream,
        }
    }
}

impl Willingness {
    /// 01, "willing but not capable", is not valid: such a peer cannot.
    const fn from_code(code: u32) -> Self {
        match code & 3 {
            2 => Self::Capable,
            3 => Self::Willing,
            _ => Self::Cannot,
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Cannot => 0,
            Self::Capable => 2,
            Self::Willing => 3,
        }
    }
}

impl Capabilities {
    pub(super) const fn parse(word: u32) -> Self {
        Self {
            width: Width::from_code(two(word, 8)),
            streams: bit(word, 11),
            send: Willingness::from_code(two(word, 12)),
            receive: Willingness::from_code(two(word, 14)),
            udp_lite: bit(word, 16),
        }
    }

    pub(super) const fn fields(self) -> [(u32, u32, u32); 5] {
        [
            (8, 2, self.width.code()),
            (11, 1, self.streams as u32),
            (12, 2, self.send.code()),
            (14, 2, self.receive.code()),
            (16, 1, self.udp_lite as u32),
        ]
    }
}
