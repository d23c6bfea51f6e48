use super::frame::{REQUEST, bit, first_word};
use super::reader::Reader;
use super::{Capabilities, FrameError};

/// Octets of a path at most, its NUL not counted: all must fit IPv6's least MTU.
pub const MAX_PATH: usize = 1023;

/// One peer asks another to act on a file (section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the asking peer can do.
    pub capabilities: Capabilities,
    /// The session, chosen by who asks.
    pub session: u32,
    /// What is asked.
    pub kind: RequestKind,
    /// Who asks takes a checksum that comes in a METADATA behind the content. Bit 17, which the draft
    /// leaves at zero and ignores.
    pub late_checksum: bool,
    /// The file. Empty in a get: anything there is for me.
    pub path: String,
    /// Whatever the two peers agreed on, to the end of the datagram; not all zero, which is padding.
    pub authentication: Vec<u8>,
}

/// What a [`Request`] asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Nothing.
    None,
    /// Send it to me.
    Get,
    /// I will send it to you.
    Put,
    /// Send it to me, then delete it.
    Take,
    /// I will send it to you, and delete mine.
    Give,
    /// Delete it.
    Delete,
    /// Send me the list of a directory.
    List,
    /// Something that version 1 does not have.
    Other(u8),
}

impl RequestKind {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::None,
            1 => Self::Get,
            2 => Self::Put,
            3 => Self::Take,
            4 => Self::Give,
            5 => Self::Delete,
            6 => Self::List,
            other => Self::Other(other),
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Get => 1,
            Self::Put => 2,
            Self::Take => 3,
            Self::Give => 4,
            Self::Delete => 5,
            Self::List => 6,
            Self::Other(code) => code,
        }
    }
}

impl Request {
    const WHAT: &'static str = "the REQUEST";

    pub(super) fn parse(word: u32, body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(body, Self::WHAT);
        let session = reader.word()?;
        let path = reader.text()?;
        check_path(path, Self::WHAT)?;
        let rest = reader.rest();
        let padding = rest.iter().all(|&octet| octet == 0);
        Ok(Self {
            capabilities: Capabilities::parse(word),
            session,
            kind: RequestKind::from_code(word as u8),
            late_checksum: bit(word, 17),
            path: path.to_owned(),
            authentication: if padding { Vec::new() } else { rest.to_vec() },
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let authentication = &self.authentication;
        if !authentication.is_empty() && authentication.iter().all(|&octet| octet == 0) {
            return Err(FrameError::Inconsistent {
                why: "an authentication of zeros reads as padding",
            });
        }
        if matches!(self.kind, RequestKind::Other(0..=6)) {
            return Err(FrameError::Inconsistent {
                why: "the kind of the REQUEST has a name of its own",
            });
        }
        let own = [
            (17, 1, u32::from(self.late_checksum)),
            (24, 8, u32::from(self.kind.code())),
        ];
        let fields = [&self.capabilities.fields()[..], &own].concat();
        out.extend_from_slice(&first_word(REQUEST, &fields).to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        emit_path(&self.path, out)?;
        out.extend_from_slice(authentication);
        Ok(())
    }
}

pub(super) fn check_path(path: &str, what: &'static str) -> Result<(), FrameError> {
    match path.len() {
        0..=MAX_PATH => Ok(()),
        _ => Err(FrameError::Malformed {
            what,
            why: "its path is longer than 1023 octets",
        }),
    }
}

/// Appends `path` and its NUL.
pub(super) fn emit_path(path: &str, out: &mut Vec<u8>) -> Result<(), FrameError> {
    if path.len() > MAX_PATH {
        return Err(FrameError::TooLong { what: "the path" });
    }
    if path.contains('\0') {
        return Err(FrameError::Inconsistent {
            why: "a path ends at its first NUL",
        });
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    Ok(())
}
