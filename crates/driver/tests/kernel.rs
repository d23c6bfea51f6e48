//! Our TCP against the kernel's, over a TUN interface in a namespace of its own: every byte arrives, in both
//! directions, whoever opens, over IPv4 and IPv6, also where packets are lost, doubled and late.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

use bentpipe_base::{Bytes, Instant, Machine, Stream};
use bentpipe_driver::Driver;
use bentpipe_host::{Config, ConnectionId, Host, ListenerId, Secret};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_tcp as tcp;
use bentpipe_wire::{Packet, Payload};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LENGTH: u64 = 3_000_000;
const PORT: u16 = 5_000;

/// How the kernel and we stand to each other.
#[derive(Clone, Copy)]
struct Ends {
    kernel: IpAddr,
    ours: IpAddr,
    bits: u8,
    offloads: bool,
}

fn ends() -> [Ends; 4] {
    let ip = |text: &str| text.parse().unwrap();
    let v4 = |offloads| Ends {
        kernel: ip("100.64.0.1"),
        ours: ip("100.64.0.2"),
        bits: 30,
        offloads,
    };
    let v6 = |offloads| Ends {
        kernel: ip("fd00:64::1"),
        ours: ip("fd00:64::2"),
        bits: 126,
        offloads,
    };
    [v4(false), v4(true), v6(false), v6(true)]
}

/// A host behind a path that loses, doubles and delays.
struct Troubled {
    host: Host,
    chance: Stream,
    trouble: f64,
    /// Packets that are late, in the order in which they go on.
    late: VecDeque<(Instant, Packet)>,
}

impl Troubled {
    fn is_lucky(&mut self) -> bool {
        self.chance.uniform() >= self.trouble
    }
}

impl Machine for Troubled {
    type Packet = Packet;
    type Port = ();
    type Event = bentpipe_host::Event;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        if self.is_lucky() {
            if !self.is_lucky() {
                self.host.input((), packet.clone(), now);
            }
            self.host.input((), packet, now);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.host.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        while let Some(((), packet)) = self.host.transmit(now) {
            if !self.is_lucky() {
                continue;
            }
            if self.is_lucky() {
                return Some(((), packet));
            }
            self.late
                .push_back((now + Duration::from_millis(3), packet));
        }
        let due = self.late.front().is_some_and(|(at, _)| *at <= now);
        let (_, packet) = self.late.pop_front().filter(|_| due)?;
        Some(((), packet))
    }

    fn event(&mut self) -> Option<Self::Event> {
        self.host.event()
    }

    fn deadline(&self) -> Option<Instant> {
        let late = self.late.front().map(|(at, _)| *at);
        [late, self.host.deadline()].into_iter().flatten().min()
    }
}

fn config() -> Arc<tcp::Config> {
    Arc::new(tcp::Config {
        min_rto: Duration::from_millis(200),
        receive_buffer: Bytes(1 << 20),
        send_buffer: Bytes(1 << 20),
        ..tcp::Config::rfc()
    })
}

fn driver(ends: Ends, trouble: f64) -> Driver<Troubled> {
    let tun = TunConfig {
        offloads: ends.offloads,
        ..TunConfig::default()
    };
    let tun = Tun::open("ours", tun).unwrap();
    let here = Netns::current().unwrap();
    let prefix = format!("{}/{}", ends.kernel, ends.bits).parse().unwrap();
    here.netlink().unwrap().add_address("ours", prefix).unwrap();
    let mut key = [0; 16];
    getrandom::fill(&mut key).unwrap();
    let mut host = Host::new(Config::default(), Secret::new(key));
    host.add_address(ends.ours);
    let machine = Troubled {
        host,
        chance: Stream::new(9, "trouble"),
        trouble,
        late: VecDeque::new(),
    };
    Driver::new(machine, tun).unwrap()
}

/// Moves a stream both ways over the connection `id`, and closes it when all is there.
fn exchange(driver: &mut Driver<Troubled>, id: ConnectionId) {
    let (mut written, mut read, mut closed) = (0, 0, false);
    let mut room = vec![0; 1 << 16];
    let began = driver.now();
    loop {
        assert!(
            driver.now().since(began) < Duration::from_secs(60),
            "{written} {read}"
        );
        let host = &mut driver.machine_mut().host;
        let connection = host.connection_mut(id).unwrap();
        if written < LENGTH {
            let end = (written + 65_536).min(LENGTH);
            let bytes: Vec<u8> = (written..end).map(Payload::pattern).collect();
            written += connection.write(&bytes) as u64;
        }
        loop {
            let got = connection.read(&mut room);
            for (at, byte) in (read..).zip(&room[..got]) {
                assert_eq!(*byte, Payload::pattern(at), "byte {at}");
            }
            read += got as u64;
            if got == 0 {
                break;
            }
        }
        let ended = matches!(connection.state(), tcp::State::CloseWait);
        if written == LENGTH && read == LENGTH && ended && !closed {
            closed = true;
            let now = driver.now();
            driver.machine_mut().host.release(id, now);
        }
        driver.turn(Some(Duration::from_millis(100))).unwrap();
        while driver.machine_mut().event().is_some() {}
        if closed && driver.machine().host.connections().0 == 0 {
            return;
        }
    }
}

/// The kernel's half: sends the stream while it reads the other.
fn peer(stream: TcpStream) {
    let mut writer = stream.try_clone().unwrap();
    let sends = thread::spawn(move || {
        let bytes: Vec<u8> = (0..LENGTH).map(Payload::pattern).collect();
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut all = Vec::new();
    let mut reader = stream;
    reader.read_to_end(&mut all).unwrap();
    sends.join().unwrap();
    assert_eq!(all.len() as u64, LENGTH);
    assert!(
        (0..LENGTH)
            .zip(&all)
            .all(|(at, byte)| *byte == Payload::pattern(at))
    );
}

/// Runs `f` in a namespace of its own.
fn alone(f: impl FnOnce() + Send) {
    Netns::create("driver").unwrap().run(f).unwrap();
}

fn we_open(ends: Ends, trouble: f64) {
    let mut driver = driver(ends, trouble);
    let listener = TcpListener::bind(SocketAddr::new(ends.kernel, PORT)).unwrap();
    let serves = thread::spawn(move || peer(listener.accept().unwrap().0));
    let now = driver.now();
    let from = SocketAddr::new(ends.ours, 0);
    let to = SocketAddr::new(ends.kernel, PORT);
    let id = driver
        .machine_mut()
        .host
        .connect(from, to, &config(), now)
        .unwrap();
    exchange(&mut driver, id);
    serves.join().unwrap();
    let counters = driver.counters();
    assert_eq!(counters.unreadable, 0);
    // Both sides gather what they send.
    let segments = LENGTH / 1_460;
    let gathers = counters.segments > 4 * counters.sent && counters.received < segments / 2;
    assert!(!ends.offloads || trouble > 0.0 || gathers, "{counters:?}");
    assert!(ends.offloads || counters.segments == counters.sent);
}

fn accepted(driver: &mut Driver<Troubled>, listener: ListenerId) -> ConnectionId {
    let began = driver.now();
    loop {
        assert!(driver.now().since(began) < Duration::from_secs(30));
        driver.turn(Some(Duration::from_millis(100))).unwrap();
        if let Some((id, _)) = driver.machine_mut().host.accept(listener) {
            return id;
        }
    }
}

fn the_kernel_opens(ends: Ends, trouble: f64) {
    let mut driver = driver(ends, trouble);
    let at = SocketAddr::new(ends.ours, PORT);
    let listener = driver.machine_mut().host.listen(at, &config(), 8).unwrap();
    let opens = thread::spawn(move || peer(TcpStream::connect(at).unwrap()));
    let id = accepted(&mut driver, listener);
    exchange(&mut driver, id);
    opens.join().unwrap();
}

#[test]
fn every_byte_arrives_whoever_opens() {
    need!(Root, Tun);
    for ends in ends() {
        alone(move || we_open(ends, 0.0));
        alone(move || the_kernel_opens(ends, 0.0));
    }
}

#[test]
fn so_it_does_where_packets_are_lost_doubled_and_late() {
    need!(Root, Tun);
    for ends in ends() {
        alone(move || we_open(ends, 0.01));
        alone(move || the_kernel_opens(ends, 0.01));
    }
}

/// The kernel tells by D-SACK which probes came, on a path that swallows what is longer than 1,450 bytes without a word.
#[test]
fn what_passes_a_silent_narrow_path_is_found_by_probes() {
    need!(Root, Tun, Nft);
    let [v4, _, v6, _] = ends();
    for ends in [v4, v6] {
        alone(move || {
            let mut driver = driver(ends, 0.0);
            let narrow = "table inet narrow {\nchain in {\ntype filter hook prerouting priority raw;\nmeta length > 1450 drop\n}\n}\n";
            bentpipe_os::nft::apply(narrow).unwrap();
            let listener = TcpListener::bind(SocketAddr::new(ends.kernel, PORT)).unwrap();
            let reads = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut room, mut read) = (vec![0; 1 << 16], 0);
                loop {
                    let got = stream.read(&mut room).unwrap();
                    for (at, byte) in (read..).zip(&room[..got]) {
                        assert_eq!(*byte, Payload::pattern(at), "byte {at}");
                    }
                    read += got as u64;
                    if got == 0 {
                        return read;
                    }
                }
            });
            let now = driver.now();
            let to = SocketAddr::new(ends.kernel, PORT);
            let from = SocketAddr::new(ends.ours, 0);
            let connects = driver.machine_mut().host.connect(from, to, &config(), now);
            let (id, mut written) = (connects.unwrap(), 0);
            let header = if ends.ours.is_ipv4() { 20 } else { 40 };
            let found = 1_450 - 16 - header - 20 - 12;
            while driver.machine().host.connection(id).unwrap().segment_size() < found
                || driver.machine().host.counters().black_holes == 0
            {
                assert!(driver.now().since(now) < Duration::from_secs(60));
                let connection = driver.machine_mut().host.connection_mut(id).unwrap();
                if connection.gauges().unsent < 1 << 16 {
                    let bytes: Vec<u8> =
                        (written..written + 65_536).map(Payload::pattern).collect();
                    written += connection.write(&bytes) as u64;
                }
                driver.turn(Some(Duration::from_millis(10))).unwrap();
                while driver.machine_mut().event().is_some() {}
            }
            let counters = *driver.machine().host.counters();
            assert_eq!(counters.black_holes, 1);
            assert!((6..30).contains(&counters.path_probes), "{counters:?}");
            let now = driver.now();
            driver.machine_mut().host.release(id, now);
            while !reads.is_finished() {
                driver.turn(Some(Duration::from_millis(10))).unwrap();
            }
            assert_eq!(reads.join().unwrap(), written);
        });
    }
}

#[test]
fn the_kernel_hears_that_nobody_listens() {
    need!(Root, Tun);
    alone(|| {
        let [ends, ..] = ends();
        let mut driver = driver(ends, 0.0);
        let at = SocketAddr::new(ends.ours, PORT);
        let refused = thread::spawn(move || TcpStream::connect(at).map_err(|e| e.kind()));
        while !refused.is_finished() {
            driver.turn(Some(Duration::from_millis(20))).unwrap();
        }
        let kind = refused.join().unwrap().err();
        assert_eq!(kind, Some(std::io::ErrorKind::ConnectionRefused));
    });
}

#[test]
fn a_flood_of_connections_is_served() {
    need!(Root, Tun);
    alone(|| {
        let [ends, ..] = ends();
        let mut driver = driver(ends, 0.0);
        let at = SocketAddr::new(ends.ours, PORT);
        // Fewer handshakes at once than come: cookies answer the others.
        let listener = driver.machine_mut().host.listen(at, &config(), 64).unwrap();
        let clients = thread::spawn(move || {
            for _ in 0..5 {
                let opened: Vec<_> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
                for mut stream in opened {
                    stream.write_all(b"hello").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).unwrap();
                    assert_eq!(back, b"hello");
                }
            }
        });
        let mut open = Vec::new();
        while !clients.is_finished() {
            driver.turn(Some(Duration::from_millis(20))).unwrap();
            let now = driver.now();
            let host = &mut driver.machine_mut().host;
            open.extend(std::iter::from_fn(|| host.accept(listener)));
            open.retain(|(id, _)| {
                let connection = host.connection_mut(*id).unwrap();
                let mut room = [0; 16];
                let got = connection.read(&mut room);
                connection.write(&room[..got]);
                let over = got == 0 && connection.state() == tcp::State::CloseWait;
                if over {
                    host.release(*id, now);
                }
                !over
            });
        }
        clients.join().unwrap();
    });
}
