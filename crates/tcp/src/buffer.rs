//! The two streams: bytes written until they are acknowledged, and bytes received until they are
//! read. Where the bytes exist only as a count nothing is stored.

use bentpipe_wire::Payload;
use std::collections::VecDeque;

/// Bytes from `start` on. Offsets count the stream's bytes from 0.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    start: u64,
    end: u64,
    bytes: VecDeque<u8>,
    /// The bytes exist only as a count.
    virtually: bool,
}

impl SendBuffer {
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether bytes were written that are more than a count.
    pub(crate) fn is_real(&self) -> bool {
        !self.virtually
    }

    /// Bytes that take room.
    pub(crate) fn stored(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Takes what `most` leaves room for; returns how many bytes.
    pub(crate) fn write(&mut self, bytes: &[u8], most: u64) -> usize {
        if self.virtually {
            return 0;
        }
        let room = usize::try_from(most.saturating_sub(self.end - self.start));
        let taken = bytes.len().min(room.unwrap_or(usize::MAX));
        self.bytes.extend(&bytes[..taken]);
        self.end += taken as u64;
        taken
    }

    /// The far end is kept below 2^62, so that no sum of offsets overflows.
    pub(crate) fn write_virtual(&mut self, len: u64) -> u64 {
        if !self.virtually && self.end > 0 {
            return 0;
        }
        self.virtually = true;
        let taken = len.min((1 << 62) - self.end);
        self.end += taken;
        // All of an endless stream was taken.
        if len == u64::MAX { len } else { taken }
    }

    /// All before `offset` is acknowledged.
    pub(crate) fn release(&mut self, offset: u64) {
        let gone = offset.saturating_sub(self.start);
        self.start += gone;
        if !self.virtually && gone > 0 {
            self.bytes.drain(..(gone as usize).min(self.bytes.len()));
        }
    }

    /// Bytes `[from, from + len)`, which were written and are not acknowledged.
    pub(crate) fn payload(&self, from: u64, len: u32) -> Payload {
        if len == 0 {
            return Payload::Absent;
        }
        if self.virtually {
            return Payload::Virtual { offset: from, len };
        }
        let at = from.saturating_sub(self.start) as usize;
        let end = (at + len as usize).min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let mut bytes = Vec::with_capacity(len as usize);
        bytes.extend_from_slice(&front[at.min(front.len())..end.min(front.len())]);
        let skip = |i: usize| i.saturating_sub(front.len()).min(back.len());
        bytes.extend_from_slice(&back[skip(at)..skip(end)]);
        Payload::from(bytes.as_slice())
    }
}

/// Bytes from the one to be read next, in order and beyond gaps.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    /// Stream offset of the byte to be read next.
    pub(crate) start: u64,
    /// Real bytes from `start` on; empty while all are virtual.
    bytes: VecDeque<u8>,
    /// Real bytes arrived.
    real: bool,
}

impl ReceiveBuffer {
    /// Puts `payload`, without its first `skip` bytes, at stream offset `at`; `len` bytes of it.
    #[inline]
    pub(crate) fn put(&mut self, at: u64, payload: &Payload, skip: usize, len: usize) {
        self.real |= matches!(payload, Payload::Bytes(_));
        if self.real {
            self.store(at, payload, skip, len);
        }
    }

    fn store(&mut self, at: u64, payload: &Payload, skip: usize, len: usize) {
        let offset = (at - self.start) as usize;
        if self.bytes.len() < offset + len {
            // Virtual bytes that came before, or a gap that will be filled.
            let have = self.bytes.len() as u64;
            let start = self.start;
            let more = (offset + len) as u64 - have;
            self.bytes
                .extend((0..more).map(|i| Payload::pattern(start + have + i)));
        }
        if let Payload::Bytes(bytes) = payload {
            let Some(bytes) = bytes.get(skip..skip + len) else {
                return;
            };
            let (front, back) = self.bytes.as_mut_slices();
            let split = front.len().saturating_sub(offset).min(len);
            if split > 0 {
                front[offset..offset + split].copy_from_slice(&bytes[..split]);
            }
            if split < len {
                let from = offset + split - front.len();
                back[from..from + len - split].copy_from_slice(&bytes[split..]);
            }
        }
    }

    /// Bytes that take room.
    pub(crate) fn stored(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether bytes arrived that are more than a count.
    pub(crate) fn is_real(&self) -> bool {
        self.real
    }

    /// The first `len` bytes, all of which have arrived: in two pieces, for they lie in a ring. Nothing where all bytes
    /// are but a count.
    pub(crate) fn peek(&self, len: usize) -> [&[u8]; 2] {
        let (front, back) = self.bytes.as_slices();
        let split = len.min(front.len());
        [&front[..split], &back[..(len - split).min(back.len())]]
    }

    /// Reads `out.len()` bytes, all of which have arrived.
    pub(crate) fn read(&mut self, out: &mut [u8]) {
        let real = out.len().min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let split = real.min(front.len());
        out[..split].copy_from_slice(&front[..split]);
        out[split..real].copy_from_slice(&back[..real - split]);
        // Counted bytes, of which nothing is stored.
        for (byte, at) in out[real..].iter_mut().zip(self.start + real as u64..) {
            *byte = Payload::pattern(at);
        }
        self.consume(out.len() as u64);
    }

    /// Drops `len` bytes, all of which have arrived.
    pub(crate) fn consume(&mut self, len: u64) {
        self.start += len;
        if !self.bytes.is_empty() {
            self.bytes.drain(..(len as usize).min(self.bytes.len()));
        }
    }
}
