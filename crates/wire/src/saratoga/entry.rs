use super::frame::{bit, two};
use super::reader::Reader;
use super::request::{check_path, emit_path};
use super::{FrameError, Width};

/// A file's entry: in METADATA, and one after the other the content of a directory (section 4.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// The width of its size.
    pub width: Width,
    /// Its content may be delivered unreliably, over UDP-Lite.
    pub unreliable: bool,
    /// Octets; 0 for directories and streams.
    pub size: u128,
    /// Last change of the content.
    pub modified: Time,
    /// Creation, or what the file system has instead.
    pub created: Time,
    /// Its path.
    pub path: String,
}

impl Entry {
    /// A file of `size` octets at `path`, of whose times nothing is known.
    pub fn file(path: &str, size: u64) -> Self {
        Self {
            kind: EntryKind::File,
            width: Width::holding(size.into()),
            unreliable: false,
            size: size.into(),
            modified: Time::default(),
            created: Time::default(),
            path: path.to_owned(),
        }
    }
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A special file, such as a stream.
    SpecialFile,
    /// A special directory.
    SpecialDirectory,
}

impl EntryKind {
    const ALL: [Self; 4] = [
        Self::File,
        Self::Directory,
        Self::SpecialFile,
        Self::SpecialDirectory,
    ];
}

/// Seconds since the start of 2000 in UTC, leap seconds included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u32);

impl Time {
    /// The start of 2000 in POSIX seconds, 946,684,800, and the leap seconds before it.
    const EPOCH: i64 = 946_684_822;

    /// From seconds since 1970 as POSIX counts them; times before 2000 become 0.
    pub fn from_posix(seconds: i64) -> Self {
        let since = seconds.saturating_sub(Self::EPOCH).max(0);
        Self(u32::try_from(since).unwrap_or(u32::MAX))
    }

    /// Seconds since 1970 as POSIX counts them.
    pub const fn posix(self) -> i64 {
        self.0 as i64 + Self::EPOCH
    }
}

impl Entry {
    const WHAT: &'static str = "the directory entry";

    /// The entry at the start of `bytes`, and what follows its NUL.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let mut reader = Reader::new(bytes, Self::WHAT);
        let properties = u32::from(u16::from_be_bytes(reader.array()?)) << 16;
        if !bit(properties, 0) {
            return Err(FrameError::Malformed {
                what: Self::WHAT,
                why: "its first bit is not 1",
            });
        }
        let width = Width::from_code(two(properties, 8));
        let size = reader.value(width)?;
        let modified = Time(reader.word()?);
        let created = Time(reader.word()?);
        let path = reader.text()?;
        check_path(path, Self::WHAT)?;
        let entry = Self {
            kind: EntryKind::ALL[two(properties, 6) as usize],
            width,
            unreliable: bit(properties, 13),
            size,
            modified,
            created,
            path: path.to_owned(),
        };
        Ok((entry, reader.rest()))
    }

    /// Appends the entry; `out` is unchanged on error.
    ///
    /// # Errors
    /// A size that does not fit its width, or a path that does not fit an entry.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        let done = self.emit_parts(out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn emit_parts(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let properties = 0x8000
            | (self.kind as u16) << 8
            | (self.width.code() as u16) << 6
            | u16::from(self.unreliable) << 2;
        out.extend_from_slice(&properties.to_be_bytes());
        self.width.emit(self.size, "the size of the file", out)?;
        out.extend_from_slice(&self.modified.0.to_be_bytes());
        out.extend_from_slice(&self.created.0.to_be_bytes());
        emit_path(&self.path, out)
    }
}

/// The entries of a directory's content. Ends after the first that cannot be read.
pub fn entries(content: &[u8]) -> impl Iterator<Item = Result<Entry, FrameError>> + '_ {
    let mut rest = Some(content);
    core::iter::from_fn(move || {
        // The first bit of an entry is 1, so NULs before it are padding.
        let bytes = rest.take()?;
        let start = bytes.iter().position(|&octet| octet != 0)?;
        let parsed = Entry::parse(&bytes[start..]);
        rest = parsed.as_ref().ok().map(|(_, rest)| *rest);
        Some(parsed.map(|(entry, _)| entry))
    })
}
