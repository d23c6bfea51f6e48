//! What only a far end does: it dials.

use crate::dial::{Resolver, failure};
use crate::driver::{Driver, Part};
use crate::flow::Phase;
use crate::target_policy::Policy;
use bentpipe_base::Instant;
use bentpipe_connect_tcp::{DialError, Host, Request, Template};
use bentpipe_quic::{ConnectionId, PublicKey};
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

/// The state of a far end.
pub(crate) struct Serving {
    pub(crate) far: Far,
    resolver: Resolver,
    /// Of tunnels whose name is asked for or whose dial is under way: the addresses that are still to be tried.
    candidates: BTreeMap<TunnelId, VecDeque<SocketAddr>>,
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
        let port = request.target.port;
        match request.target.host {
            Host::Address(address) => self.dial(tunnel, [(address, port).into()].into()),
            Host::Name(name) => {
                let Part::Far(serving) = &mut self.part else {
                    return;
                };
                match serving.resolver.ask(tunnel, name, port) {
                    Ok(()) => drop(serving.candidates.insert(tunnel, VecDeque::new())),
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
            if !self.forget_dial(answer.tunnel) {
                continue;
            }
            match answer.found {
                Ok(found) => self.dial(answer.tunnel, found.into()),
                Err(why) => self.refuse(answer.tunnel, why),
            }
        }
        self.end_late_dials();
    }

    /// Far: a tunnel's name is not asked for any more, nor is its target dialled; whether it was.
    pub(crate) fn forget_dial(&mut self, tunnel: TunnelId) -> bool {
        match &mut self.part {
            Part::Far(serving) => serving.candidates.remove(&tunnel).is_some(),
            Part::Near(_) => false,
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
    pub(crate) fn dial(&mut self, tunnel: TunnelId, mut addresses: VecDeque<SocketAddr>) {
        if self.side.is_udp(tunnel) {
            return self.dial_udp(tunnel, addresses);
        }
        let Part::Far(serving) = &self.part else {
            return;
        };
        let far = &serving.far;
        addresses.retain(|&address| far.policy.allows(address, is_own));
        let until = std::time::Instant::now() + far.dial_timeout;
        let mut why = DialError::Prohibited;
        while let Some(address) = addresses.pop_front() {
            let begun = socket::stream(address).and_then(|fd| {
                let dial = socket::connect(&fd, address)?;
                Ok((TcpStream::from(fd), dial))
            });
            match begun {
                Ok((socket, Dial::Pending | Dial::Connected)) => {
                    if let Part::Far(serving) = &mut self.part {
                        serving.candidates.insert(tunnel, addresses);
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
        let rest = match &mut self.part {
            Part::Far(serving) => serving.candidates.remove(&tunnel).unwrap_or_default(),
            Part::Near(_) => VecDeque::new(),
        };
        self.abort(tunnel);
        if rest.is_empty() {
            self.refuse(tunnel, why);
        } else {
            self.dial(tunnel, rest);
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
            if { self.flow(tunnel) }.is_some_and(|flow| flow.phase == Phase::Dialling(until)) {
                self.dial_failed(tunnel, DialError::Timeout);
            }
        }
    }
}
