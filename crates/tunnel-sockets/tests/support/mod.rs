//! What the tests of both kinds of tunnels begin with.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_cc::{LinkParams, Settings};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{Config, CongestionControl, Identity, Limits, Path};
use bentpipe_tunnel_sockets::{ClientAddresses, ClientLimits, Far, Near, Policy, Rule};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A client's end of a connection that `near` carries to `target`.
#[allow(dead_code, reason = "not all tests carry TCP")]
pub(crate) fn client(near: &Near, target: Target) -> TcpStream {
    let listener = TcpListener::bind(loopback()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.carry(listener.accept().unwrap().0, target, Box::new(()));
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    client
}

/// The near and the far end's settings of a fast path on loopback; each knows the other's key.
pub(crate) fn configs(limits: Limits, began: Instant) -> [Config; 2] {
    let path = Path {
        rate: Rate::from_bits_per_sec(500_000_000),
        round_trip: Duration::from_millis(20),
        loss: Probability::ZERO,
        mtu: Bytes(1500),
        overhead: Bytes(0),
        ipv6: false,
    };
    let settings = Settings {
        link: LinkParams::of_rate(path.rate),
        // Loopback's round trip is shorter than the delays of a busy host's scheduler.
        window_floor: path.round_trip,
        ..Settings::default()
    };
    let identities = [(); 2].map(|()| Identity::generate().unwrap());
    [(0, 1), (1, 0)].map(|(own, other)| Config {
        limits,
        ..Config::new(
            path.clone(),
            CongestionControl::new("rate", settings.clone()).unwrap(),
            identities[own].clone(),
            vec![identities[other].public()],
            began,
        )
    })
}

/// A far end whose clients may reach what `rules` allow, by so many tunnels each.
pub(crate) fn far(
    template: &Template,
    rules: Vec<Rule>,
    tunnels: usize,
    udp_idle: Duration,
) -> Far {
    Far {
        policy: Policy {
            rules,
            own: Vec::new(),
        },
        templates: vec![template.clone()],
        client_addresses: ClientAddresses::default(),
        dial_timeout: Duration::from_secs(5),
        client: ClientLimits {
            connections: 2,
            tunnels,
            dials: 100,
        },
        idle: None,
        udp_idle,
    }
}
