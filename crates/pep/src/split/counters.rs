//! What a split counts.

use bentpipe_base::Bytes;

/// Counts since the proxy began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections split.
    pub split: u64,
    /// Packets that passed untouched.
    pub passed: u64,
    /// Packets among these that could not be parsed.
    pub unread: u64,
    /// SYNs, and answers to those of half-open connections, beyond the limit of flows.
    pub refused: u64,
    /// Handshakes from space that were forgotten before anybody had answered, because of so many later ones.
    pub over_half_open: u64,
    /// SYNs of connections that pass unsplit by its [admission](super::Split::admit_by).
    pub bypassed: u64,
    /// SYNs that it answered by a reset.
    pub rejected: u64,
    /// Split connections that ended by a reset or without an answer.
    pub broken: u64,
    /// Split connections that were given up after a time without packets.
    pub expired: u64,
    /// Payload bytes taken in on the ground side, in order, and passed on.
    pub to_space: u64,
    /// The same from space.
    pub to_ground: u64,
    /// Data segments sent again on the ground side.
    pub again_ground: u64,
    /// The same towards space.
    pub again_space: u64,
    /// Most payload bytes held at once.
    pub most_held: u64,
    /// Acknowledgements towards space that newer ones replaced (`ack_rate`).
    pub acks_thinned: u64,
    /// Connections split whose other end of the hop speaks SCPS-TP, where the leg towards space does.
    pub scps: u64,
    /// Connections split whose other end of the hop does not: that leg is TCP.
    pub plain: u64,
    /// SNACKs from space that named bytes on their way.
    pub snacks: u64,
    /// SNACKs sent to space.
    pub snacks_sent: u64,
    /// How often a connection's link was taken for out.
    pub outages: u64,
}

/// What one leg of a flow sent of its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegCounters {
    /// Payload bytes sent, retransmissions included.
    pub sent: Bytes,
    /// Bytes among these that were retransmissions.
    pub sent_again: Bytes,
    /// Segments that were retransmitted.
    pub segments_again: u64,
}

impl core::ops::AddAssign for LegCounters {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_again += other.sent_again;
        self.segments_again += other.segments_again;
    }
}

impl Counters {
    /// The counts by name: those of `admission`, of `thinning` and of `scps` where there is any.
    pub(super) fn named(
        &self,
        admission: bool,
        thinning: bool,
        scps: bool,
    ) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("split", self.split),
            ("passed", self.passed),
            ("unread", self.unread),
            ("refused", self.refused),
            ("broken", self.broken),
            ("expired", self.expired),
            ("to_space", self.to_space),
            ("to_ground", self.to_ground),
            ("again_ground", self.again_ground),
            ("again_space", self.again_space),
            ("most_held", self.most_held),
        ];
        if admission {
            all.extend([("bypassed", self.bypassed), ("rejected", self.rejected)]);
        }
        if thinning {
            all.push(("acks_thinned", self.acks_thinned));
        }
        if scps {
            all.extend([
                ("scps", self.scps),
                ("plain", self.plain),
                ("snacks", self.snacks),
                ("snacks_sent", self.snacks_sent),
                ("outages", self.outages),
            ]);
        }
        all
    }
}
