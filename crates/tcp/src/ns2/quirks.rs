//! Calculations in which an endpoint can follow ns-2 rather than the RFCs, one field for each.

use crate::sender::RecoveryContext;
use bentpipe_cc::Window;
use bentpipe_wire::Segment;

/// Which calculations follow ns-2; [`Quirks::NONE`] is the RFCs' endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Whose loss recovery [`crate::Config::variant`] chooses.
    pub recovery_rules: RecoveryRules,
    /// What makes the window grow.
    pub growth: Growth,
    /// The first data segment of a connection counts as its SYN, as ns-2 treats segment 0 of a connection without a
    /// handshake. It is acknowledged at once (`SYN_immediate_ack_`), and in ns-2's recoveries its acknowledgement does
    /// not grow the initial window (`delay_growth_`). If there was a handshake all the same, ns-2 has it as an exchange
    /// of another connection: neither its round trip nor its loss changes the RTO.
    pub first_is_syn: bool,
    /// What a lost SYN leaves behind.
    pub lost_syn: LostSyn,
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

/// How a lost SYN changes the start of the data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostSyn {
    /// The first window is one segment (RFC 5681, section 3.1) and the timeout at least 3 s (RFC 6298, section 5.7).
    /// The slow-start threshold stays as it was, because equation 4 of RFC 5681 is for lost data, of which a SYN has
    /// none; Linux restores it too (`tcp_init_metrics`).
    Cautious,
    /// The first window is one segment, and the rest is as after any timeout: a threshold of two segments, and a
    /// timeout that stays backed off until a round trip is timed (ns-2 `TcpAgent::timeout`).
    Timeout,
    /// As [`Self::Timeout`], but the first window stays whole (ns-2 `FackTcpAgent::timeout`).
    WholeWindow,
}

/// How long segments are on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireSize {
    /// Sizes are true: the IP header, the TCP header with its options, and the payload.
    True,
    /// Sizes are fixed numbers, as ns-2 configures them.
    Fixed {
        /// Bytes added to the payload of a segment that has one.
        data: u32,
        /// Bytes of a segment without payload; each SACK block takes 8 more.
        bare: u32,
    },
}

impl WireSize {
    /// Bytes that `segment` takes on the link where sizes are fixed.
    #[inline]
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
    /// No calculation follows ns-2.
    pub const NONE: Self = Self {
        recovery_rules: RecoveryRules::Rfc,
        growth: Growth::Segments,
        first_is_syn: false,
        lost_syn: LostSyn::Cautious,
        one_timed_segment: false,
        wire_size: WireSize::True,
    };

    /// Sets window and threshold after a lost SYN as ns-2 does. Returns `false`, with nothing done, where the RFCs'
    /// rule applies.
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

    /// Whether a segment that ends at offset `end` may sample the round-trip time. The SYN may not where the first data
    /// segment counts as the SYN.
    pub(crate) const fn is_timed(&self, end: u64) -> bool {
        end > 1 || !self.first_is_syn
    }

    /// By how many segments an acknowledgement that delivered `delivered` segments lets the window grow.
    #[inline]
    pub(crate) fn growth(&self, delivered: u32) -> u32 {
        match self.growth {
            Growth::Segments => delivered,
            Growth::Acks => 1,
        }
    }

    /// Whether the window grows although it did not limit the sender, and is not reset after an idle time.
    #[inline]
    pub(crate) fn ignores_use(&self) -> bool {
        self.growth == Growth::Acks
    }

    /// Whether nothing but the first segment, which counts as the SYN, has been acknowledged to `tx`.
    pub(super) fn at_syn(&self, tx: &RecoveryContext<'_>) -> bool {
        self.first_is_syn && tx.una() <= 1 + u64::from(tx.mss())
    }
}
