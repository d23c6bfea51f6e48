//! UDP of a near end's clients (CONNECT-UDP, RFC 9298): a tunnel for each flow, which is a client's and a server's address and port.
//! Where the packets come from and go to is a [`ClientPort`]'s; which of them are carried is decided here.

use crate::driver::{Driver, Part};
use bentpipe_quic::ConnectionId;
use bentpipe_sockets::epoll::Interest;
use bentpipe_tunnel::{NotSent, TunnelId};
use core::fmt;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Without a datagram for so long a flow is forgotten that is no conversation: whose client has said nothing after an answer. It is
/// what conntrack gives such a flow, and most of DNS is that.
const SHORT: Duration = Duration::from_secs(30);
/// How often a [`ClientPort`] is told whether there are tunnels.
const ATTEND: Duration = Duration::from_millis(100);
/// One client has at most one part in so many of the flows.
const PART: usize = 4;

/// The two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UdpEnds {
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
}

/// A datagram of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientDatagram<'a> {
    /// Whose it is.
    pub ends: UdpEnds,
    /// The index of the interface by which it came.
    pub interface: u32,
    /// Its payload.
    pub payload: &'a [u8],
}

/// What becomes of a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// It is gone: carried, or dropped for want of room.
    Taken,
    /// It passes end to end.
    Passes,
    /// There is no tunnel for it: it passes end to end, or is refused where that is wanted.
    NoTunnel,
    /// It is longer than a tunnel carries, which is so many bytes of payload.
    TooLong(usize),
}

/// Where datagrams of clients come from, and answers to them go.
pub trait ClientPort: Send {
    /// Readable when datagrams have come.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Is called ten times a second, and whenever it changes: whether there are tunnels of UDP.
    fn attend(&mut self, up: bool);

    /// Whether new flows are to be carried at present.
    fn admits(&self) -> bool;

    /// Has `judge` decide about datagrams that have come.
    ///
    /// # Errors
    /// The kernel fails; it is tried again when more have come.
    fn receive(
        &mut self,
        judge: &mut dyn FnMut(&ClientDatagram<'_>) -> ClientVerdict,
    ) -> io::Result<()>;

    /// Sends an answer to the client of a flow, whose datagrams come by `interface`.
    ///
    /// # Errors
    /// It has not left.
    fn answer(&mut self, ends: UdpEnds, interface: u32, payload: &[u8]) -> io::Result<()>;
}

/// How much of clients' UDP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpBounds {
    /// Flows of all clients at a time. One client, of IPv6 a /64, has at most a quarter of them.
    pub flows: usize,
    /// Without a datagram either way for so long a flow is forgotten; one that is no conversation after 30 s already.
    pub idle: Duration,
    /// What finds no tunnel goes nowhere: a flow that the far end does not serve is asked for again after 30 s, or `idle`. Where it
    /// passes end to end it does so until it is forgotten.
    pub asks_again: bool,
}

#[derive(Debug)]
struct ClientFlow {
    /// `None`: the far end does not serve it, and it passes end to end until it is forgotten.
    tunnel: Option<TunnelId>,
    interface: u32,
    active: Instant,
    is_answered: bool,
    /// The client has said something after an answer.
    talks: bool,
}

/// The UDP flows of a near end's clients.
pub(crate) struct ClientFlows {
    /// `None`: it is being read.
    port: Option<Box<dyn ClientPort>>,
    token: u64,
    bounds: UdpBounds,
    flows: BTreeMap<UdpEnds, ClientFlow>,
    by_tunnel: BTreeMap<TunnelId, UdpEnds>,
    /// How many each client has.
    of_client: BTreeMap<IpAddr, usize>,
    /// When the port was last told whether there are tunnels, and what.
    attended: Option<(Instant, bool)>,
    /// Datagrams that found no tunnel.
    pub(crate) passed: u64,
}

impl fmt::Debug for ClientFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientFlows")
            .field(&self.flows.len())
            .finish()
    }
}

/// The host at an address, as what it has is counted: where IPv6 gives each host a network of its own, that network.
pub(crate) fn counted(address: SocketAddr) -> IpAddr {
    match address.ip() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl ClientFlows {
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Flows on tunnels.
    pub(crate) fn len(&self) -> usize {
        self.by_tunnel.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(crate) fn has(&self, tunnel: TunnelId) -> bool {
        self.by_tunnel.contains_key(&tunnel)
    }

    /// How long until the port is to be told again.
    pub(crate) fn attend_in(&self) -> Duration {
        let since = self.attended.map(|(at, _)| at.elapsed());
        since.map_or(Duration::ZERO, |since| ATTEND.saturating_sub(since))
    }

    fn has_room(&self, client: SocketAddr) -> bool {
        let own = self.of_client.get(&counted(client)).copied().unwrap_or(0);
        self.flows.len() < self.bounds.flows && own < self.bounds.flows.div_ceil(PART)
    }

    fn add(&mut self, ends: UdpEnds, interface: u32, tunnel: TunnelId) {
        let flow = ClientFlow {
            tunnel: Some(tunnel),
            interface,
            active: Instant::now(),
            is_answered: false,
            talks: false,
        };
        self.flows.insert(ends, flow);
        self.by_tunnel.insert(tunnel, ends);
        *self.of_client.entry(counted(ends.client)).or_default() += 1;
    }

    fn remove(&mut self, ends: UdpEnds) {
        let Some(flow) = self.flows.remove(&ends) else {
            return;
        };
        if let Some(tunnel) = flow.tunnel {
            self.by_tunnel.remove(&tunnel);
        }
        let client = counted(ends.client);
        if let Some(count) = self.of_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&client);
            }
        }
    }

    /// The tunnel is no more, and its flow is forgotten; whether it was one.
    pub(crate) fn forget(&mut self, tunnel: TunnelId) -> bool {
        let ends = self.by_tunnel.get(&tunnel).copied();
        ends.into_iter().for_each(|ends| self.remove(ends));
        ends.is_some()
    }

    /// A connection is gone.
    pub(crate) fn forget_all(&mut self, lost: ConnectionId) {
        let gone: Vec<_> = { self.by_tunnel.keys().copied() }
            .filter(|tunnel| tunnel.connection == lost)
            .collect();
        for tunnel in gone {
            self.forget(tunnel);
        }
    }

    /// The far end does not serve a flow.
    pub(crate) fn refused(&mut self, tunnel: TunnelId) {
        if let Some(ends) = self.by_tunnel.remove(&tunnel)
            && let Some(flow) = self.flows.get_mut(&ends)
        {
            flow.tunnel = None;
        }
    }

    /// An answer has come by a tunnel; whether it has left, where there is a flow for it.
    pub(crate) fn answer(&mut self, tunnel: TunnelId, payload: &[u8]) -> Option<bool> {
        let ends = *self.by_tunnel.get(&tunnel)?;
        let flow = self.flows.get_mut(&ends)?;
        flow.active = Instant::now();
        flow.is_answered = true;
        let sent = { self.port.as_mut()? }.answer(ends, flow.interface, payload);
        if let Err(error) = &sent {
            tracing::debug!(%error, "an answer to a client has not left");
        }
        Some(sent.is_ok())
    }

    /// Forgets what has been idle for too long; the tunnels that are to be ended with it.
    pub(crate) fn end_idle(&mut self) -> Vec<TunnelId> {
        let bounds = self.bounds;
        let late = { self.flows.iter() }.filter(|(_, flow)| {
            let most = match flow.talks {
                true => bounds.idle,
                false => bounds.idle.min(SHORT),
            };
            flow.active.elapsed() >= most
        });
        let late: Vec<_> = late.map(|(&ends, flow)| (ends, flow.tunnel)).collect();
        { late.iter() }.for_each(|&(ends, _)| self.remove(ends));
        late.into_iter().filter_map(|(_, tunnel)| tunnel).collect()
    }
}

impl Driver {
    /// Near: has the UDP of clients carried that `port` gives.
    ///
    /// # Errors
    /// The port cannot be waited for.
    pub fn carry_udp(&mut self, port: Box<dyn ClientPort>, bounds: UdpBounds) -> io::Result<()> {
        let token = self.new_token();
        self.epoll.add(port.descriptor(), token, Interest::READ)?;
        self.udp_flows.clients = Some(ClientFlows {
            port: Some(port),
            token,
            bounds,
            flows: BTreeMap::new(),
            by_tunnel: BTreeMap::new(),
            of_client: BTreeMap::new(),
            attended: None,
            passed: 0,
        });
        Ok(())
    }

    /// Near: whether clients' UDP is carried.
    pub fn carries_udp(&self) -> bool {
        self.udp_flows.clients.is_some()
    }

    /// Near: tells the port whether there are tunnels, where that has changed or it is time to.
    pub(crate) fn attend_clients(&mut self) {
        let up = self.udp_carrier().is_some();
        if let Some(clients) = &mut self.udp_flows.clients
            && (clients.attend_in().is_zero()
                || clients.attended.is_none_or(|(_, told)| told != up))
        {
            clients.attended = Some((Instant::now(), up));
            { clients.port.iter_mut() }.for_each(|port| port.attend(up));
        }
    }

    /// Near: datagrams of clients have come.
    pub(crate) fn pump_clients(&mut self) {
        // What decides has all of the driver.
        let Some(mut clients) = self.udp_flows.clients.take() else {
            return;
        };
        if let Some(mut port) = clients.port.take() {
            let admits = port.admits();
            let received = port.receive(&mut |datagram| self.judge(&mut clients, admits, datagram));
            if let Err(error) = received {
                tracing::debug!(%error, "cannot read what clients send");
            }
            clients.port = Some(port);
        }
        self.udp_flows.clients = Some(clients);
    }

    fn judge(
        &mut self,
        clients: &mut ClientFlows,
        admits: bool,
        datagram: &ClientDatagram<'_>,
    ) -> ClientVerdict {
        let ends = datagram.ends;
        if let Some(flow) = clients.flows.get_mut(&ends) {
            if flow.tunnel.is_some() || !clients.bounds.asks_again {
                flow.active = Instant::now();
            }
            flow.interface = datagram.interface;
            flow.talks |= flow.is_answered;
            let Some(tunnel) = flow.tunnel else {
                clients.passed += 1;
                return ClientVerdict::NoTunnel;
            };
            if let Some(verdict) = self.send_from_client(tunnel, datagram.payload) {
                return verdict;
            }
            clients.remove(ends);
        }
        if !admits {
            clients.passed += 1;
            return ClientVerdict::Passes;
        }
        let opened = { clients.has_room(ends.client) }.then(|| self.open_for_client(ends));
        let Some(tunnel) = opened.flatten() else {
            clients.passed += 1;
            return ClientVerdict::NoTunnel;
        };
        clients.add(ends, datagram.interface, tunnel);
        self.counters.asked += 1;
        let verdict = self.send_from_client(tunnel, datagram.payload);
        verdict.unwrap_or_else(|| {
            clients.remove(ends);
            ClientVerdict::NoTunnel
        })
    }

    /// A tunnel for a flow, where the far end takes one more.
    fn open_for_client(&mut self, ends: UdpEnds) -> Option<TunnelId> {
        let connection = self.udp_carrier()?;
        let tells = matches!(&self.part, Part::Near(asking) if asking.tells_clients);
        let client = Some(ends.client).filter(|_| tells);
        { self.side.open_udp(connection, &ends.server.into(), client) }.ok()
    }

    fn udp_carrier(&self) -> Option<ConnectionId> {
        match &self.part {
            Part::Near(asking) => asking.standing(),
            Part::Far(_) => None,
        }
    }

    /// `None`: the tunnel is no more.
    fn send_from_client(&mut self, tunnel: TunnelId, payload: &[u8]) -> Option<ClientVerdict> {
        match self.side.send_udp(tunnel, payload) {
            Ok(()) => {
                self.udp_flows.into += 1;
                Some(ClientVerdict::Taken)
            }
            // The side counts both.
            Err(NotSent::Full) => Some(ClientVerdict::Taken),
            Err(NotSent::TooLong(room)) => Some(ClientVerdict::TooLong(room)),
            Err(NotSent::Closed) => None,
        }
    }
}
