use bentpipe_base::Bytes;
use core::ops::RangeInclusive;
use std::time::Duration;

/// How a host behaves, and what it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Ports of connections that it opens (RFC 6056, section 3.2); Linux's range by default.
    pub ports: RangeInclusive<u16>,
    /// Connections at most, half-open ones included. Past that a SYN is dropped, and `connect` fails.
    pub connections: usize,
    /// Connections in TIME-WAIT at most; past that the oldest end early.
    pub time_wait: usize,
    /// How long TIME-WAIT lasts (RFC 9293: twice the maximum segment lifetime; Linux: 60 s).
    pub time_wait_for: Duration,
    /// Connections that nobody holds any more and that still have bytes to deliver, at most; past that they are reset.
    pub orphans: usize,
    /// For how long one of them is kept whose peer acknowledges nothing; then it is reset.
    pub orphan_for: Duration,
    /// Bytes that all connections together hold for their applications and peers. Past that no peer is offered more
    /// room than for a few segments, and what comes for an application that does not read, or beyond a gap, is dropped,
    /// to be sent again.
    pub buffered: Bytes,
    /// Resets a second to what belongs to nobody, and answers from TIME-WAIT.
    pub replies_per_second: u32,
    /// Packets are sent with this many hops.
    pub hop_limit: u8,
    /// The largest packet of the interface.
    pub mtu: u16,
    /// For how long the knowledge of a path's MTU is kept (RFC 1191, section 6.3, RFC 8201, section 5.3: 10 minutes).
    pub path_mtu_for: Duration,
    /// Retransmission timeouts in a row after which a full-sized segment is taken to be too large for its path, where no
    /// ICMP says so (RFC 8899, section 4.3: a black hole); 0: never.
    pub black_hole_after: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: 32_768..=60_999,
            connections: 65_536,
            time_wait: 32_768,
            time_wait_for: Duration::from_secs(60),
            orphans: 8_192,
            orphan_for: Duration::from_secs(300),
            buffered: Bytes(1 << 30),
            replies_per_second: 1_000,
            hop_limit: 64,
            mtu: 1_500,
            path_mtu_for: Duration::from_secs(600),
            black_hole_after: 2,
        }
    }
}
