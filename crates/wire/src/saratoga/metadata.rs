use super::frame::{METADATA, bit, first_word, two};
use super::reader::Reader;
use super::{Entry, FrameError, Kind, Width};

/// Nine bits.
const MOST_MODE: u16 = 0o777;

/// What a session transfers (section 4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The session.
    pub session: u32,
    /// The width of this session's descriptors.
    pub width: Width,
    /// What travels.
    pub kind: Kind,
    /// A stream is over.
    pub ended: bool,
    /// The content may be delivered unreliably, over UDP-Lite.
    pub unreliable: bool,
    /// Who may read, write and execute the file: the lower nine bits of its mode. Ours, for peers that know it:
    /// bit 14 says that bits 15 to 23 have it, which the draft leaves at zero and ignores.
    pub mode: Option<u16>,
    /// Over the whole content; streams have none.
    pub checksum: Checksum,
    /// Size, times and path.
    pub entry: Entry,
}

impl Metadata {
    /// METADATA with the width of `entry`, that says nothing of mode and checksum.
    pub const fn new(session: u32, kind: Kind, entry: Entry) -> Self {
        Self {
            session,
            width: entry.width,
            kind,
            ended: false,
            unreliable: false,
            mode: None,
            checksum: Checksum::None,
            entry,
        }
    }
}

/// A checksum over a file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// None.
    #[default]
    None,
    /// CRC-32c (RFC 3309), which the draft calls CRC32.
    Crc32c(u32),
    /// MD5.
    Md5([u8; 16]),
    /// SHA-1.
    Sha1([u8; 20]),
    /// One of this number, 1 to 3, that a later METADATA brings: its type without a value. Ours, for
    /// peers that take it late ([`super::Request::late_checksum`]).
    Later(u8),
    /// One that version 1 does not have.
    Other {
        /// Its number, 0 to 15.
        kind: u8,
        /// Its value: whole words of 32 bits, at most 15.
        value: Vec<u8>,
    },
}

impl Checksum {
    fn parse(kind: u32, octets: &[u8]) -> Self {
        let known = match kind {
            0 if octets.is_empty() => Some(Self::None),
            1..=3 if octets.is_empty() => Some(Self::Later(kind as u8)),
            1 => octets
                .try_into()
                .ok()
                .map(|value| Self::Crc32c(u32::from_be_bytes(value))),
            2 => octets.try_into().ok().map(Self::Md5),
            3 => octets.try_into().ok().map(Self::Sha1),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other {
            kind: kind as u8,
            value: octets.to_vec(),
        })
    }

    /// Number and value.
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::None => (0, Vec::new()),
            Self::Crc32c(value) => (1, value.to_be_bytes().to_vec()),
            Self::Md5(value) => (2, value.to_vec()),
            Self::Sha1(value) => (3, value.to_vec()),
            Self::Later(kind) => (*kind, Vec::new()),
            Self::Other { kind, value } => (*kind, value.clone()),
        }
    }

    /// What stands for it until it is known.
    #[must_use]
    pub fn later(&self) -> Self {
        Self::parse(self.parts().0.into(), &[])
    }

    /// Whether a later METADATA brings it.
    pub const fn is_later(&self) -> bool {
        matches!(self, Self::Later(_))
    }

    /// Whether both can be of the same content: what is not known yet may be anything of its kind.
    pub fn may_be(&self, other: &Self) -> bool {
        let stands = |one: &Self, other: &Self| one.is_later() && *one == other.later();
        self == other || stands(self, other) || stands(other, self)
    }
}

impl Metadata {
    const WHAT: &'static str = "the METADATA";

    pub(super) fn parse(word: u32, body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(body, Self::WHAT);
        let session = reader.word()?;
        let checksum = reader.take((word >> 4 & 0xf) as usize * 4)?;
        let (entry, _padding) = Entry::parse(reader.rest())?;
        Ok(Self {
            session,
            width: Width::from_code(two(word, 8)),
            kind: Kind::from_code(two(word, 10)),
            ended: bit(word, 12),
            unreliable: bit(word, 13),
            mode: bit(word, 14).then_some((word >> 8) as u16 & MOST_MODE),
            checksum: Checksum::parse(word & 0xf, checksum),
            entry,
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, value) = self.checksum.parts();
        if kind > 15 || value.len() > 60 || !value.len().is_multiple_of(4) {
            return Err(FrameError::TooLong {
                what: "the checksum",
            });
        }
        if Checksum::parse(kind.into(), &value) != self.checksum {
            return Err(FrameError::Inconsistent {
                why: "the checksum has a type of its own",
            });
        }
        if self.mode.is_some_and(|mode| mode > MOST_MODE) {
            return Err(FrameError::Inconsistent {
                why: "a mode has nine bits",
            });
        }
        let word = first_word(
            METADATA,
            &[
                (8, 2, self.width.code()),
                (10, 2, self.kind as u32),
                (12, 1, u32::from(self.ended)),
                (13, 1, u32::from(self.unreliable)),
                (14, 1, u32::from(self.mode.is_some())),
                (15, 9, self.mode.unwrap_or(0).into()),
                (24, 4, value.len() as u32 / 4),
                (28, 4, kind.into()),
            ],
        );
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&value);
        self.entry.emit(out)
    }
}
