//! Settings of a host's TCP in the simulator. The lab runs the kernel's TCP and ignores them.

use bentpipe_base::Bytes;
use bentpipe_cc::SlowStart;
use core::time::Duration;

/// A preset of the simulator's TCP and what differs from it; `None` is as the preset has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Where all settings start from.
    pub preset: Preset,
    /// Whether a connection begins with a handshake; without one both ends are established from the start. By default
    /// connections of `ns2` have none.
    pub handshake: Option<bool>,
    /// Whether the first segment of a connection counts as its SYN, as ns-2 has it: acknowledged at
    /// once, and of no effect on the initial window. By default where `ns2` is told to do no handshake
    /// (ns-2's `syn_ false`).
    pub first_is_syn: Option<bool>,
    /// The loss recovery, by its name in `bentpipe list`; a flow's `variant` brings its own.
    pub recovery: Option<String>,
    /// How Reno and CUBIC leave their first slow start.
    pub slow_start: Option<SlowStart>,
    /// Payload of a full segment.
    pub mss: Option<Bytes>,
    /// Initial window in full segments.
    pub initial_window: Option<u32>,
    /// How long an acknowledgement may wait for a second segment; zero for none.
    pub delayed_ack: Option<Duration>,
    /// Segments acknowledged one by one at the start; up to 16 after a silence, and when data arrives twice, as Linux.
    pub quick_acks: Option<u32>,
    /// RTO before the first sample.
    pub initial_rto: Option<Duration>,
    /// Least RTO.
    pub min_rto: Option<Duration>,
    /// The least that the term 4 RTTVAR adds to the RTO.
    pub rto_variance: Option<Duration>,
    /// The tick of the clock with which timers expire, coarser the longer they take, as Linux's; zero: to the moment.
    pub timer_tick: Option<Duration>,
    /// Most RTO.
    pub max_rto: Option<Duration>,
    /// Whether the first two duplicate ACKs release a new segment each (RFC 3042).
    pub limited_transmit: Option<bool>,
    /// Whether what arrives twice is told, and a reduction of the window for nothing taken back where it is (RFC 2883, 3708).
    pub dsack: Option<bool>,
    /// Whether SACK blocks tell of what arrived lately alone, as Linux's.
    pub linux_sack: Option<bool>,
    /// Whether a spurious retransmission timeout is looked for and taken back (F-RTO, RFC 5682).
    pub frto: Option<bool>,
    /// Whether timestamps tell of retransmissions for nothing, and a reduction of the window is taken back where they do (Eifel
    /// detection, RFC 3522).
    pub eifel: Option<bool>,
    /// Whether segments carry timestamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// Whether small segments wait for acknowledgements (Nagle).
    pub nagle: Option<bool>,
    /// What the receiver offers at most.
    pub receive_window: Option<Bytes>,
    /// Header bytes that a segment with data takes on the link.
    pub data_header: Option<Bytes>,
    /// Header bytes that an acknowledgement without data takes on the link.
    pub ack_header: Option<Bytes>,
    /// What a SYN takes on the link, headers included; by default as much as an acknowledgement with its options.
    /// ns-2's Vegas sends one as long as a full segment, and takes its base round trip from it.
    pub syn_length: Option<Bytes>,
}

impl Endpoint {
    /// Whether its connections begin with a handshake.
    pub fn handshakes(&self) -> bool {
        self.handshake.unwrap_or(self.preset != Preset::Ns2)
    }

    /// Whether the first segment of its connections counts as their SYN.
    pub fn first_is_syn(&self) -> bool {
        let bare = self.preset == Preset::Ns2 && self.handshake == Some(false);
        self.first_is_syn.unwrap_or(bare)
    }
}

/// A named set of TCP settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// What the RFCs in force say.
    #[default]
    Rfc,
    /// What ns-2 2.35 does, for comparison with papers that used it.
    Ns2,
    /// SCPS-TP for a link whose losses are corruption; TCP with who does not speak it.
    Scps,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rfc, Self::Ns2, Self::Scps];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rfc => "rfc",
            Self::Ns2 => "ns2",
            Self::Scps => "scps",
        }
    }
}
