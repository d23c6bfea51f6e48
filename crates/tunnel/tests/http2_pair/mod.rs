//! Two ends of HTTP/2 in memory.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_cc::{LinkParams, Settings};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{Config, CongestionControl, ConnectionId, Endpoint, Identity, Limits, Path};
use bentpipe_tunnel::{Event, Http2, OpenError, Read, Role, TunnelId};
use bytes::Bytes as Chunk;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

pub(crate) const NEAR: usize = 0;
pub(crate) const FAR: usize = 1;

/// What one side of a socket sees.
pub(crate) struct Socket<'a> {
    pub(crate) incoming: &'a mut VecDeque<u8>,
    pub(crate) outgoing: &'a mut VecDeque<u8>,
}

impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.incoming.read(buffer)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.outgoing.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Pair {
    pub(crate) sides: [Http2; 2],
    pub(crate) ids: [ConnectionId; 2],
    /// On the way to each side.
    pub(crate) wires: [VecDeque<u8>; 2],
    pub(crate) told: [Vec<Event>; 2],
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stack's instants need one to begin with"
)]
pub(crate) fn base() -> std::time::Instant {
    std::time::Instant::now()
}

/// Of both sides, each of which knows the other's key; unless the far one trusts a stranger alone.
pub(crate) fn configs(limits: Limits, trusted: bool) -> [Config; 2] {
    let path = Path {
        rate: Rate::from_bits_per_sec(10_000_000),
        round_trip: Duration::from_millis(100),
        loss: Probability::new(0.0).unwrap(),
        mtu: Bytes(1500),
        overhead: Bytes(0),
        ipv6: false,
    };
    let settings = Settings {
        link: LinkParams::of_rate(path.rate),
        ..Settings::default()
    };
    let identities = [(); 2].map(|()| Identity::generate().unwrap());
    let stranger = Identity::generate().unwrap().public();
    [NEAR, FAR].map(|own| {
        let peer = identities[1 - own].public();
        let peer = if trusted || own == NEAR {
            peer
        } else {
            stranger
        };
        let control = CongestionControl::new("rate", settings.clone()).unwrap();
        Config {
            limits,
            ..Config::new(
                path.clone(),
                control,
                identities[own].clone(),
                vec![peer],
                base(),
            )
        }
    })
}

impl Pair {
    pub(crate) fn with(limits: Limits, trusted: bool) -> Self {
        let [near, far] = configs(limits, trusted);
        let sides = [(near, Role::Near), (far, Role::Far)].map(|(config, role)| {
            let endpoint = Endpoint::new(&config, role == Role::Far).unwrap();
            let templates = vec![Template::of_authority("far.example").unwrap()];
            Http2::new(&endpoint, &config, role, templates).unwrap()
        });
        let mut pair = Self {
            sides,
            ids: [ConnectionId::elsewhere(0); 2],
            wires: Default::default(),
            told: Default::default(),
        };
        let peers = ["10.0.0.2:443", "10.0.0.1:4433"];
        for (own, peer) in peers.into_iter().enumerate() {
            pair.ids[own] = pair.sides[own].begin(peer.parse().unwrap()).unwrap();
        }
        pair.run();
        pair
    }

    pub(crate) fn new() -> Self {
        let pair = Self::with(Limits::default(), true);
        assert!(pair.told[NEAR].contains(&Event::Ready(pair.ids[NEAR])));
        pair
    }

    /// Carries bytes to and fro until nothing moves.
    pub(crate) fn run(&mut self) {
        loop {
            let mut moved = false;
            for own in [NEAR, FAR] {
                let [to_near, to_far] = &mut self.wires;
                let (incoming, outgoing) = if own == NEAR {
                    (to_near, to_far)
                } else {
                    (to_far, to_near)
                };
                moved |= !incoming.is_empty();
                let socket = &mut Socket { incoming, outgoing };
                while self.sides[own].receive(self.ids[own], socket) {}
                for connection in self.sides[own].work() {
                    self.sides[own].send(connection, socket).unwrap();
                    moved = true;
                }
                while let Some(event) = self.sides[own].event() {
                    self.told[own].push(event);
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub(crate) fn open(&mut self) -> Result<TunnelId, OpenError> {
        let target: Target = "192.0.2.9:80".parse().unwrap();
        let opened = self.sides[NEAR].open(self.ids[NEAR], &target, None);
        self.run();
        opened
    }

    /// The last tunnel that the far side was asked for.
    pub(crate) fn asked(&self) -> TunnelId {
        let mut asked = { self.told[FAR].iter() }.filter_map(|event| match event {
            Event::Asked(tunnel, request) => {
                assert_eq!(request.target.to_string(), "192.0.2.9:80");
                Some(*tunnel)
            }
            _ => None,
        });
        asked.next_back().unwrap()
    }

    /// A tunnel that stands, as both sides name it.
    pub(crate) fn stand(&mut self) -> [TunnelId; 2] {
        let near = self.open().unwrap();
        let far = self.asked();
        self.sides[FAR].answer(far, None).unwrap();
        self.run();
        assert!(self.told[NEAR].contains(&Event::Answered(near, Ok(()))));
        [near, far]
    }

    /// Writes all of it at `own`, the other side reading; what that has read, and whether the end came.
    pub(crate) fn carry(
        &mut self,
        own: usize,
        tunnels: [TunnelId; 2],
        mut data: Chunk,
    ) -> (Vec<u8>, bool) {
        let mut read = Vec::new();
        let mut ended = false;
        let mut finished = false;
        loop {
            let before = read.len();
            if !data.is_empty() {
                self.sides[own].write(tunnels[own], &mut data).unwrap();
            } else if !finished {
                self.sides[own].finish(tunnels[own]).unwrap();
                finished = true;
            }
            self.run();
            while !ended && let Ok(got) = self.sides[1 - own].read(tunnels[1 - own]) {
                match got {
                    Read::Data(got) => read.extend_from_slice(&got),
                    Read::Final => ended = true,
                    Read::BrokenOff | Read::Blocked => break,
                }
            }
            self.run();
            if ended || (finished && before == read.len()) {
                return (read, ended);
            }
        }
    }
}
