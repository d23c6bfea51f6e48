//! Captures: pcap and pcapng, frame by frame.

use crate::LinkType;
use bentpipe_base::Instant;
use flate2::read::MultiGzDecoder;
use pcap_parser::pcapng::{Block, EnhancedPacketBlock, InterfaceDescriptionBlock};
use pcap_parser::{
    LegacyPcapBlock, LegacyPcapReader, PcapBlockOwned, PcapError, PcapHeader, PcapNGReader,
    traits::PcapReaderIterator,
};
use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

/// Bytes of a capture in memory at a time; more when a block is longer.
const BUFFER: usize = 1 << 20;
/// The longest block that is believed: a frame has at most 256 KiB in any tool, options may be longer.
const LONGEST: usize = 16 << 20;

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was seen: [`Instant::ZERO`] is 1970.
    pub at: Instant,
    /// What its first header is.
    pub link: LinkType,
    /// What was kept of it.
    pub data: &'a [u8],
    /// How many bytes it had.
    pub original: u32,
}

/// How a capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Whole,
    /// In the middle of a packet: whoever wrote it was killed, or the disk was full.
    CutShort {
        /// Bytes up to there.
        at: u64,
    },
    /// With something that is no packet.
    Corrupt {
        /// Bytes up to there.
        at: u64,
    },
}

/// Why a capture cannot be read at all, or not further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is nothing in it.
    #[error("it is empty: was the capture ended before the first packet was written?")]
    Empty,
    /// It is compressed with gzip, and not one packet comes out.
    #[error(
        "it begins as gzip, but does not decompress: {0}; make it anew, or see what `gunzip --test` says"
    )]
    Gzip(io::Error),
    /// It is compressed in another way.
    #[error("it is compressed with {0}: give it to `{0} -dc` first, and `-` to this command")]
    Compressed(&'static str),
    /// It is something else.
    #[error("it is neither pcap nor pcapng: give a capture of tcpdump, Wireshark or bentpipe")]
    NotACapture,
    /// The operating system says so.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How gzip begins (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How files of other compressors begin.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X'], "xz"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
    (b"BZh", "bzip2"),
];
/// The header of pcap, and less than that of pcapng.
const HEADER: u64 = 24;

/// Gives each frame of the capture in `input` to `each`, in the order of the file. One that is compressed with gzip is
/// decompressed as it is read.
///
/// # Errors
/// When it is no capture, or cannot be read further. A capture that ends too early is none: see [`Ending`].
pub fn read<R: Read>(input: R, mut each: impl FnMut(Frame<'_>)) -> Result<Ending, ReadError> {
    let mut input = Input::new(input);
    input.look_ahead(HEADER)?;
    if !input.start.starts_with(&GZIP) {
        let ending = plain(&mut input, &mut each)?;
        return input
            .fault
            .take()
            .map_or(Ok(ending), |error| Err(error.into()));
    }
    let outer = Rc::clone(&input.fault);
    let mut inner = Input::new(MultiGzDecoder::new(&mut input));
    let begun = inner.look_ahead(HEADER).map_err(ReadError::Gzip);
    let ending = begun.and_then(|()| plain(&mut inner, &mut each));
    // What the file's own reader met is why the rest is missing.
    if let Some(error) = outer.take() {
        return Err(error.into());
    }
    let at = inner.given;
    match inner.fault.take().map(|error| error.kind()) {
        None => ending,
        Some(io::ErrorKind::UnexpectedEof) => Ok(Ending::CutShort { at }),
        Some(_) => Ok(Ending::Corrupt { at }),
    }
}

fn plain<R: Read>(
    input: &mut Input<R>,
    each: &mut impl FnMut(Frame<'_>),
) -> Result<Ending, ReadError> {
    Ok(frames(open(input)?, each))
}

fn open<R: Read>(input: &mut Input<R>) -> Result<Box<dyn PcapReaderIterator + '_>, ReadError> {
    if input.start.is_empty() {
        return Err(ReadError::Empty);
    }
    let other = COMPRESSED
        .iter()
        .find(|(magic, _)| input.start.starts_with(magic));
    if let Some((_, name)) = other {
        return Err(ReadError::Compressed(name));
    }
    let opened: Result<Box<dyn PcapReaderIterator>, _> = match input.start.get(..4) {
        None => return Err(ReadError::NotACapture),
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => {
            PcapNGReader::new(BUFFER, input).map(|reader| Box::new(reader) as Box<_>)
        }
        Some(_) => LegacyPcapReader::new(BUFFER, input).map(|reader| Box::new(reader) as Box<_>),
    };
    opened.map_err(|_| ReadError::NotACapture)
}

/// What the next block of a capture is, without a borrow of the reader.
enum Step {
    Consumed(usize),
    More,
    Grow,
    End(fn(u64) -> Ending),
}

fn frames(
    mut reader: Box<dyn PcapReaderIterator + '_>,
    each: &mut impl FnMut(Frame<'_>),
) -> Ending {
    let mut section = Section::default();
    let mut capacity = BUFFER;
    loop {
        let step = match reader.next() {
            Ok((consumed, block)) => {
                section.take(&block, each);
                Step::Consumed(consumed)
            }
            Err(PcapError::Eof) => return Ending::Whole,
            Err(PcapError::Incomplete(_)) => Step::More,
            Err(PcapError::BufferTooSmall) => Step::Grow,
            Err(PcapError::UnexpectedEof | PcapError::ReadError) => {
                Step::End(|at| Ending::CutShort { at })
            }
            Err(_) => Step::End(|at| Ending::Corrupt { at }),
        };
        let before = reader.data().len();
        match step {
            // A block of no bytes would be read for ever.
            Step::Consumed(0) => {
                return Ending::Corrupt {
                    at: reader.consumed() as u64,
                };
            }
            Step::Consumed(bytes) => {
                reader.consume(bytes);
                continue;
            }
            Step::More => {
                if reader.refill().is_err() {
                    return Ending::CutShort {
                        at: reader.consumed() as u64,
                    };
                }
                if reader.data().len() > before || reader.reader_exhausted() {
                    continue;
                }
            }
            Step::Grow => {}
            Step::End(ending) => return ending(reader.consumed() as u64),
        }
        // The block is longer than the buffer.
        capacity *= 2;
        if capacity > LONGEST {
            return Ending::Corrupt {
                at: reader.consumed() as u64,
            };
        }
        if !reader.grow(capacity) || reader.refill().is_err() {
            return Ending::CutShort {
                at: reader.consumed() as u64,
            };
        }
    }
}

/// What a section of a capture says of its packets.
#[derive(Default)]
struct Section {
    interfaces: Vec<Interface>,
    /// Nanoseconds of a unit of the second half of stamps in pcap.
    unit: u64,
    last: Instant,
}

struct Interface {
    link: LinkType,
    resolution: u8,
    /// Seconds to be added to each stamp.
    offset: i64,
}

impl Section {
    fn take(&mut self, block: &PcapBlockOwned<'_>, each: &mut impl FnMut(Frame<'_>)) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => self.begin(header),
            PcapBlockOwned::Legacy(packet) => self.legacy(packet, each),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => self.describe(interface),
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => self.enhanced(packet, each),
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let Some(interface) = self.interfaces.first() else {
                    return;
                };
                let kept = packet.data.len().min(packet.origlen as usize);
                // These have no time: they came after the one before.
                each(Frame {
                    at: self.last,
                    link: interface.link,
                    data: &packet.data[..kept],
                    original: packet.origlen,
                });
            }
            PcapBlockOwned::NG(_) => {}
        }
    }

    fn begin(&mut self, header: &PcapHeader) {
        self.unit = match header.is_nanosecond_precision() {
            true => 1,
            false => 1_000,
        };
        self.interfaces = vec![Interface {
            // The upper bits may say how long a frame's check sequence is.
            link: LinkType(header.network.0 & 0xffff),
            resolution: 0,
            offset: 0,
        }];
    }

    fn describe(&mut self, interface: &InterfaceDescriptionBlock<'_>) {
        self.interfaces.push(Interface {
            link: LinkType(interface.linktype.0),
            resolution: interface.if_tsresol,
            offset: interface.if_tsoffset,
        });
    }

    fn legacy(&mut self, packet: &LegacyPcapBlock<'_>, each: &mut impl FnMut(Frame<'_>)) {
        let Some(interface) = self.interfaces.first() else {
            return;
        };
        let seconds = u64::from(packet.ts_sec) * 1_000_000_000;
        self.last = Instant::from_nanos(seconds + u64::from(packet.ts_usec) * self.unit);
        each(Frame {
            at: self.last,
            link: interface.link,
            data: packet.data,
            original: packet.origlen,
        });
    }

    fn enhanced(&mut self, packet: &EnhancedPacketBlock<'_>, each: &mut impl FnMut(Frame<'_>)) {
        // A packet of an interface that nothing describes cannot be read.
        let Some(interface) = self.interfaces.get(packet.if_id as usize) else {
            return;
        };
        let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        self.last = interface.time(ticks);
        let kept = packet.data.len().min(packet.caplen as usize);
        each(Frame {
            at: self.last,
            link: interface.link,
            data: &packet.data[..kept],
            original: packet.origlen,
        });
    }
}

impl Interface {
    /// `ticks` of this interface, since 1970.
    fn time(&self, ticks: u64) -> Instant {
        let nanos = match self.resolution {
            6 => ticks.saturating_mul(1_000),
            9 => ticks,
            decimal if decimal < 0x80 => {
                let unit = 10u128.checked_pow(decimal.into()).unwrap_or(u128::MAX);
                scaled(ticks, unit)
            }
            binary => scaled(ticks, 1 << (binary & 0x7f).min(126)),
        };
        let offset = self.offset.unsigned_abs().saturating_mul(1_000_000_000);
        Instant::from_nanos(match self.offset < 0 {
            true => nanos.saturating_sub(offset),
            false => nanos.saturating_add(offset),
        })
    }
}

/// Nanoseconds of `ticks`, `unit` of which are a second.
fn scaled(ticks: u64, unit: u128) -> u64 {
    u64::try_from(u128::from(ticks) * 1_000_000_000 / unit).unwrap_or(u64::MAX)
}

/// What is read: first what was looked at already. Each read gives all that was asked for until the end, for the
/// parser reads a header with one call, and a pipe gives less.
struct Input<R> {
    start: Vec<u8>,
    rest: R,
    /// The parser has one error for all that may happen here.
    fault: Rc<RefCell<Option<io::Error>>>,
    /// Bytes that were given on.
    given: u64,
}

impl<R: Read> Input<R> {
    fn new(rest: R) -> Self {
        Self {
            start: Vec::new(),
            rest,
            fault: Rc::default(),
            given: 0,
        }
    }

    fn look_ahead(&mut self, bytes: u64) -> io::Result<()> {
        self.rest
            .by_ref()
            .take(bytes)
            .read_to_end(&mut self.start)
            .map(drop)
    }
}

impl<R: Read> Read for &mut Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = self.start.len().min(buffer.len());
        buffer[..ahead].copy_from_slice(&self.start[..ahead]);
        self.start.drain(..ahead);
        let mut filled = ahead;
        while filled < buffer.len() {
            match self.rest.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What came before it is given first; the next read ends.
                    *self.fault.borrow_mut() = Some(error);
                    break;
                }
            }
        }
        self.given += filled as u64;
        Ok(filled)
    }
}
