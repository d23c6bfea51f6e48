//! Proxies that work on packets as they pass a router. What ends connections is no such proxy but a gateway ([`Split`](super::Split)).

use super::QueueLimit;
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
}

impl PepKind {
    /// As scenarios write it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AckFilter(_) => "ack-filter",
            Self::Snoop(_) => "snoop",
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
