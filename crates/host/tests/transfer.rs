//! Streams through two hosts over a wire that does what wires do: every byte arrives, once, in order.

mod common;

use bentpipe_base::Bytes;
use bentpipe_host::{Config, ConnectionId, Event};
use bentpipe_tcp::{Event as TcpEvent, State};
use bentpipe_wire::Payload;
use common::{Net, SERVER6, tcp, troubled};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// One stream from one side to the other.
struct Stream {
    from: (usize, ConnectionId),
    to: (usize, ConnectionId),
    length: u64,
    written: u64,
    read: u64,
}

impl Stream {
    fn new(from: (usize, ConnectionId), to: (usize, ConnectionId), length: u64) -> Self {
        Self {
            from,
            to,
            length,
            written: 0,
            read: 0,
        }
    }

    /// Moves what can be moved; panics at a wrong byte.
    fn pump(&mut self, net: &mut Net) {
        if self.written < self.length {
            let end = (self.written + 20_000).min(self.length);
            let bytes: Vec<u8> = (self.written..end).map(Payload::pattern).collect();
            if let Some(connection) = net.hosts[self.from.0].connection_mut(self.from.1) {
                self.written += connection.write(&bytes) as u64;
            }
        }
        let mut room = [0; 8_192];
        while let Some(connection) = net.hosts[self.to.0].connection_mut(self.to.1) {
            let got = connection.read(&mut room);
            if got == 0 {
                break;
            }
            for (i, byte) in room[..got].iter().enumerate() {
                let at = self.read + i as u64;
                assert_eq!(*byte, Payload::pattern(at), "byte {at}");
            }
            self.read += got as u64;
        }
        net.drain();
    }
}

/// Both ways at once, until all is there; then both sides let go, and nothing is left.
fn exchange(net: &mut Net, port: u16, lengths: [u64; 2]) {
    let (client, server) = connected(net, port);
    let mut streams = [
        Stream::new((0, client), (1, server), lengths[0]),
        Stream::new((1, server), (0, client), lengths[1]),
    ];
    let done = net.run_until(Duration::from_secs(3_600), |net| {
        streams.iter_mut().for_each(|stream| stream.pump(net));
        streams.iter().all(|stream| stream.read == stream.length)
    });
    assert!(
        done,
        "{:?}",
        streams.map(|stream| (stream.written, stream.read))
    );
    let now = net.now;
    net.hosts[0].release(client, now);
    net.hosts[1].release(server, now);
    net.run(Duration::from_secs(300));
    for host in &net.hosts {
        assert_eq!(host.connections(), (0, 0));
    }
}

fn connected(net: &mut Net, port: u16) -> (ConnectionId, ConnectionId) {
    let listener = net.listen(port, 8);
    let client = net.connect(port);
    let mut server = None;
    net.run_until(Duration::from_secs(300), |net| {
        server = server.or_else(|| net.hosts[1].accept(listener).map(|(id, _)| id));
        server.is_some() && net.state(0, client) == Some(State::Established)
    });
    (client, server.expect("it connects in the end"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_byte_arrives_once_and_in_order(
        seed: u64,
        loss in 0.0..0.15,
        double in 0.0..0.1,
        late in 0.0..0.3,
        forth in 0u64..300_000,
        back in 0u64..300_000,
    ) {
        let mut net = Net::new();
        net.fate = troubled(seed, loss, double, late);
        exchange(&mut net, 80, [forth, back]);
    }

    #[test]
    fn so_it_does_where_the_path_grows_narrow(
        seed: u64,
        loss in 0.0..0.05,
        at in 0u64..2_000,
        mtu in 600u16..1_400,
    ) {
        let mut net = Net::new();
        let mut wire = troubled(seed, loss, 0.0, 0.0);
        // From then on longer packets vanish, and nobody says so.
        net.fate = Box::new(move |packet, now| {
            let narrow = now.as_nanos() > at * 1_000_000;
            if narrow && packet.length() > Bytes(mtu.into()) { Vec::new() } else { wire(packet, now) }
        });
        exchange(&mut net, 80, [400_000, 400_000]);
    }
}

#[test]
fn a_black_hole_is_found_and_remembered() {
    let mut net = Net::new();
    net.fate = Box::new(|packet, _| {
        if packet.length() > Bytes(1_300) {
            Vec::new()
        } else {
            vec![Duration::from_millis(10)]
        }
    });
    exchange(&mut net, 80, [100_000, 0]);
    assert_eq!(net.hosts[0].counters().black_holes, 1);
    // The next connection knows it from the start.
    let before = net.sent[0].len();
    exchange(&mut net, 81, [100_000, 0]);
    let longest = net.sent[0][before..]
        .iter()
        .map(|packet| packet.length())
        .max();
    assert!(longest <= Some(Bytes(1_300)), "{longest:?}");
}

/// What passes lies between what was lost and what is fallen back to: probes find it, and those that are lost cost nothing.
#[test]
fn what_passes_a_black_hole_is_found_by_probes() {
    for (path, longest) in [
        (1_300, 1_284..=1_300),
        (1_480, 1_464..=1_480),
        (1_150, 1_130..=1_150),
    ] {
        let mut net = Net::new();
        net.fate = Box::new(move |packet, _| {
            let passes = packet.length() <= Bytes(path);
            passes
                .then_some(Duration::from_millis(100))
                .into_iter()
                .collect()
        });
        let (client, server) = connected(&mut net, 80);
        let mut stream = Stream::new((0, client), (1, server), 30_000_000);
        net.run_until(Duration::from_secs(60), |net| {
            stream.pump(net);
            stream.read == stream.length
        });
        let counters = net.hosts[0].counters();
        assert!((5..30).contains(&counters.path_probes), "{counters:?}");
        assert_eq!(counters.black_holes, if path < 1_200 { 2 } else { 1 });
        let after = net.sent[0].len() - 1_000;
        let segments = net.sent[0][after..].iter().map(|packet| packet.length().0);
        let most = segments.max().unwrap_or_default();
        assert!(longest.contains(&most), "{path}: {most}");
        let connection = net.hosts[0].connection(client).expect("it stands");
        let counters = connection.counters();
        assert!(
            counters.recoveries == 0 && counters.timeouts <= 4,
            "{counters:?}"
        );
    }
}

#[test]
fn over_ipv6_too() {
    let mut net = Net::new();
    let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 80);
    let listener = net.hosts[1].listen(at, &tcp(), 8).expect("a free port");
    let to = SocketAddr::new(SERVER6, 80);
    let from = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    let now = net.now;
    let client = net.hosts[0]
        .connect(from, to, &tcp(), now)
        .expect("a connection");
    net.run(Duration::from_secs(1));
    let (server, tuple) = net.hosts[1].accept(listener).expect("it stands");
    assert_eq!(tuple.local, to);
    let mut stream = Stream::new((0, client), (1, server), 200_000);
    let done = net.run_until(Duration::from_secs(60), |net| {
        stream.pump(net);
        stream.read == stream.length
    });
    assert!(done);
    let longest = net.sent[0].iter().map(|packet| packet.length()).max();
    assert_eq!(longest, Some(Bytes(1_500)));
}

#[test]
fn a_thousand_connections_share_a_wire() {
    let mut net = Net::new();
    net.fate = troubled(5, 0.02, 0.01, 0.05);
    let listener = net.listen(80, 2_000);
    let mut streams: Vec<Stream> = Vec::new();
    let clients: Vec<_> = (0..1_000).map(|_| net.connect(80)).collect();
    let mut accepted = Vec::new();
    net.run_until(Duration::from_secs(60), |net| {
        while let Some((server, tuple)) = net.hosts[1].accept(listener) {
            accepted.push((tuple.remote.port(), server));
        }
        accepted.len() == clients.len()
    });
    for client in clients {
        let port = net.hosts[0]
            .tuple(client)
            .map_or(0, |tuple| tuple.local.port());
        let found = accepted.iter().find(|(remote, _)| *remote == port);
        let (_, server) = *found.expect("each client has its server");
        streams.push(Stream::new((0, client), (1, server), 5_000));
    }
    let done = net.run_until(Duration::from_secs(120), |net| {
        streams.iter_mut().for_each(|stream| stream.pump(net));
        streams.iter().all(|stream| stream.read == stream.length)
    });
    assert!(done);
    assert_eq!(net.hosts[1].counters().resets_sent, 0);
}

#[test]
fn a_receiver_that_does_not_read_bounds_what_all_hold() {
    let narrow = Config {
        buffered: Bytes(1 << 20),
        ..Config::default()
    };
    let mut net = Net::with(Config::default(), narrow);
    let listener = net.listen(80, 100);
    let clients: Vec<_> = (0..40).map(|_| net.connect(80)).collect();
    net.run(Duration::from_secs(1));
    let bytes: Vec<u8> = (0..200_000).map(Payload::pattern).collect();
    for client in &clients {
        let connection = net.hosts[0].connection_mut(*client).expect("it stands");
        assert_eq!(connection.write(&bytes), bytes.len());
    }
    net.run(Duration::from_secs(30));
    let servers: Vec<_> = std::iter::from_fn(|| net.hosts[1].accept(listener)).collect();
    assert_eq!(servers.len(), 40);
    let held = |net: &Net| -> u64 {
        let all = servers
            .iter()
            .filter_map(|(id, _)| net.hosts[1].connection(*id));
        all.map(|connection| connection.buffered()).sum()
    };
    // The bound, and a segment each.
    let most = held(&net);
    assert!(most < (1 << 20) + 40 * 1_460, "{most}");
    // Who reads gets all the same.
    let mut total = 0;
    let done = net.run_until(Duration::from_secs(600), |net| {
        let mut room = [0; 8_192];
        for (id, _) in &servers {
            while let Some(connection) = net.hosts[1].connection_mut(*id) {
                let got = connection.read(&mut room);
                total += got;
                if got == 0 {
                    break;
                }
            }
        }
        net.drain();
        total == 40 * bytes.len()
    });
    assert!(done, "{total}");
}

#[test]
fn what_was_not_read_is_answered_by_a_reset() {
    let mut net = Net::new();
    let (client, server) = net.pair(80);
    net.hosts[0]
        .connection_mut(client)
        .expect("it stands")
        .write(b"hello");
    net.run(Duration::from_secs(1));
    let now = net.now;
    net.hosts[1].release(server, now);
    net.run(Duration::from_secs(1));
    let reset = Event::Connection(client, TcpEvent::Aborted(bentpipe_tcp::Cause::Reset));
    assert!(net.events[0].contains(&reset), "{:?}", net.events[0]);
    assert_eq!(net.hosts[1].connections(), (0, 0));
}
