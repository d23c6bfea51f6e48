use super::frame::{BEACON, bit, first_word, two};
use super::reader::{Reader, utf8};
use super::{Capabilities, FrameError, Width};

/// A peer says that it is there (section 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// What the peer can do.
    pub capabilities: Capabilities,
    /// Its room for files, if it says.
    pub free: Option<FreeSpace>,
    /// Its name, of no fixed form.
    pub name: String,
}

/// Room for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// How wide the field is.
    pub width: Width,
    /// KiB, rounded down; all bits set: that or more.
    pub kib: u128,
}

impl FreeSpace {
    /// `bytes` of room, in a field as narrow as may be.
    pub fn of(bytes: bentpipe_base::Bytes) -> Self {
        let kib = u128::from(bytes.0 / 1024);
        Self {
            width: Width::holding(kib),
            kib,
        }
    }
}

impl Beacon {
    const WHAT: &'static str = "the BEACON";

    pub(super) fn parse(word: u32, body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(body, Self::WHAT);
        let free = if bit(word, 17) {
            let width = Width::from_code(two(word, 18));
            let kib = reader.value(width)?;
            Some(FreeSpace { width, kib })
        } else {
            None
        };
        Ok(Self {
            capabilities: Capabilities::parse(word),
            free,
            name: utf8(reader.rest(), Self::WHAT)?.to_owned(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let width = self.free.map_or(0, |free| free.width.code());
        let free = [(17, 1, u32::from(self.free.is_some())), (18, 2, width)];
        let fields = [&self.capabilities.fields()[..], &free].concat();
        out.extend_from_slice(&first_word(BEACON, &fields).to_be_bytes());
        if let Some(free) = self.free {
            free.width.emit(free.kib, "the free space", out)?;
        }
        out.extend_from_slice(self.name.as_bytes());
        Ok(())
    }
}
