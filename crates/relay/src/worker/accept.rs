//! Begins flows: accepts the client, dials the server, and follows the dial to its end.

use super::{Dialling, LISTENER, Pause, Worker};
use crate::dial::{DialFor, Dialled, dial, next_hop};
use crate::flow::{Flow, Phase, Side};
use crate::flow_guard::FlowGuard;
use crate::handshake::{AcceptedFar, DescriptorReserve};
use crate::tunnel::FarSide;
use bentpipe_gateway_config::{Ends, Handshake, LegId, Syn, SynOptions};
use bentpipe_sockets::epoll::{Epoll, Event, Interest};
use bentpipe_sockets::socket;
use bentpipe_sockets::{tcp, timer};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const READING: Interest = Interest::READ
    .and(Interest::PEER_CLOSED)
    .and(Interest::EDGE);

/// A listener that a client came by.
#[derive(Clone, Copy)]
struct Entrance {
    address: SocketAddr,
    leg: LegId,
    profile: usize,
}

/// How a socket is registered: anew, or in the place of the dial that it was.
type Register = fn(&Epoll, BorrowedFd<'_>, u64, Interest) -> io::Result<()>;
const ANEW: Register = |epoll, socket, token, interest| epoll.add(socket, token, interest);
const AGAIN: Register = |epoll, socket, token, interest| epoll.modify(socket, token, interest);

fn token(index: u32, side: Side) -> u64 {
    u64::from(index) << 1 | side as u64
}

/// The most connections that are accepted before established flows have their turn.
const ACCEPT_BATCH: u32 = 64;
/// How long connections may wait in the listeners' queues for room. Then they are reset, so that their clients know.
const CROWDED: Duration = Duration::from_secs(3);
/// How long connections wait there for descriptors before these are asked for again. Who had them may have ended without
/// a word.
const SCARCE: Duration = Duration::from_millis(250);

/// A client may be asked for its window before it is sent more than one segment where that takes no longer.
const SHORT: Duration = Duration::from_millis(50);

/// The longest headers of a SYN.
const LONGEST_SYN: usize = 512;

/// The destination of the client's SYN, and what the SYN asks of the path (traffic class, fragments). Gives the class to
/// our packets to the client too.
fn read_syn(near: &OwnedFd) -> io::Result<(SocketAddr, SynOptions)> {
    let mut buffer = [0; LONGEST_SYN];
    let syn = socket::saved_syn(near, &mut buffer)
        .ok()
        .and_then(Syn::parse_headers);
    let (server, service) = match syn {
        Some(syn) => (syn.ends.1, syn.service),
        // A connection made by a SYN cookie has no saved SYN.
        None => (socket::local_address(near)?, SynOptions::default()),
    };
    if service.class != 0
        && let Err(error) = socket::set_traffic_class(near, server, service.class)
    {
        tracing::debug!(%error, "a connection goes on in the ordinary class");
    }
    Ok((server, service))
}

impl Worker {
    /// Accepts connections that wait at a listener: one, and twice as many after each wake-up that follows the last one
    /// directly. So a single client costs no futile accept.
    pub(super) fn on_clients(&mut self, number: usize) {
        self.accept_batch = match self.wakes - self.accept_wake {
            0 | 1 => (self.accept_batch * 2).min(ACCEPT_BATCH),
            _ => 1,
        };
        self.accept_wake = self.wakes;
        for _ in 0..self.accept_batch {
            let Some(listener) = self.listeners.get(number) else {
                return;
            };
            if !self.shared.has_room() {
                // Intercepted before the suspension took hold, and too many.
                let until = timer::now() + CROWDED;
                return self.pause(Some(Pause::Room { until }));
            }
            let entrance = Entrance {
                address: listener.address,
                leg: listener.leg,
                profile: listener.profile,
            };
            let accepted = match socket::accept(&listener.socket) {
                Err(error) if socket::is_exhausted(&error) && self.free_descriptor() => {
                    let listener = &self.listeners[number];
                    socket::accept(&listener.socket)
                }
                accepted => accepted,
            };
            match accepted {
                Ok((near, client)) => self.on_client(near, client, entrance),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // accept(2) asks for a descriptor before it looks whether anybody waits.
                    return self.keep_reserve();
                }
                Err(error) if socket::is_exhausted(&error) => {
                    self.shared.out_of_descriptors();
                    let until = timer::now() + SCARCE;
                    return self.pause(Some(Pause::Descriptors { until }));
                }
                // This client has reset its connection meanwhile; the next one is accepted.
                Err(_) => {}
            }
        }
    }

    /// Closes a descriptor, or more, that is of no use but for this: there are no others. Idle pipes go first.
    fn free_descriptor(&mut self) -> bool {
        let reserve = self.syn_queue.as_mut().map(|queue| &mut queue.reserve);
        self.buffers.pool.trim() > 0 || reserve.is_some_and(DescriptorReserve::spend)
    }

    /// Keeps back a descriptor for each client that is yet to be accepted, as far as there are any.
    fn keep_reserve(&mut self) {
        if let Some(syn_queue) = &mut self.syn_queue {
            let _ = syn_queue
                .reserve
                .keep(syn_queue.table.far_sockets(), &self.epoll);
        }
    }

    fn on_client(&mut self, near: OwnedFd, client: SocketAddr, entrance: Entrance) {
        self.counters.accepted.one();
        // An early return here resets the connection, because accepted sockets abort on close.
        let Ok((server, mut service)) = read_syn(&near) else {
            return self.counters.reset.one();
        };
        if server == entrance.address {
            // Not intercepted but dialled straight to us: an open relay would serve it.
            return self.counters.direct.one();
        }
        let entered = (entrance.leg, entrance.profile);
        let ends = (client, server);
        let syn_queue = self.syn_queue.as_ref();
        service.fragments =
            syn_queue.is_some_and(|syn_queue| syn_queue.table.allows_fragments(&ends));
        if service.fragments
            && let Err(error) = socket::allow_fragments(&near)
        {
            tracing::debug!(%error, "a connection looks for the path's MTU");
        }
        if let Some(far) = self.confirm(&ends) {
            return self.on_pair(near, far, entered);
        }
        if self.tunnels(entered).is_some() {
            return self.on_tunnelled(near, ends);
        }
        let leg = &self.settings.legs.of(entrance.profile)[entrance.leg.other() as usize];
        let proven = { self.syn_queue.as_ref() }
            .filter(|syn_queue| syn_queue.handshake == Handshake::EndToEnd)
            .map(|syn_queue| syn_queue.marks.proven());
        let whom = DialFor::Accepted(proven);
        match dial(leg, ends, service, self.tracks_dials(), whom) {
            Ok(dialled) => self.on_dialled(near, dialled, entered, (ends, service.mss)),
            Err(error) => self.on_no_dial(client, server, &error),
        }
    }

    /// The client has confirmed its handshake, and the far side had answered before.
    fn on_pair(&mut self, near: OwnedFd, far: AcceptedFar, entered: (LegId, usize)) {
        let socket = match far.side {
            FarSide::Socket(socket) => socket,
            FarSide::Tunnel(tunnel) => {
                self.counters.tunnelled.one();
                self.counters.connected.one();
                return tunnel.join(near, Box::new(far.guard));
            }
        };
        let mut flow = Flow::new(near, socket, entered, far.guard);
        flow.begun = far.begun;
        let index = self.flows.insert(flow);
        let how = if far.watched { AGAIN } else { ANEW };
        if self.register(index, Side::Far, READING, how) {
            self.open(index);
        }
    }

    fn on_dialled(
        &mut self,
        near: OwnedFd,
        dialled: Dialled,
        entered: (LegId, usize),
        (ends, segment): (Ends, Option<u16>),
    ) {
        if dialled.other_port {
            self.counters.other_port.one();
        }
        if dialled.control_lost {
            self.counters.other_control.one();
            self.shared.control_lost();
        }
        let answered = dialled.answered;
        let guard = FlowGuard::new(&self.shared, ends.0.ip());
        let flow = Flow::new(near, dialled.socket, entered, guard);
        let index = self.flows.insert(flow);
        // It becomes writable when the dial has succeeded.
        let interest = if answered {
            READING
        } else {
            READING | Interest::WRITE
        };
        if !self.register(index, Side::Far, interest, ANEW) {
            return;
        }
        let dialling = Dialling {
            ends,
            begun: timer::now(),
            segment,
            recorded: false,
        };
        self.dialling.insert(index, dialling);
        if answered {
            self.open(index);
        }
    }

    fn on_no_dial(&mut self, client: SocketAddr, server: SocketAddr, error: &io::Error) {
        if socket::is_exhausted(error) {
            self.counters.starved.one();
            self.shared.out_of_descriptors();
            return;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => self.counters.refused.one(),
            _ => self.counters.unreachable.one(),
        }
        tracing::debug!(%client, %server, %error, "the far side cannot be dialled");
    }

    /// Handles an event on the far socket of a flow that is being dialled.
    pub(super) fn on_answer(&mut self, index: u32, event: Event) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let error = if event.failed() {
            socket::take_error(flow.socket(Side::Far)).err()
        } else {
            None
        };
        match error.as_ref().map(io::Error::kind) {
            None => {}
            // The connection was established, and reset before this event was read.
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                if self.open(index) {
                    self.break_flow(index, Side::Far, error);
                }
                return;
            }
            Some(kind) => {
                match kind {
                    io::ErrorKind::ConnectionRefused => {
                        self.counters.refused.one();
                        if let Some(dialling) = self.dialling.get(&index) {
                            self.shared
                                .unanswered_dials()
                                .record_answer(&dialling.ends, timer::now());
                        }
                    }
                    _ => self.counters.unreachable.one(),
                }
                return self.drop_flow(index);
            }
        }
        if event.writable() && self.open(index) && event.readable() {
            // The server spoke first, and edge-triggered events come once.
            self.on_open(index, Side::Far, event);
        }
    }

    /// Gives up dials to or by way of neighbours that do not answer.
    pub(super) fn on_dead_neighbours(&mut self) {
        let dead_neighbours = self.shared.take_dead_neighbours(self.number);
        if dead_neighbours.is_empty() {
            return;
        }
        self.release_to_dead_neighbours(&dead_neighbours);
        let (flows, routes) = (&mut self.flows, &self.routes);
        let dialling = self.dialling.iter();
        let over: Vec<u32> = dialling
            .filter(|(index, dialling)| {
                let hop = flows
                    .get_mut(**index)
                    .and_then(|flow| next_hop(routes, flow.socket(Side::Far), dialling.ends.1));
                hop.is_some_and(|hop| dead_neighbours.contains(&hop))
            })
            .map(|(index, _)| *index)
            .collect();
        for index in over {
            self.counters.unreachable.one();
            self.drop_flow(index);
        }
    }

    /// Begins to relay, once both legs are established. The bytes that the client has sent meanwhile, most often its
    /// request, go on at once. Returns `false` where handling it ended the flow.
    fn open(&mut self, index: u32) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        flow.phase = Phase::Open;
        let dialling = self.dialling.remove(&index);
        let withheld = dialling.is_some();
        if let Some(dialling) = dialling {
            self.shared
                .unanswered_dials()
                .record_answer(&dialling.ends, timer::now());
            self.lower_near_segments(index, dialling.segment);
        }
        self.begin_shrunk(index);
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        self.keepalive.watch(index, flow, self.idle.now);
        self.flow_stats.connected(flow.begun);
        self.counters.connected.one();
        if !self.register(index, Side::Near, READING, ANEW) || !self.pump(index, Side::Near) {
            return false;
        }
        if withheld {
            self.withhold_ack(index);
        }
        true
    }

    /// The far side, which takes smaller segments than the client, has accepted after the client was answered: what it says holds on
    /// the client's path too, as without a gateway.
    fn lower_near_segments(&mut self, index: u32, taken: Option<u16>) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let far = &self.settings.legs.of(flow.profile())[flow.leg.other() as usize];
        let near = flow.socket(Side::Near);
        let smaller = { far.segment_beyond(flow.socket(Side::Far)) }
            .filter(|size| taken.is_none_or(|taken| *size < taken));
        let Some(size) = smaller else {
            return;
        };
        let Ok(before) = tcp::largest_segment(near) else {
            return;
        };
        // Of IPv6 what is sent first waits for the client's answer: not worth a satellite's round trip.
        let waits = || {
            let ipv6 = socket::local_address(near).is_ok_and(|address| address.is_ipv6());
            ipv6 && tcp::info(near).map_or(Duration::MAX, |info| info.rtt) > SHORT
        };
        if size < before
            && !waits()
            && let Err(error) = tcp::lower_segments(near, size)
        {
            tracing::debug!(%error, "a client gets larger segments than the far side takes");
        }
    }

    /// Registers a socket of a flow with epoll; resets the flow where that fails.
    ///
    /// A connected socket is writable, and would cost an event to say so, and another when its end is acknowledged: it is watched for
    /// that only once it was full.
    fn register(&mut self, index: u32, side: Side, interest: Interest, how: Register) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        flow.pump(side.other()).watches_sink = interest != READING;
        let result = how(&self.epoll, flow.socket(side), token(index, side), interest);
        if let Err(error) = result {
            tracing::warn!(%error, "cannot watch a connection: it is reset");
            self.counters.starved.one();
            self.drop_flow(index);
            return false;
        }
        true
    }

    /// Has epoll tell when the socket of `side` is writable again; returns false where that failed and ended the flow.
    pub(super) fn watch_room(&mut self, index: u32, side: Side) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        if std::mem::replace(&mut flow.pump(side.other()).watches_sink, true) {
            return true;
        }
        let interest = READING | Interest::WRITE;
        let socket = flow.socket(side);
        match self.epoll.modify(socket, token(index, side), interest) {
            // Not watched at all yet: the client's first bytes met a full server.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                flow.pump(side.other()).watches_sink = false;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot watch a connection: it is reset");
                self.drop_flow(index);
                false
            }
            Ok(()) => true,
        }
    }

    /// Accepts again once there may be descriptors or room again.
    pub(super) fn reconsider_accepting(&mut self) {
        match self.paused {
            Some(Pause::Descriptors { until })
                if timer::now() >= until || !self.shared.is_exhausted() =>
            {
                self.pause(None);
            }
            Some(Pause::Room { .. }) if self.shared.has_room() => self.pause(None),
            Some(Pause::Room { until }) if timer::now() >= until => {
                self.turn_away();
                self.pause(None);
            }
            _ => {}
        }
    }

    /// Resets the connections that wait.
    fn turn_away(&mut self) {
        for listener in &self.listeners {
            // Dropped, an accepted socket aborts.
            while socket::accept(&listener.socket).is_ok() {
                self.counters.accepted.one();
                self.counters.starved.one();
            }
        }
    }

    fn pause(&mut self, paused: Option<Pause>) {
        let interest = match paused {
            None => Interest::READ,
            Some(_) => Interest::NONE,
        };
        for (number, listener) in self.listeners.iter().enumerate() {
            let token = LISTENER + number as u64;
            if let Err(error) = self.epoll.modify(listener.socket.as_fd(), token, interest) {
                tracing::warn!(%error, "cannot watch a listener");
            }
        }
        self.paused = paused;
    }
}
