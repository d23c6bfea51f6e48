use bytes::Bytes;

/// What a packet carries behind its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    #[default]
    Absent,
    /// `len` bytes of a stream from byte `offset` on, whose content is [`Payload::pattern`]. Costs
    /// nothing to move; becomes real bytes only when emitted.
    Virtual {
        /// Where in the stream, in bytes.
        offset: u64,
        /// How many bytes; not 0 (that is `Absent`).
        len: u32,
    },
    /// Bytes, not empty (that is `Absent`), shared with clones of the packet and with the stream that they are a slice
    /// of. Behind a thin pointer, for the packets of a simulation, which have none, are moved far more often.
    Bytes(Box<Bytes>),
}

const _: () = assert!(size_of::<Payload>() == 16 || size_of::<usize>() < 8);

impl Payload {
    /// Bytes carried.
    pub fn len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Virtual { len, .. } => *len as usize,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether nothing is carried.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Byte `offset` of every virtual stream. Neighbouring words differ, so that a receiver sees a
    /// piece that is missing, doubled or out of place.
    pub const fn pattern(offset: u64) -> u8 {
        // Fibonacci hashing of the word's number: 2^64 / golden ratio.
        let word = (offset / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> (offset % 8 * 8)) as u8
    }

    /// Appends the bytes to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Absent => {}
            Self::Virtual { offset, len } => {
                out.extend((0..u64::from(*len)).map(|i| Self::pattern(offset.wrapping_add(i))));
            }
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

impl From<Bytes> for Payload {
    /// `bytes`, not copied; `Absent` when there are none.
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Absent
        } else {
            Self::Bytes(Box::new(bytes))
        }
    }
}

impl From<Vec<u8>> for Payload {
    /// `bytes`, not copied; `Absent` when there are none.
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<&[u8]> for Payload {
    /// A copy of `bytes`; `Absent` when there are none.
    fn from(bytes: &[u8]) -> Self {
        Self::from(Bytes::copy_from_slice(bytes))
    }
}
