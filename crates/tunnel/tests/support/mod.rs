//! Two sides over one emulated link, in virtual time; the test is both drivers.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{Bytes, Instant, Machine, Output, Probability, Rate};
use bentpipe_cc::{LinkParams, Settings as ControlSettings};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_link::channel::PacketError;
use bentpipe_link::{Direction, Settings};
use bentpipe_quic::{Config, CongestionControl, ConnectionId, Datagram, Endpoint, Identity, Path};
use bentpipe_tunnel::{Event, Read, Role, Side, TunnelId};
use bytes::Bytes as Chunk;
use std::time::Duration;

const NEAR: &str = "10.0.0.1:4433";
const FAR: &str = "10.0.0.2:443";

#[expect(
    clippy::disallowed_methods,
    reason = "the stack's instants need one to begin with"
)]
fn base() -> std::time::Instant {
    std::time::Instant::now()
}

fn templates() -> Vec<Template> {
    vec![Template::of_authority("far.example").unwrap()]
}

fn far(config: &Config) -> Side<Endpoint> {
    Side::new(Endpoint::new(config, true).unwrap(), Role::Far, templates())
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    /// The far side's configuration.
    config: Config,
    pub(crate) near: Side<Endpoint>,
    pub(crate) far: Side<Endpoint>,
    ways: [Direction<Datagram>; 2],
    pub(crate) near_told: Vec<Event>,
    pub(crate) far_told: Vec<Event>,
    pub(crate) connection: ConnectionId,
}

impl Pair {
    /// A geostationary link of 10 Mbit/s; the connection stands and is ready.
    pub(crate) fn over(loss: f64) -> Self {
        let mut pair = Self::connecting(loss);
        let connection = pair.connection;
        pair.until(|pair| {
            let connected = |event: &Event| matches!(event, Event::Connected { .. });
            pair.near_told.contains(&Event::Ready(connection))
                && pair.far_told.iter().any(connected)
        });
        pair.near_told.clear();
        pair.far_told.clear();
        pair
    }

    /// The same, where nothing has left yet.
    pub(crate) fn connecting(loss: f64) -> Self {
        let path = Path {
            rate: Rate::from_bits_per_sec(10_000_000),
            round_trip: Duration::from_millis(600),
            loss: Probability::new(loss).unwrap(),
            mtu: Bytes(1500),
            overhead: Bytes(0),
            ipv6: false,
        };
        let settings = ControlSettings {
            link: LinkParams::of_rate(path.rate),
            ..ControlSettings::default()
        };
        let identities = [(); 2].map(|()| Identity::generate().unwrap());
        let base = base();
        let [near, config] = [(0, 1), (1, 0)].map(|(own, other)| Config {
            seed: Some(own as u64),
            ..Config::new(
                path.clone(),
                CongestionControl::new("rate", settings.clone()).unwrap(),
                identities[own].clone(),
                vec![identities[other].public()],
                base,
            )
        });
        let way = |name: &str| {
            let settings = Settings {
                rate: Some(path.rate),
                delay: path.round_trip / 2,
                channels: vec![Box::new(PacketError::new(path.loss))],
                ..Settings::default()
            };
            Direction::new(settings, 1, name, bentpipe_base::Silent)
        };
        let near = Endpoint::new(&near, false).unwrap();
        let mut near = Side::new(near, Role::Near, templates());
        let connection = { near.quic_mut() }
            .connect(FAR.parse().unwrap(), Instant::ZERO)
            .unwrap();
        Self {
            now: Instant::ZERO,
            near,
            far: far(&config),
            config,
            ways: [way("up"), way("down")],
            near_told: Vec::new(),
            far_told: Vec::new(),
            connection,
        }
    }

    /// The far side ends without a word, and another begins in its place.
    pub(crate) fn restart_far(&mut self) {
        self.config.seed = Some(99);
        self.far = far(&self.config);
    }

    /// Ends the connection, and begins another after a while.
    pub(crate) fn connect_again(&mut self) {
        self.near.close(self.connection, "done", self.now);
        self.run_for(Duration::from_secs(20));
        self.near_told.clear();
        self.far_told.clear();
        self.connection = { self.near.quic_mut() }
            .connect(FAR.parse().unwrap(), self.now)
            .unwrap();
        self.drain();
    }

    pub(crate) fn open(&mut self, target: &str) -> TunnelId {
        let target: Target = target.parse().unwrap();
        self.near.open(self.connection, &target, None).unwrap()
    }

    /// Opens, and has the far side accept; returns it once the near side knows.
    pub(crate) fn stand(&mut self) -> TunnelId {
        let tunnel = self.open("192.0.2.9:80");
        self.accepted(tunnel)
    }

    /// Has the far side accept it; returns it once the near side knows.
    pub(crate) fn accepted(&mut self, tunnel: TunnelId) -> TunnelId {
        self.until(|pair| pair.asked().is_some());
        self.far.accept(tunnel).unwrap();
        self.until(|pair| pair.near_told.contains(&Event::Answered(tunnel, Ok(()))));
        self.near_told.clear();
        self.far_told.clear();
        tunnel
    }

    /// The first tunnel that the far side is asked for.
    pub(crate) fn asked(&self) -> Option<TunnelId> {
        self.far_told.iter().find_map(|event| match event {
            Event::Asked(tunnel, _) => Some(*tunnel),
            _ => None,
        })
    }

    /// Both sides, the near one first or second.
    pub(crate) fn sides(&mut self, near_first: bool) -> [&mut Side<Endpoint>; 2] {
        if near_first {
            [&mut self.near, &mut self.far]
        } else {
            [&mut self.far, &mut self.near]
        }
    }

    /// Runs for at most a minute, until `done`.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while self.now < end {
            self.drain();
            if done(self) {
                return;
            }
            self.step(end);
        }
        panic!(
            "not within a minute: {:?} {:?}",
            self.near_told, self.far_told
        );
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.drain();
            self.step(end);
        }
        self.drain();
    }

    fn step(&mut self, end: Instant) {
        let sides = [self.near.deadline(), self.far.deadline()];
        let ways = [self.ways[0].deadline(), self.ways[1].deadline()];
        let next = sides.into_iter().chain(ways).flatten().min();
        self.now = next.unwrap_or(end).min(end).max(self.now);
        for (way, peer) in [(0, NEAR), (1, FAR)] {
            while let Some((_, mut datagram)) = self.ways[way].deliver(self.now) {
                datagram.peer = peer.parse().unwrap();
                let side = if way == 0 {
                    &mut self.far
                } else {
                    &mut self.near
                };
                side.input((), datagram, self.now);
            }
        }
        for side in [&mut self.near, &mut self.far] {
            if side.deadline().is_some_and(|due| due <= self.now) {
                side.timeout(self.now);
            }
        }
    }

    pub(crate) fn drain(&mut self) {
        let now = self.now;
        for (side, way, told) in [
            (&mut self.near, 0, &mut self.near_told),
            (&mut self.far, 1, &mut self.far_told),
        ] {
            let way = &mut self.ways[way];
            side.drain(now, |output| match output {
                Output::Packet((), datagram) => {
                    let length = Bytes(datagram.data.len() as u64 + 28);
                    way.push(datagram, length, now);
                }
                Output::Event(event) => told.push(event),
            });
        }
    }
}

/// All that can be read now, and whether the FIN was among it.
pub(crate) fn read(side: &mut Side<Endpoint>, tunnel: TunnelId) -> (Vec<u8>, bool) {
    let (mut data, mut last) = (Vec::new(), false);
    loop {
        match side.read(tunnel) {
            Ok(Read::Data(piece)) => data.extend_from_slice(&piece),
            Ok(Read::Final) => last = true,
            Ok(Read::BrokenOff | Read::Blocked) | Err(_) => return (data, last),
        }
    }
}

pub(crate) fn write(side: &mut Side<Endpoint>, tunnel: TunnelId, data: &[u8]) {
    let mut chunk = Chunk::copy_from_slice(data);
    assert_eq!(side.write(tunnel, &mut chunk), Ok(data.len()));
}
