//! What one segment meant to its connection: what time-sequence graphs and the search for limits are made of.

use crate::Side;
use bentpipe_base::Instant;

/// Whether data or a flag that takes a number was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// Nothing in it takes a number: an acknowledgement.
    #[default]
    Nothing,
    /// For the first time.
    New,
    /// At least some of it had been sent before.
    Again,
    /// It filled a hole.
    OutOfOrder,
    /// It was sent against a closed window.
    Probe,
}

/// What a segment acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The place in the peer's stream that it expects next.
    pub place: u64,
    /// How far the peer may send beyond that.
    pub window: u64,
    /// It is a duplicate (RFC 5681).
    pub duplicate: bool,
    /// The round-trip time that it gives, in nanoseconds.
    pub sample: Option<u64>,
}

/// One segment, in its connection.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When it was seen.
    pub at: Instant,
    /// Who sent it.
    pub side: Side,
    /// Its first place in the sender's stream. Places do not wrap.
    pub start: u64,
    /// Bytes of data.
    pub length: u32,
    /// What of it was new.
    pub kind: Kind,
    /// Bytes of the sender that are not acknowledged, with this segment.
    pub outstanding: u64,
    /// What it acknowledges, unless it is a reset.
    pub acknowledgement: Option<Acknowledgement>,
}
