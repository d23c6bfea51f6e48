use bentpipe_wire::Payload;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// What is copied lies in blocks of this size at most and at least.
const BLOCK: usize = 1 << 16;
const LEAST_BLOCK: usize = 1 << 11;
/// Handed over in fewer bytes than these, they are copied: a piece of its own would cost more.
const SMALL: usize = 512;

/// Bytes from `start` on. Offsets count the stream's bytes from 0.
#[derive(Debug, Default)]
pub struct SendBuffer {
    start: u64,
    end: u64,
    /// The stream is a count, and nothing is stored.
    counted: bool,
    pieces: Pieces,
}

/// Real bytes, up to the end of what was written. Segments are slices of them.
#[derive(Debug, Default)]
struct Pieces {
    /// In order and without gaps: where each begins.
    whole: VecDeque<(u64, Bytes)>,
    /// Written last, behind them: more may be written in its block.
    open: BytesMut,
}

impl SendBuffer {
    /// The offset behind the last byte written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether bytes were written that are more than a count.
    pub fn is_real(&self) -> bool {
        !self.counted
    }

    /// Bytes that take room.
    pub fn stored(&self) -> u64 {
        if self.counted {
            0
        } else {
            self.end - self.start
        }
    }

    /// How many of `len` bytes there is room for, where at most `most` may wait.
    fn room(&self, len: usize, most: u64) -> usize {
        if self.counted {
            return 0;
        }
        let room = usize::try_from(most.saturating_sub(self.end - self.start));
        len.min(room.unwrap_or(usize::MAX))
    }

    /// Takes a copy of what `most` leaves room for; returns how many bytes.
    pub fn write(&mut self, bytes: &[u8], most: u64) -> usize {
        let taken = self.room(bytes.len(), most);
        self.pieces.copy(&bytes[..taken], self.end);
        self.end += taken as u64;
        taken
    }

    /// Takes what `most` leaves room for off the front of `bytes`, which are shared; returns how many bytes.
    pub fn write_bytes(&mut self, bytes: &mut Bytes, most: u64) -> usize {
        let taken = self.room(bytes.len(), most);
        let piece = bytes.split_to(taken);
        if taken < SMALL {
            self.pieces.copy(&piece, self.end);
        } else {
            self.pieces.close(self.end);
            self.pieces.whole.push_back((self.end, piece));
        }
        self.end += taken as u64;
        taken
    }

    /// The far end is kept below 2^62, so that no sum of offsets overflows.
    pub fn write_virtual(&mut self, len: u64) -> u64 {
        if !self.counted && self.end > 0 {
            return 0;
        }
        self.counted = true;
        let taken = len.min((1 << 62) - self.end);
        self.end += taken;
        // All of an endless stream was taken.
        if len == u64::MAX { len } else { taken }
    }

    /// All before `offset` is acknowledged.
    #[inline]
    pub fn release(&mut self, offset: u64) {
        if offset <= self.start {
            return;
        }
        self.start = offset.min(self.end);
        if !self.counted {
            self.pieces.release(self.start, self.end);
        }
    }

    /// Bytes `[from, from + len)`, which were written and are not acknowledged.
    #[inline]
    pub fn payload(&mut self, from: u64, len: u32) -> Payload {
        if len == 0 {
            return Payload::Absent;
        }
        if self.counted {
            return Payload::Virtual { offset: from, len };
        }
        let bytes = self.pieces.slice(from, len as usize, self.end);
        bytes.map_or(Payload::Absent, Payload::Bytes)
    }
}

impl Pieces {
    /// Appends a copy of `bytes` to the stream, which ended at `end`.
    fn copy(&mut self, mut bytes: &[u8], mut end: u64) {
        while !bytes.is_empty() {
            let room = self.open.capacity() - self.open.len();
            if room == 0 {
                self.close(end);
                self.open = BytesMut::with_capacity(bytes.len().clamp(LEAST_BLOCK, BLOCK));
                continue;
            }
            let (fits, rest) = bytes.split_at(bytes.len().min(room));
            self.open.extend_from_slice(fits);
            end += fits.len() as u64;
            bytes = rest;
        }
    }

    /// What was written last is whole, up to `end`, though more may follow in its block.
    fn close(&mut self, end: u64) {
        if !self.open.is_empty() {
            let piece = self.open.split().freeze();
            self.whole.push_back((end - piece.len() as u64, piece));
        }
    }

    /// Forgets what lies before `start`, where the stream ends at `end`.
    fn release(&mut self, start: u64, end: u64) {
        if start == end {
            // All that was sent is acknowledged, and nothing waits: the block is no longer needed.
            *self = Self::default();
        }
        while let Some((at, piece)) = self.whole.front()
            && at + piece.len() as u64 <= start
        {
            self.whole.pop_front();
        }
    }

    /// Bytes `[from, from + len)` of a stream that ends at `end`: a slice, never a copy when they are asked for again.
    /// Bytes that were released already, or were never written, are absent.
    fn slice(&mut self, from: u64, len: usize, end: u64) -> Option<Box<Bytes>> {
        let to = from + len as u64;
        if to > end - self.open.len() as u64 {
            self.close(end);
        }
        let ends = |(at, piece): &(u64, Bytes)| at + piece.len() as u64;
        let first = self.whole.partition_point(|piece| ends(piece) <= from);
        if self.whole.get(first).is_some_and(|piece| ends(piece) < to) {
            self.join(first, from, to);
            return self.slice(from, len, end);
        }
        let (at, piece) = self.whole.get(first)?;
        let skip = (from - at) as usize;
        Some(Box::new(piece.slice(skip..skip + len)))
    }

    /// Makes one piece of bytes `[from, to)`, which begin in the one numbered `first` and end in a later one.
    fn join(&mut self, first: usize, from: u64, to: u64) {
        let mut joined = BytesMut::with_capacity((to - from) as usize);
        let (at, piece) = &mut self.whole[first];
        let skip = (from - *at) as usize;
        joined.extend_from_slice(&piece.split_off(skip));
        let place = first + usize::from(skip > 0);
        if skip == 0 {
            self.whole.remove(first);
        }
        while let Some((at, piece)) = self.whole.get_mut(place)
            && *at < to
        {
            let taken = piece.split_to(piece.len().min((to - *at) as usize));
            joined.extend_from_slice(&taken);
            *at += taken.len() as u64;
            if piece.is_empty() {
                self.whole.remove(place);
            }
        }
        self.whole.insert(place, (from, joined.freeze()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        Share(usize),
        Release(u16),
        Slice(u16, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..3000).prop_map(Step::Write),
            (0usize..3000).prop_map(Step::Share),
            any::<u16>().prop_map(Step::Release),
            (any::<u16>(), 1u16..2000).prop_map(|(from, len)| Step::Slice(from, len)),
        ]
    }

    proptest! {
        /// Against the stream as one list of bytes: every slice is right, also one that was asked for before, and
        /// then it is the same memory.
        #[test]
        fn slices_are_of_what_was_written(steps in prop::collection::vec(step(), 1..60)) {
            const MOST: u64 = 10_000;
            let mut buffer = SendBuffer::default();
            let (mut stream, mut start) = (Vec::new(), 0);
            let next = |stream: &Vec<u8>, len: usize| -> Vec<u8> {
                (0..len).map(|i| ((stream.len() + i) * 7 / 3) as u8).collect()
            };
            for step in steps {
                match step {
                    Step::Write(len) => {
                        let bytes = next(&stream, len);
                        let taken = buffer.write(&bytes, MOST);
                        prop_assert_eq!(taken, len.min(MOST as usize - (stream.len() - start)));
                        stream.extend_from_slice(&bytes[..taken]);
                    }
                    Step::Share(len) => {
                        let bytes = next(&stream, len);
                        let mut rest = Bytes::from(bytes.clone());
                        let taken = buffer.write_bytes(&mut rest, MOST);
                        prop_assert_eq!(&rest[..], &bytes[taken..]);
                        stream.extend_from_slice(&bytes[..taken]);
                    }
                    Step::Release(by) => {
                        start += usize::from(by) % (stream.len() - start + 1);
                        buffer.release(start as u64);
                    }
                    Step::Slice(from, len) => {
                        let left = stream.len() - start;
                        if left == 0 {
                            continue;
                        }
                        let from = start + usize::from(from) % left;
                        let len = usize::from(len).min(stream.len() - from);
                        let mut ask = || match buffer.payload(from as u64, len as u32) {
                            Payload::Bytes(bytes) => bytes,
                            other => panic!("{other:?}"),
                        };
                        let (once, again) = (ask(), ask());
                        prop_assert_eq!(&once[..], &stream[from..from + len]);
                        prop_assert_eq!(once.as_ptr(), again.as_ptr());
                    }
                }
                prop_assert_eq!(buffer.stored(), (stream.len() - start) as u64);
            }
        }
    }
}
