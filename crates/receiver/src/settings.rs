//! What of a connection's configuration is its receiving half's.

use bentpipe_base::{Bytes, TimerWheel};
use std::time::Duration;

/// What a receiver is told of the connection's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a full segment.
    pub mss: u16,
    /// The room for what is unread or beyond a gap.
    pub receive_buffer: Bytes,
    /// The shift of the window field.
    pub scale: u8,
    /// How long an acknowledgement may wait.
    pub delayed_ack: Duration,
    /// When the timer of that expires.
    pub timers: TimerWheel,
    /// Segments in order that one acknowledgement answers; 0 is as 1.
    pub ack_every: u32,
    /// So many acknowledgements do not wait at the start, and after data that arrived twice.
    pub quick_acks: u32,
    /// The first byte of data is acknowledged at once.
    pub acks_first_byte: bool,
    /// SACK as Linux's receivers have it: four blocks are remembered, and what arrives beside none of these is told by itself,
    /// though its neighbours may have arrived long before; a FIN beyond a gap is told.
    pub linux_sack: bool,
    /// The peer is told what arrived twice (RFC 2883).
    pub tells_duplicates: bool,
}
