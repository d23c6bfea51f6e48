//! What other threads ask of a driver, and what it tells of itself.

use crate::datagram_flow::UdpStatus;
use crate::driver::{Driver, Part};
use crate::far_end::Far;
use crate::peer_liveness::Peer;
use bentpipe_base::{Instant, Probability};
use bentpipe_bpf::user_name;
use bentpipe_connect_tcp::DialError;
use bentpipe_quic::{Certificates, ConnectionId, FecStats, PublicKey};
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::tcp;
use core::ops::AddAssign;
use core::time::Duration;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

/// How carriers are called.
const QUIC: &str = "quic";
const HTTP2: &str = "http2";

/// What a driver is asked.
#[derive(Debug)]
pub(crate) enum Order {
    Stop,
    Drain,
    Serve(Box<Far>),
    Trust(Vec<PublicKey>, Option<Certificates>),
    Status(SyncSender<Status>),
}

/// Orders a driver from any thread. It may outlive the driver: then nobody heeds it.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) orders: Sender<Order>,
    pub(crate) waker: Arc<Waker>,
}

impl Handle {
    fn order(&self, order: Order) {
        // One that has ended needs no orders.
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    /// Ends it at once: its flows are reset, and its peers are told.
    pub fn stop(&self) {
        self.order(Order::Stop);
    }

    /// Takes no more tunnels, and ends with the last flow.
    pub fn drain(&self) {
        self.order(Order::Drain);
    }

    /// Far: serves so from now on. Tunnels that stand stay.
    pub fn serve(&self, far: Far) {
        self.order(Order::Serve(Box::new(far)));
    }

    /// Trusts these keys, and whom authorities of `certificates` vouch for, from now on, and nobody else: connections of others are closed.
    pub fn trust(&self, keys: Vec<PublicKey>, certificates: Option<Certificates>) {
        self.order(Order::Trust(keys, certificates));
    }

    /// How it stands; `None` where it has ended, or does not answer within `patience`.
    pub fn status(&self, patience: Duration) -> Option<Status> {
        let (reply, answer) = sync_channel(1);
        self.order(Order::Status(reply));
        answer.recv_timeout(patience).ok()
    }
}

/// What only ever grows.
#[derive(Clone, Debug, Serialize)]
pub struct Counters {
    /// Connections that stood.
    pub connected: u64,
    /// Connections that were lost, or never stood.
    pub lost: u64,
    /// How often UDP was found blocked or policed, so that new flows took HTTP/2.
    pub fall_backs: u64,
    /// Tunnels that were asked for.
    pub asked: u64,
    /// Dials from clients' own addresses.
    pub from_clients: u64,
    /// Of these, in the first flight of a connection.
    pub early: u64,
    /// Tunnels whose dial succeeded.
    pub opened: u64,
    /// Flows of which both sides said their end.
    pub ended: u64,
    /// Flows that were reset, after their dial had succeeded.
    pub reset: u64,
    /// Bytes from sockets into tunnels.
    pub bytes_in: u64,
    /// Bytes from tunnels to sockets.
    pub bytes_out: u64,
    /// Dials that failed, by reason as RFC 9209 names it.
    pub failures: BTreeMap<&'static str, u64>,
    /// Forward error correction of all connections.
    pub fec: FecCounters,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            connected: 0,
            lost: 0,
            fall_backs: 0,
            asked: 0,
            from_clients: 0,
            early: 0,
            opened: 0,
            ended: 0,
            reset: 0,
            bytes_in: 0,
            bytes_out: 0,
            failures: DialError::all().map(|error| (error.name(), 0)).collect(),
            fec: FecCounters::default(),
        }
    }
}

/// One connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionStatus {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Its key.
    pub key: String,
    /// `quic`, or `http2` over TCP.
    pub carrier: &'static str,
    /// Its congestion control.
    pub congestion_control: String,
    /// Seconds for which it stands.
    pub uptime: f64,
    /// Tunnels on it, those whose dial is under way included.
    pub tunnels: usize,
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Least round-trip time, in seconds.
    pub min_rtt: f64,
    /// The rate that it is paced at on the wire, in bit/s.
    pub pace: Option<u64>,
    /// The congestion window, in bytes.
    pub window: u64,
    /// UDP datagrams sent.
    pub sent: u64,
    /// UDP datagrams received.
    pub received: u64,
    /// Packets found lost.
    pub lost: u64,
    /// Its forward error correction; `None`: not both ends have asked for it.
    pub fec: Option<FecStatus>,
}

/// Forward error correction of one connection at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct FecStatus {
    /// Packets after each of which a repair is sent.
    pub every: u16,
    /// Packets of which a repair is made.
    pub window: u16,
    /// The share of packets lost on the way here, before repairs; `None`: too few have come.
    pub loss: Option<f64>,
    /// The mean number of packets lost in a row on the way here.
    pub burst: f64,
    /// What it has done.
    #[serde(flatten)]
    pub counters: FecCounters,
}

/// What forward error correction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FecCounters {
    /// Packets that were sent in its frames.
    pub sources: u64,
    /// Repairs sent, those after the last packet before a silence included.
    pub repairs: u64,
    /// Packets that repairs have given back.
    pub recovered: u64,
    /// Packets that neither came nor were given back: QUIC repeats these.
    pub unrepaired: u64,
}

impl From<FecStats> for FecCounters {
    fn from(stats: FecStats) -> Self {
        let counters = stats.counters;
        Self {
            sources: counters.sent.sources,
            repairs: counters.sent.repairs + counters.sent.tail_repairs,
            recovered: counters.received.recovered,
            unrepaired: counters.received.lost,
        }
    }
}

impl AddAssign for FecCounters {
    fn add_assign(&mut self, other: Self) {
        self.sources += other.sources;
        self.repairs += other.repairs;
        self.recovered += other.recovered;
        self.unrepaired += other.unrepaired;
    }
}

impl From<FecStats> for FecStatus {
    fn from(stats: FecStats) -> Self {
        Self {
            every: stats.strength.every,
            window: stats.strength.window,
            loss: stats.losses.share().map(Probability::value),
            burst: stats.losses.mean_burst(),
            counters: stats.into(),
        }
    }
}

/// A driver at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its connections.
    pub connections: Vec<ConnectionStatus>,
    /// Near: whether tunnels may be opened. Far: whether they are taken.
    pub up: bool,
    /// Near: `quic` or `http2`, which new tunnels take; `None`: neither stands.
    pub carrier: Option<&'static str>,
    /// Near: the far end answers by TCP and not by UDP.
    pub udp_blocked: bool,
    /// Packets of UDP are dropped beyond some rate: new flows take HTTP/2, and QUIC keeps to what gets through. Far: of any client.
    pub udp_policed: bool,
    /// Why the last connection is gone, or was not made; empty: none was lost yet.
    pub last_loss: String,
    /// Flows.
    pub flows: usize,
    /// Of these, the far side still dials.
    pub dialling: usize,
    /// UDP, where it is carried.
    pub udp: UdpStatus,
    /// What only ever grows.
    pub counters: Counters,
}

impl Driver {
    /// How it stands.
    pub(crate) fn status(&self) -> Status {
        let now = self.now();
        let connections = self.connections.iter().filter_map(|(&id, peer)| {
            if id.is_elsewhere() {
                return self.tcp_status(id, peer, now);
            }
            let stats = self.side.quic().stats(id)?;
            Some(ConnectionStatus {
                peer: peer.address,
                key: peer.key.to_string(),
                carrier: QUIC,
                congestion_control: self.control.to_owned(),
                uptime: now.since(peer.since).as_secs_f64(),
                tunnels: self.side.tunnels(id),
                rtt: stats.srtt.as_secs_f64(),
                min_rtt: stats.min_rtt.as_secs_f64(),
                pace: stats.pace.map(|rate| rate.bits_per_sec()),
                window: stats.window.0,
                sent: stats.sent,
                received: stats.received,
                lost: stats.lost,
                fec: stats.fec.map(FecStatus::from),
            })
        });
        let connections: Vec<_> = connections.collect();
        // Of those that are gone, what they did is in it.
        let mut counters = self.counters.clone();
        { connections.iter() }
            .filter_map(|one| one.fec.as_ref())
            .for_each(|fec| counters.fec += fec.counters);
        let (carrier, udp_blocked, declined) = match &self.part {
            Part::Near(asking) => {
                let fall_back = &asking.fall_back;
                (asking.standing(), fall_back.blocked, fall_back.is_policed())
            }
            Part::Far(_) => (None, false, false),
        };
        let carrier = carrier.map(|id| if id.is_elsewhere() { HTTP2 } else { QUIC });
        Status {
            connections,
            up: self.is_up(),
            carrier,
            udp_blocked,
            udp_policed: declined || self.is_limited(),
            last_loss: self.last_loss.clone(),
            flows: self.open(),
            dialling: { self.flows.values() }
                .filter(|flow| flow.is_dialling())
                .count(),
            udp: self.udp_status(),
            counters,
        }
    }

    /// A connection of HTTP/2, as its TCP has it: packets are TCP's segments.
    fn tcp_status(&self, id: ConnectionId, peer: &Peer, now: Instant) -> Option<ConnectionStatus> {
        let socket = self.tcp.socket(id)?;
        let info = tcp::info(socket).ok()?;
        // It is asked of the kernel, which may have refused the one that was wanted.
        let control = tcp::congestion(socket).ok()?;
        Some(ConnectionStatus {
            peer: peer.address,
            key: peer.key.to_string(),
            carrier: HTTP2,
            congestion_control: user_name(&control).to_owned(),
            uptime: now.since(peer.since).as_secs_f64(),
            tunnels: self.side.tunnels(id),
            rtt: info.rtt.as_secs_f64(),
            min_rtt: info.min_rtt.as_secs_f64(),
            pace: Some(info.pacing_rate.bits_per_sec()),
            window: u64::from(info.cwnd) * info.mss.0,
            sent: info.segs_out.into(),
            received: info.segs_in.into(),
            lost: info.total_retrans.into(),
            fec: None,
        })
    }
}
