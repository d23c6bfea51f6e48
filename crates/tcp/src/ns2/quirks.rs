//! What the endpoint reckons as ns-2 does and not by the RFCs, rule by rule.

use crate::sender::RecoveryContext;
use bentpipe_cc::Window;
use bentpipe_wire::Segment;
use std::time::Duration;

/// What is reckoned as in ns-2, and not by the RFCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Recoveries are ns-2's where a variant is chosen by [`crate::Config::variant`].
    pub recovery_rules: RecoveryRules,
    /// What makes the window grow.
    pub growth: Growth,
    /// The first segment of a connection is taken for a SYN, as ns-2 takes segment 0 of one that did
    /// no handshake: it is acknowledged at once (`SYN_immediate_ack_`), and its acknowledgement leaves
    /// the initial window as it is (`delay_growth_`), the latter only in ns-2's recoveries. A handshake
    /// before it is an exchange of another connection, which tells the RTO nothing, nor does a loss of it.
    pub first_is_syn: bool,
    /// What a lost SYN leaves behind.
    pub lost_syn: LostSyn,
    /// Granularity of the clock that round-trip times are taken with; zero: exact.
    pub tick: Duration,
    /// One segment a round trip samples the round-trip time, not every acknowledgement.
    pub one_timed_segment: bool,
    /// How long segments are on the link.
    pub wire_size: WireSize,
}

/// Whose rules a recovery follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryRules {
    /// The RFCs.
    Rfc,
    /// ns-2 2.35.
    Ns2,
}

/// What makes the congestion window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Each segment's worth of bytes acknowledged, while the window is what limits the sender
    /// (RFC 5681 with RFC 3465; Linux).
    Segments,
    /// Each acknowledgement of new data counts as one segment, whether the window was full or not.
    Acks,
}

/// What a lost SYN leaves to the data that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostSyn {
    /// A first window of one segment (RFC 5681, section 3.1) and a timeout of at least 3 s (RFC 6298, section
    /// 5.7). The slow-start threshold stays as it was: equation 4
    /// of RFC 5681 is for lost data, of which a SYN has none; Linux restores it too (`tcp_init_metrics`).
    Cautious,
    /// A first window of one segment, and what any timeout leaves: the least threshold, two segments, and the
    /// timeout backed off until a round trip is timed (ns-2 `TcpAgent::timeout`).
    Timeout,
    /// As [`Self::Timeout`] with the whole first window (ns-2 `FackTcpAgent::timeout`).
    WholeWindow,
}

/// How long segments are on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireSize {
    /// Headers as they are: IP, and TCP with its options.
    True,
    /// As ns-2 configures it.
    Fixed {
        /// Bytes added to the payload of a segment that has one.
        data: u32,
        /// Bytes of a segment without payload; each SACK block takes 8 more.
        bare: u32,
    },
}

impl WireSize {
    /// Bytes that `segment` takes on the link where sizes are fixed.
    pub(crate) fn of(self, segment: &Segment) -> usize {
        let payload = segment.payload.len();
        match self {
            Self::True => segment.header_len() + payload,
            Self::Fixed { data, .. } if payload > 0 => data as usize + payload,
            Self::Fixed { bare, .. } => {
                let options = segment.options.as_deref();
                bare as usize + 8 * options.map_or(0, |options| options.sack.len())
            }
        }
    }
}

impl Quirks {
    /// The RFCs'.
    pub const NONE: Self = Self {
        recovery_rules: RecoveryRules::Rfc,
        growth: Growth::Segments,
        first_is_syn: false,
        lost_syn: LostSyn::Cautious,
        tick: Duration::ZERO,
        one_timed_segment: false,
        wire_size: WireSize::True,
    };

    /// A SYN was lost: takes the window and the timeout to what ns-2 leaves. `false` where the RFCs say what to do.
    pub(crate) fn after_lost_syn(&self, window: &mut Window) -> bool {
        if self.first_is_syn {
            return true;
        }
        match self.lost_syn {
            LostSyn::Cautious => return false,
            LostSyn::Timeout => window.cwnd = 1,
            LostSyn::WholeWindow => {}
        }
        window.ssthresh = 2;
        true
    }

    /// Whether the round trip of what ends at `end` says something of the connection's: the SYN's does not where the
    /// first segment is one.
    pub(crate) const fn is_timed(&self, end: u64) -> bool {
        end > 1 || !self.first_is_syn
    }

    /// Segments that an acknowledgement of `delivered` lets the window grow by.
    #[inline]
    pub(crate) fn growth(&self, delivered: u32) -> u32 {
        match self.growth {
            Growth::Segments => delivered,
            Growth::Acks => 1,
        }
    }

    /// Whether the window grows, and stays after a silence, though it was not what limited the sender.
    #[inline]
    pub(crate) fn ignores_use(&self) -> bool {
        self.growth == Growth::Acks
    }

    /// Whether the segment that begins at `from` is acknowledged at once.
    #[inline]
    pub(crate) const fn acknowledges_at_once(&self, from: u64) -> bool {
        self.first_is_syn && from == 1
    }

    /// Whether all that `tx` knows to have arrived is a first segment that counts as a SYN.
    pub(super) fn at_syn(&self, tx: &RecoveryContext<'_>) -> bool {
        self.first_is_syn && tx.una() <= 1 + u64::from(tx.mss())
    }
}
