use bentpipe_base::Seq;
use bentpipe_wire::{Flags, Payload, SackBlock, Timestamps};

/// One TCP segment as the endpoint sees it. Addresses and ports belong to whoever carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of the first payload byte, or of the SYN.
    pub seq: Seq,
    /// The byte expected next; means something with [`Flags::ACK`].
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// Room at the receiver, before scaling.
    pub window: u16,
    /// The timestamps option (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// The options that few segments carry.
    pub options: Option<Box<Options>>,
    /// The data.
    pub payload: Payload,
}

/// Options of a SYN, and SACK blocks: out of line, for most segments have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size, in bytes (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Window scale, in bits (RFC 7323, section 2).
    pub window_scale: Option<u8>,
    /// SACK-permitted (RFC 2018).
    pub sack_permitted: bool,
    /// SACK blocks, at most four, the latest first (RFC 2018); a D-SACK block before them
    /// (RFC 2883).
    pub sack: Vec<SackBlock>,
}

impl Segment {
    /// Bytes of the TCP header with its options, padded as `bentpipe_wire` emits them.
    pub fn header_len(&self) -> usize {
        let mut len = if self.timestamps.is_some() { 12 } else { 0 };
        if let Some(options) = self.options.as_deref() {
            len += if options.mss.is_some() { 4 } else { 0 };
            len += if options.window_scale.is_some() { 4 } else { 0 };
            // Beside timestamps it takes the place of their padding.
            let alone = options.sack_permitted && self.timestamps.is_none();
            len += if alone { 4 } else { 0 };
            let blocks = options.sack.len();
            len += if blocks > 0 { 4 + 8 * blocks } else { 0 };
        }
        20 + len
    }
}

// The simulator moves segments by value.
const _: () = assert!(size_of::<Segment>() <= 48);
