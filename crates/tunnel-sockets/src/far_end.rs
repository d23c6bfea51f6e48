//! What only a far end does: it dials.

use crate::client_addresses::ClientAddresses;
use crate::dial::{Resolver, failure};
use crate::driver::{Driver, Part};
use crate::flow::Phase;
use crate::target_policy::Policy;
use bentpipe_base::Instant;
use bentpipe_connect_tcp::{DialError, Host, Request, Template};
use bentpipe_quic::{ConnectionId, PublicKey};
use bentpipe_sockets::borrowed_address::BorrowedAddress;
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::socket::{self, Dial};
use bentpipe_tunnel::TunnelId;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

/// How a far end serves.
#[derive(Clone, Debug)]
pub struct Far {
    /// Who may be reached.
    pub policy: Policy,
    /// The paths that tunnels are asked for by. They cannot change.
    pub templates: Vec<Template>,
    /// How long a dial may take.
    pub dial_timeout: Duration,
    /// What one client, a key, may have.
    pub client: ClientLimits,
    /// A flow on which no byte moves for so long is reset; `None`: never.
    pub idle: Option<Duration>,
    /// A UDP flow on which nothing goes for so long is ended.
    pub udp_idle: Duration,
    /// For which clients servers are dialled from these clients' own addresses.
    pub client_addresses: ClientAddresses,
}

/// What one client, a key, may have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections.
    pub connections: usize,
    /// Tunnels, on all of them.
    pub tunnels: usize,
    /// Tunnels whose name is asked for or whose dial is under way.
    pub dials: usize,
}

/// Whether `address` is this host's own at present, as one that it was given after the start, or the kernel takes for its own by a route.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let binds = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    // A kernel that binds whatever it is asked for (`ip_nonlocal_bind`) binds an address for documents too.
    let nobodys: IpAddr = if address.is_ipv4() {
        Ipv4Addr::new(192, 0, 2, 1).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
    };
    binds(address) && !binds(nobodys)
}

/// Where a tunnel's dial may go.
pub(crate) struct Candidates {
    /// The addresses that are still to be tried.
    pub(crate) rest: VecDeque<SocketAddr>,
    /// For whom, as the near end says.
    pub(crate) client: Option<SocketAddr>,
    /// Until when the answer to its name is waited for, where it has one and that is asked for.
    pub(crate) named_by: Option<std::time::Instant>,
}

/// Begins a dial, from `source` where that is possible at present: the client's port may be in use between the same ends. Says from where.
fn connect(
    server: SocketAddr,
    source: Option<BorrowedAddress>,
) -> io::Result<(TcpStream, Dial, Option<BorrowedAddress>)> {
    let begin = |source: Option<BorrowedAddress>| {
        let socket = socket::stream(server)?;
        { source.iter() }.try_for_each(|source| source.bind(&socket))?;
        let dial = socket::connect(&socket, server)?;
        Ok((TcpStream::from(socket), dial, source))
    };
    match begin(source) {
        Err(error) if source.is_some() && is_taken(&error) => begin(None),
        begun => begun,
    }
}

/// Whether a dial's own address or port was in use.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::AddrInUse || kind == io::ErrorKind::AddrNotAvailable
}

/// The state of a far end.
pub(crate) struct Serving {
    pub(crate) far: Far,
    resolver: Resolver,
    /// Tunnels whose name is asked for or whose dial is under way.
    candidates: BTreeMap<TunnelId, Candidates>,
    /// When dials end that have not ended by themselves; those that have are still among them.
    dials: BTreeSet<(std::time::Instant, TunnelId)>,
}

impl Serving {
    /// Starts the threads that resolve names.
    pub(crate) fn start(far: Far, waker: &Arc<Waker>) -> io::Result<Self> {
        Ok(Self {
            far,
            resolver: Resolver::start(waker)?,
            candidates: BTreeMap::new(),
            dials: BTreeSet::new(),
        })
    }

    /// When it has something to do.
    pub(crate) fn deadline(&self, origin: std::time::Instant) -> Option<Instant> {
        let (until, _) = self.dials.first()?;
        Some(Instant::ZERO + until.saturating_duration_since(origin))
    }
}

impl Driver {
    /// Connections of one client.
    fn of_client(&self, key: PublicKey) -> Vec<ConnectionId> {
        let own = { self.connections.iter() }.filter(|(_, peer)| peer.key == key);
        own.map(|(&connection, _)| connection).collect()
    }

    /// Far: closes a new connection of a client who has as many as it may.
    pub(crate) fn bound_connections(&mut self, connection: ConnectionId, key: PublicKey) {
        let Part::Far(serving) = &self.part else {
            return;
        };
        if self.of_client(key).len() > serving.far.client.connections {
            let reason = "this key has as many connections as it may";
            let now = self.now();
            self.side.close(connection, reason, now);
            self.lost(connection, None, reason);
        }
    }

    /// Whether a client has more than it may, with `tunnel`.
    fn is_over(&self, serving: &Serving, tunnel: TunnelId) -> bool {
        let Some(peer) = self.connections.get(&tunnel.connection) else {
            return true;
        };
        let own = self.of_client(peer.key);
        let tunnels: usize = own.iter().map(|&one| self.side.tunnels(one)).sum();
        let dials = { serving.candidates.keys() }.filter(|dial| own.contains(&dial.connection));
        let limits = &serving.far.client;
        tunnels > limits.tunnels || dials.count() >= limits.dials
    }

    /// Far: a tunnel is asked for.
    pub(crate) fn asked(&mut self, tunnel: TunnelId, request: Request) {
        self.counters.asked += 1;
        let Part::Far(serving) = &self.part else {
            return;
        };
        if self.is_over(serving, tunnel) {
            return self.refuse(tunnel, DialError::Limit);
        }
        let Request { target, client, .. } = request;
        let port = target.port;
        let candidates = |rest| Candidates {
            rest,
            client,
            named_by: None,
        };
        match target.host {
            Host::Address(address) => {
                self.dial(tunnel, candidates([(address, port).into()].into()));
            }
            Host::Name(name) => {
                let Part::Far(serving) = &mut self.part else {
                    return;
                };
                let Some(peer) = self.connections.get(&tunnel.connection) else {
                    return;
                };
                match serving.resolver.ask(peer.key, tunnel, name, port) {
                    Ok(()) => {
                        let until = std::time::Instant::now() + serving.far.dial_timeout;
                        let none_yet = Candidates {
                            named_by: Some(until),
                            ..candidates(VecDeque::new())
                        };
                        serving.candidates.insert(tunnel, none_yet);
                        serving.dials.insert((until, tunnel));
                    }
                    Err(why) => self.refuse(tunnel, why),
                }
            }
        }
    }

    /// Far: names that were resolved are dialled, and dials that take too long are ended.
    pub(crate) fn serve_all(&mut self) {
        let Part::Far(serving) = &mut self.part else {
            return;
        };
        let answers: Vec<_> = serving.resolver.answers.try_iter().collect();
        for answer in answers {
            // Who has given up meanwhile wants no dial.
            let Some(asked) = self.forget_dial(answer.tunnel) else {
                continue;
            };
            let client = asked.client;
            match answer.found {
                Ok(found) => {
                    let rest = found.into();
                    let named_by = None;
                    let found = Candidates {
                        rest,
                        client,
                        named_by,
                    };
                    self.dial(answer.tunnel, found);
                }
                Err(why) => self.refuse(answer.tunnel, why),
            }
        }
        self.end_late_dials();
    }

    /// Far: a tunnel's name is not asked for any more, nor is its target dialled; what was to be dialled yet, where it was.
    pub(crate) fn forget_dial(&mut self, tunnel: TunnelId) -> Option<Candidates> {
        match &mut self.part {
            Part::Far(serving) => {
                let left = serving.candidates.remove(&tunnel)?;
                if left.named_by.is_some() {
                    serving.resolver.forget(tunnel);
                }
                Some(left)
            }
            Part::Near(_) => None,
        }
    }

    /// Far: a connection is gone, and nobody waits for what it has asked.
    pub(crate) fn forget_dials(&mut self, lost: ConnectionId) {
        let Part::Far(serving) = &self.part else {
            return;
        };
        let gone = { serving.candidates.keys().copied() }.filter(|it| it.connection == lost);
        for tunnel in gone.collect::<Vec<_>>() {
            self.forget_dial(tunnel);
        }
    }

    /// Resets the flows whose sockets have failed a while ago.
    pub(crate) fn end_failed(&mut self) {
        let failed = { self.flows.values() }.filter(|flow| flow.has_failed());
        let failed: Vec<_> = failed.map(|flow| flow.tunnel).collect();
        for tunnel in failed {
            self.side.reset(tunnel);
            self.abort(tunnel);
        }
    }

    /// Resets the flows that have been idle for too long.
    pub(crate) fn end_idle(&mut self) {
        let Part::Far(serving) = &self.part else {
            return;
        };
        let Some(idle) = serving.far.idle else {
            return;
        };
        let late = { self.flows.values() }.filter(|flow| flow.active.elapsed() >= idle);
        let late: Vec<_> = late.map(|flow| flow.tunnel).collect();
        for tunnel in late {
            self.side.reset(tunnel);
            self.abort(tunnel);
        }
    }

    pub(crate) fn refuse(&mut self, tunnel: TunnelId, why: DialError) {
        *self.counters.failures.entry(why.name()).or_default() += 1;
        // Who has given up meanwhile wants no answer.
        let _ = self.side.refuse(tunnel, why);
    }

    /// Far: dials the first of these that may be reached, and the next where that fails.
    pub(crate) fn dial(&mut self, tunnel: TunnelId, mut candidates: Candidates) {
        if self.side.is_udp(tunnel) {
            return self.dial_udp(tunnel, candidates);
        }
        let Part::Far(serving) = &self.part else {
            return;
        };
        let far = &serving.far;
        { &mut candidates.rest }.retain(|&address| far.policy.allows(address, is_own));
        let until = std::time::Instant::now() + far.dial_timeout;
        let mut why = DialError::Prohibited;
        while let Some(address) = candidates.rest.pop_front() {
            let source = self.source(tunnel, candidates.client, address);
            match connect(address, source) {
                Ok((socket, Dial::Pending | Dial::Connected, source)) => {
                    self.counters.from_clients += u64::from(source.is_some());
                    if let Part::Far(serving) = &mut self.part {
                        serving.candidates.insert(tunnel, candidates);
                        serving.dials.insert((until, tunnel));
                    }
                    let phase = Phase::Dialling(until);
                    if self.admit(socket, tunnel, phase, None).is_err() {
                        self.abort(tunnel);
                        self.refuse(tunnel, DialError::Internal);
                    }
                    return;
                }
                Err(error) => why = failure(&error),
            }
        }
        self.refuse(tunnel, why);
    }

    /// Far: the client's address from which `server` is dialled for a tunnel, whose near end says that it asks for `client`; `None`: this
    /// host's own is.
    pub(crate) fn source(
        &self,
        tunnel: TunnelId,
        client: Option<SocketAddr>,
        server: SocketAddr,
    ) -> Option<BorrowedAddress> {
        let (Part::Far(serving), Some(client)) = (&self.part, client) else {
            return None;
        };
        let key = self.connections.get(&tunnel.connection)?.key;
        let from = &serving.far.client_addresses;
        from.source(&key, client, server, is_own)
    }

    /// Far: something happened to a socket that dials.
    pub(crate) fn dialled(&mut self, token: u64) {
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        let tunnel = flow.tunnel;
        match socket::take_error(&flow.socket) {
            Err(error) => self.dial_failed(tunnel, failure(&error)),
            // It still dials.
            Ok(()) if socket::peer_address(&flow.socket).is_err() => {}
            Ok(()) => {
                flow.phase = Phase::Open;
                self.counters.opened += 1;
                self.forget_dial(tunnel);
                if self.side.accept(tunnel).is_err() {
                    return self.abort(tunnel);
                }
                self.ready.push(token);
            }
        }
    }

    fn dial_failed(&mut self, tunnel: TunnelId, why: DialError) {
        let left = self.forget_dial(tunnel);
        self.abort(tunnel);
        match left.filter(|left| !left.rest.is_empty()) {
            Some(left) => self.dial(tunnel, left),
            None => self.refuse(tunnel, why),
        }
    }

    fn end_late_dials(&mut self) {
        let now = std::time::Instant::now();
        while let Part::Far(serving) = &mut self.part
            && serving
                .dials
                .first()
                .is_some_and(|(until, _)| *until <= now)
            && let Some((until, tunnel)) = serving.dials.pop_first()
        {
            let asked = serving.candidates.get(&tunnel);
            if asked.is_some_and(|asked| asked.named_by == Some(until)) {
                self.forget_dial(tunnel);
                self.refuse(tunnel, DialError::DnsTimeout);
                continue;
            }
            if { self.flow(tunnel) }.is_some_and(|flow| flow.phase == Phase::Dialling(until)) {
                self.dial_failed(tunnel, DialError::Timeout);
            }
        }
    }
}
