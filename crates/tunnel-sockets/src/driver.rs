//! The loop: one UDP socket, the sockets of flows, and the time.

use crate::dial::Resolver;
use crate::flow::{Fate, Flow, Phase, READ};
use crate::policy::Policy;
use bentpipe_base::{Instant, Machine};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{self as quic, Code, ConfigError, ConnectionId, Datagram, Endpoint, Quic};
use bentpipe_sockets::epoll::{Epoll, Events, Interest, Waker};
use bentpipe_sockets::socket;
use bentpipe_sockets::tcp;
use bentpipe_sockets::udp::{RECEIVE, Udp};
use bentpipe_tunnel::{Event, Role, Side, TunnelId};
use bytes::BytesMut;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use thiserror::Error;

/// Tokens of the set that are no flow's.
const UDP: u64 = 0;
const WAKER: u64 = 1;
const FIRST_FLOW: u64 = 2;
/// Batches that a turn receives at most.
const RECEIVES: usize = 64;
/// Sockets that may wait for a connection to the far side.
const WAITING: usize = 1024;
/// Between two tries to connect, at first and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// H3_NO_ERROR (RFC 9114, section 8.1).
const NO_ERROR: Code = Code(0x100);

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

fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError::Kernel { what, source }
}

/// How a far end serves.
#[derive(Clone, Debug)]
pub struct Far {
    /// Who may be reached.
    pub policy: Policy,
    /// The paths that tunnels are asked for by.
    pub templates: Vec<Template>,
    /// How long a dial may take.
    pub dial_timeout: Duration,
    /// Tunnels that one connection may have.
    pub tunnels: usize,
}

/// Ends a driver's loop.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stop {
    /// Ends it: its flows are reset.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Hands sockets to a near driver.
#[derive(Clone, Debug)]
pub struct Near {
    sockets: Sender<(TcpStream, Target)>,
    waker: Arc<Waker>,
}

impl Near {
    /// Carries a client's connection to `target`. It is reset where that fails.
    pub fn carry(&self, socket: TcpStream, target: Target) {
        // Where the driver has ended, the socket is closed with it.
        let _ = self.sockets.send((socket, target));
        self.waker.wake();
    }
}

/// What only one of the two sides has.
pub(crate) enum Part {
    Near {
        peer: SocketAddr,
        sockets: Receiver<(TcpStream, Target)>,
        waiting: VecDeque<(TcpStream, Target)>,
        connection: Option<ConnectionId>,
        ready: bool,
        /// When to connect, where there is no connection.
        again: Instant,
        pause: Duration,
    },
    Far {
        far: Far,
        resolver: Resolver,
        /// Addresses that are still to be tried.
        candidates: BTreeMap<TunnelId, VecDeque<SocketAddr>>,
        /// When dials end that have not ended by themselves; those that have are still among them.
        dials: BTreeSet<(std::time::Instant, TunnelId)>,
    },
}

/// The loop of one side. See the head of the crate.
pub struct Driver {
    pub(crate) side: Side<Endpoint>,
    udp: Udp,
    epoll: Epoll,
    waker: Arc<Waker>,
    stopped: Arc<AtomicBool>,
    origin: std::time::Instant,
    pub(crate) flows: BTreeMap<u64, Flow>,
    tokens: BTreeMap<TunnelId, u64>,
    next: u64,
    /// Flows that have something to do.
    pub(crate) ready: Vec<u64>,
    /// What the socket had no room for.
    unsent: Option<Datagram>,
    buffer: Vec<u8>,
    /// Connections that stand.
    connections: BTreeSet<ConnectionId>,
    pub(crate) part: Part,
}

impl Driver {
    /// A far end that listens at `address`.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn far(config: &quic::Config, address: SocketAddr, far: Far) -> Result<Self, DriverError> {
        let waker = Arc::new(Waker::new().map_err(kernel("make an eventfd"))?);
        let resolver = Resolver::start(&waker).map_err(kernel("start a thread"))?;
        let endpoint = Endpoint::new(config, true)?;
        let side = Side::new(endpoint, Role::Far, far.templates.clone());
        let part = Part::Far {
            far,
            resolver,
            candidates: BTreeMap::new(),
            dials: BTreeSet::new(),
        };
        Self::new(config, side, address, waker, part)
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
        let side = Side::new(endpoint, Role::Near, vec![template]);
        let (sender, sockets) = channel();
        let part = Part::Near {
            peer,
            sockets,
            waiting: VecDeque::new(),
            connection: None,
            ready: false,
            again: Instant::ZERO,
            pause: RETRY,
        };
        let near = Near {
            sockets: sender,
            waker: Arc::clone(&waker),
        };
        Ok((Self::new(config, side, address, waker, part)?, near))
    }

    fn new(
        config: &quic::Config,
        side: Side<Endpoint>,
        address: SocketAddr,
        waker: Arc<Waker>,
        part: Part,
    ) -> Result<Self, DriverError> {
        let udp = Udp::bind(address).map_err(kernel("open the UDP port"))?;
        let epoll = Epoll::new().map_err(kernel("make an epoll set"))?;
        let added = epoll
            .add(&udp, UDP, Interest::READ)
            .and_then(|()| epoll.add(&*waker, WAKER, Interest::READ));
        added.map_err(kernel("watch the UDP port"))?;
        Ok(Self {
            side,
            udp,
            epoll,
            waker,
            stopped: Arc::default(),
            origin: config.base,
            flows: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next: FIRST_FLOW,
            ready: Vec::new(),
            unsent: None,
            buffer: vec![0; RECEIVE.max(READ)],
            connections: BTreeSet::new(),
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

    /// What ends it.
    pub fn stop_handle(&self) -> Stop {
        Stop {
            flag: Arc::clone(&self.stopped),
            waker: Arc::clone(&self.waker),
        }
    }

    /// Runs until it is stopped; then all flows are reset.
    ///
    /// # Errors
    /// [`DriverError`]: the kernel fails the loop itself.
    pub fn run(mut self) -> Result<(), DriverError> {
        let mut events = Events::with_capacity(256);
        while !self.stopped.load(Ordering::Acquire) {
            self.turn();
            let wait = self.wait_for();
            { &self.epoll }
                .wait(&mut events, wait)
                .map_err(kernel("wait"))?;
            for event in events.iter() {
                match event.token {
                    UDP if event.writable() => self.send_again()?,
                    UDP => {}
                    WAKER => {
                        self.waker.drain();
                    }
                    token => self.ready.push(token),
                }
            }
        }
        let flows = core::mem::take(&mut self.flows);
        flows.into_values().for_each(Flow::abort);
        // Peers learn of it at once.
        let now = self.now();
        for connection in core::mem::take(&mut self.connections) {
            { self.side.quic_mut() }.close(connection, NO_ERROR, "stopped", now);
        }
        self.send();
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// How long nothing is to be done unless something comes.
    fn wait_for(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let side = self.side.deadline().filter(|_| self.unsent.is_none());
        let own = match &self.part {
            Part::Near {
                connection: None,
                again,
                ..
            } => Some(*again),
            Part::Near { .. } => None,
            Part::Far { dials, .. } => dials
                .first()
                .map(|(until, _)| Instant::ZERO + until.saturating_duration_since(self.origin)),
        };
        { [side, own].into_iter().flatten().min() }.map(|due| due.since(now))
    }

    /// Everything that can be done now.
    fn turn(&mut self) {
        let now = self.now();
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
    }

    fn receive(&mut self, now: Instant) {
        for _ in 0..RECEIVES {
            // What the kernel tells of one peer here, such as that nothing listens there, is for its time-out to find.
            let Ok(Some(received)) = self.udp.receive(&mut self.buffer) else {
                return;
            };
            let datagram = Datagram {
                peer: received.from,
                local: received.at,
                data: BytesMut::from(&self.buffer[..received.len]),
                segment: Some(received.segment),
            };
            self.side.input((), datagram, now);
        }
    }

    fn send(&mut self) {
        let now = self.now();
        while self.unsent.is_none()
            && let Some(((), datagram)) = self.side.transmit(now)
        {
            self.send_one(datagram);
        }
    }

    fn send_one(&mut self, datagram: Datagram) {
        let segment = datagram.segment.unwrap_or(datagram.data.len());
        let sent = { &self.udp }.send_from(&datagram.data, segment, datagram.peer, datagram.local);
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // Else it is lost, as any may be on the way.
            self.unsent = Some(datagram);
            let _ = { &self.epoll }.modify(&self.udp, UDP, Interest::READ | Interest::WRITE);
        }
    }

    fn send_again(&mut self) -> Result<(), DriverError> {
        if let Some(datagram) = self.unsent.take() {
            { &self.epoll }
                .modify(&self.udp, UDP, Interest::READ)
                .map_err(kernel("watch the UDP port"))?;
            self.send_one(datagram);
        }
        Ok(())
    }

    /// Hand-ins and connections of a near end, names and times of a far one.
    fn own_work(&mut self, now: Instant) {
        match &mut self.part {
            Part::Near {
                peer,
                sockets,
                waiting,
                connection,
                again,
                pause,
                ..
            } => {
                while let Ok((socket, target)) = sockets.try_recv() {
                    if waiting.len() < WAITING {
                        waiting.push_back((socket, target));
                    } else {
                        let _ = socket::abort_on_close(&socket, true);
                    }
                }
                if connection.is_none() && *again <= now {
                    *connection = self.side.quic_mut().connect(*peer, now).ok();
                    *again = now + *pause;
                    *pause = (*pause * 2).min(RETRY_MOST);
                }
                self.open_waiting();
            }
            Part::Far { resolver, .. } => {
                let answers: Vec<_> = resolver.answers.try_iter().collect();
                for answer in answers {
                    match answer.found {
                        Ok(found) => self.dial(answer.tunnel, found.into()),
                        Err(why) => self.refuse(answer.tunnel, why),
                    }
                }
                self.end_late_dials();
            }
        }
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Connected {
                connection,
                peer,
                key,
            } => {
                tracing::info!(%peer, %key, "connected");
                self.connections.insert(connection);
            }
            Event::Lost { connection, reason } => self.lost(connection, &reason),
            Event::Ready(_) => {
                if let Part::Near { ready, pause, .. } = &mut self.part {
                    (*ready, *pause) = (true, RETRY);
                }
                self.open_waiting();
            }
            Event::NoProxy(_) => tracing::warn!("the far end is no proxy of connect-tcp"),
            Event::GoingAway(_) => tracing::info!("the far end shuts down"),
            Event::Room(_) => self.open_waiting(),
            Event::Asked(tunnel, request) => self.asked(tunnel, request),
            Event::Answered(tunnel, Ok(())) => {
                if let Some(flow) = self.flow(tunnel) {
                    flow.phase = Phase::Open;
                }
                self.touch(tunnel);
            }
            Event::Answered(tunnel, Err(why)) => {
                tracing::debug!(%why, "a dial of the far end failed");
                self.abort(tunnel);
            }
            Event::Readable(tunnel) | Event::Writable(tunnel) => self.touch(tunnel),
            Event::Reset(tunnel) => self.abort(tunnel),
        }
    }

    fn lost(&mut self, lost: ConnectionId, reason: &str) {
        tracing::info!(reason, "a connection is gone");
        self.connections.remove(&lost);
        let gone: Vec<_> = { self.tokens.keys().copied() }
            .filter(|tunnel| tunnel.connection == lost)
            .collect();
        for tunnel in gone {
            self.abort(tunnel);
        }
        if let Part::Near {
            connection, ready, ..
        } = &mut self.part
            && *connection == Some(lost)
        {
            (*connection, *ready) = (None, false);
        }
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

    /// Takes a flow in.
    pub(crate) fn admit(
        &mut self,
        socket: TcpStream,
        tunnel: TunnelId,
        phase: Phase,
    ) -> io::Result<()> {
        // A flow that ends otherwise than by both FINs, also with this process, is a reset.
        socket::abort_on_close(&socket, true)?;
        socket.set_nonblocking(true)?;
        tcp::set_no_delay(&socket, true)?;
        let token = self.next;
        self.next += 1;
        let interest = Interest::READ | Interest::WRITE | Interest::PEER_CLOSED | Interest::EDGE;
        self.epoll.add(&socket, token, interest)?;
        self.flows.insert(token, Flow::new(socket, tunnel, phase));
        self.tokens.insert(tunnel, token);
        self.ready.push(token);
        Ok(())
    }

    fn pump(&mut self, token: u64) {
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        if matches!(flow.phase, Phase::Dialling(_)) {
            return self.dialled(token);
        }
        match flow.pump(&mut self.side, &mut self.buffer[..READ]) {
            Fate::Waits => {}
            Fate::Goes => self.ready.push(token),
            Fate::Over => {
                if let Some(flow) = self.flows.remove(&token) {
                    self.tokens.remove(&flow.tunnel);
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

    pub(crate) fn abort(&mut self, tunnel: TunnelId) {
        if let Part::Far { candidates, .. } = &mut self.part {
            candidates.remove(&tunnel);
        }
        if let Some(token) = self.tokens.remove(&tunnel)
            && let Some(flow) = self.flows.remove(&token)
        {
            flow.abort();
        }
    }
}
