use bentpipe_wire::Payload;
use bytes::{Bytes, BytesMut};
use core::mem;
use std::collections::BTreeMap;

/// What a piece costs beside its bytes: its place in the tree, what counts its owners, and what the allocator adds.
const OVERHEAD: usize = 192;
/// More than this may always be wasted on small pieces.
const WASTE: usize = 1 << 16;
/// The largest piece that is made of small ones.
const BLOCK: usize = 1 << 16;

/// Bytes from the one to be read next, in order and beyond gaps.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    /// Stream offset of the byte to be read next.
    pub start: u64,
    content: Content,
}

/// What a stream is made of, as its first bytes say.
#[derive(Debug, Default)]
enum Content {
    /// Nothing arrived.
    #[default]
    Unknown,
    /// A count: nothing is stored.
    Counted,
    /// Bytes.
    Real(Pieces),
}

impl ReceiveBuffer {
    /// Puts `payload`, without its first `skip` bytes, at stream offset `at`; `len` bytes of it. False where it is real
    /// in a stream that is counted, or the other way round: then nothing was put.
    #[inline]
    pub fn put(&mut self, at: u64, payload: &Payload, skip: usize, len: usize) -> bool {
        // Nearly all there is to a simulation, whose caller holds this inline.
        let counted = matches!(payload, Payload::Virtual { .. });
        counted && matches!(self.content, Content::Counted)
            || self.put_other(at, payload, skip, len)
    }

    #[inline(never)]
    fn put_other(&mut self, at: u64, payload: &Payload, skip: usize, len: usize) -> bool {
        if let Content::Unknown = self.content {
            match payload {
                Payload::Absent => {}
                Payload::Virtual { .. } => self.content = Content::Counted,
                Payload::Bytes(_) => self.content = Content::Real(Pieces::default()),
            }
        }
        match (&mut self.content, payload) {
            (_, Payload::Absent) | (Content::Counted, Payload::Virtual { .. }) => true,
            (Content::Real(pieces), Payload::Bytes(bytes)) => {
                pieces.put(at, bytes, skip, len);
                true
            }
            _ => false,
        }
    }

    /// Bytes that take room, what small pieces cost included.
    pub fn stored(&self) -> u64 {
        match &self.content {
            Content::Real(pieces) => pieces.cost as u64,
            Content::Unknown | Content::Counted => 0,
        }
    }

    /// Whether bytes arrived that are more than a count.
    pub fn is_real(&self) -> bool {
        matches!(self.content, Content::Real(_))
    }

    /// Takes the next bytes, at most `most`, which is no more than has arrived: as they came, without a copy. `None` where
    /// the stream is but a count.
    pub fn read_bytes(&mut self, most: usize) -> Option<Bytes> {
        let Content::Real(pieces) = &mut self.content else {
            return None;
        };
        if most == 0 {
            return None;
        }
        let bytes = pieces.take(self.start, most)?;
        self.start += bytes.len() as u64;
        Some(bytes)
    }

    /// Reads `out.len()` bytes, all of which have arrived. Those of a count are [`Payload::pattern`].
    pub fn read(&mut self, out: &mut [u8]) {
        let mut rest = &mut *out;
        while !rest.is_empty() {
            let Some(bytes) = self.read_bytes(rest.len()) else {
                break;
            };
            let (room, behind) = mem::take(&mut rest).split_at_mut(bytes.len());
            room.copy_from_slice(&bytes);
            rest = behind;
        }
        for byte in rest {
            *byte = Payload::pattern(self.start);
            self.start += 1;
        }
    }

    /// Drops `len` bytes, all of which have arrived.
    #[inline]
    pub fn consume(&mut self, len: u64) {
        match self.content {
            Content::Real(_) => self.drop_bytes(len),
            Content::Unknown | Content::Counted => self.start += len,
        }
    }

    #[inline(never)]
    fn drop_bytes(&mut self, len: u64) {
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        while left > 0
            && let Some(bytes) = self.read_bytes(left)
        {
            left -= bytes.len();
        }
    }
}

/// Real bytes in order and beyond gaps, as they came: payloads of segments, which who sent them shares.
#[derive(Debug)]
struct Pieces {
    /// By where they begin; none overlaps another.
    pieces: BTreeMap<u64, Piece>,
    /// Bytes of them all.
    len: usize,
    /// What they cost.
    cost: usize,
    /// Waste beyond which small pieces are copied together.
    allowed: usize,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// Bytes of memory that it keeps from being freed.
    cost: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            pieces: BTreeMap::new(),
            len: 0,
            cost: 0,
            allowed: WASTE,
        }
    }
}

impl Pieces {
    /// Puts those of the `len` bytes behind the first `skip` of `bytes` that are new at offset `at`.
    fn put(&mut self, at: u64, bytes: &Bytes, skip: usize, len: usize) {
        let (mut from, end) = (at, at + len as u64);
        loop {
            // What is there already, in as many pieces as follow each other.
            while let Some((&begin, piece)) = self.pieces.range(..=from).next_back()
                && let reach = begin + piece.bytes.len() as u64
                && reach > from
            {
                from = reach;
            }
            if from >= end {
                break;
            }
            let next = self.pieces.range(from..).next();
            let to = next.map_or(end, |(&begin, _)| begin.min(end));
            let offset = skip + (from - at) as usize;
            let piece = bytes.slice(offset..offset + (to - from) as usize);
            // A piece keeps the whole payload that it came in.
            let cost = bytes.len() + OVERHEAD;
            self.insert(from, Piece { bytes: piece, cost });
            from = to;
        }
        if self.cost > 2 * self.len + self.allowed {
            self.compact();
        }
    }

    fn insert(&mut self, at: u64, piece: Piece) {
        self.len += piece.bytes.len();
        self.cost += piece.cost;
        self.pieces.insert(at, piece);
    }

    /// Takes the bytes at `start`, at most `most`.
    fn take(&mut self, start: u64, most: usize) -> Option<Bytes> {
        let mut first = self
            .pieces
            .first_entry()
            .filter(|piece| *piece.key() == start)?;
        let piece = first.get_mut();
        if piece.bytes.len() > most {
            let bytes = piece.bytes.split_to(most);
            let rest = first.remove();
            self.len -= most;
            self.pieces.insert(start + most as u64, rest);
            return Some(bytes);
        }
        let piece = first.remove();
        self.len -= piece.bytes.len();
        self.cost -= piece.cost;
        if self.pieces.is_empty() {
            // An empty tree would keep a node of half a kilobyte, which connections that are idle had each.
            *self = Self::default();
        }
        Some(piece.bytes)
    }

    /// Copies pieces that follow each other into blocks, and others into what they need: a peer that sends a byte at a
    /// time has us keep little more than those bytes. What is wasted still is allowed twice over, so that the work stays
    /// in proportion to what arrives.
    fn compact(&mut self) {
        let old = mem::take(&mut self.pieces);
        (self.len, self.cost) = (0, 0);
        let (mut begin, mut block) = (0, BytesMut::new());
        for (at, piece) in old {
            let follows = begin + block.len() as u64 == at;
            if !block.is_empty() && (!follows || block.len() + piece.bytes.len() > BLOCK) {
                self.insert(begin, Piece::compacted(mem::take(&mut block)));
            }
            if block.is_empty() {
                begin = at;
            }
            block.extend_from_slice(&piece.bytes);
        }
        if !block.is_empty() {
            self.insert(begin, Piece::compacted(block));
        }
        self.allowed = WASTE.max(2 * self.cost.saturating_sub(2 * self.len));
    }
}

impl Piece {
    /// The bytes of `block` in an allocation that is no longer than they are.
    fn compacted(block: BytesMut) -> Self {
        let bytes = Bytes::copy_from_slice(&block);
        let cost = bytes.len() + OVERHEAD;
        Self { bytes, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Ranges;
    use proptest::prelude::*;

    fn byte(at: u64) -> u8 {
        (at * 7 / 3) as u8
    }

    fn stretch(at: u64, len: usize) -> Payload {
        let bytes: Vec<u8> = (at..at + len as u64).map(byte).collect();
        Payload::from(bytes)
    }

    proptest! {
        /// Against the ranges that arrived: whatever comes, in whatever order and however it overlaps, what can be read is
        /// read right, and what is kept costs in proportion to it.
        #[test]
        fn what_came_is_read_in_order(
            steps in prop::collection::vec((0u64..6_000, 0usize..1_500, 0u8..4, any::<u16>()), 1..80),
            // Few bytes at a time, or many.
            least in prop::sample::select(vec![1usize, 1, 40, 1_500]),
        ) {
            let mut buffer = ReceiveBuffer::default();
            let mut came = Ranges::default();
            for (ahead, len, skip, read) in steps {
                let at = buffer.start + ahead;
                let len = len.min(least) + 1;
                let payload = stretch(at, len + usize::from(skip));
                let at = at + u64::from(skip);
                prop_assert!(buffer.put(at, &payload, skip.into(), len));
                came.insert(at, at + len as u64);
                let ready = match came.first() {
                    Some((first, end)) if first <= buffer.start => end - buffer.start,
                    _ => 0,
                };
                let most = usize::from(read).min(ready as usize);
                let start = buffer.start;
                let mut got = Vec::new();
                if read % 3 == 0 {
                    got.resize(most, 0);
                    buffer.read(&mut got);
                } else {
                    while got.len() < most && let Some(bytes) = buffer.read_bytes(most - got.len()) {
                        got.extend_from_slice(&bytes);
                    }
                }
                let expected: Vec<u8> = (start..start + most as u64).map(byte).collect();
                prop_assert_eq!(got, expected);
                came.trim(buffer.start);
            }
        }
    }

    proptest! {
        /// A segment that comes again with other bytes changes nothing that arrived before, whether that was read or not: who
        /// looks at the stream on its way and who reads it see the same.
        #[test]
        fn of_bytes_that_differ_the_first_count(
            steps in prop::collection::vec((0u64..6_000, 1usize..1_500), 1..80),
        ) {
            let mut buffer = ReceiveBuffer::default();
            let mut first = vec![None; 7_500];
            for (fill, (at, len)) in (1u8..).zip(steps) {
                prop_assert!(buffer.put(at, &Payload::from(vec![fill; len]), 0, len));
                for byte in &mut first[at as usize..at as usize + len] {
                    byte.get_or_insert(fill);
                }
            }
            // What is missing still comes with the last segment, and nothing else of it.
            let last = first.len();
            prop_assert!(buffer.put(0, &Payload::from(vec![0; last]), 0, last));
            let mut got = vec![1; last];
            buffer.read(&mut got);
            let expected: Vec<u8> = first.into_iter().map(Option::unwrap_or_default).collect();
            prop_assert_eq!(got, expected);
        }
    }

    /// Ten thousand bytes, each in a segment of its own from which the others were cut off: copied together, they cost
    /// little more than they are. With gaps between them they stay what they are, and the work is bounded.
    #[test]
    fn small_pieces_of_large_payloads_are_copied_together() {
        for (gap, most) in [
            (0, 100_000),
            (1, 10_000 * (1 + OVERHEAD) as u64 + 3_000_000),
        ] {
            let mut buffer = ReceiveBuffer::default();
            for i in 0..10_000 {
                let at = 1 + i * (1 + gap);
                assert!(buffer.put(at, &stretch(at, 1_448), 0, 1));
                assert!(buffer.stored() < most, "{i}: {}", buffer.stored());
            }
            if gap == 0 {
                assert!(buffer.put(0, &stretch(0, 1), 0, 1));
                let mut all = vec![0; 10_001];
                buffer.read(&mut all);
                assert!((0..).zip(&all).all(|(at, read)| *read == byte(at)));
            }
        }
    }

    #[test]
    fn a_stream_is_counted_or_real() {
        let counted = Payload::Virtual { offset: 0, len: 10 };
        let mut buffer = ReceiveBuffer::default();
        assert!(buffer.put(0, &counted, 0, 10));
        assert!(!buffer.put(10, &stretch(10, 10), 0, 10));
        assert_eq!((buffer.stored(), buffer.is_real()), (0, false));
        let mut buffer = ReceiveBuffer::default();
        assert!(buffer.put(10, &stretch(10, 10), 0, 10));
        assert!(!buffer.put(0, &counted, 0, 10));
        assert!(buffer.is_real());
    }

    #[test]
    fn what_came_whole_is_read_without_a_copy() {
        let payload = stretch(0, 1_448);
        let Payload::Bytes(bytes) = &payload else {
            unreachable!("a stretch is of bytes");
        };
        let mut buffer = ReceiveBuffer::default();
        assert!(buffer.put(0, &payload, 0, 1_448));
        let read = buffer.read_bytes(usize::MAX).expect("it has arrived");
        assert_eq!(read.as_ptr(), bytes.as_ptr());
        assert_eq!((buffer.stored(), buffer.read_bytes(1)), (0, None));
    }
}
