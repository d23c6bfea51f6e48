//! The configuration of a gateway: one TOML file, every value with its unit, every mistake named
//! with its place.
//!
//! ```toml
//! port = 0                     # first of the gateway's own ports on loopback; 0: the kernel's choice
//! intercept = "both"           # whose new connections: arriving on "lan", on "sat", on "both"
//! handshake = "end-to-end"     # a SYN is answered when the far side has: or "early", at once
//! threads = 2                  # default: one for each processor the process may use
//! drain = "30s"                # how long SIGTERM waits for flows to end
//! retire = "24h"               # how long a gateway with a successor waits for its own
//! control = "off"              # default: a socket at /run/bentpipe/gateway.sock
//! metrics = "127.0.0.1:9463"   # where Prometheus asks; default: nowhere
//! flow_log = "/var/log/bentpipe/flows.jsonl"  # a line for each flow that ends; default: none
//!
//! [lan]
//! interface = "eth0"
//!
//! [sat]
//! interface = "eth1"
//! rate = "10Mbit/s"
//!
//! [limits]
//! flows = 9000
//!
//! [[policy]]                   # the first that matches decides; without one, a connection is split
//! name = "voice"
//! from = ["10.1.0.0/16", "fd00:1::/32"]
//! port = [5060, "6000-6999"]
//! action = "bypass"            # or "split", "snoop", "reject"
//!
//! [snoop]                      # for policies with `action = "snoop"`
//! toward = "sat"               # the leg whose link loses packets: or "lan", "both"
//! cache = "750kB"              # of one connection and direction; default: the rate of [sat] x 600 ms
//! ```
//!
//! Keys of a leg, `[lan]` or `[sat]`: `interface`, `congestion_control`, `insist`, `rate`, `pacing`,
//! `rtt0`, `aggressive`, `guard`, `overhead`, `send_buffer`, `receive_rate`, `receive_buffer`, `notsent_lowat`,
//! `mss`, `ack_rate`, `scone`, `ack_every`, `ack_delay`, `loss_cause`, `corruption_experienced`, and with `carrier = "quic"` `proxy`,
//! `identity`, `peer_key`, `handshake`, `when_down`, `client_address`, `early_data`, `round_trip`, `loss`, `mtu`, `fec`, `fec_window`, `fall_back`, `udp`, `udp_flows`, `udp_idle`; see [`Leg`]. A `[leg.NAME]` is a variant of one, which policies choose by `leg = "NAME"`; its keys are
//! `like` and those that are not the link's; see [`Profile`]. Keys of `[limits]`:
//! `flows`, `half_open`, `idle`, `stalled`, `keepalive`, `descriptors`, `buffered`, `client_buffered`, `pipe`, `pipes`,
//! `snoop_cache`, `snoop_flows`; see [`Limits`].

mod read;

use crate::policy::{Action, Policy, Quic};
use crate::snoop::Snoop;
use crate::warning::{ConfigWarning, overlaps};
use crate::{Carrier, Leg};
use bentpipe_base::Bytes;
use bentpipe_config::{Problems, Table};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One of the two legs of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegId {
    /// Towards the ground.
    Lan,
    /// Towards the satellite.
    Sat,
}

impl LegId {
    /// The opposite leg.
    pub fn other(self) -> Self {
        match self {
            Self::Lan => Self::Sat,
            Self::Sat => Self::Lan,
        }
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Sat => "sat",
        }
    }
}

/// Whose new connections are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Intercept {
    /// Those that arrive on the terrestrial interface.
    Lan,
    /// Those that arrive on the satellite interface.
    Sat,
    /// Both.
    #[default]
    Both,
}

impl Intercept {
    /// Whether new connections that arrive by `leg` are split.
    pub fn includes(self, leg: LegId) -> bool {
        match self {
            Self::Lan => leg == LegId::Lan,
            Self::Sat => leg == LegId::Sat,
            Self::Both => true,
        }
    }
}

/// When a client's SYN is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshake {
    /// When the far side has accepted.
    #[default]
    EndToEnd,
    /// At once.
    Early,
}

/// A variant of a leg for the flows of some policies. What is the link's, its rate above all, is the
/// same for all flows of the leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What policies call it.
    pub name: String,
    /// The leg whose place it takes, and whose keys it has where it gives none.
    pub like: LegId,
    /// The leg's policy.
    pub leg: Leg,
}

impl Profile {
    /// The most there may be.
    pub const MOST: usize = 7;
}

/// How much a gateway takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows at a time; beyond it new ones pass end to end.
    pub flows: usize,
    /// Held SYNs and answered connections whose client has yet to confirm; beyond it new ones pass
    /// end to end.
    pub half_open: usize,
    /// A flow on which no byte moves for this long is reset; `None`: never.
    pub idle: Option<Duration>,
    /// When memory is short, a flow whose receiver has taken next to nothing for this long is reset.
    pub stalled: Duration,
    /// A connection without traffic is probed after this long.
    pub keepalive: Duration,
    /// Descriptors of the process; `None`: its hard limit (RLIMIT_NOFILE).
    pub descriptors: Option<usize>,
    /// What may wait in buffers and pipes for all flows together, the kernel's overhead included;
    /// beyond it new ones pass end to end. `None`: a sixteenth of the machine's memory.
    pub buffered: Option<Bytes>,
    /// What the flows of one client whose receivers take nothing may hold of `buffered`. `None`: a quarter.
    pub client_buffered: Option<Bytes>,
    /// What one pipe holds for one direction of a flow that waits.
    pub pipe: Bytes,
    /// Pipes, all workers together; with none left, flows wait with 16 KiB in memory instead. With 0 all bytes are copied: what
    /// a sender on this machine sends by sendfile(2) or vmsplice(2) is its own pages, which it may change later.
    pub pipes: usize,
    /// What the caches of all snooped connections hold together, in bytes of packets; beyond it packets pass uncached.
    pub snoop_cache: Bytes,
    /// Snooped connections at a time; beyond it new ones pass as by `bypass`.
    pub snoop_flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 100_000,
            half_open: 4096,
            idle: None,
            stalled: Duration::from_secs(180),
            // Probes of the ends do not cross, and load balancers of clouds forget a connection after 240 s (Azure) or 350 s (AWS).
            keepalive: Duration::from_secs(180),
            descriptors: None,
            buffered: None,
            client_buffered: None,
            pipe: Bytes(1 << 20),
            pipes: 512,
            snoop_cache: Bytes(64 << 20),
            snoop_flows: 10_000,
        }
    }
}

/// Everything there is to configure.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The interfaces towards the ground.
    pub lan_interfaces: Vec<String>,
    /// The interfaces towards the satellite.
    pub sat_interfaces: Vec<String>,
    /// The policy of the terrestrial leg.
    pub lan: Leg,
    /// The policy of the satellite leg.
    pub sat: Leg,
    /// Variants of the legs, which policies choose by their names.
    pub profiles: Vec<Profile>,
    /// Whose new connections are split.
    pub intercept: Intercept,
    /// When a client's SYN is answered.
    pub handshake: Handshake,
    /// Which new connections are split. A connection that matches no policy is split.
    pub policies: Vec<Policy>,
    /// What becomes of QUIC.
    pub quic: Quic,
    /// How connections are helped whose policy says `snoop`.
    pub snoop: Snoop,
    /// The first of the gateway's own ports on loopback: two, one for each leg, and two more for each
    /// profile; 0 leaves the choice to the kernel.
    pub port: u16,
    /// Worker threads; `None`: one for each processor.
    pub threads: Option<usize>,
    /// How long an ordinary shutdown waits for flows to end.
    pub drain: Duration,
    /// How long a gateway that a successor has replaced waits for its flows to end.
    pub retire: Duration,
    /// Where the gateway listens for its operator.
    pub control: ControlSocket,
    /// Where Prometheus finds the gateway; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// The file that gets a line for each flow that ends; `None`: none does.
    pub flow_log: Option<PathBuf>,
    /// How much the gateway takes on.
    pub limits: Limits,
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// At [`ControlSocket::DEFAULT`], if that can be had; else none, with a warning.
    #[default]
    Usual,
    /// At this path; if it cannot be had, the gateway does not start.
    At(PathBuf),
    /// There is no control socket.
    Off,
}

impl ControlSocket {
    /// Where the control socket is unless the configuration says otherwise.
    pub const DEFAULT: &str = "/run/bentpipe/gateway.sock";

    /// Its path, if there is to be one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Usual => Some(Path::new(Self::DEFAULT)),
            Self::At(path) => Some(path),
            Self::Off => None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lan_interfaces: Vec::new(),
            sat_interfaces: Vec::new(),
            lan: Leg::terrestrial(),
            sat: Leg::satellite(None),
            profiles: Vec::new(),
            intercept: Intercept::Both,
            handshake: Handshake::EndToEnd,
            policies: Vec::new(),
            quic: Quic::Count,
            snoop: Snoop::default(),
            port: 0,
            threads: None,
            drain: Duration::from_secs(30),
            retire: Duration::from_secs(24 * 3600),
            control: ControlSocket::Usual,
            metrics: None,
            flow_log: None,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Reads `text`; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        read::file(file, text)
    }

    /// Reads the split of a gateway in a scenario, a `table` of a larger file: the keys of a gateway's own file, and
    /// those that only simulated legs have (`variant`, `initial_window`, buffers that are `"infinite"`). Problems
    /// are recorded in the table's document.
    pub fn of_scenario(table: Table<'_, '_>) -> Self {
        read::config(table, read::Keys::Scenario)
    }

    /// The first key that only the legs of a simulated gateway have, by its name in the file.
    pub fn simulated_key(&self) -> Option<String> {
        let legs = [(LegId::Lan, &self.lan), (LegId::Sat, &self.sat)];
        let mut keys = { legs.into_iter() }
            .filter_map(|(which, leg)| Some(format!("{}.{}", which.name(), leg.simulated_key()?)));
        keys.next()
    }

    /// The leg that SCPS-TP carries, if any does: that of the satellite, or the first variant of it. They all are
    /// carried as this one is.
    pub fn carried_leg(&self) -> Option<&Leg> {
        let variants = self.profiles.iter().map(|profile| &profile.leg);
        let mut legs = [&self.sat].into_iter().chain(variants);
        legs.find(|leg| leg.carrier == Carrier::Scps)
    }

    /// The leg that QUIC carries, if any does, as of [`Self::carried_leg`].
    pub fn tunnelled_leg(&self) -> Option<&Leg> {
        let variants = self.profiles.iter().map(|profile| &profile.leg);
        let mut legs = [&self.sat].into_iter().chain(variants);
        legs.find(|leg| leg.carrier == Carrier::Quic)
    }

    /// The names of the legs that SCPS-TP carries.
    pub fn carried_names(&self) -> Vec<&str> {
        let variants = self
            .profiles
            .iter()
            .map(|profile| (profile.name.as_str(), &profile.leg));
        let legs = [(LegId::Sat.name(), &self.sat)].into_iter().chain(variants);
        legs.filter(|(_, leg)| leg.carrier == Carrier::Scps)
            .map(|(name, _)| name)
            .collect()
    }

    /// Whether some policy asks for Snoop.
    pub fn snoops(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.action == Action::Snoop)
    }

    /// Whether its first policy takes every connection, and asks for Snoop: then it splits none.
    pub fn snoops_all(&self) -> bool {
        let first = self.policies.first();
        first.is_some_and(|policy| policy.action == Action::Snoop && policy.takes_all())
    }

    /// Warnings about settings that are valid but probably not meant so.
    pub fn warnings(&self) -> Vec<ConfigWarning<'_>> {
        let mut warnings = overlaps(&self.policies);
        let chosen = |number: usize| {
            let mut policies = self.policies.iter();
            policies.any(|policy| policy.profile == Some(number))
        };
        let profiles = self.profiles.iter().enumerate();
        let unchosen = profiles.filter(|(number, _)| !chosen(*number));
        warnings.extend(unchosen.map(|(_, profile)| ConfigWarning::Unchosen(&profile.name)));
        // The interfaces may still be named on the command line.
        if !self.lan_interfaces.is_empty() && !self.sat_interfaces.is_empty() {
            let both = [&self.lan_interfaces[..], &self.sat_interfaces].concat();
            let elsewhere = self.policies.iter().flat_map(|policy| {
                let names = policy.interfaces.iter();
                let strange = names.filter(|name| !both.contains(name));
                strange.map(move |name| ConfigWarning::Elsewhere(policy, name))
            });
            warnings.extend(elsewhere);
        }
        warnings
    }

    /// The same configuration between the interfaces `lan` and `sat`.
    pub fn between(mut self, lan: impl Into<String>, sat: impl Into<String>) -> Self {
        self.lan_interfaces = vec![lan.into()];
        self.sat_interfaces = vec![sat.into()];
        self
    }
}

#[cfg(test)]
mod tests;
