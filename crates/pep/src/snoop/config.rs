//! Snoop's parameters, and its two presets.

use bentpipe_base::{Bytes, Rate};
use bentpipe_gateway_config as gateway_config;
use core::time::Duration;

/// A named set of rules and parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// The agent of the 1995 paper, with what TCP has learnt since.
    #[default]
    Standard,
    /// The agent of ns-2.35, oddities included.
    Ns2,
}

impl Preset {
    /// Every preset: its name in scenarios, one line about it, and itself.
    pub const ALL: &[(&str, &str, Self)] = &[
        (
            "standard",
            "the 1995 agent for today's TCP: SACK-aware, silent about what it repairs, RFC 6298 timer",
            Self::Standard,
        ),
        (
            "ns2",
            "as ns-2.35: 100 packets a flow, its count of expected duplicates, its RTT gain",
            Self::Ns2,
        ),
    ];

    /// The preset called `name`.
    pub fn find(name: &str) -> Option<Self> {
        let (_, _, preset) = Self::ALL.iter().find(|(known, ..)| *known == name)?;
        Some(*preset)
    }
}

/// How acknowledgements are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// By order of transmission and SACK blocks: see `sack_aware.rs`.
    SackAware,
    /// By counting as ns-2 does: see `ns2.rs`.
    Ns2,
}

/// The weights of the round-trip time estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// RFC 6298: a sample weighs 1/8 in SRTT and 1/4 in RTTVAR.
    Rfc6298,
    /// ns-2: a sample weighs 7/8 in SRTT and 1/8 in RTTVAR.
    Ns2,
}

/// Which data is cached and sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// Data from the ground towards space: the copy lies before the lossy link.
    Space,
    /// Data of both directions, for an agent with lossy links on both of its sides.
    Both,
}

/// Parameters of [`Snoop`](super::Snoop).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How acknowledgements are judged.
    pub rules: Rules,
    /// The weights of the round-trip time estimator.
    pub gain: Gain,
    /// Which data is cached.
    pub toward: Toward,
    /// The cache of one flow and direction, in bytes on the wire.
    pub bytes: Bytes,
    /// The cache of one flow and direction, in packets.
    pub packets: usize,
    /// The caches of all flows together, in bytes on the wire.
    pub total: Bytes,
    /// Flows that are watched at once; further ones pass untouched.
    pub flows: usize,
    /// A flow without packets for so long is forgotten.
    pub idle: Duration,
    /// Later transmissions, or duplicate acknowledgements, that have to arrive before a segment is
    /// taken for lost; at least 1. Heeded by [`Rules::SackAware`].
    pub threshold: u32,
    /// Local retransmissions of one segment, after which its sender has to help.
    pub tries: u8,
    /// SRTT before the first sample.
    pub srtt: Duration,
    /// RTTVAR before the first sample.
    pub rttvar: Duration,
    /// The least timeout: with [`Gain::Rfc6298`] above SRTT (in place of the clock granularity G
    /// there), with [`Gain::Ns2`] in all (`snoopTick_`).
    pub min_timeout: Duration,
    /// What an agent among strangers heeds beside; none in the simulator's presets.
    pub shared_limits: Option<SharedAgentLimits>,
}

/// What an agent heeds whose packets are anybody's, and whose copies somebody may stop: then nobody has its memory alone, and no
/// connection is worse off than without it. Heeded by [`Rules::SackAware`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedAgentLimits {
    /// What a copy takes of [`Config::total`] beside its bytes on the wire.
    pub overhead: Bytes,
    /// A flow of which no packet after the handshake has come from both ends, or that both have ended, is forgotten after so
    /// long without packets. Data is cached only once its receiver has been heard at all.
    pub unsettled: Duration,
    /// After so many local retransmissions in a row of what the receiver waits for, of which none arrived nor any other between them, a
    /// direction gets no more help; after four times as many where one has arrived before.
    pub failures: u8,
}

impl SharedAgentLimits {
    /// The limits of the gateway. A copy's overhead is what the gateway's packets were measured to take.
    pub const GATEWAY: Self = Self {
        overhead: Bytes(512),
        unsettled: Duration::from_secs(30),
        failures: 3,
    };
}

/// What a scenario says about an agent and its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Rate of the link towards space, where known.
    pub rate: Option<Rate>,
    /// Round-trip time of the link alone, where known.
    pub rtt: Option<Duration>,
    /// The preset.
    pub preset: Preset,
    /// The cache for one flow, in bytes on the wire; `None`: as the preset has it.
    pub cache: Option<Bytes>,
    /// The cache for one flow, in packets; `None`: as the preset has it.
    pub cache_packets: Option<usize>,
}

impl Config {
    /// Bandwidth-delay product of the link where none is known: 10 Mbit/s times 600 ms.
    pub const CACHE: Bytes = Bytes(750_000);

    /// A cache of [`Self::CACHE`]; initial timeout 1 s (RFC 6298, section 2.1), later at least
    /// 200 ms above SRTT, as long as receivers usually delay an acknowledgement.
    pub const fn standard() -> Self {
        Self {
            rules: Rules::SackAware,
            gain: Gain::Rfc6298,
            toward: Toward::Space,
            bytes: Self::CACHE,
            packets: usize::MAX,
            total: Bytes(Self::CACHE.0 * 4),
            flows: 65_536,
            idle: Duration::from_secs(600),
            threshold: 2,
            tries: 10,
            srtt: Duration::from_millis(600),
            rttvar: Duration::from_millis(100),
            min_timeout: Duration::from_millis(200),
            shared_limits: None,
        }
    }

    /// ns-2.35 as it comes (`tcl/lan/ns-ll.tcl`: srtt_ 0.1, rttvar_ 0.25, snoopTick_ 0.1;
    /// SNOOP_MAXWIND 100, SNOOP_MAX_RXMIT 10).
    pub const fn ns2() -> Self {
        Self {
            rules: Rules::Ns2,
            gain: Gain::Ns2,
            bytes: Bytes(u64::MAX),
            packets: 100,
            total: Bytes(u64::MAX),
            srtt: Duration::from_millis(100),
            rttvar: Duration::from_millis(250),
            min_timeout: Duration::from_millis(100),
            ..Self::standard()
        }
    }

    /// The parameters of the agent in the gateway which `gateway` configures ([`gateway_config::Snoop`]), on real packets
    /// and simulated.
    pub fn of_gateway(gateway: &gateway_config::Config) -> Self {
        Self {
            toward: match gateway.snoop.toward {
                gateway_config::Toward::Leg(_) => Toward::Space,
                gateway_config::Toward::Both => Toward::Both,
            },
            bytes: gateway.snoop.cache_of(&gateway.sat),
            total: gateway.limits.snoop_cache,
            flows: gateway.limits.snoop_flows,
            shared_limits: Some(SharedAgentLimits::GATEWAY),
            ..Self::standard()
        }
    }

    /// What a scenario asks for: its preset, with one bandwidth-delay product of its link as the
    /// cache of a flow of the standard preset, and four for all together.
    pub fn of(settings: &Settings) -> Self {
        let mut config = match settings.preset {
            Preset::Standard => Self::standard(),
            Preset::Ns2 => Self::ns2(),
        };
        let product = settings
            .rate
            .zip(settings.rtt)
            .map(|(rate, rtt)| rate.over(rtt))
            .filter(|_| settings.preset == Preset::Standard);
        if let Some(bytes) = settings.cache.or(product) {
            config.bytes = bytes;
            config.total = bytes * 4;
        }
        if let Some(packets) = settings.cache_packets {
            config.packets = packets;
        }
        config
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::standard()
    }
}
