//! The host: the calls of applications, and the [`Machine`] that drivers run.

use crate::config::Config;
use crate::counters::Counters;
use crate::fast_open::{PendingFastOpens, ServerCookies};
use crate::listener::{Listener, ListenerId};
use crate::path_mtu::PathMtus;
use crate::ports::Ports;
use crate::rate_limit::RateLimit;
use crate::secret::Secret;
use crate::table::{ConnectionId, Entry, Owner, Table};
use crate::time_wait::TimeWaits;
use crate::{Tuple, isn};
use bentpipe_base::{Instant, Machine, Seq};
use bentpipe_tcp::{self as tcp, Connection, State};
use bentpipe_wire::{Packet, Segment, Tcp};
use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use thiserror::Error;

/// An event that the driver passes to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a connection that the application holds. What happened before it was accepted is not told: who accepts a
    /// connection looks at it once.
    Connection(ConnectionId, tcp::Event),
    /// A listener has one more connection to accept.
    Incoming(ListenerId),
}

/// No connections can be listened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListenError {
    /// The address is not the host's.
    #[error("{0} is no address of this host")]
    NotHere(IpAddr),
    /// Somebody listens there.
    #[error("somebody listens at {0} already")]
    InUse(SocketAddr),
}

/// A host's half of TCP; see the head of the crate.
///
/// Beside the calls of [`Machine`] there are those of applications: [`listen`](Self::listen), [`accept`](Self::accept),
/// [`connect`](Self::connect), [`connection_mut`](Self::connection_mut) and [`release`](Self::release). After each of
/// them the driver drains `transmit` and `event` as after a packet.
#[derive(Debug)]
pub struct Host {
    pub(crate) config: Config,
    pub(crate) secret: Secret,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) table: Table,
    pub(crate) listeners: Vec<Option<Listener>>,
    pub(crate) listening: HashMap<SocketAddr, ListenerId>,
    pub(crate) ports: Ports,
    pub(crate) paths: PathMtus,
    pub(crate) time_waits: TimeWaits,
    /// What servers gave for TCP Fast Open.
    pub(crate) server_cookies: ServerCookies,
    /// Connections that were opened early, and whose handshake is not complete.
    pub(crate) opened_early: PendingFastOpens,
    pub(crate) replies: RateLimit,
    /// Packets of no connection: resets, cookies, answers from TIME-WAIT.
    pub(crate) out: VecDeque<Packet>,
    /// Connections that may have packets to send.
    pub(crate) ready: VecDeque<ConnectionId>,
    /// At most one entry counts for each connection ([`Entry::armed`]); the others are passed over.
    deadlines: BinaryHeap<Reverse<(Instant, ConnectionId)>>,
    pub(crate) events: VecDeque<Event>,
    /// Bytes that all connections hold.
    pub(crate) buffered: u64,
    /// Connections that were told to offer no more room.
    pub(crate) pressed: Vec<ConnectionId>,
    pub(crate) orphans: usize,
    pub(crate) counters: Counters,
}

impl Host {
    /// A host without addresses.
    pub fn new(config: Config, secret: Secret) -> Self {
        Self {
            paths: PathMtus::new(config.path_mtu_for),
            time_waits: TimeWaits::new(config.time_wait, config.time_wait_for),
            server_cookies: ServerCookies::default(),
            opened_early: PendingFastOpens::default(),
            replies: RateLimit::new(config.replies_per_second),
            addresses: BTreeSet::new(),
            table: Table::new(&secret),
            listeners: Vec::new(),
            listening: HashMap::new(),
            ports: Ports::new(),
            out: VecDeque::new(),
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            events: VecDeque::new(),
            buffered: 0,
            pressed: Vec::new(),
            orphans: 0,
            counters: Counters::default(),
            config,
            secret,
        }
    }

    /// The host has this address from now on.
    pub fn add_address(&mut self, address: IpAddr) {
        self.addresses.insert(address);
    }

    /// Takes connections to `at` from now on; an unspecified address means all of this host's of that family. `backlog`:
    /// handshakes under way at most, past which cookies are sent, and connections that wait to be accepted, past which
    /// SYNs are dropped; at least 1.
    ///
    /// # Errors
    /// An address that is not the host's, or one that is listened at.
    pub fn listen(
        &mut self,
        at: SocketAddr,
        config: &Arc<tcp::Config>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        if !at.ip().is_unspecified() && !self.addresses.contains(&at.ip()) {
            return Err(ListenError::NotHere(at.ip()));
        }
        if self.listening.contains_key(&at) {
            return Err(ListenError::InUse(at));
        }
        let id = ListenerId(self.listeners.len());
        self.listeners.push(Some(Listener {
            at,
            config: self.fitted(config, at.ip()),
            backlog: backlog.max(1),
            half_open: Default::default(),
            waiting: VecDeque::new(),
            cookie_sent: None,
            fast_open: Default::default(),
        }));
        self.listening.insert(at, id);
        Ok(id)
    }

    /// Connections that come to `listener` from now on have this configuration.
    pub fn reconfigure(&mut self, listener: ListenerId, config: &Arc<tcp::Config>) {
        let room = self.listeners.get(listener.0);
        let Some(at) = room.and_then(Option::as_ref).map(|listener| listener.at) else {
            return;
        };
        let config = self.fitted(config, at.ip());
        if let Some(Some(listener)) = self.listeners.get_mut(listener.0) {
            listener.config = config;
        }
    }

    /// Takes no more connections there; those that nobody has accepted are reset.
    pub fn close_listener(&mut self, listener: ListenerId, now: Instant) {
        let Some(room) = self.listeners.get_mut(listener.0) else {
            return;
        };
        let Some(listener) = room.take() else {
            return;
        };
        self.listening.remove(&listener.at);
        let mut ids: Vec<_> = listener.half_open.into_iter().collect();
        ids.sort_unstable();
        ids.extend(listener.waiting);
        for id in ids {
            if let Some(entry) = self.table.get_mut(id) {
                entry.owner = Owner::Nobody;
                self.orphans += 1;
                entry.connection.abort(now);
                self.wake(id);
            }
        }
    }

    /// The connection that has waited longest, and whose it is.
    pub fn accept(&mut self, listener: ListenerId) -> Option<(ConnectionId, Tuple)> {
        let listener = self.listeners.get_mut(listener.0)?.as_mut()?;
        let id = listener.waiting.pop_front()?;
        let entry = self.table.get_mut(id)?;
        entry.owner = Owner::Application;
        Some((id, entry.tuple))
    }

    /// Connections that wait to be accepted.
    pub fn waiting(&self, listener: ListenerId) -> usize {
        let listener = self.listeners.get(listener.0);
        listener.map_or(0, |listener| {
            listener.as_ref().map_or(0, |l| l.waiting.len())
        })
    }

    /// A connection, to look at.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(id).map(|entry| &entry.connection)
    }

    /// Whose a connection is.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.table.get(id).map(|entry| entry.tuple)
    }

    /// A connection, to read from, write to, close or abort.
    pub fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.wake(id);
        self.table.get_mut(id).map(|entry| &mut entry.connection)
    }

    /// Releases a connection that the application no longer needs. It is closed, and written bytes are still delivered.
    /// If bytes wait unread, or arrive later, the peer gets a reset (RFC 2525, section 2.17).
    pub fn release(&mut self, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        if entry.owner != Owner::Application {
            return;
        }
        entry.owner = Owner::Nobody;
        self.orphans += 1;
        let connection = &mut entry.connection;
        if connection.readable() > 0 {
            connection.abort(now);
        } else {
            connection.close(now);
            connection.shut_read();
        }
        if self.orphans > self.config.orphans {
            connection.abort(now);
            self.counters.orphans_reset += 1;
        }
        self.wake(id);
    }

    /// What the host did with packets.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections, and how many more are in TIME-WAIT.
    pub fn connections(&self) -> (usize, usize) {
        (self.table.len(), self.time_waits.len())
    }

    /// The connection is asked for packets, and looked at.
    pub(crate) fn wake(&mut self, id: ConnectionId) {
        if let Some(entry) = self.table.get_mut(id)
            && !entry.ready
        {
            entry.ready = true;
            self.ready.push_back(id);
        }
    }

    /// After a connection has sent all that it had to send: takes its events, and what follows from its state.
    fn settle(&mut self, id: ConnectionId, now: Instant) {
        self.take_events(id, now);
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let state = entry.connection.state();
        let over = match entry.owner {
            // A reset during the handshake has returned the connection to LISTEN.
            Owner::Listener(_) => matches!(state, State::Listen | State::Closed),
            Owner::Nobody => matches!(state, State::Listen | State::Closed | State::TimeWait),
            Owner::Application => false,
        };
        if over {
            return self.forget(id, now);
        }
        self.watch_path(id, now);
        self.weigh(id);
        self.arm(id, now);
    }

    /// Takes what has happened to a connection. To be called before it is asked for packets, too: what the application writes upon
    /// an event then takes an acknowledgement along.
    pub(crate) fn take_events(&mut self, id: ConnectionId, now: Instant) {
        while let Some(event) = self.table.get_mut(id).and_then(|e| e.connection.event()) {
            self.on_event(id, event, now);
        }
    }

    fn on_event(&mut self, id: ConnectionId, event: tcp::Event, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let owner = entry.owner;
        if event == tcp::Event::Connected {
            // Packets of the handshake are short, so that their loss tells nothing about the path's MTU.
            entry.timeouts = entry.connection.counters().timeouts;
            self.fit_path(id, now);
        }
        let opened_early = self.note_fast_open(id, event, now);
        match owner {
            // It waits since its SYN came, or was accepted.
            Owner::Listener(_) if opened_early => {}
            Owner::Application => self.events.push_back(Event::Connection(id, event)),
            Owner::Listener(at) if event == tcp::Event::Connected => {
                if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
                    listener.half_open.remove(&id);
                    listener.waiting.push_back(id);
                    self.events.push_back(Event::Incoming(at));
                }
            }
            Owner::Listener(_) | Owner::Nobody => {}
        }
    }

    /// A connection is over.
    fn forget(&mut self, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.remove(id) else {
            return;
        };
        self.buffered -= entry.buffered;
        if entry.pressed && self.pressed.len() > 2 * self.table.len() + 64 {
            let table = &self.table;
            self.pressed
                .retain(|id| table.get(*id).is_some_and(|entry| entry.pressed));
        }
        match entry.owner {
            Owner::Nobody => self.orphans -= 1,
            Owner::Listener(at) => {
                if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
                    listener.half_open.remove(&id);
                    listener.waiting.retain(|waiting| *waiting != id);
                }
            }
            Owner::Application => {}
        }
        if let Some(closed) = entry.connection.in_time_wait() {
            self.time_waits.insert(entry.tuple, closed, now);
        }
    }

    fn arm(&mut self, id: ConnectionId, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let mut deadline = entry.connection.deadline();
        if entry.owner == Owner::Nobody {
            // A connection that no application holds is not kept for a peer that never closes (Linux:
            // `tcp_fin_timeout`), nor for one that takes nothing (RFC 6429, section 4).
            let closed = entry.connection.state() == State::FinWait2;
            let until = match entry.linger {
                Some((same, until)) if same == closed => until,
                _ if closed => now + self.config.time_wait_for,
                _ => now + self.config.orphan_for,
            };
            entry.linger = Some((closed, until));
            deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
        }
        if let Some(deadline) = deadline
            && deadline < entry.armed
        {
            entry.armed = deadline;
            self.deadlines.push(Reverse((deadline, id)));
        }
        if self.deadlines.len() > 2 * self.table.len() + 64 {
            let table = &self.table;
            self.deadlines
                .retain(|Reverse((at, id))| table.get(*id).is_some_and(|entry| entry.armed == *at));
        }
    }

    /// The packet with which a segment of `tuple` leaves.
    pub(crate) fn packet(&mut self, tuple: &Tuple, segment: Segment) -> Packet {
        self.counters.sent += 1;
        let ip = tuple.header().with_hops(self.config.hop_limit);
        Packet::of_segment(ip, tuple.local.port(), tuple.remote.port(), segment)
    }

    /// Where a connection of `tuple` begins to count; beyond `after`, where that was the last number of one before it.
    pub(crate) fn first_number(&self, tuple: &Tuple, after: Option<Seq>, now: Instant) -> Seq {
        let first = isn::initial(&self.secret, tuple, now);
        match after {
            Some(after) if first <= after => after + 1,
            _ => first,
        }
    }
}

impl Machine for Host {
    type Packet = Packet;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        self.counters.received += 1;
        self.receive(packet, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.time_waits.expire(now);
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied()
            && at <= now
        {
            self.deadlines.pop();
            let Some(entry) = self.table.get_mut(id) else {
                continue;
            };
            if entry.armed != at {
                continue;
            }
            entry.armed = Instant::MAX;
            if entry.linger.is_some_and(|(_, until)| until <= now) {
                entry.connection.abort(now);
            } else {
                entry.connection.timeout(now);
            }
            self.take_events(id, now);
            self.wake(id);
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        if let Some(packet) = self.out.pop_front() {
            return Some(((), packet));
        }
        // One packet a connection and turn, so that none keeps the others waiting.
        while let Some(id) = self.ready.pop_front() {
            let Some(entry) = self.table.get_mut(id) else {
                continue;
            };
            if let Some(segment) = entry.connection.transmit(now) {
                let (tuple, ecn) = (entry.tuple, entry.connection.ecn());
                self.ready.push_back(id);
                return Some(((), self.packet(&tuple, segment).with_ecn(ecn)));
            }
            entry.ready = false;
            self.settle(id, now);
        }
        None
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let connections = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let time_waits = self.time_waits.deadline();
        [connections, time_waits].into_iter().flatten().min()
    }
}

/// The largest segment in packets of `mtu` bytes, options counted to it.
pub(crate) fn largest_segment(mtu: u16, ip_header: u16) -> u16 {
    mtu.saturating_sub(ip_header + Tcp::BARE as u16).max(1)
}

/// Whether the handshake is complete.
pub(crate) const fn is_synchronised(state: State) -> bool {
    !matches!(
        state,
        State::Closed | State::Listen | State::SynSent | State::SynReceived
    )
}

impl Entry {
    /// Whether an error about `seq` can be about a packet of this connection (RFC 5927, section 4.1).
    pub(crate) fn sent(&self, seq: Seq) -> bool {
        self.connection.is_in_flight(seq)
    }
}
