//! The loop: one UDP socket, the sockets of flows, and the time.

use crate::carriers::Carriers;
use crate::datagram_flow::UdpFlows;
use crate::driver_handle::{Counters, Handle, Order};
use crate::far_end::{Far, Serving};
use crate::flow::{Fate, Flow, Phase, READ};
use crate::link_settings::in_kernel;
use crate::near_end::{Asking, Keep, Near, NoTunnel};
use crate::peer_liveness::{Peer, PeerLiveness};
use crate::policing::Policing;
use crate::stalled::Windows;
use crate::tcp_port::TcpPort;
use crate::udp_health::UdpHealth;
use crate::udp_port::Batches;
use bentpipe_base::Instant;
use bentpipe_bpf::RATE;
use bentpipe_connect_tcp::Template;
use bentpipe_quic::{
    self as quic, Certificates, ConfigError, ConnectionId, Datagram, Endpoint, PublicKey,
};
use bentpipe_sockets::epoll::{Epoll, Events, Interest, Waker};
use bentpipe_sockets::socket;
use bentpipe_sockets::tcp;
use bentpipe_sockets::udp::{RECEIVE, Udp};
use bentpipe_tunnel::{Event, Role, TunnelId};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;
use thiserror::Error;

/// Tokens of the set that are no flow's.
pub(crate) const UDP: u64 = 0;
const WAKER: u64 = 1;
pub(crate) const TCP: u64 = 2;
const FIRST_FLOW: u64 = 3;

/// A socket without traffic is probed after so long, as the gateway's are; after a probe without an answer again so long; and its
/// host is gone after so many.
const PROBE: Duration = Duration::from_secs(180);
const PROBE_AGAIN: Duration = Duration::from_secs(30);
const PROBES: u32 = 6;

/// A driver could not start, or go on.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The endpoint's configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel refuses something.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What it says.
        source: io::Error,
    },
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError::Kernel { what, source }
}

/// What only one of the two sides has.
pub(crate) enum Part {
    Near(Box<Asking>),
    Far(Box<Serving>),
}

/// The loop of one side. See the head of the crate.
pub struct Driver {
    pub(crate) side: Carriers,
    pub(crate) udp: Udp,
    pub(crate) tcp: TcpPort,
    pub(crate) epoll: Epoll,
    waker: Arc<Waker>,
    orders: (Sender<Order>, Receiver<Order>),
    pub(crate) origin: std::time::Instant,
    pub(crate) flows: BTreeMap<u64, Flow>,
    tokens: BTreeMap<TunnelId, u64>,
    next: u64,
    /// What flows hold whose sockets are done, and whose peers have yet to read the rest.
    pub(crate) lingering: BTreeMap<TunnelId, Option<Keep>>,
    /// Flows that have something to do.
    pub(crate) ready: Vec<u64>,
    pub(crate) batches: Batches,
    /// What the socket had no room for.
    pub(crate) unsent: Option<Datagram>,
    /// ICMP has said something of the port's datagrams.
    pub(crate) udp_failed: bool,
    pub(crate) buffer: Vec<u8>,
    pub(crate) udp_flows: UdpFlows,
    /// Connections that stand.
    pub(crate) connections: BTreeMap<ConnectionId, Peer>,
    pub(crate) watch: PeerLiveness,
    pub(crate) windows: Windows,
    /// The congestion control of QUIC.
    pub(crate) control: &'static str,
    /// What looks for policers on a new connection; `None`: the control gives way where packets are lost.
    pub(crate) policing: Option<Policing>,
    pub(crate) udp_health: BTreeMap<ConnectionId, UdpHealth>,
    pub(crate) counters: Counters,
    /// Why the last connection is gone, or was not made.
    pub(crate) last_loss: String,
    /// No more tunnels are taken; it ends with the last flow.
    draining: bool,
    stopped: bool,
    pub(crate) part: Part,
}

impl Driver {
    /// A far end that listens at `address`.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn far(config: &quic::Config, address: SocketAddr, far: Far) -> Result<Self, DriverError> {
        let waker = Arc::new(Waker::new().map_err(kernel("make an eventfd"))?);
        let templates = far.templates.clone();
        let serving = Serving::start(far, &waker).map_err(kernel("start a thread"))?;
        let endpoint = Endpoint::new(config, true)?;
        let side = Carriers::new(endpoint, config, Role::Far, templates)?;
        Self::new(config, side, address, waker, Part::Far(Box::new(serving)))
    }

    /// A near end that keeps a connection from `address` to the far end at `peer`.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn near(
        config: &quic::Config,
        address: SocketAddr,
        peer: SocketAddr,
        template: Template,
    ) -> Result<(Self, Near), DriverError> {
        let waker = Arc::new(Waker::new().map_err(kernel("make an eventfd"))?);
        let endpoint = Endpoint::new(config, false)?;
        let side = Carriers::new(endpoint, config, Role::Near, vec![template])?;
        let (asking, near) = Asking::new(peer, Arc::clone(&waker));
        let driver = Self::new(config, side, address, waker, Part::Near(Box::new(asking)))?;
        Ok((driver, near))
    }

    fn new(
        config: &quic::Config,
        side: Carriers,
        address: SocketAddr,
        waker: Arc<Waker>,
        part: Part,
    ) -> Result<Self, DriverError> {
        let udp = Udp::bind(address).map_err(kernel("open the UDP port"))?;
        udp.hear_errors().map_err(kernel("watch the UDP port"))?;
        let epoll = Epoll::new().map_err(kernel("make an epoll set"))?;
        let added = epoll
            .add(&udp, UDP, Interest::READ)
            .and_then(|()| epoll.add(&*waker, WAKER, Interest::READ));
        added.map_err(kernel("watch the UDP port"))?;
        let goes_on = in_kernel(config.control.name()) == RATE;
        Ok(Self {
            side,
            udp,
            tcp: TcpPort::default(),
            epoll,
            waker,
            orders: channel(),
            origin: config.base,
            flows: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next: FIRST_FLOW,
            lingering: BTreeMap::new(),
            ready: Vec::new(),
            batches: Batches::default(),
            unsent: None,
            udp_failed: false,
            buffer: vec![0; RECEIVE.max(READ)],
            udp_flows: UdpFlows::default(),
            connections: BTreeMap::new(),
            watch: PeerLiveness::default(),
            windows: Windows::of(config),
            control: config.control.name(),
            policing: goes_on.then(|| Policing::new(config.path.loss)),
            udp_health: BTreeMap::new(),
            counters: Counters::default(),
            last_loss: String::new(),
            draining: false,
            stopped: false,
            part,
        })
    }

    /// The UDP address that it has.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_address()
    }

    /// What orders it from other threads.
    pub fn handle(&self) -> Handle {
        Handle {
            orders: self.orders.0.clone(),
            waker: Arc::clone(&self.waker),
        }
    }

    /// Runs until it is stopped, or has drained; then all flows are reset. How many these were.
    ///
    /// # Errors
    /// [`DriverError`]: the kernel fails the loop itself.
    pub fn run(mut self) -> Result<usize, DriverError> {
        let mut events = Events::with_capacity(256);
        loop {
            self.obey();
            if self.stopped || (self.draining && self.open() == 0) {
                break;
            }
            self.turn();
            let wait = self.wait_for();
            { &self.epoll }
                .wait(&mut events, wait)
                .map_err(kernel("wait"))?;
            for event in events.iter() {
                match event.token {
                    UDP => {
                        self.udp_failed |= event.failed();
                        if event.writable() {
                            self.send_again()?;
                        }
                    }
                    WAKER => {
                        self.waker.drain();
                    }
                    token if self.tcp.has_token(token) => self.tcp.note(token),
                    token => {
                        if event.failed() {
                            self.fail(token);
                        }
                        self.ready.push(token);
                    }
                }
            }
        }
        let flows = core::mem::take(&mut self.flows);
        let cut = flows.len() + self.lingering.len();
        flows.into_values().for_each(Flow::abort);
        // Peers learn of it at once.
        let now = self.now();
        for (connection, _) in core::mem::take(&mut self.connections) {
            self.side.close(connection, "stopped", now);
        }
        self.send();
        Ok(cut)
    }

    /// Does what other threads have asked.
    fn obey(&mut self) {
        while let Ok(order) = self.orders.1.try_recv() {
            match order {
                Order::Stop => self.stopped = true,
                Order::Drain => {
                    self.draining = true;
                    self.side.shut_down();
                    self.tcp.stop_listening();
                }
                Order::Serve(far) => {
                    if let Part::Far(serving) = &mut self.part {
                        serving.far = *far;
                    }
                }
                Order::Trust(keys, certificates) => self.trust(keys, certificates),
                Order::Status(reply) => {
                    // The asker may have given up waiting.
                    let _ = reply.try_send(self.status());
                }
            }
        }
    }

    fn trust(&mut self, keys: Vec<PublicKey>, certificates: Option<Certificates>) {
        self.side.quic_mut().trust(keys, certificates);
        let strangers: Vec<_> = { self.connections.keys().copied() }
            .filter(|&connection| !self.side.is_trusted(connection))
            .collect();
        let now = self.now();
        for connection in strangers {
            let reason = "the key is not trusted any more";
            self.side.close(connection, reason, now);
            self.lost(connection, None, reason);
        }
    }

    /// Near: whether tunnels may be opened. Far: whether they are taken.
    pub(crate) fn is_up(&self) -> bool {
        match &self.part {
            Part::Near(asking) => asking.standing().is_some(),
            Part::Far(_) => !self.draining,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// How long nothing is to be done unless something comes.
    fn wait_for(&self) -> Option<Duration> {
        if !self.ready.is_empty() || self.tcp.is_ready() {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let side = self.side.deadline().filter(|_| self.unsent.is_none());
        let own = match &self.part {
            Part::Near(asking) => asking.deadline(),
            Part::Far(serving) => serving.deadline(self.origin),
        };
        let attend = self.udp_flows.attend_in().map(|pause| now + pause);
        let due = [side, own, self.look_at(), attend];
        let beside = [
            self.tcp.deadline(),
            self.fall_back_at(),
            self.health_at(),
            self.tcp_look_at(),
        ];
        let due = due.into_iter().chain(beside).flatten().min();
        due.map(|due| due.since(now))
    }

    /// Everything that can be done now.
    fn turn(&mut self) {
        let now = self.now();
        // A host may know the time only some while after it has started.
        let since_1970 = { SystemTime::UNIX_EPOCH.elapsed() }.unwrap_or_default();
        self.side.quic_mut().set_time_of_day(since_1970, now);
        if self.side.deadline().is_some_and(|due| due <= now) {
            self.side.timeout(now);
        }
        self.receive(now);
        self.own_work(now);
        // Twice: what flows write leaves in the same turn.
        for _ in 0..2 {
            self.send();
            while let Some(event) = self.side.event() {
                self.heard(event);
            }
            let ready = core::mem::take(&mut self.ready);
            for token in ready {
                self.pump(token);
            }
        }
        self.send();
        self.tell_limit();
    }

    /// Hand-ins and connections of a near end, names and times of a far one, and whether peers are still there.
    fn own_work(&mut self, now: Instant) {
        self.ask_all(now);
        self.serve_all();
        self.look(now);
        self.accept_all(now);
        self.fall_back(now);
        self.look_at_health(now);
        self.look_at_tcp(now);
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Connected {
                connection,
                peer,
                key,
            } => {
                tracing::info!(%peer, %key, "connected");
                self.counters.connected += 1;
                let now = self.now();
                self.connections
                    .insert(connection, Peer::new(peer, key, now));
                if !connection.is_elsewhere() {
                    self.begin_health(connection);
                }
                self.bound_connections(connection, key);
            }
            Event::Lost {
                connection,
                peer,
                reason,
                may_return,
            } => {
                let stood = self.connections.contains_key(&connection);
                let is_current = match &self.part {
                    Part::Near(asking) => asking.has_connection(connection),
                    Part::Far(_) => false,
                };
                self.lost(connection, Some(peer), &reason);
                if may_return && stood && is_current {
                    self.doubt_http2();
                    self.hope();
                }
            }
            Event::Early(connection) => self.opens_early(connection),
            Event::Ready(connection) => {
                self.set_ready(connection, true);
                self.open_waiting();
            }
            Event::NoProxy(_) => tracing::warn!("the far end is no proxy of connect-tcp"),
            Event::GoingAway(connection) => {
                tracing::info!("the far end shuts down");
                self.set_ready(connection, false);
            }
            Event::Room(_) => {
                self.has_room();
                self.open_waiting();
            }
            Event::Asked(tunnel, request) => self.asked(tunnel, request),
            Event::Answered(tunnel, Ok(())) => {
                self.counters.opened += 1;
                self.heed_limit(tunnel, Ok(()));
                if !self.answered_reserved(tunnel, Ok(())) {
                    if let Some(flow) = self.flow(tunnel) {
                        flow.phase = Phase::Open;
                        flow.awaited = None;
                    }
                    self.touch(tunnel);
                }
            }
            Event::Answered(tunnel, Err(why)) => {
                tracing::debug!(%why, "a dial of the far end failed");
                *self.counters.failures.entry(why.name()).or_default() += 1;
                self.answered_reserved(tunnel, Err(NoTunnel::Dial(why)));
                self.abort(tunnel);
                self.heed_limit(tunnel, Err(why));
            }
            Event::Udp(tunnel, payload) => self.udp_came(tunnel, &payload),
            Event::Readable(tunnel) if self.udp_flows.has(tunnel) => self.udp_readable(tunnel),
            Event::Readable(tunnel) | Event::Writable(tunnel) => self.touch(tunnel),
            Event::Done(tunnel) => drop(self.lingering.remove(&tunnel)),
            Event::Reset(tunnel) => {
                self.lingering.remove(&tunnel);
                self.answered_reserved(tunnel, Err(NoTunnel::Down));
                self.abort(tunnel);
            }
        }
    }

    /// A connection is gone, or was never made: one of the peer at `stranger`.
    pub(crate) fn lost(&mut self, lost: ConnectionId, stranger: Option<SocketAddr>, reason: &str) {
        self.counters.lost += 1;
        reason.clone_into(&mut self.last_loss);
        let peer = self.connections.remove(&lost);
        self.udp_health.remove(&lost);
        if peer.is_some()
            && let Some(fec) = self.side.quic().stats(lost).and_then(|it| it.fec)
        {
            self.counters.fec += fec.into();
        }
        let is_own = matches!(self.part, Part::Near(_));
        match (peer, stranger) {
            (Some(peer), _) => tracing::warn!(peer = %peer.address, reason, "a connection is gone"),
            (None, Some(peer)) if is_own || self.watch.may_warn(self.now()) => {
                tracing::warn!(%peer, reason, "no connection");
            }
            _ => {}
        }
        self.udp_flows.forget_all(lost);
        self.forget_dials(lost);
        self.lingering.retain(|tunnel, _| tunnel.connection != lost);
        let gone: Vec<_> = { self.tokens.keys().copied() }
            .filter(|tunnel| tunnel.connection == lost)
            .collect();
        for tunnel in gone {
            // What needs the connection no more goes on.
            if !self.flow(tunnel).is_some_and(|flow| flow.only_delivers()) {
                self.abort(tunnel);
            }
        }
        self.disconnected(lost);
    }

    /// Flows, those included whose peers have yet to read the rest.
    pub(crate) fn open(&self) -> usize {
        self.flows.len() + self.lingering.len()
    }

    pub(crate) fn flow(&mut self, tunnel: TunnelId) -> Option<&mut Flow> {
        let token = self.tokens.get(&tunnel)?;
        self.flows.get_mut(token)
    }

    fn touch(&mut self, tunnel: TunnelId) {
        if let Some(&token) = self.tokens.get(&tunnel) {
            self.ready.push(token);
        }
    }

    pub(crate) fn new_token(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Takes a flow in.
    pub(crate) fn admit(
        &mut self,
        socket: TcpStream,
        tunnel: TunnelId,
        phase: Phase,
        keep: Option<Keep>,
    ) -> io::Result<()> {
        // A flow that ends otherwise than by both FINs, also with this process, is a reset.
        socket::abort_on_close(&socket, true)?;
        socket.set_nonblocking(true)?;
        tcp::set_no_delay(&socket, true)?;
        // Reading would leave an urgent byte out.
        socket::set_urgent_inline(&socket)?;
        // A host that is gone says nothing, and neither does one that waits.
        tcp::set_keepalive(&socket, PROBE, PROBE_AGAIN, PROBES)?;
        let token = self.new_token();
        let interest = Interest::READ | Interest::WRITE | Interest::PEER_CLOSED | Interest::EDGE;
        self.epoll.add(&socket, token, interest)?;
        let flow = Flow::new(socket, tunnel, phase, keep);
        self.flows.insert(token, flow);
        self.tokens.insert(tunnel, token);
        self.ready.push(token);
        Ok(())
    }

    /// The kernel tells that a socket has failed.
    fn fail(&mut self, token: u64) {
        if let Some(flow) = self.flows.get_mut(&token)
            && !matches!(flow.phase, Phase::Dialling(_))
        {
            flow.fail();
        }
    }

    fn pump(&mut self, token: u64) {
        if self.udp_flows.has_token(token) {
            return self.pump_udp(token);
        }
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        if matches!(flow.phase, Phase::Dialling(_)) {
            return self.dialled(token);
        }
        let fate = flow.pump(&mut self.side, &mut self.buffer[..READ]);
        let [read, written] = flow.take_moved();
        self.counters.bytes_in += read;
        self.counters.bytes_out += written;
        match fate {
            Fate::Waits => {}
            Fate::Goes => self.ready.push(token),
            Fate::Over => {
                self.counters.ended += 1;
                if let Some(flow) = self.flows.remove(&token) {
                    self.tokens.remove(&flow.tunnel);
                    if self.side.has(flow.tunnel) {
                        self.lingering.insert(flow.tunnel, flow.keep);
                    }
                    // The kernel sends what it still has.
                    let _ = socket::abort_on_close(&flow.socket, false);
                }
            }
            Fate::Broken => {
                let tunnel = flow.tunnel;
                self.side.reset(tunnel);
                self.abort(tunnel);
            }
        }
    }

    /// A flow is no more; it is reset where it still stands.
    pub(crate) fn abort(&mut self, tunnel: TunnelId) {
        self.forget_dial(tunnel);
        self.udp_flows.forget(tunnel);
        if let Some(token) = self.tokens.remove(&tunnel)
            && let Some(flow) = self.flows.remove(&token)
        {
            self.counters.reset += u64::from(flow.phase == Phase::Open);
            flow.abort();
        }
    }
}
