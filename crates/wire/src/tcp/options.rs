//! TCP options: those that the stack speaks are typed, all others are kept as bytes.

use crate::Error;
use bentpipe_base::Seq;
use core::fmt;

/// The options of one segment.
///
/// Typed: MSS (RFC 9293), window scale and timestamps (RFC 7323), SACK-permitted and SACK
/// (RFC 2018). An option of one of these kinds with a wrong length, or a second one of its kind, is
/// kept in `unknown`. Order and padding are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// The largest segment that the sender of this option takes, in bytes.
    pub mss: Option<u16>,
    /// The shift of the sender's window field, as it is on the wire (receivers cap it at 14).
    pub window_scale: Option<u8>,
    /// SACK options may be sent to the sender of this.
    pub sack_permitted: bool,
    /// Clock of the sender and echo of the receiver's.
    pub timestamps: Option<Timestamps>,
    /// What arrived out of order.
    pub sack: Option<Box<SackBlocks>>,
    /// Options of other kinds as they are on the wire.
    pub unknown: Option<Box<RawOptions>>,
}

/// The timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the clock of the other side, echoed.
    pub echo: u32,
}

/// Bytes that arrived beyond a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first byte.
    pub left: Seq,
    /// The byte after the last.
    pub right: Seq,
}

/// One to four SACK blocks, the latest first.
#[derive(Clone, PartialEq, Eq)]
pub struct SackBlocks {
    len: u8,
    blocks: [SackBlock; 4],
}

/// Options as kind, length and value, one after the other; 2 to 40 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RawOptions {
    len: u8,
    bytes: [u8; MOST],
}

/// The largest amount of option bytes that a header holds.
const MOST: usize = 40;
const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

impl TcpOptions {
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut unknown = Layout::default();
        while let Some(option) = next(&mut bytes)? {
            if !options.take(option) {
                unknown.put(option);
            }
        }
        // The unknown ones are part of at most 40 bytes, so they fit.
        options.unknown = RawOptions::new(unknown.written()).map(Box::new);
        Ok(options)
    }

    /// Bytes on the wire, padding included; more than 40 cannot be emitted.
    pub fn len(&self) -> usize {
        match self.layout() {
            Ok((_, len)) => len,
            Err(Error::TooLong { have, .. }) => have,
            // `layout` fails in no other way.
            Err(_) => 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes a well-formed option that is typed and not there yet.
    fn take(&mut self, option: &[u8]) -> bool {
        match *option {
            [MSS, 4, high, low] if self.mss.is_none() => {
                self.mss = Some(u16::from_be_bytes([high, low]));
            }
            [WINDOW_SCALE, 3, shift] if self.window_scale.is_none() => {
                self.window_scale = Some(shift);
            }
            [SACK_PERMITTED, 2] if !self.sack_permitted => self.sack_permitted = true,
            [TIMESTAMPS, 10, a, b, c, d, e, f, g, h] if self.timestamps.is_none() => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            [SACK, _, ref blocks @ ..] if self.sack.is_none() => {
                self.sack = SackBlocks::parse(blocks).map(Box::new);
                return self.sack.is_some();
            }
            _ => return false,
        }
        true
    }

    /// The bytes: aligned as Linux does where that fits (its receivers have a fast path for
    /// `NOP NOP TIMESTAMPS`), packed otherwise.
    pub(super) fn layout(&self) -> Result<([u8; MOST], usize), Error> {
        let aligned = self.put(true);
        let layout = if aligned.len <= MOST {
            aligned
        } else {
            self.put(false)
        };
        if layout.len > MOST {
            return Err(Error::TooLong {
                what: "the list of TCP options",
                have: layout.len,
                most: MOST,
            });
        }
        Ok((layout.bytes, layout.len))
    }

    fn put(&self, align: bool) -> Layout {
        let mut layout = Layout::default();
        let pad: &[u8] = if align { &[NOP, NOP] } else { &[] };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            layout.put(&[MSS, 4, high, low]);
        }
        if self.sack_permitted {
            if self.timestamps.is_none() {
                layout.put(pad);
            }
            layout.put(&[SACK_PERMITTED, 2]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            if !self.sack_permitted {
                layout.put(pad);
            }
            layout.put(&[TIMESTAMPS, 10]);
            layout.put(&value.to_be_bytes());
            layout.put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            layout.put(&pad[..pad.len() / 2]);
            layout.put(&[WINDOW_SCALE, 3, shift]);
        }
        if let Some(blocks) = self.sack.as_deref() {
            layout.put(pad);
            layout.put(&[SACK, 2 + blocks.len * 8]);
            for block in blocks.as_slice() {
                layout.put(&block.left.0.to_be_bytes());
                layout.put(&block.right.0.to_be_bytes());
            }
        }
        if let Some(unknown) = self.unknown.as_deref() {
            layout.put(unknown.as_slice());
        }
        while !layout.len.is_multiple_of(4) {
            layout.put(&[NOP]);
        }
        layout
    }
}

/// Takes the first option off `bytes`, with kind and length; `None` at the end of the list.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
    while let [NOP, rest @ ..] = *bytes {
        *bytes = rest;
    }
    let malformed = |why| Error::Malformed {
        what: "a TCP option",
        why,
    };
    let len = match **bytes {
        [] | [END, ..] => return Ok(None),
        [_] => return Err(malformed("its length is missing")),
        [_, len, ..] if len < 2 => return Err(malformed("its length is below 2")),
        [_, len, ..] => usize::from(len),
    };
    let (option, rest) = bytes
        .split_at_checked(len)
        .ok_or_else(|| malformed("it reaches beyond the header"))?;
    *bytes = rest;
    Ok(Some(option))
}

impl SackBlocks {
    /// At least one block and at most four; `None` otherwise.
    pub fn new(blocks: &[SackBlock]) -> Option<Self> {
        let mut copy = [SackBlock::default(); 4];
        copy.get_mut(..blocks.len())?.copy_from_slice(blocks);
        (!blocks.is_empty()).then_some(Self {
            len: blocks.len() as u8,
            blocks: copy,
        })
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut blocks = [SackBlock::default(); 4];
        let blocks = blocks.get_mut(..words.len())?;
        for (block, [a, b, c, d, e, f, g, h]) in blocks.iter_mut().zip(words.iter().copied()) {
            block.left = Seq(u32::from_be_bytes([a, b, c, d]));
            block.right = Seq(u32::from_be_bytes([e, f, g, h]));
        }
        if rest.is_empty() {
            Self::new(blocks)
        } else {
            None
        }
    }
}

impl RawOptions {
    /// Options one after the other; `None` when there are none, when they do not fit 40 bytes or
    /// are not well-formed, or when they hold padding.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut copy = [0; MOST];
        copy.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            if matches!(rest[0], NOP | END) {
                return None;
            }
            next(&mut rest).ok()??;
        }
        (!bytes.is_empty()).then_some(Self {
            len: bytes.len() as u8,
            bytes: copy,
        })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The kinds of the options, in their order.
    pub fn kinds(&self) -> impl Iterator<Item = u8> {
        let mut rest = self.as_slice();
        std::iter::from_fn(move || next(&mut rest).ok()?.map(|option| option[0]))
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl fmt::Debug for RawOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Bytes written one after the other; counts on beyond its end.
struct Layout {
    bytes: [u8; MOST],
    len: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            bytes: [0; MOST],
            len: 0,
        }
    }
}

impl Layout {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
        }
        self.len = end;
    }

    fn written(&self) -> &[u8] {
        &self.bytes[..self.len.min(MOST)]
    }
}
