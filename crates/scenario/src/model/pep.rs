//! Proxies that work on packets as they pass a router.

use super::{Endpoint, QueueLimit};
use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;

/// A proxy at a router or gateway, on what passes between one of its links and the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Pep {
    /// The router or gateway where it works.
    pub node: String,
    /// The link on its space side, one of the node's own; all other links are its ground side.
    pub link: String,
    /// Whether it works at all; a sweep may switch it. Default yes.
    pub enabled: bool,
    /// What it is.
    pub kind: PepKind,
}

/// What a proxy is, with its own settings.
#[derive(Clone, Debug, PartialEq)]
pub enum PepKind {
    /// Replaces acknowledgements that wait for its link by newer ones.
    AckFilter(AckFilter),
    /// Caches segments and retransmits them over its link.
    Snoop(Snoop),
    /// Ends connections on both sides and relays between them.
    Split(Box<Split>),
}

impl PepKind {
    /// As scenarios write it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AckFilter(_) => "ack-filter",
            Self::Snoop(_) => "snoop",
            Self::Split(_) => "split",
        }
    }
}

/// Settings of an ACK filter; `None` is as the agent has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckFilter {
    /// Most packets that wait for the link.
    pub packets: Option<u32>,
}

/// Settings of Snoop; `None` is as the preset has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snoop {
    /// Where all settings start from.
    pub preset: SnoopPreset,
    /// Most that its cache holds of each flow.
    pub cache: Option<QueueLimit>,
    /// Least local retransmission timeout.
    pub min_timeout: Option<Duration>,
    /// How often one segment is retransmitted locally at most.
    pub max_retransmissions: Option<u32>,
}

/// A named set of Snoop's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnoopPreset {
    /// What its paper describes, with the gains of RFC 6298 and a cache of one bandwidth-delay product.
    #[default]
    Standard,
    /// What ns-2 2.35 does, its cache of 100 packets and its odd gain included.
    Ns2,
}

impl SnoopPreset {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Standard, Self::Ns2];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Ns2 => "ns2",
        }
    }
}

/// Settings of a split; `None` is as the preset has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Split {
    /// Where both legs start from.
    pub endpoint: Endpoint,
    /// Who answers a SYN.
    pub setup: SplitSetup,
    /// Payload that it holds at most of each flow and direction; `None`: without bound.
    pub buffer: Option<Bytes>,
    /// Most connections known at once.
    pub flows: Option<u32>,
    /// A connection this long without a packet is given up.
    pub idle: Option<Duration>,
    /// What is particular to the leg towards the ground.
    pub ground: SplitLeg,
    /// What is particular to the leg towards space.
    pub space: SplitLeg,
}

/// Settings of one leg of a split; `None` is as both legs have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitLeg {
    /// A TCP of the papers by name; excludes `congestion_control`.
    pub variant: Option<String>,
    /// The congestion control.
    pub congestion_control: Option<String>,
    /// First congestion window, in full segments.
    pub initial_window: Option<u32>,
    /// What the link carries for the leg's flows together; each is paced below it.
    pub rate: Option<Rate>,
    /// The part of `rate` that flows are paced at.
    pub pacing: Option<Probability>,
    /// What the leg offers its peer at most.
    pub receive_window: Option<Bytes>,
}

/// Who answers a SYN that a split sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitSetup {
    /// The far end.
    #[default]
    EndToEnd,
    /// The split, at once; then it connects to the far end.
    Early,
}

impl SplitSetup {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::EndToEnd, Self::Early];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end-to-end",
            Self::Early => "early",
        }
    }
}
