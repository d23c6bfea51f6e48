//! With `wire`, the connection of an end belongs to a host ([`bentpipe_host`]), as on real packets: that listens or dials, numbers the
//! connection, and finds it by the addresses and ports of each packet. The host is the end's
//! own, for ends act one by one here; its ports are the scenario's ([`crate::addresses`]), by which policies know flows.

use crate::SimError;
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_cc::Congestion;
use bentpipe_host::{
    Config as HostConfig, ConnectionId, Event as HostEvent, Host, ListenerId, Secret, Tuple,
};
use bentpipe_tcp::{Config, Connection, Event, State};
use bentpipe_wire::{Ecn, Ip, Packet, Segment, Transport};
use std::sync::Arc;

/// The connection of an end of TCP.
#[allow(
    clippy::large_enum_variant,
    reason = "without `wire` all ends are bare, and their packets find them without a pointer more"
)]
pub(crate) enum EndConnection {
    /// It is driven by the end itself.
    Bare(Connection),
    /// It belongs to a host.
    Hosted(Box<HostedConnection>),
}

/// A host with one connection, and what the end knows of it.
pub(crate) struct HostedConnection {
    host: Host,
    config: Arc<Config>,
    tuple: Tuple,
    /// Of an end that is dialled.
    listener: Option<ListenerId>,
    /// None until the host has accepted one.
    connection: Option<ConnectionId>,
    /// The congestion control of the one that will be accepted.
    shared: Option<Box<dyn Congestion>>,
    /// Told after the event before it: the peer had closed when the connection was accepted.
    peer_closed: bool,
}

/// A host that bounds nothing: a simulated flow has what its scenario says.
fn host_config() -> HostConfig {
    HostConfig {
        buffered: Bytes(u64::MAX),
        mtu: u16::MAX,
        black_hole_after: 0,
        replies_per_second: u32::MAX,
        ..HostConfig::default()
    }
}

impl HostedConnection {
    /// Dials (`opens`) or listens at `tuple`. What others must not guess follows from `draw`.
    pub(crate) fn new(
        config: &Arc<Config>,
        opens: bool,
        tuple: Tuple,
        draw: Seq,
        now: Instant,
    ) -> Result<Self, SimError> {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&draw.0.to_be_bytes());
        let mut host = Host::new(host_config(), Secret::new(key));
        host.add_address(tuple.local.ip());
        let (mut connection, mut listener) = (None, None);
        if opens {
            connection = Some(host.connect(tuple.local, tuple.remote, config, now)?);
        } else {
            listener = Some(host.listen(tuple.local, config, 1)?);
        }
        Ok(Self {
            host,
            config: Arc::clone(config),
            tuple,
            listener,
            connection,
            shared: None,
            peer_closed: false,
        })
    }

    fn accept(&mut self, listener: ListenerId) -> Option<Event> {
        let (id, _) = self.host.accept(listener)?;
        self.connection = Some(id);
        let connection = self.host.connection_mut(id)?;
        if let Some(control) = self.shared.take() {
            connection.set_congestion(control);
        }
        // What happened before is not told.
        self.peer_closed = connection.state() == State::CloseWait;
        Some(Event::Connected)
    }

    fn event(&mut self) -> Option<Event> {
        if core::mem::take(&mut self.peer_closed) {
            return Some(Event::PeerClosed);
        }
        match self.host.event()? {
            HostEvent::Incoming(listener) => self.accept(listener),
            HostEvent::Connection(_, event) => Some(event),
        }
    }

    fn receive(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        // A bare connection that is over counts what comes, and answers nothing.
        if let Some(id) = self.connection
            && let Some(connection) = self.host.connection_mut(id)
            && connection.state() == State::Closed
        {
            return connection.receive_marked(segment, ecn, now);
        }
        let Tuple { local, remote } = self.tuple;
        // Both ends of a flow are of one family.
        if let Some(ip) = Ip::between(remote.ip(), local.ip()) {
            let packet = Packet::of_segment(ip, remote.port(), local.port(), segment.clone());
            self.host.input((), packet.with_ecn(ecn), now);
        }
    }

    fn transmit_into(&mut self, segment: &mut Segment, now: Instant) -> Option<(Ecn, usize)> {
        let ((), packet) = self.host.transmit(now)?;
        let Transport::Tcp(tcp) = packet.transport else {
            return None;
        };
        let ecn = packet.ip.ecn();
        *segment = Segment::of_header(tcp, packet.payload);
        Some((ecn, self.config.wire_len(segment)))
    }
}

impl EndConnection {
    /// The connection, once there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Connection> {
        match self {
            Self::Bare(connection) => Some(connection),
            Self::Hosted(hosted) => hosted.host.connection(hosted.connection?),
        }
    }

    /// The same, to be used by the application.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Bare(connection) => Some(connection),
            Self::Hosted(hosted) => hosted.host.connection_mut(hosted.connection?),
        }
    }

    /// Gives it `control`, from its beginning.
    pub(crate) fn set_congestion(&mut self, control: Box<dyn Congestion>) {
        match self {
            Self::Bare(connection) => connection.set_congestion(control),
            Self::Hosted(hosted) => {
                let HostedConnection {
                    host,
                    connection,
                    shared,
                    ..
                } = &mut **hosted;
                match connection.and_then(|id| host.connection_mut(id)) {
                    Some(connection) => connection.set_congestion(control),
                    None => *shared = Some(control),
                }
            }
        }
    }

    #[inline]
    pub(crate) fn event(&mut self) -> Option<Event> {
        match self {
            Self::Bare(connection) => connection.event(),
            Self::Hosted(hosted) => hosted.event(),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, segment: &Segment, ecn: Ecn, now: Instant) {
        match self {
            Self::Bare(connection) => connection.receive_marked(segment, ecn, now),
            Self::Hosted(hosted) => hosted.receive(segment, ecn, now),
        }
    }

    #[inline]
    pub(crate) fn timeout(&mut self, now: Instant) {
        match self {
            Self::Bare(connection) => connection.timeout(now),
            Self::Hosted(hosted) => hosted.host.timeout(now),
        }
    }

    /// Resets it, or dials and listens no longer.
    #[cold]
    pub(crate) fn abort(&mut self, now: Instant) {
        match self {
            Self::Bare(connection) => connection.abort(now),
            Self::Hosted(hosted) => {
                let HostedConnection {
                    host,
                    connection,
                    listener,
                    ..
                } = &mut **hosted;
                match (connection.and_then(|id| host.connection_mut(id)), listener) {
                    (Some(connection), _) => connection.abort(now),
                    (None, Some(listener)) => host.close_listener(*listener, now),
                    (None, None) => {}
                }
            }
        }
    }

    /// Writes what leaves next over `segment`; returns the ECN field of its packet, and the packet's length.
    #[inline(always)]
    pub(crate) fn transmit_into(
        &mut self,
        segment: &mut Segment,
        now: Instant,
    ) -> Option<(Ecn, usize)> {
        match self {
            Self::Bare(connection) => {
                let due = connection.transmit_into(segment, now);
                due.then(|| (connection.ecn(), connection.wire_len(segment)))
            }
            Self::Hosted(hosted) => hosted.transmit_into(segment, now),
        }
    }

    /// When it is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Bare(connection) => connection.deadline(),
            // The host's own may be an old one.
            Self::Hosted(hosted) => match self.get() {
                Some(connection) => connection.deadline(),
                None => hosted.host.deadline(),
            },
        }
    }
}
