//! Goodput with the kernel's TCP, for each pair of its congestion controls and ours, in both directions, beside that of
//! the kernel with itself over the same path (root, some minutes):
//!
//! `cargo test -p bentpipe-driver --test pairs -- --ignored --nocapture`
//!
//! Each connection has a path of its own: links of the emulator of equal rate, queue and delay, of which that of the data
//! loses the same packets by their numbers. The kernel with itself: what it sends to `mirror` comes back to it with
//! both addresses exchanged, so that it is its own peer.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]
#![allow(
    clippy::print_stderr,
    reason = "what was measured is shown where asked"
)]

use bentpipe_base::{Bytes, Instant, Machine, Probability, Rate, Silent};
use bentpipe_bpf::{Controls, HYBLA, LinkParams, RATE, kernel_name};
use bentpipe_driver::Driver;
use bentpipe_host::{Config, ConnectionId, Event, Host, ListenerId, Secret};
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::{Discipline, DropTail};
use bentpipe_link::{Direction, Limit, Settings};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::socket::set_mark;
use bentpipe_sockets::tcp::set_congestion;
use bentpipe_tcp as tcp;
use bentpipe_wire::{Ip, Packet, Transport};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const CARRIES: u64 = 4_000_000;
const DELAY: Duration = Duration::from_millis(30);
/// One bandwidth-delay product.
const QUEUE: Bytes = Bytes(30_000);
/// How long each connection sends, and what the receiver counts.
const LASTS: Duration = Duration::from_secs(10);
/// Connection `n` of a batch is to this port and `n`.
const PORT: u16 = 5_000;
/// Connections side by side.
const BATCH: usize = 13;
/// Connection `n` of a batch has this mark and `n`.
const MARK: u32 = 0x7e58_0000;
const THEIRS: [&str; 3] = ["cubic", "reno", "bbr"];
/// Our BPF programs in the kernel, which only send: a receiver's control does nothing.
const PROGRAMS: [&str; 2] = [HYBLA, RATE];
/// Our controls, each with the kernel's that it is an image of.
const OURS: [(&str, Option<&str>); 6] = [
    ("cubic", Some("cubic")),
    ("reno", Some("reno")),
    ("hybla", Some(HYBLA)),
    ("bbr1", Some("bbr")),
    ("bbr", None),
    ("rate", Some(RATE)),
];
/// Means of ours and of the kernel's may differ by this part.
const TOLERANCE: f64 = 0.10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The kernel sends to itself.
    Kernel,
    KernelToUs,
    UsToKernel,
}

/// One transfer: the control that sends, and that of the end which receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    kind: Kind,
    sends: &'static str,
    receives: &'static str,
}

fn pairs() -> Vec<Pair> {
    let mut all = Vec::new();
    for sends in THEIRS {
        all.push(Pair {
            kind: Kind::Kernel,
            sends,
            receives: sends,
        });
        for (ours, _) in OURS {
            all.push(Pair {
                kind: Kind::KernelToUs,
                sends,
                receives: ours,
            });
            all.push(Pair {
                kind: Kind::UsToKernel,
                sends: ours,
                receives: sends,
            });
        }
    }
    for sends in PROGRAMS {
        for kind in [Kind::Kernel, Kind::KernelToUs] {
            all.push(Pair {
                kind,
                sends,
                receives: "reno",
            });
        }
    }
    all
}

/// Addresses of the kernel, of our host and of the kernel's mirror image.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    kernel: IpAddr,
    ours: IpAddr,
    mirror: IpAddr,
    bits: u8,
}

fn families() -> [Addresses; 2] {
    let new = |[kernel, ours, mirror]: [&str; 3], bits| Addresses {
        kernel: kernel.parse().unwrap(),
        ours: ours.parse().unwrap(),
        mirror: mirror.parse().unwrap(),
        bits,
    };
    [
        new(["100.64.0.1", "100.64.0.2", "100.64.0.3"], 29),
        new(["fd00:64::1", "fd00:64::2", "fd00:64::3"], 125),
    ]
}

/// A host, and a path for each connection.
struct Paths {
    host: Host,
    ours: IpAddr,
    mirror: IpAddr,
    /// To the listener and from it, by connection.
    lanes: Vec<[Direction<Packet, Silent>; 2]>,
    late: Duration,
}

impl Paths {
    fn begin(&mut self, packet: Packet, now: Instant) {
        let Transport::Tcp(header) = &packet.transport else {
            return;
        };
        let number = |port: u16| usize::from(port.wrapping_sub(PORT));
        let there = number(header.destination) < self.lanes.len();
        let lane = number(if there {
            header.destination
        } else {
            header.source
        });
        // Others are the kernel's own, such as neighbour discovery.
        if let Some(lane) = self.lanes.get_mut(lane) {
            let len = Bytes(packet.length().0);
            let _full = lane[usize::from(!there)].push(packet, len, now);
        }
    }

    /// A packet that has arrived: for the kernel, or taken by our host.
    fn arrive(&mut self, mut packet: Packet, now: Instant) -> Option<Packet> {
        let to = match &mut packet.ip {
            Ip::V4(ip) => {
                let to = IpAddr::V4(ip.destination);
                if to == self.mirror {
                    std::mem::swap(&mut ip.source, &mut ip.destination);
                }
                to
            }
            Ip::V6(ip) => {
                let to = IpAddr::V6(ip.destination);
                if to == self.mirror {
                    std::mem::swap(&mut ip.source, &mut ip.destination);
                }
                to
            }
        };
        if to == self.ours {
            self.host.input((), packet, now);
            return None;
        }
        Some(packet)
    }
}

impl Machine for Paths {
    type Packet = Packet;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        self.begin(packet, now);
    }

    fn timeout(&mut self, now: Instant) {
        if self.host.deadline().is_some_and(|at| at <= now) {
            self.host.timeout(now);
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        loop {
            while let Some(((), packet)) = self.host.transmit(now) {
                self.begin(packet, now);
            }
            let due = { self.lanes.iter_mut().flatten() }
                .filter_map(|way| way.deadline().filter(|at| *at <= now).map(|at| (at, way)))
                .min_by_key(|(at, _)| *at);
            let (at, way) = due?;
            self.late = self.late.max(now.since(at));
            let Some((_, packet, _)) = way.deliver_due(now) else {
                way.advance(now);
                continue;
            };
            if let Some(packet) = self.arrive(packet, now) {
                return Some(((), packet));
            }
        }
    }

    fn event(&mut self) -> Option<Event> {
        self.host.event()
    }

    fn deadline(&self) -> Option<Instant> {
        let ways = self.lanes.iter().flatten().map(Direction::deadline);
        ways.chain([self.host.deadline()]).flatten().min()
    }
}

fn lane(loss: f64, seed: u64) -> [Direction<Packet, Silent>; 2] {
    let way = |loss: f64, name: &str| {
        let settings = Settings {
            rate: Some(Rate::from_bits_per_sec(CARRIES)),
            delay: DELAY,
            queue: Discipline::DropTail(DropTail::new(Limit::Bytes(QUEUE))),
            channels: vec![Box::new(PacketError::new(Probability::new(loss).unwrap()))],
            ..Settings::default()
        };
        Direction::new(settings, seed, name, Silent)
    };
    [way(loss, "there"), way(0.0, "back")]
}

/// What the controls of either end are told.
fn link() -> LinkParams {
    LinkParams {
        rate: Some(Rate::from_bits_per_sec(CARRIES)),
        ..LinkParams::default()
    }
}

/// As `bentpipe tcp` has it.
fn config(control: &str) -> Arc<tcp::Config> {
    // The variant `reno` is the one without SACK.
    let variant = if control == "reno" { "sack" } else { control };
    let mut config = tcp::Config::rfc().variant(variant).unwrap();
    config.recovery = tcp::recovery::find("rack-tlp").unwrap();
    (config.dsack, config.frto, config.eifel) = (true, true, true);
    config.min_rto = Duration::from_millis(200);
    config.rto_variance = Duration::from_millis(200);
    config.delayed_ack = Duration::from_millis(40);
    config.receive_buffer = Bytes(4 << 20);
    config.send_buffer = Bytes(4 << 20);
    config.settings.link = link();
    Arc::new(config)
}

/// The kernel receives one connection: the bytes of `LASTS`.
fn kernel_receives(listener: &TcpListener) -> u64 {
    let (mut stream, _) = listener.accept().unwrap();
    let began = std::time::Instant::now();
    let patience = Duration::from_millis(100);
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut room = vec![0; 1 << 16];
    let mut sum = 0;
    while began.elapsed() < LASTS {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(got) => sum += got as u64,
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    sum
}

fn kernel_sends(to: SocketAddr, control: &str, mark: u32) {
    let family = socket2::Domain::for_address(to);
    let socket = socket2::Socket::new(family, socket2::Type::STREAM, None).unwrap();
    set_congestion(&socket, kernel_name(control)).unwrap();
    set_mark(&socket, mark).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream: TcpStream = socket.into();
    // The receiver leaves after `LASTS`; until then the pipe is kept full.
    let patience = Duration::from_millis(100);
    stream.set_write_timeout(Some(patience)).unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < LASTS + Duration::from_millis(500) {
        match stream.write(&[0x55; 16_384]) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Our end of a connection.
struct Ours {
    pair: usize,
    id: ConnectionId,
    since: Instant,
    received: u64,
}

/// Goodputs of `batch` in Mbit/s, and the emulator's greatest lateness.
fn run(batch: &[Pair], addresses: Addresses, loss: f64, seed: u64) -> (Vec<f64>, Duration) {
    let tun = Tun::open("ours", TunConfig::default()).unwrap();
    let here = Netns::current().unwrap();
    let prefix = format!("{}/{}", addresses.kernel, addresses.bits)
        .parse()
        .unwrap();
    here.netlink().unwrap().add_address("ours", prefix).unwrap();
    let mut key = [0; 16];
    getrandom::fill(&mut key).unwrap();
    let mut host = Host::new(Config::default(), Secret::new(key));
    host.add_address(addresses.ours);
    let paths = Paths {
        host,
        ours: addresses.ours,
        mirror: addresses.mirror,
        lanes: batch.iter().map(|_| lane(loss, seed)).collect(),
        late: Duration::ZERO,
    };
    let mut driver = Driver::new(paths, tun).unwrap();
    let (done, results) = channel();
    let mut workers = Vec::new();
    let mut listeners: Vec<(usize, ListenerId)> = Vec::new();
    let mut ours: Vec<Ours> = Vec::new();
    let now = driver.now();
    let inside = |f: Box<dyn FnOnce() + Send>| {
        let here = Netns::current().unwrap();
        thread::spawn(move || here.run(f).unwrap())
    };
    for (number, pair) in batch.iter().enumerate() {
        let port = PORT + number as u16;
        let host = &mut driver.machine_mut().host;
        if pair.kind == Kind::KernelToUs {
            let at = SocketAddr::new(addresses.ours, port);
            let listener = host.listen(at, &config(pair.receives), 4).unwrap();
            listeners.push((number, listener));
        } else {
            let listener = TcpListener::bind(SocketAddr::new(addresses.kernel, port)).unwrap();
            set_congestion(&listener, pair.receives).unwrap();
            let done = done.clone();
            workers.push(inside(Box::new(move || {
                let got = kernel_receives(&listener);
                done.send((number, got)).unwrap();
            })));
        }
        let sends = pair.sends;
        match pair.kind {
            Kind::UsToKernel => {
                let from = SocketAddr::new(addresses.ours, 0);
                let to = SocketAddr::new(addresses.kernel, port);
                let id = host.connect(from, to, &config(sends), now).unwrap();
                ours.push(Ours {
                    pair: number,
                    id,
                    since: now,
                    received: 0,
                });
            }
            Kind::Kernel | Kind::KernelToUs => {
                let at = match pair.kind {
                    Kind::Kernel => addresses.mirror,
                    _ => addresses.ours,
                };
                let to = SocketAddr::new(at, port);
                let mark = MARK + number as u32;
                workers.push(inside(Box::new(move || kernel_sends(to, sends, mark))));
            }
        }
    }
    let mut received = vec![0; batch.len()];
    turn(
        &mut driver,
        batch,
        &listeners,
        &mut ours,
        &results,
        &mut received,
    );
    for one in &ours {
        let now = driver.now();
        driver.machine_mut().host.release(one.id, now);
    }
    while !workers.iter().all(thread::JoinHandle::is_finished) {
        driver.turn(Some(Duration::from_millis(20))).unwrap();
    }
    workers.into_iter().for_each(|one| one.join().unwrap());
    let mbps = |bytes: u64| bytes as f64 * 8e-6 / LASTS.as_secs_f64();
    (
        received.into_iter().map(mbps).collect(),
        driver.machine().late,
    )
}

/// Moves everything until all of `batch` are counted.
fn turn(
    driver: &mut Driver<Paths>,
    batch: &[Pair],
    listeners: &[(usize, ListenerId)],
    ours: &mut Vec<Ours>,
    results: &Receiver<(usize, u64)>,
    received: &mut [u64],
) {
    let began = driver.now();
    let mut counted = 0;
    let mut over = vec![false; batch.len()];
    let mut room = vec![0; 1 << 16];
    while counted < batch.len() {
        let now = driver.now();
        assert!(now.since(began) < 6 * LASTS, "{counted} are counted");
        let host = &mut driver.machine_mut().host;
        for (pair, listener) in listeners {
            if let Some((id, _)) = host.accept(*listener) {
                ours.push(Ours {
                    pair: *pair,
                    id,
                    since: now,
                    received: 0,
                });
            }
        }
        for one in ours.iter_mut() {
            let Some(connection) = host.connection_mut(one.id) else {
                continue;
            };
            if batch[one.pair].kind == Kind::UsToKernel {
                while connection.write(&room) > 0 {}
                continue;
            }
            loop {
                let got = connection.read(&mut room);
                one.received += got as u64;
                if got == 0 {
                    break;
                }
            }
            if now.since(one.since) >= LASTS && !over[one.pair] {
                over[one.pair] = true;
                received[one.pair] = one.received;
                counted += 1;
            }
        }
        while let Ok((pair, bytes)) = results.try_recv() {
            received[pair] = bytes;
            counted += 1;
        }
        driver.turn(Some(Duration::from_millis(20))).unwrap();
        while driver.machine_mut().event().is_some() {}
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
#[ignore = "some minutes on a quiet machine"]
fn every_pair_of_controls_carries_what_the_kernel_does_with_itself() {
    need!(Root, Tun);
    let mut controls = Controls::load().unwrap();
    for number in 0..BATCH as u32 {
        controls.configure(MARK + number, &link()).unwrap();
    }
    let runs = std::env::var("BENTPIPE_RUNS").map_or(3, |text| text.parse().unwrap());
    let pairs = pairs();
    let mut apart = Vec::new();
    for loss in [0.0, 0.01] {
        for addresses in families() {
            let mut all = vec![Vec::new(); pairs.len()];
            let mut late = Duration::ZERO;
            for seed in 0..runs {
                for (at, batch) in pairs.chunks(BATCH).enumerate() {
                    let netns = Netns::create("pairs").unwrap();
                    let (goodputs, lateness) =
                        netns.run(|| run(batch, addresses, loss, seed)).unwrap();
                    late = late.max(lateness);
                    for (number, goodput) in goodputs.into_iter().enumerate() {
                        all[at * BATCH + number].push(goodput);
                    }
                }
            }
            let family = if addresses.ours.is_ipv4() { 4 } else { 6 };
            eprintln!(
                "\nIPv{family}, loss {loss}, {runs} runs, latest packet {:.1} ms",
                late.as_secs_f64() * 1e3
            );
            for (pair, values) in pairs.iter().zip(&all) {
                let equal = match pair.kind {
                    Kind::UsToKernel => { OURS.iter() }
                        .find(|(name, _)| *name == pair.sends)
                        .and_then(|(_, equal)| *equal),
                    Kind::Kernel | Kind::KernelToUs => Some(pair.sends),
                };
                let reference = { pairs.iter().zip(&all) }
                    .find(|(other, _)| other.kind == Kind::Kernel && Some(other.sends) == equal)
                    .map(|(_, values)| mean(values));
                let ratio = reference.map(|kernel| mean(values) / kernel);
                let said = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
                eprintln!(
                    "| {:?} | {} | {} | {:.3} | {said} |",
                    pair.kind,
                    pair.sends,
                    pair.receives,
                    mean(values)
                );
                if ratio.is_some_and(|ratio| (ratio - 1.0).abs() > TOLERANCE) {
                    apart.push(format!("{pair:?}, IPv{family}, loss {loss}: {said}"));
                }
            }
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");
}
