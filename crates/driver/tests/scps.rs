//! SCPS-TP on packets: our host, and a peer that behaves as the reference implementation, each on a TUN interface of its own;
//! the kernel between them routes, loses packets, and is out for a time.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

#[path = "../../tcp/tests/support/reference.rs"]
mod reference;

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_driver::Driver;
use bentpipe_host::{Config, Host, ListenerId, Secret};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::timer;
use bentpipe_tcp::{self as tcp, State};
use bentpipe_wire::{Ip, Packet, Payload, Segment, Transport};
use reference::{Reference, Settings};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const BITS: u64 = 20_000_000;
const OURS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(100, 64, 0, 2)), 5_000);
const THEIRS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(100, 64, 1, 2)), 5_000);
/// What takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The peer, with an address.
struct Addressed {
    peer: Reference,
    /// Who it talks to, once it was heard.
    remote: Option<SocketAddr>,
}

impl Machine for Addressed {
    type Packet = Packet;
    type Port = ();
    type Event = Infallible;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        let source = packet.ip.source();
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        let remote = *self
            .remote
            .get_or_insert(SocketAddr::new(source, tcp.source));
        if remote == SocketAddr::new(source, tcp.source) && tcp.destination == THEIRS.port() {
            let segment = Segment::of_header(tcp, packet.payload);
            self.peer.input(segment, now);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.peer.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        let segment = self.peer.transmit(now)?;
        let remote = self.remote.unwrap();
        let ip = Ip::between(THEIRS.ip(), remote.ip()).unwrap();
        Some((
            (),
            Packet::of_segment(ip, THEIRS.port(), remote.port(), segment),
        ))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.peer.deadline()
    }
}

/// What one exchange is like.
#[derive(Clone, Copy)]
struct Case {
    we_open: bool,
    offloads: bool,
    ours: u64,
    theirs: u64,
    /// Every so many packets that the kernel forwards are lost.
    loses: u32,
    outage: Option<Duration>,
}

fn run(netns: &Netns, words: &[&str]) {
    let status = netns.command(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{words:?}");
}

fn tun(name: &str, kernel: &str, offloads: bool) -> Tun {
    let config = TunConfig {
        offloads,
        ..TunConfig::default()
    };
    let tun = Tun::open(name, config).unwrap();
    let here = Netns::current().unwrap();
    let kernel = kernel.parse().unwrap();
    here.netlink().unwrap().add_address(name, kernel).unwrap();
    tun
}

fn config() -> Arc<tcp::Config> {
    let mut config = tcp::Config::scps();
    config.settings.link.rate = Some(Rate::from_bits_per_sec(BITS));
    config.mss = u16::MAX;
    config.receive_buffer = Bytes(2_000_000);
    Arc::new(config)
}

/// The peer's end, to its end. It answers until ours is over too: its last acknowledgement may be lost.
fn theirs(
    mut driver: Driver<Addressed>,
    moved: &AtomicU64,
    ours_is_over: &AtomicBool,
) -> Reference {
    let began = driver.now();
    loop {
        driver.turn(Some(Duration::from_millis(20))).unwrap();
        let peer = &driver.machine().peer;
        moved.fetch_max(peer.received(), Ordering::Relaxed);
        let done = peer.is_done() && ours_is_over.load(Ordering::Relaxed);
        if done || driver.now().since(began) > PATIENCE {
            return driver.finish().unwrap().peer;
        }
    }
}

/// Our end, to its end; returns the counters of its connection.
fn ours(
    mut driver: Driver<Host>,
    case: Case,
    listener: Option<ListenerId>,
    moved: &AtomicU64,
) -> tcp::Counters {
    let began = driver.now();
    let mut id = None;
    if case.we_open {
        let from = SocketAddr::new(OURS.ip(), 0);
        id = Some(
            driver
                .machine_mut()
                .connect(from, THEIRS, &config(), began)
                .unwrap(),
        );
    }
    let (mut written, mut read, mut closed) = (0, 0, false);
    let mut room = vec![0; 1 << 16];
    loop {
        driver.turn(Some(Duration::from_millis(20))).unwrap();
        let now = driver.now();
        let host = driver.machine_mut();
        while host.event().is_some() {}
        if let (None, Some(listener)) = (id, listener) {
            id = host.accept(listener).map(|(id, _)| id);
        }
        let waited = now.since(began);
        let Some(connection) = id.and_then(|id| host.connection_mut(id)) else {
            assert!(waited < PATIENCE, "nobody came");
            continue;
        };
        let end = (written + 30_000).min(case.ours);
        let bytes: Vec<u8> = (written..end).map(Payload::pattern).collect();
        written += connection.write(&bytes) as u64;
        let got = connection.read(&mut room);
        let mut stream = (read..).zip(&room[..got]);
        assert!(
            stream.all(|(at, byte)| *byte == Payload::pattern(at)),
            "{read}"
        );
        read += got as u64;
        moved.fetch_max(read, Ordering::Relaxed);
        let stands = !matches!(connection.state(), State::SynSent | State::SynReceived);
        if written == case.ours && !closed && stands {
            closed = true;
            connection.close(now);
        }
        let counters = *connection.counters();
        let over = matches!(connection.state(), State::TimeWait | State::Closed);
        assert!(waited < PATIENCE, "{read} of {}: {counters:?}", case.theirs);
        if over && connection.readable() == 0 {
            assert!(connection.speaks_scps());
            assert_eq!((written, read), (case.ours, case.theirs), "{counters:?}");
            // A FIN that comes again is answered.
            for _ in 0..10 {
                driver.turn(Some(Duration::from_millis(20))).unwrap();
            }
            return counters;
        }
    }
}

fn exchange(case: Case) -> (tcp::Counters, Reference) {
    let netns = Netns::create("scps").unwrap();
    run(&netns, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    let loss = format!(
        "add table ip loss; add chain ip loss forward {{ type filter hook forward priority 0; }}; \
         add rule ip loss forward numgen inc mod {} == 7 drop",
        case.loses
    );
    run(&netns, &["nft", &loss]);
    // Both interfaces are there before anybody speaks.
    let [near, far] = netns
        .run(|| {
            let near = tun("ours", "100.64.0.1/30", case.offloads);
            [near, tun("theirs", "100.64.1.1/30", false)]
        })
        .unwrap();
    let now = timer::now();
    let settings = Settings::new(BITS, case.theirs);
    let (peer, remote) = if case.we_open {
        (Reference::listen(settings, now), None)
    } else {
        (Reference::connect(settings, now), Some(OURS))
    };
    let peer = Addressed { peer, remote };
    let mut host = Host::new(Config::default(), Secret::new([9; 16]));
    host.add_address(OURS.ip());
    let listener = (!case.we_open).then(|| host.listen(OURS, &config(), 4).unwrap());
    let host = Driver::new(host, near).unwrap();
    // Octets that have arrived at either end.
    let moved = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let theirs = scope.spawn(|| theirs(Driver::new(peer, far).unwrap(), &moved, &over));
        let outage = case.outage.map(|outage| {
            let (netns, moved) = (&netns, &moved);
            scope.spawn(move || {
                while moved.load(Ordering::Relaxed) < 1_000_000 {
                    thread::sleep(Duration::from_millis(5));
                }
                run(netns, &["nft", "insert rule ip loss forward drop"]);
                thread::sleep(outage);
                run(netns, &["nft", "flush chain ip loss forward"]);
            })
        });
        let counters = ours(host, case, listener, &moved);
        over.store(true, Ordering::Relaxed);
        if let Some(outage) = outage {
            outage.join().unwrap();
        }
        (counters, theirs.join().unwrap())
    })
}

#[test]
fn every_octet_arrives_both_ways_whoever_opens() {
    need!(Root, Tun, Nft);
    for (we_open, offloads) in [(true, true), (true, false), (false, true), (false, false)] {
        let (counters, peer) = exchange(Case {
            we_open,
            offloads,
            ours: 1_000_000,
            theirs: 1_000_000,
            loses: 40,
            outage: None,
        });
        assert_eq!(peer.received(), 1_000_000, "{:?}", peer.seen);
        // Each told the other what it missed, and neither looked at SACK.
        assert!(
            counters.snacks > 5 && peer.seen.snacks > 5,
            "{counters:?} {:?}",
            peer.seen
        );
        // On a host that pauses either end for two timeouts the link is taken for out, and comes back: not counted here.
        assert_eq!((peer.seen.sacks, peer.seen.resets), (0, 0));
    }
}

#[test]
fn an_outage_is_waited_for_and_little_goes_for_nothing() {
    need!(Root, Tun, Nft);
    let (counters, peer) = exchange(Case {
        we_open: true,
        offloads: true,
        ours: 5_000_000,
        theirs: 0,
        loses: 400,
        outage: Some(Duration::from_secs(5)),
    });
    assert_eq!(peer.received(), 5_000_000, "{:?}", peer.seen);
    assert_eq!(counters.outages, 1, "{counters:?}");
    assert!(counters.link_probes >= 4, "{counters:?}");
}

#[test]
fn its_probes_of_one_octet_end_an_outage_of_what_it_sends() {
    need!(Root, Tun, Nft);
    let (counters, peer) = exchange(Case {
        we_open: false,
        offloads: false,
        ours: 0,
        theirs: 5_000_000,
        loses: 400,
        outage: Some(Duration::from_secs(6)),
    });
    assert!(peer.seen.probes >= 1, "{:?}", peer.seen);
    assert_eq!(counters.bytes_delivered, 5_000_000);
}
