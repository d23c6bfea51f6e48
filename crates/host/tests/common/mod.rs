//! Two hosts and a wire between them, in virtual time.

#![allow(dead_code, reason = "each test binary uses its part")]

use bentpipe_base::{Bytes, Instant, Machine, Output, Stream};
use bentpipe_host::{Config, ConnectionId, Event, Host, ListenerId, Secret};
use bentpipe_tcp as tcp;
use bentpipe_wire::{Checksums, Packet};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const CLIENT6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
pub(crate) const SERVER6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

/// What the wire does to a packet.
pub(crate) type Fate = Box<dyn FnMut(&Packet, Instant) -> Vec<Duration>>;

pub(crate) struct Net {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Instant,
    /// Where a packet goes, when, and the packet, as bytes.
    flying: Vec<(Instant, u64, usize, Vec<u8>)>,
    sequence: u64,
    /// When copies of a packet arrive; none: it is lost.
    pub(crate) fate: Fate,
    pub(crate) events: [VecDeque<Event>; 2],
    /// Packets that were sent by each.
    pub(crate) sent: [Vec<Packet>; 2],
}

pub(crate) fn host(config: Config, key: u8, addresses: &[IpAddr]) -> Host {
    let mut host = Host::new(config, Secret::new([key; 16]));
    addresses
        .iter()
        .for_each(|address| host.add_address(*address));
    host
}

impl Net {
    pub(crate) fn new() -> Self {
        Self::with(Config::default(), Config::default())
    }

    pub(crate) fn with(client: Config, server: Config) -> Self {
        Self {
            hosts: [
                host(client, 1, &[CLIENT, CLIENT6]),
                host(server, 2, &[SERVER, SERVER6]),
            ],
            now: Instant::ZERO,
            flying: Vec::new(),
            sequence: 0,
            fate: Box::new(|_, _| vec![Duration::from_millis(10)]),
            events: Default::default(),
            sent: Default::default(),
        }
    }

    /// A packet arrives from somewhere.
    pub(crate) fn inject(&mut self, to: usize, packet: Packet) {
        self.hosts[to].input((), packet, self.now);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        let now = self.now;
        for (side, host) in self.hosts.iter_mut().enumerate() {
            host.drain(now, |output| match output {
                Output::Packet((), packet) => {
                    let bytes = packet.to_vec().expect("a packet that can be written");
                    for delay in (self.fate)(&packet, now) {
                        self.sequence += 1;
                        self.flying
                            .push((now + delay, self.sequence, 1 - side, bytes.clone()));
                    }
                    self.sent[side].push(packet);
                }
                Output::Event(event) => self.events[side].push_back(event),
            });
        }
    }

    /// One step: to the next packet or deadline; `false` where there is none up to `until`.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let deadlines = self.hosts.iter().filter_map(Machine::deadline);
        let arrivals = self.flying.iter().map(|flying| flying.0);
        let Some(next) = deadlines.chain(arrivals).min().filter(|at| *at <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        for host in &mut self.hosts {
            host.timeout(self.now);
        }
        let now = self.now;
        let mut due: Vec<_> = self
            .flying
            .extract_if(.., |flying| flying.0 <= now)
            .collect();
        due.sort_by_key(|flying| (flying.0, flying.1));
        for (_, _, to, bytes) in due {
            let packet = Packet::parse(&bytes, Checksums::Verify).expect("what was written");
            self.hosts[to].input((), packet, now);
        }
        self.drain();
        true
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let until = self.now + duration;
        while self.step(until) {}
    }

    /// Until `done`, at most `duration`.
    pub(crate) fn run_until(
        &mut self,
        duration: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let until = self.now + duration;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(until) {
                return done(self);
            }
        }
    }

    pub(crate) fn listen(&mut self, port: u16, backlog: usize) -> ListenerId {
        let config = tcp();
        let at = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), port);
        self.hosts[1]
            .listen(at, &config, backlog)
            .expect("a free port")
    }

    pub(crate) fn connect(&mut self, port: u16) -> ConnectionId {
        let to = SocketAddr::new(SERVER, port);
        self.hosts[0]
            .connect(any(), to, &tcp(), self.now)
            .expect("a connection")
    }

    /// A connection that stands on both sides.
    pub(crate) fn pair(&mut self, port: u16) -> (ConnectionId, ConnectionId) {
        let listener = self.listen(port, 8);
        let client = self.connect(port);
        self.run(Duration::from_secs(1));
        let (server, _) = self.hosts[1].accept(listener).expect("it stands");
        (client, server)
    }

    pub(crate) fn state(&self, side: usize, id: ConnectionId) -> Option<tcp::State> {
        self.hosts[side].connection(id).map(tcp::Connection::state)
    }
}

/// Nothing asked for.
pub(crate) fn any() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0)
}

pub(crate) fn tcp() -> Arc<tcp::Config> {
    Arc::new(tcp::Config {
        receive_buffer: Bytes(256 << 10),
        send_buffer: Bytes(256 << 10),
        dsack: true,
        ..tcp::Config::rfc()
    })
}

/// A wire of 10 ms that loses, doubles and delays packets by chance.
pub(crate) fn troubled(seed: u64, loss: f64, double: f64, late: f64) -> Fate {
    let mut chance = Stream::new(seed, "wire");
    Box::new(move |_, _| {
        let mut copies = Vec::new();
        if chance.uniform() >= loss {
            let late = if chance.uniform() < late { 7 } else { 0 };
            copies.push(Duration::from_millis(10 + late));
        }
        if chance.uniform() < double {
            copies.push(Duration::from_millis(12));
        }
        copies
    })
}
