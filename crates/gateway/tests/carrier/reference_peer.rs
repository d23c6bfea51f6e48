//! A peer that behaves as the reference implementation of SCPS-TP, in space; at the other end a host behind a gateway of ours.

#[path = "../../../tcp/tests/support/reference.rs"]
mod reference;

use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, Listener, PATIENCE, connect_in};
use bentpipe_base::Instant;
use bentpipe_gateway::Snapshot;
use bentpipe_os::need;
use bentpipe_os::netlink::Prefix;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::timer;
use bentpipe_wire::{Checksums, Ip as IpHeader, Packet, Payload, Segment, Transport};
use reference::{Reference, Settings};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), 5_000);
const ROUTER: &str = "10.99.0.1";
const RATE: u64 = 20_000_000;
/// Octets each way.
const AMOUNT: u64 = 1_000_000;

/// The peer, on an interface behind `router`.
struct Peer {
    tun: Tun,
    machine: Reference,
    remote: Option<SocketAddr>,
}

impl Peer {
    fn new(router: &Netns, machine: Reference, remote: Option<SocketAddr>) -> Self {
        let tun = router.run(|| Tun::open("peer", TunConfig::default()).unwrap());
        let netlink = router.netlink().unwrap();
        let prefix = Prefix::new(ROUTER.parse().unwrap(), 24).unwrap();
        netlink.add_address("peer", prefix).unwrap();
        netlink.set_up("peer").unwrap();
        Self {
            tun: tun.unwrap(),
            machine,
            remote,
        }
    }

    /// Runs until `over` says that the other end has all, and its own end is done.
    fn run(mut self, over: &AtomicBool) -> Reference {
        let (mut buffer, begun) = (vec![0; 65_536], timer::now());
        loop {
            let now = timer::now();
            while let Ok(Some(length)) = self.tun.receive(&mut buffer) {
                if let Ok(packet) = Packet::parse(&buffer[..length], Checksums::Ignore) {
                    self.hear(packet, now);
                }
            }
            if self.machine.deadline().is_some_and(|due| due <= now) {
                self.machine.timeout(now);
            }
            while let Some(segment) = self.machine.transmit(now) {
                self.say(segment);
            }
            let done = self.machine.is_done() && over.load(Ordering::Relaxed);
            if done || now.since(begun) > PATIENCE * 2 {
                return self.machine;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn hear(&mut self, packet: Packet, now: Instant) {
        let source = packet.ip.source();
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        let from = SocketAddr::new(source, tcp.source);
        if *self.remote.get_or_insert(from) == from && tcp.destination == ADDRESS.port() {
            let segment = Segment::of_header(tcp, packet.payload);
            self.machine.input(segment, now);
        }
    }

    fn say(&self, segment: Segment) {
        let remote = self.remote.unwrap();
        let ip = IpHeader::between(ADDRESS.ip(), remote.ip()).unwrap();
        let packet = Packet::of_segment(ip, ADDRESS.port(), remote.port(), segment);
        // A full interface loses it.
        let _ = self.tun.send(&packet.to_vec().unwrap());
    }
}

/// The host's end: it writes what the peer expects, reads what the peer sends, and ends.
fn converse(host: TcpStream) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut host = &host;
            let octets: Vec<u8> = (0..AMOUNT).map(Payload::pattern).collect();
            host.write_all(&octets).unwrap();
            host.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        (&host).read_to_end(&mut got).unwrap();
        let expected = (0..AMOUNT).map(Payload::pattern);
        assert!(got.iter().copied().eq(expected), "{} octets", got.len());
    });
}

/// One exchange; what the peer has seen, and the gateway counted.
fn exchange(host_opens: bool) -> (Reference, Snapshot) {
    let pair = Pair::new();
    let near = split_one(&pair.near, &SCPS.replace("200Mbit/s", "20Mbit/s"));
    let bound = pair.client.run(|| TcpListener::bind((Ip::V4.client(), 0)));
    let listener = Listener(bound.unwrap().unwrap());
    let (settings, now) = (Settings::new(RATE, AMOUNT), timer::now());
    let (machine, remote) = match host_opens {
        true => (Reference::listen(settings, now), None),
        false => {
            let host = listener.address();
            (Reference::connect(settings, now), Some(host))
        }
    };
    let peer = Peer::new(&pair.far, machine, remote);
    let over = AtomicBool::new(false);
    let peer = thread::scope(|scope| {
        let peer = scope.spawn(|| peer.run(&over));
        let host = match host_opens {
            true => connect_in(&pair.client, ADDRESS).unwrap(),
            false => listener.accept(),
        };
        // A dial that is not answered at once would pass unsplit.
        pair.lose(40);
        converse(host);
        over.store(true, Ordering::Relaxed);
        peer.join().unwrap()
    });
    (peer, near.meter.read())
}

/// Whoever opens the connection, every octet arrives both ways over a link that loses packets, and each tells the other by SNACK what it
/// misses.
#[test]
fn a_peer_like_the_reference_implementation_is_carried() {
    need!(Root, Nft, Tproxy);
    for host_opens in [true, false] {
        // On a machine that is busy the carrier may be late for one.
        let carried = (0..10).find_map(|_| {
            let (peer, counters) = exchange(host_opens);
            let seen = peer.seen;
            assert_eq!(peer.received(), AMOUNT, "{seen:?}");
            assert_eq!((seen.sacks, seen.resets), (0, 0), "{seen:?}");
            (counters.carried == 1).then_some((seen, counters))
        });
        let (seen, counters) = carried.unwrap();
        assert_eq!(counters.carried_plain, 0, "{seen:?}");
        assert!(seen.snacks > 5, "host opens: {host_opens}, {seen:?}");
        assert!(counters.carrier_snacks > 5, "{counters:?}");
    }
}
