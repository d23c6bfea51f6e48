//! The typed form of a scenario. Every default is written out here; none is inherited from the
//! machine that runs it.

mod channel;
mod endpoint;
mod flow;
mod pep;
mod queue;
mod split;
mod traffic;

pub use channel::{Channel, Channels};
pub use endpoint::{Endpoint, Preset};
pub use flow::{Amount, Flow, FlowKind, SARATOGA};
pub use pep::{AckFilter, Pep, PepKind, Snoop, SnoopPreset};
pub use queue::{Queue, QueueLimit};
pub use split::Split;
pub use traffic::{Traffic, TrafficSource, UnreadProfile};

use bentpipe_base::{Bytes, Rate};
use bentpipe_link::Burst;
use core::time::Duration;
use std::collections::BTreeMap;

/// One experiment: what is connected to what, and who sends how much to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, also that of its result folder.
    pub name: String,
    /// Seed of every draw of chance.
    pub seed: u64,
    /// When a run is cut off, from the start of its flows. Default 60 s.
    pub time_limit: Duration,
    /// The Internet protocol of all links. Default IPv4.
    pub ip: Ip,
    /// The ends of flows, by name. A host forwards nothing.
    pub hosts: BTreeMap<String, Host>,
    /// Nodes that only forward, by name.
    pub routers: BTreeMap<String, Router>,
    /// Nodes that forward and may split TCP, by name.
    pub gateways: BTreeMap<String, Gateway>,
    /// Proxies that work on packets at routers, by name; only the simulator has them.
    pub peps: BTreeMap<String, Pep>,
    /// The links, by name.
    pub links: BTreeMap<String, Link>,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Traffic of others. Default none.
    pub traffic: Option<Traffic>,
}

impl Default for Scenario {
    /// An empty scenario to fill: named "scenario", seed 1, 60 s, IPv4.
    fn default() -> Self {
        Self {
            name: "scenario".to_owned(),
            seed: 1,
            time_limit: Duration::from_secs(60),
            ip: Ip::V4,
            hosts: BTreeMap::new(),
            routers: BTreeMap::new(),
            gateways: BTreeMap::new(),
            peps: BTreeMap::new(),
            links: BTreeMap::new(),
            flows: Vec::new(),
            traffic: None,
        }
    }
}

impl Scenario {
    /// The congestion control of the TCP that sends `flow`, one of this scenario's; none of a file by
    /// Saratoga.
    pub fn sender_control<'s>(&'s self, flow: &'s Flow) -> Option<&'s str> {
        let host = || Some(&self.hosts.get(&flow.from)?.tcp.congestion_control);
        if flow.is_saratoga() {
            return None;
        }
        flow.congestion_control
            .as_ref()
            .or_else(host)
            .map(String::as_str)
    }
}

/// The Internet protocol in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Ip {
    /// [`Ip::udp_header`] and that of a DATA frame of Saratoga (type, session, timestamp, and an
    /// offset in a descriptor that holds `size`).
    pub fn saratoga_header(self, size: Bytes) -> Bytes {
        let descriptor = match size.0 {
            0..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        self.udp_header() + Bytes(24 + descriptor)
    }

    /// IP header and UDP header.
    pub fn udp_header(self) -> Bytes {
        self.header() + Bytes(8)
    }

    /// IP header, TCP header and its timestamps, the part of a full segment that is no payload.
    pub fn tcp_header(self) -> Bytes {
        self.header() + Bytes(20 + 12)
    }

    /// IP header, without options.
    pub const fn header(self) -> Bytes {
        match self {
            Self::V4 => Bytes(20),
            Self::V6 => Bytes(40),
        }
    }
}

/// An end of flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Its TCP.
    pub tcp: TcpSettings,
    /// Its TCP in the simulator.
    pub endpoint: Endpoint,
}

/// A node that only forwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Router {}

/// A node between a satellite link and the ground. Without `split` it only forwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// The link towards the satellite.
    pub sat: String,
    /// The link towards the ground.
    pub lan: String,
    /// What its own sockets start from.
    pub tcp: TcpSettings,
    /// The TCP of its legs in the simulator.
    pub endpoint: Endpoint,
    /// Whether it splits, where it has a `split`; a sweep may switch it. Default yes.
    pub enabled: bool,
    /// How it splits.
    pub split: Option<Split>,
}

impl Gateway {
    /// How it splits, where it does.
    pub fn splits(&self) -> Option<&Split> {
        self.split.as_ref().filter(|_| self.enabled)
    }
}

/// TCP settings of one node. The defaults are those of a stock Linux (Debian 12, kernel 6.1, with
/// enough memory that none is scaled down).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// `net.ipv4.tcp_rmem`; stock 4096 B, 131072 B, 6291456 B.
    pub receive_buffer: BufferRange,
    /// `net.ipv4.tcp_wmem`; stock 4096 B, 16384 B, 4194304 B.
    pub send_buffer: BufferRange,
    /// `net.ipv4.tcp_congestion_control`, for flows that name none; stock `cubic`.
    pub congestion_control: String,
    /// `net.ipv4.tcp_sack`: whether it agrees to selective acknowledgements (RFC 2018); stock yes. Hosts alone have it.
    pub sack: bool,
    /// `net.ipv4.tcp_ecn`: explicit congestion notification (RFC 3168); stock [`EcnMode::Accept`]. Hosts alone have it.
    pub ecn: EcnMode,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            receive_buffer: BufferRange::new(4_096, 131_072, 6_291_456),
            send_buffer: BufferRange::new(4_096, 16_384, 4_194_304),
            congestion_control: "cubic".to_owned(),
            sack: true,
            ecn: EcnMode::default(),
        }
    }
}

/// What a host's TCP does about ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Neither asks for it nor agrees to it (`tcp_ecn` 0).
    Off,
    /// Agrees to it where the other side asks (2).
    #[default]
    Accept,
    /// Asks for it, and agrees to it (1).
    Ask,
}

impl EcnMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Accept, Self::Ask];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Accept => "accept",
            Self::Ask => "ask",
        }
    }
}

/// A socket buffer's smallest, initial and largest size; `min <= default <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// Guaranteed even when memory is short.
    pub min: Bytes,
    /// What a socket starts with.
    pub default: Bytes,
    /// How far it may grow by itself.
    pub max: Bytes,
}

impl BufferRange {
    /// From three numbers of bytes.
    pub const fn new(min: u64, default: u64, max: u64) -> Self {
        Self {
            min: Bytes(min),
            default: Bytes(default),
            max: Bytes(max),
        }
    }
}

/// A link between two nodes, each direction on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The nodes it joins.
    pub ends: [String; 2],
    /// Largest IP packet. Default 1500 B.
    pub mtu: Bytes,
    /// From `ends[0]` to `ends[1]`.
    pub forward: Direction,
    /// From `ends[1]` to `ends[0]`.
    pub reverse: Direction,
}

impl Link {
    /// A plain wire between `a` and `b`: no rate, no delay, no errors.
    pub fn wire(a: &str, b: &str) -> Self {
        Self {
            ends: [a.to_owned(), b.to_owned()],
            mtu: Bytes(1500),
            forward: Direction::default(),
            reverse: Direction::default(),
        }
    }

    /// Whether any property of it must be emulated; otherwise the kernel's own wire will do.
    pub fn is_emulated(&self) -> bool {
        self.forward != Direction::default() || self.reverse != Direction::default()
    }

    /// The direction that leaves `node`, if it is an end.
    pub fn direction_from(&self, node: &str) -> Option<&Direction> {
        match &self.ends {
            [a, _] if a == node => Some(&self.forward),
            [_, b] if b == node => Some(&self.reverse),
            _ => None,
        }
    }
}

/// One direction of a link: queue, then rate, then errors, then delay; or first the errors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Serialisation rate; without one packets take no time and never queue.
    pub rate: Option<Rate>,
    /// What leaves faster than that after a pause, as from a token bucket. Default nothing.
    pub burst: Option<Burst>,
    /// One-way propagation delay. Default none.
    pub delay: Duration,
    /// What a packet takes longer than that at most, by chance. Default nothing.
    pub jitter: Duration,
    /// Where packets wait for the rate.
    pub queue: Queue,
    /// What strikes packets on the way. Default nothing.
    pub channels: Channels,
    /// Channels strike packets before these reach the queue, as the error model of ns-2 does. Default no.
    pub errors_before_queue: bool,
    /// Bytes that each packet takes on the link beyond its own. Default 0.
    pub overhead: Bytes,
    /// What becomes of rate and delay during the run, in strictly ascending order of time. Default
    /// nothing.
    pub changes: Vec<Change>,
}

impl Direction {
    /// The greatest rate that it ever has; `None` without a limit.
    pub fn greatest_rate(&self) -> Option<Rate> {
        let later = self.changes.iter().filter_map(|change| change.rate);
        self.rate.map(|rate| later.fold(rate, Rate::max))
    }

    /// The share of packets of `size` that arrive, by what strikes them at random: losses of the queue, and those at set
    /// times or of set packets, aside.
    /// Where errors strike before the queue it is 1: what they strike takes nothing of the rate.
    pub fn delivery_ratio(&self, size: Bytes) -> f64 {
        if self.errors_before_queue {
            return 1.0;
        }
        let size = size + self.overhead;
        { self.channels.iter() }.fold(1.0, |ratio, channel| ratio * channel.passes(size))
    }
}

/// What becomes of one direction of a link in the course of a run; what it does not say stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Duration,
    /// The rate from then on, more than nothing.
    pub rate: Option<Rate>,
    /// The propagation delay from then on. Nothing overtakes what left earlier.
    pub delay: Option<Duration>,
}
