//! The status of a gateway, for people and scripts.
//!
//! Flows are counted by asking the kernel (sock_diag), not the workers: both sockets of a flow carry this gateway's marks,
//! and the two have the same addresses, exchanged. So the status costs the data plane only the kernel's time for the list.

use crate::gateway::Meter;
use crate::scone::{Scone, SconeStatus};
use bentpipe_base::Instant;
use bentpipe_gateway_config::{Carrier, LegId};
use bentpipe_interception::{Limit, Marks};
use bentpipe_os::diag::{Connection, Diag, States};
use bentpipe_relay::{AdmissionMode, Shared};
use bentpipe_sockets::timer;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// For so long the same status is given again, without asking the kernel.
const FRESH: Duration = Duration::from_millis(200);
/// How often the round-trip times of open flows are taken into the histograms, while somebody asks for them.
const SAMPLE: Duration = Duration::from_secs(10);
/// A rate is taken over at least this time.
const SPAN: Duration = Duration::from_millis(900);
/// The flows that are shown one by one.
const BUSIEST: usize = 20;

/// A gateway at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The program's version.
    pub version: &'static str,
    /// Its process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime: f64,
    /// What becomes of new flows.
    pub admission: AdmissionMode,
    /// What the configuration asks for and this machine does not do, and why.
    pub lacks: Vec<String>,
    /// How many flows there are, by state.
    pub flows: FlowCounts,
    /// How many there may be.
    pub limits: LimitsNow,
    /// Bytes that wait in buffers and pipes, the kernel's overhead included.
    pub buffered: u64,
    /// The limit that is met, if one is.
    pub limit: Option<Limit>,
    /// The terrestrial leg.
    pub lan: LegStatus,
    /// The satellite leg.
    pub sat: LegStatus,
    /// The tunnels over QUIC that carry the leg; `None`: none do.
    pub tunnels: Option<bentpipe_tunnel_sockets::Status>,
    /// What SCONE tells QUIC connections that pass; `None`: nothing.
    pub scone: Option<SconeStatus>,
    /// What only ever grows, by name: see [`crate::Snapshot`].
    pub counters: BTreeMap<&'static str, u64>,
    /// What has passed unsplit, by kind, reason and policy: packets.
    pub passed: BTreeMap<String, u64>,
    /// What has passed unsplit, by reason.
    pub unsplit: Vec<UnsplitCount>,
    /// The flows that carry most, those first.
    pub busiest: Vec<FlowStatus>,
    /// Seconds that their rates are over: since somebody looked before, or since the start.
    pub rates_over: f64,
}

/// Flows by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// By the gateway's own count.
    pub open: u64,
    /// Clients in the middle of their handshake with the gateway.
    pub handshake: u64,
    /// The far side has not answered yet.
    pub dialling: u64,
    /// Both legs are established.
    pub established: u64,
    /// One side or both have sent their FIN.
    pub half_closed: u64,
    /// The gateway is done, the kernel delivers the last bytes.
    pub closing: u64,
    /// Legs whose other leg has other addresses (its port was taken) or has broken.
    pub unpaired: u64,
}

/// What has passed unsplit for one reason: the kernel's count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnsplitCount {
    /// Which: see `docs/gateway.md`.
    pub reason: String,
    /// Packets; of connections, their SYNs.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
}

/// Limits in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LimitsNow {
    /// From this many flows on, new ones pass unsplit.
    pub flows: usize,
    /// Down to this many, until they are split again.
    pub resume: usize,
    /// From this many bytes in buffers on, new flows pass unsplit.
    pub buffered: u64,
}

/// One leg: all its connections together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LegStatus {
    /// The interfaces, with commas between.
    pub interface: String,
    /// The congestion control of new connections; empty: the kernel's default; `scps` where that carries the leg, whose
    /// connections here are then those within the machine.
    pub congestion_control: String,
    /// What the link carries, in bit/s; `None`: unknown.
    pub rate: Option<u64>,
    /// Connections.
    pub connections: u64,
    /// Smoothed round-trip times, in seconds, rising.
    #[serde(skip)]
    rtts: Vec<Duration>,
    /// Their median, in seconds.
    pub rtt_median: f64,
    /// Their largest, in seconds.
    pub rtt_max: f64,
    /// Segments retransmitted by the open connections.
    pub retransmitted: u64,
    /// Segments retransmitted by all connections since the start; counted only where metrics are on.
    pub retransmitted_ever: u64,
    /// Bytes sent or to be sent, not acknowledged.
    pub waiting: u64,
}

/// One leg of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowLegStatus {
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Bytes sent or to be sent, not acknowledged.
    pub waiting: u64,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStatus {
    /// The host towards the ground.
    pub lan_host: SocketAddr,
    /// The host towards the satellite.
    pub sat_host: SocketAddr,
    /// Bytes from the ground to the satellite.
    pub to_sat: u64,
    /// Bytes from the satellite to the ground.
    pub to_lan: u64,
    /// The recent rate of these, in bytes a second.
    pub to_sat_rate: f64,
    /// The recent rate of these, in bytes a second.
    pub to_lan_rate: f64,
    /// The terrestrial leg.
    pub lan: FlowLegStatus,
    /// The satellite leg; of a flow on a tunnel, the round-trip time of the tunnels' connection.
    pub sat: FlowLegStatus,
}

/// The host towards the ground and that towards the satellite.
type HostPair = (SocketAddr, SocketAddr);

/// What is fixed when a gateway starts and its status tells.
#[derive(Clone, Debug)]
pub(crate) struct StartFacts {
    pub(crate) interfaces: [Vec<String>; 2],
    pub(crate) marks: Marks,
    pub(crate) began: Instant,
    pub(crate) lacks: Vec<String>,
    pub(crate) scone: Weak<Scone>,
    pub(crate) tunnels: Option<bentpipe_tunnel_sockets::Handle>,
}

/// Collects the status of one gateway.
#[derive(Debug)]
pub(crate) struct StatusCollector {
    diag: Diag,
    pub(crate) facts: StartFacts,
    /// Bytes of each flow some time ago.
    earlier: (Instant, HashMap<HostPair, [u64; 2]>),
    seen: Option<(Instant, Arc<Status>)>,
    sampled: Instant,
    /// The largest figures reported so far. They must never decrease, although flows end between the question to the
    /// kernel and that to the counters.
    retransmitted: [u64; 2],
}

impl StatusCollector {
    /// A collector for the namespace of the calling thread.
    pub(crate) fn new(facts: StartFacts) -> io::Result<Self> {
        Ok(Self {
            diag: Diag::open()?,
            earlier: (facts.began, HashMap::new()),
            sampled: facts.began,
            facts,
            seen: None,
            retransmitted: [0; 2],
        })
    }

    /// Has the next status be a fresh one, because something has changed.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
    }

    pub(crate) fn collect(&mut self, shared: &Shared, meter: &Meter) -> io::Result<Arc<Status>> {
        let now = timer::now();
        if let Some((when, status)) = &self.seen
            && now.since(*when) < FRESH
        {
            return Ok(Arc::clone(status));
        }
        let states = States::HANDSHAKE | States::DIALLING | States::CARRYING;
        let ended = [LegId::Lan, LegId::Sat].map(|leg| meter.retransmitted(leg));
        let connections = self.diag.connections(states)?;
        let mut status = self.judge(&connections, shared, meter, now);
        let sample = now.since(self.sampled) >= SAMPLE;
        for (leg_id, leg) in [(LegId::Lan, &mut status.lan), (LegId::Sat, &mut status.sat)] {
            let ever = &mut self.retransmitted[leg_id as usize];
            *ever = (ended[leg_id as usize] + leg.retransmitted).max(*ever);
            leg.retransmitted_ever = *ever;
            if sample {
                self.sampled = now;
                meter.sample(leg_id, leg.rtts.iter().copied());
            }
        }
        let status = Arc::new(status);
        self.seen = Some((now, Arc::clone(&status)));
        Ok(status)
    }

    fn judge(
        &mut self,
        connections: &[Connection],
        shared: &Shared,
        meter: &Meter,
        now: Instant,
    ) -> Status {
        let settings = shared.settings();
        let snapshot = meter.read();
        let [mut lan, mut sat] = [LegId::Lan, LegId::Sat].map(|leg_id| {
            let prepared = &settings.legs.plain[leg_id as usize];
            LegStatus {
                interface: self.facts.interfaces[leg_id as usize].join(", "),
                congestion_control: match prepared.leg.carrier {
                    Carrier::Kernel => prepared.control.clone().unwrap_or_default(),
                    Carrier::Scps => "scps".to_owned(),
                    Carrier::Quic => "quic".to_owned(),
                },
                rate: prepared.leg.link.rate.map(|rate| rate.bits_per_sec()),
                ..LegStatus::default()
            }
        });
        let mut flows = FlowCounts {
            open: snapshot.open,
            ..FlowCounts::default()
        };
        let mut buffered = shared.memory().in_process();
        let mut pairs: HashMap<HostPair, [Option<&Connection>; 2]> = HashMap::new();
        for connection in connections {
            let Some(leg_id) = self.facts.marks.leg_of(connection.mark) else {
                continue;
            };
            let leg = match leg_id {
                LegId::Lan => &mut lan,
                LegId::Sat => &mut sat,
            };
            if connection.info.state == SYN_RECEIVED {
                flows.handshake += 1;
                continue;
            }
            leg.count(connection);
            buffered += connection.buffered.0;
            let ends = match leg_id {
                LegId::Lan => (connection.peer, connection.local),
                LegId::Sat => (connection.local, connection.peer),
            };
            pairs.entry(ends).or_default()[leg_id as usize] = Some(connection);
        }
        pairs.values().for_each(|pair| flows.count(pair));
        if self.facts.tunnels.is_some() {
            // Of these the far end has the other leg.
            flows.established += std::mem::take(&mut flows.unpaired);
        }
        lan.finish();
        sat.finish();
        let bounds = shared.bounds();
        let tunnels = { self.facts.tunnels.as_ref() }.map(|handle| handle.status(FRESH));
        let busiest = self.busiest(
            &pairs,
            tunnels.as_ref().map(|status| tunnel_leg(status.as_ref())),
            now,
        );
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime: now.since(self.facts.began).as_secs_f64(),
            admission: shared.mode(),
            lacks: self.facts.lacks.clone(),
            flows,
            limits: LimitsNow {
                flows: bounds.suspend,
                resume: bounds.resume,
                buffered: shared.memory().bound().0,
            },
            buffered,
            limit: shared.limit(),
            lan,
            sat,
            tunnels: tunnels.flatten(),
            scone: self.facts.scone.upgrade().map(|scone| scone.status()),
            counters: snapshot
                .entries()
                .iter()
                .map(|entry| (entry.name, entry.value))
                .collect(),
            passed: meter
                .passed()
                .unwrap_or_default()
                .into_iter()
                .map(|count| (count.name, count.packets))
                .collect(),
            unsplit: unsplit(meter),
            rates_over: now.since(self.earlier.0).as_secs_f64(),
            busiest,
        }
    }

    /// The flows that carried most since the last look, or since their start; with `tunnel`, those without a satellite leg are on it.
    fn busiest(
        &mut self,
        pairs: &HashMap<HostPair, [Option<&Connection>; 2]>,
        tunnel: Option<FlowLegStatus>,
        now: Instant,
    ) -> Vec<FlowStatus> {
        let (when, before) = &self.earlier;
        let seconds = now.since(*when).as_secs_f64().max(1e-3);
        let mut flows: Vec<FlowStatus> = pairs
            .iter()
            .filter_map(|((lan_host, sat_host), pair)| {
                let (lan, sat, to_lan) = match (pair, tunnel) {
                    ([Some(lan), Some(sat)], _) => {
                        (lan, FlowLegStatus::of(sat), sat.info.bytes_received)
                    }
                    ([Some(lan), None], Some(tunnel)) => (lan, tunnel, lan.info.bytes_acked),
                    _ => return None,
                };
                let carried = [lan.info.bytes_received.0, to_lan.0];
                let was = before
                    .get(&(*lan_host, *sat_host))
                    .copied()
                    .unwrap_or_default();
                let rate = |leg_id: LegId| {
                    let leg_id = leg_id as usize;
                    carried[leg_id].saturating_sub(was[leg_id]) as f64 / seconds
                };
                Some(FlowStatus {
                    lan_host: *lan_host,
                    sat_host: *sat_host,
                    to_sat: carried[0],
                    to_lan: carried[1],
                    to_sat_rate: rate(LegId::Lan),
                    to_lan_rate: rate(LegId::Sat),
                    lan: FlowLegStatus::of(lan),
                    sat,
                })
            })
            .collect();
        if now.since(*when) >= SPAN {
            let carried =
                |flow: &FlowStatus| ((flow.lan_host, flow.sat_host), [flow.to_sat, flow.to_lan]);
            self.earlier = (now, flows.iter().map(carried).collect());
        }
        let busy = |flow: &FlowStatus| flow.to_sat_rate + flow.to_lan_rate;
        flows.sort_by(|a, b| {
            let ends = |flow: &FlowStatus| (flow.lan_host, flow.sat_host);
            busy(b).total_cmp(&busy(a)).then(ends(a).cmp(&ends(b)))
        });
        flows.truncate(BUSIEST);
        flows
    }
}

/// The satellite leg of flows on tunnels.
fn tunnel_leg(tunnels: Option<&bentpipe_tunnel_sockets::Status>) -> FlowLegStatus {
    let connection = tunnels.and_then(|tunnels| tunnels.connections.first());
    FlowLegStatus {
        rtt: connection.map_or(0.0, |connection| connection.rtt),
        ..FlowLegStatus::default()
    }
}

fn unsplit(meter: &Meter) -> Vec<UnsplitCount> {
    let counts = meter.passed().unwrap_or_else(|error| {
        tracing::warn!(%error, "what passes unsplit cannot be counted");
        Vec::new()
    });
    let unsplit = counts.into_iter().map(|count| UnsplitCount {
        reason: count.name,
        packets: count.packets,
        bytes: count.bytes.0,
    });
    unsplit.collect()
}

/// States of linux/tcp_states.h.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;

impl FlowCounts {
    fn count(&mut self, pair: &[Option<&Connection>; 2]) {
        if pair.iter().flatten().any(|connection| !connection.held) {
            self.closing += 1;
            return;
        }
        let states = pair.map(|half| half.map(|connection| connection.info.state));
        let counter = match states {
            [Some(SYN_SENT), _] | [_, Some(SYN_SENT)] => &mut self.dialling,
            [Some(ESTABLISHED), Some(ESTABLISHED)] => &mut self.established,
            [Some(_), Some(_)] => &mut self.half_closed,
            // The other leg has another port, or is reset already.
            [Some(ESTABLISHED), None] | [None, Some(ESTABLISHED)] => &mut self.unpaired,
            _ => &mut self.closing,
        };
        *counter += 1;
    }
}

impl LegStatus {
    fn count(&mut self, connection: &Connection) {
        self.connections += 1;
        if !connection.held {
            // The figures of closed connections are in the counters already.
            return;
        }
        self.retransmitted += u64::from(connection.info.total_retrans);
        self.waiting += connection.unacknowledged.0;
        if !connection.info.rtt.is_zero() {
            self.rtts.push(connection.info.rtt);
        }
    }

    fn finish(&mut self) {
        self.rtts.sort();
        let at = |at: usize| self.rtts.get(at).map_or(0.0, Duration::as_secs_f64);
        (self.rtt_median, self.rtt_max) = (
            at(self.rtts.len() / 2),
            at(self.rtts.len().saturating_sub(1)),
        );
    }
}

impl FlowLegStatus {
    fn of(connection: &Connection) -> Self {
        Self {
            rtt: connection.info.rtt.as_secs_f64(),
            retransmitted: connection.info.total_retrans,
            waiting: connection.unacknowledged.0,
        }
    }
}
