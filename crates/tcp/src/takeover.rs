//! What a connection needs to know to go on after a handshake that somebody else did. A splitting proxy that followed
//! the handshake from outside fills it; Linux restores the same by TCP_REPAIR.

use crate::ScpsHandshake;
use bentpipe_base::Seq;
use core::time::Duration;

/// A connection right after its handshake, as one of its ends knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// Number of our SYN.
    pub iss: Seq,
    /// Number of the peer's SYN.
    pub irs: Seq,
    /// The largest segment that the peer takes, in bytes, TCP options included (RFC 6691).
    pub mss: u16,
    /// SACK was agreed on.
    pub sack: bool,
    /// ECN was agreed on.
    pub ecn: bool,
    /// Where timestamps were agreed on: what our clock shows now, and what the peer's showed last.
    pub clocks: Option<(u32, u32)>,
    /// Where window scaling was agreed on: the shifts of our window field and of the peer's.
    pub scales: Option<(u8, u8)>,
    /// The peer's window, in bytes.
    pub window: u64,
    /// Where both ends offered SCPS-TP.
    pub scps: Option<ScpsHandshake>,
    /// What the handshake took from here to the peer and back, where that is known.
    pub rtt: Option<Duration>,
}
