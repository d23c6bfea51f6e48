//! TCP options: those that the stack speaks are typed, all others are kept as bytes.

use crate::Error;
use bentpipe_base::Seq;
use core::fmt;
use core::ops::Deref;

/// The options that few segments carry: those of a SYN, SACK blocks, and what is not typed.
///
/// Typed: MSS (RFC 9293), window scale (RFC 7323), SACK-permitted and SACK (RFC 2018); timestamps, which nearly every
/// segment has, stand in [`Tcp`](crate::Tcp) and [`Segment`](crate::Segment) themselves. An option of a typed kind with
/// a wrong length, or a second one of its kind, is kept in `unknown`. Order and padding are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// The largest segment that the sender of this option takes, in bytes.
    pub mss: Option<u16>,
    /// The shift of the sender's window field, as it is on the wire (receivers cap it at 14).
    pub window_scale: Option<u8>,
    /// SACK options may be sent to the sender of this.
    pub sack_permitted: bool,
    /// What arrived out of order; a D-SACK block before it (RFC 2883).
    pub sack: SackBlocks,
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

/// Up to four SACK blocks, the latest first.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    len: u8,
    blocks: [SackBlock; Self::MOST],
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
    /// These options as a segment holds them: `None` where there are none.
    pub fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The options of a header, timestamps apart.
    pub(crate) fn parse(
        mut bytes: &[u8],
    ) -> Result<(Option<Timestamps>, Option<Box<Self>>), Error> {
        let (mut timestamps, mut options) = (None, Self::default());
        let mut unknown = Layout::default();
        while let Some(option) = next(&mut bytes)? {
            if timestamps.is_none() && option.len() == 10 && option[0] == TIMESTAMPS {
                timestamps = Some(Timestamps {
                    value: word(option, 2),
                    echo: word(option, 6),
                });
            } else if !options.take(option) {
                unknown.put(option);
            }
        }
        // The unknown ones are part of at most 40 bytes, so they fit.
        options.unknown = RawOptions::new(unknown.written()).map(Box::new);
        Ok((timestamps, options.boxed()))
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
            [SACK, _, ref blocks @ ..] if self.sack.is_empty() => {
                let Some(blocks) = SackBlocks::parse(blocks) else {
                    return false;
                };
                self.sack = blocks;
            }
            _ => return false,
        }
        true
    }

    /// Bytes beside `timestamps`, padding included, before the whole is rounded up to words.
    fn len(&self, timestamps: bool, align: bool) -> usize {
        let pad = if align { 2 } else { 0 };
        let mut len = if self.mss.is_some() { 4 } else { 0 };
        if self.sack_permitted {
            // Beside timestamps it takes the place of their padding.
            len += if timestamps { 2 - pad } else { 2 + pad };
        }
        if self.window_scale.is_some() {
            len += 3 + pad / 2;
        }
        if !self.sack.is_empty() {
            len += pad + 2 + 8 * self.sack.len();
        }
        len + self
            .unknown
            .as_ref()
            .map_or(0, |unknown| unknown.as_slice().len())
    }

    fn put(&self, layout: &mut Layout, timestamps: Option<Timestamps>, pad: &[u8]) {
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            layout.put(&[MSS, 4, high, low]);
        }
        if self.sack_permitted {
            if timestamps.is_none() {
                layout.put(pad);
            }
            layout.put(&[SACK_PERMITTED, 2]);
        }
        if let Some(timestamps) = timestamps {
            timestamps.put(layout, if self.sack_permitted { &[] } else { pad });
        }
        if let Some(shift) = self.window_scale {
            layout.put(&pad[..pad.len() / 2]);
            layout.put(&[WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            layout.put(pad);
            layout.put(&[SACK, 2 + self.sack.len * 8]);
            for block in self.sack.iter() {
                layout.put(&block.left.0.to_be_bytes());
                layout.put(&block.right.0.to_be_bytes());
            }
        }
        if let Some(unknown) = self.unknown.as_deref() {
            layout.put(unknown.as_slice());
        }
    }
}

/// Bytes that timestamps and options take on the wire, padding included; more than 40 cannot be emitted.
#[inline]
pub(crate) fn length(timestamps: Option<Timestamps>, options: Option<&TcpOptions>) -> usize {
    let stamped = timestamps.is_some();
    let Some(options) = options else {
        return if stamped { 12 } else { 0 };
    };
    let all = |align| {
        let stamps = match (stamped, align) {
            (false, _) => 0,
            (true, true) => 12,
            (true, false) => 10,
        };
        (stamps + options.len(stamped, align)).next_multiple_of(4)
    };
    match all(true) {
        aligned if aligned <= MOST => aligned,
        _ => all(false),
    }
}

/// The bytes of timestamps and options: aligned as Linux does where that fits (its receivers have a fast path for
/// `NOP NOP TIMESTAMPS`), packed otherwise.
pub(super) fn layout(
    timestamps: Option<Timestamps>,
    options: Option<&TcpOptions>,
) -> Result<([u8; MOST], usize), Error> {
    let put = |pad: &[u8]| {
        let mut layout = Layout::default();
        match (options, timestamps) {
            (Some(options), _) => options.put(&mut layout, timestamps, pad),
            (None, Some(timestamps)) => timestamps.put(&mut layout, pad),
            (None, None) => {}
        }
        while !layout.len.is_multiple_of(4) {
            layout.put(&[NOP]);
        }
        layout
    };
    let aligned = put(&[NOP, NOP]);
    let layout = if aligned.len <= MOST {
        aligned
    } else {
        put(&[])
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

impl Timestamps {
    fn put(self, layout: &mut Layout, pad: &[u8]) {
        layout.put(pad);
        layout.put(&[TIMESTAMPS, 10]);
        layout.put(&self.value.to_be_bytes());
        layout.put(&self.echo.to_be_bytes());
    }
}

/// Four bytes of an option that is long enough.
fn word(option: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]])
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
    /// The most that an option holds.
    pub const MOST: usize = 4;

    /// `blocks`, if they are at most [`Self::MOST`].
    pub fn new(blocks: &[SackBlock]) -> Option<Self> {
        let mut copy = [SackBlock::default(); Self::MOST];
        copy.get_mut(..blocks.len())?.copy_from_slice(blocks);
        Some(Self {
            len: blocks.len() as u8,
            blocks: copy,
        })
    }

    /// One more block behind the others; `false` where there is no room for it.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(room) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *room = block;
        self.len += 1;
        true
    }

    /// At least one block, or `None`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut blocks = Self::default();
        let fit = words.iter().all(|block| {
            blocks.push(SackBlock {
                left: Seq(word(block, 0)),
                right: Seq(word(block, 4)),
            })
        });
        (fit && rest.is_empty() && !blocks.is_empty()).then_some(blocks)
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// The first four of `blocks`.
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut first = Self::default();
        for block in blocks {
            if !first.push(block) {
                break;
            }
        }
        first
    }
}

impl Deref for SackBlocks {
    type Target = [SackBlock];

    fn deref(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SackBlocks {}

impl RawOptions {
    /// The most bytes that a header holds.
    pub const MOST: usize = MOST;

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

    /// The options in their order, each with its kind and length.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_slice();
        std::iter::from_fn(move || next(&mut rest).ok()?)
    }

    /// The kinds of the options, in their order.
    pub fn kinds(&self) -> impl Iterator<Item = u8> {
        self.iter().map(|option| option[0])
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
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
