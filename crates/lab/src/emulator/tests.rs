//! The emulator between real interfaces in namespaces.

use super::*;
use bentpipe_base::{Instant, Probability, Rate};
use bentpipe_link::channel::{Chain, Gilbert, Outage, PacketError};
use bentpipe_link::queue::{Blue, BlueSettings, Discipline, DropTail, Red, RedSettings};
use bentpipe_link::{Channel, Direction, Limit};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_sockets::socket::set_receive_buffer;
use bentpipe_sockets::timer::now;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PORT: u16 = 9000;
/// IP and UDP headers.
const HEADERS: usize = 28;

/// Two namespaces, and nobody else who tests emulators meanwhile.
struct Hosts {
    a: Netns,
    b: Netns,
    _alone: MutexGuard<'static, ()>,
}

impl Hosts {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            a: Netns::create("emu-a").unwrap(),
            b: Netns::create("emu-b").unwrap(),
            _alone: alone,
        }
    }

    fn tuns(&self, config: TunConfig) -> (Tun, Tun) {
        let open = |netns: &Netns, address: &str| {
            let tun = netns.run(|| Tun::open("sat", config)).unwrap().unwrap();
            let netlink = netns.netlink().unwrap();
            netlink
                .add_address("sat", address.parse().unwrap())
                .unwrap();
            tun
        };
        (open(&self.a, "10.9.0.1/24"), open(&self.b, "10.9.0.2/24"))
    }

    fn emulate(&self, spec: Spec) -> Emulator {
        let (a, b) = self.tuns(port_config(spec.mtu));
        Emulator::start(spec, a, b).unwrap()
    }

    /// A socket of each host, the first connected to the second.
    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let b = self
            .b
            .run(|| UdpSocket::bind(("10.9.0.2", PORT)))
            .unwrap()
            .unwrap();
        let a = self
            .a
            .run(|| UdpSocket::bind(("10.9.0.1", PORT)))
            .unwrap()
            .unwrap();
        a.connect(("10.9.0.2", PORT)).unwrap();
        b.connect(("10.9.0.1", PORT)).unwrap();
        set_receive_buffer(&b, Bytes(16_000_000)).unwrap();
        b.set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        (a, b)
    }
}

fn settings(rate: u64, delay: u64) -> Settings<Frame> {
    let rate = Rate::from_bits_per_sec(rate);
    let delay = Duration::from_millis(delay);
    Settings {
        rate: Some(rate),
        delay,
        queue: DropTail::new(Limit::Bytes(rate.over(2 * delay))).into(),
        ..Settings::default()
    }
}

fn both(rate: u64, delay: u64) -> Spec {
    Spec {
        from_a: settings(rate, delay),
        from_b: settings(rate, delay),
        ..Spec::default()
    }
}

/// Receives until nothing comes for the socket's time limit.
fn receive_all(socket: &UdpSocket, mut each: impl FnMut(&[u8])) {
    let mut buffer = [0; 2000];
    while let Ok(len) = socket.recv(&mut buffer) {
        each(&buffer[..len]);
    }
}

#[test]
fn a_packet_takes_its_time_and_little_more() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let emulator = hosts.emulate(both(10_000_000, 50));
    let (a, b) = hosts.sockets();
    let mut ways = Vec::new();
    for _ in 0..20 {
        let sent = now();
        a.send(&[7; 1472]).unwrap();
        assert_eq!(b.recv(&mut [0; 1472]).unwrap(), 1472);
        ways.push(now() - sent);
    }
    // 1500 bytes at 10 Mb/s, and the delay.
    let exact = Duration::from_micros(1200 + 50_000);
    let quickest = *ways.iter().min().unwrap();
    assert!(quickest >= exact, "too early: {quickest:?}");
    assert!(quickest < exact + Duration::from_millis(5), "{ways:?}");
    let report = emulator.stop().unwrap();
    assert_eq!(report.lateness.count, 20);
    assert_eq!(
        (report.from_a.packets_in, report.from_a.packets_out),
        (20, 20)
    );
    assert_eq!(report.from_a.bytes_out, Bytes(20 * 1500));
    assert_eq!(report.from_b, Traffic::default());
    assert!(report.probes.count > 20, "{:?}", report.probes);
}

/// Of two thousand packets over an emulator with `channel`, which hits a fifth, those that were lost: the very
/// ones that the simulator loses.
fn lost(channel: &dyn Fn() -> Box<dyn Channel>) -> Vec<u32> {
    const PACKETS: u32 = 2000;
    let lossy = || vec![channel()];
    // The same direction in virtual time, whatever its rate and delay.
    let mut twin = Direction::new(
        Settings {
            channels: lossy(),
            ..Settings::default()
        },
        42,
        "geo.a-b",
        bentpipe_base::Silent,
    );
    (0..PACKETS)
        .for_each(|number| assert!(twin.push(number, Bytes(1500), Instant::ZERO).is_none()));
    let expected: Vec<u32> = std::iter::from_fn(|| twin.deliver(Instant::ZERO))
        .map(|(_, number)| number)
        .collect();

    let hosts = Hosts::new();
    let mut spec = both(50_000_000, 100);
    spec.from_a.channels = lossy();
    (spec.name, spec.seed) = ("geo".to_owned(), 42);
    let emulator = hosts.emulate(spec);
    let (a, b) = hosts.sockets();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            receive_all(&b, |packet| {
                seen.push(u32::from_be_bytes(packet[..4].try_into().unwrap()));
            });
        });
        for number in 0..PACKETS {
            a.send(&number.to_be_bytes()).unwrap();
            std::thread::sleep(Duration::from_micros(50));
        }
        receiver.join().unwrap();
    });
    let sent = emulator.stop().unwrap().from_a;
    assert_eq!(seen, expected);
    let lost: Vec<u32> = (0..PACKETS).filter(|it| !seen.contains(it)).collect();
    assert_eq!(
        sent.dropped_lost + sent.dropped_corrupted,
        lost.len() as u64
    );
    lost
}

#[test]
fn it_loses_the_very_packets_that_the_simulator_loses() {
    need!(Root, Tun);
    let fifth = Probability::new(0.2).unwrap();
    let single = lost(&|| Box::new(PacketError::new(fifth)));
    // 99.99% of binomial draws.
    let share = single.len() as f64 / 2000.0;
    assert!(
        (share - 0.2).abs() < 3.89 * (0.16 / 2000.0_f64).sqrt(),
        "{share}"
    );
    let bursts = lost(&|| Box::new(Gilbert::new(Chain::bursts(5.0, fifth).unwrap())));
    // Some 80 bursts of 5 on average, geometric: 99.99% of their means. Single losses have 1.25.
    let begins =
        |lost: &[u32]| lost.len() - lost.windows(2).filter(|it| it[0] + 1 == it[1]).count();
    let mean = |lost: &[u32]| lost.len() as f64 / begins(lost) as f64;
    assert!((3.0..7.0).contains(&mean(&bursts)), "{}", mean(&bursts));
    assert!(mean(&single) < 1.5, "{}", mean(&single));
}

#[test]
fn nothing_passes_in_an_outage() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let mut spec = both(100_000_000, 10);
    let [start, end, delay] = [300, 700, 10].map(Duration::from_millis);
    spec.from_a.channels = vec![Box::new(Outage::new([(start, end - start)]))];
    let emulator = hosts.emulate(spec);
    let (a, b) = hosts.sockets();
    let begin = now();
    emulator.begin(begin);
    let mut passed = Vec::new();
    let sent: Vec<Duration> = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            receive_all(&b, |packet| {
                let nanos = u64::from_be_bytes(packet[..8].try_into().unwrap());
                passed.push((Duration::from_nanos(nanos), now() - begin));
            });
        });
        let packets = (0..1000).map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            let at = now() - begin;
            a.send(&(at.as_nanos() as u64).to_be_bytes()).unwrap();
            at
        });
        let sent = packets.collect();
        receiver.join().unwrap();
        sent
    });
    let dropped = emulator.stop().unwrap().from_a.dropped_lost;
    assert_eq!(dropped, (sent.len() - passed.len()) as u64);
    assert!(dropped > 50, "{dropped} of some 350");
    // Each entered the link between its being sent and 10 ms before it arrived, and not in the outage.
    for (sent, arrived) in &passed {
        assert!(
            *sent < start || *arrived >= end + delay,
            "sent {sent:?}, arrived {arrived:?}"
        );
    }
    let mut lost = sent
        .iter()
        .filter(|at| !passed.iter().any(|it| it.0 == **at));
    assert!(lost.all(|at| *at < end), "lost after the outage");
}

/// How long packets waited in `queue`, on average, under twice the load that its link carries.
fn overloaded(hosts: &Hosts, queue: Discipline<Frame>) -> Duration {
    let mut spec = both(10_000_000, 20);
    spec.from_a.queue = queue;
    let emulator = hosts.emulate(spec);
    let (a, _b) = hosts.sockets();
    let sent = blast(&a, Rate::from_bits_per_sec(20_000_000));
    let report = emulator.stop().unwrap().from_a;
    let share = report.dropped_queue as f64 / sent as f64;
    assert!((0.3..0.75).contains(&share), "{share} of {sent} refused");
    report.wait_mean
}

#[test]
fn queues_that_drop_early_stay_short() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let limit = Limit::Packets(200);
    let tail = overloaded(&hosts, DropTail::new(limit).into());
    // 200 packets of 1.2 ms each, less what it took to fill it.
    assert!(tail > Duration::from_millis(150), "{tail:?}");
    let queue = Red::new(RedSettings {
        weight: Probability::new(0.02).unwrap(),
        ..RedSettings::recommended(limit)
    });
    let red = overloaded(&hosts, Discipline::Other(Box::new(queue.unwrap())));
    assert!(red < tail / 2, "RED {red:?}, drop-tail {tail:?}");
    let queue = Blue::new(BlueSettings {
        increment: Probability::new(0.2).unwrap(),
        freeze: Duration::from_millis(20),
        ..BlueSettings::recommended(limit)
    });
    let blue = overloaded(&hosts, Discipline::Other(Box::new(queue)));
    assert!(blue < tail / 4 * 3, "BLUE {blue:?}, drop-tail {tail:?}");
}

#[test]
fn a_queue_drops_beyond_its_bound() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let mut spec = both(100_000, 20);
    spec.from_a.queue = DropTail::new(Limit::Packets(10)).into();
    let emulator = hosts.emulate(spec);
    let (a, b) = hosts.sockets();
    // 80 ms each on the wire: the burst is over before the first has left.
    for _ in 0..20 {
        a.send(&[0; 1000 - HEADERS]).unwrap();
    }
    let mut received = 0;
    receive_all(&b, |_| received += 1);
    let live = emulator.snapshot().from_a;
    let report = emulator.stop().unwrap();
    // One on the wire, ten waiting.
    assert_eq!((received, report.from_a.dropped_queue), (11, 9));
    assert_eq!(live, report.from_a);
    let waited = report.from_a.wait_max;
    let (least, most) = (Duration::from_millis(750), Duration::from_millis(800));
    assert!(least < waited && waited <= most, "{waited:?}");
}

/// Sends at `rate` for two seconds, in bursts about a millisecond apart; returns the packets sent.
fn blast(socket: &UdpSocket, rate: Rate) -> u64 {
    let (began, length, mut sent) = (now(), Duration::from_secs(2), 0);
    let packets = |time| rate.over(time).0 / 1500;
    while sent < packets(length) {
        while sent < packets(length.min(now() - began)) {
            sent += u64::from(socket.send(&[0; 1500 - HEADERS]).is_ok());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sent
}

#[test]
fn it_carries_250_mbps_both_ways_at_600_ms() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    // Others may have the processors for a while: then the report must say so, and we try again.
    let invalid = (0..5).map_while(|_| {
        let emulator = hosts.emulate(both(250_000_000, 300));
        let (a, b) = hosts.sockets();
        let rate = Rate::from_bits_per_sec(245_000_000);
        let sent = std::thread::scope(|scope| {
            let forward = scope.spawn(|| blast(&a, rate));
            let backward = blast(&b, rate);
            (forward.join().unwrap(), backward)
        });
        // The last packets arrive.
        std::thread::sleep(Duration::from_millis(700));
        let report = emulator.stop().unwrap();
        if !report.valid {
            return Some(report.reasons);
        }
        assert_eq!((report.from_a.packets_out, report.from_b.packets_out), sent);
        assert_eq!(report.from_a.bytes_out, Bytes(sent.0 * 1500));
        None
    });
    let invalid: Vec<_> = invalid.collect();
    assert!(invalid.len() < 5, "{invalid:?}");
}

#[test]
fn kernel_tcp_fills_the_link() {
    need!(Root, Tun);
    const SIZE: usize = 2_000_000;
    let hosts = Hosts::new();
    let emulator = hosts.emulate(both(20_000_000, 10));
    let listen = || TcpListener::bind(("10.9.0.2", PORT));
    let listener = hosts.b.run(listen).unwrap().unwrap();
    let began = now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![1; SIZE]).unwrap();
        });
        let connect = || TcpStream::connect(("10.9.0.2", PORT));
        let mut stream = hosts.a.run(connect).unwrap().unwrap();
        let mut all = Vec::new();
        assert_eq!(stream.read_to_end(&mut all).unwrap(), SIZE);
        assert!(all.iter().all(|byte| *byte == 1));
    });
    let took = (now() - began).as_secs_f64();
    let report = emulator.stop().unwrap();
    // 1448 bytes of payload in each packet of 1500, and a round trip for the handshake.
    let least = SIZE as f64 * 8.0 / 20e6 * 1500.0 / 1448.0 + 0.02;
    assert!(
        (least..least * 2.0).contains(&took),
        "{took} s, at least {least} s: {report:?}"
    );
    assert!(report.from_b.bytes_out.0 > SIZE as u64);
}

#[test]
fn packets_that_were_not_read_make_a_run_invalid() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let (a, b) = hosts.tuns(TunConfig {
        queue_packets: 1,
        ..port_config(Bytes(1500))
    });
    let (from, _to) = hosts.sockets();
    // Nobody reads yet: not the emulator's fault.
    (0..10).for_each(|_| drop(from.send(&[0; 100])));
    let spec = Spec {
        scheduling: Scheduling::Ordinary,
        ..both(10_000_000, 10)
    };
    let emulator = Emulator::start(spec, a, b).unwrap();
    (0..5000).for_each(|_| drop(from.send(&[0; 100])));
    let report = emulator.stop().unwrap();
    assert!(!report.valid && !report.realtime);
    assert!(
        report.port_a.unread > 0 && report.port_b.unread == 0,
        "{report:?}"
    );
    assert!(
        report.port_a.unread + report.from_a.packets_in <= 5001,
        "{report:?}"
    );
}

#[test]
fn a_port_that_goes_away_is_reported_and_does_no_harm() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let emulator = hosts.emulate(both(10_000_000, 10));
    let netlink = hosts.a.netlink().unwrap();
    netlink.delete_link("sat").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let report = emulator.stop().unwrap();
    assert!(
        !report.valid && report.port_a.failure.is_some(),
        "{report:?}"
    );
    assert!(
        report.cpu < Duration::from_millis(100),
        "it span: {report:?}"
    );
}

#[test]
fn its_interfaces_go_with_it() {
    need!(Root, Tun);
    let hosts = Hosts::new();
    let there = |netns: &Netns| netns.netlink().unwrap().has_link("sat").unwrap();
    let emulator = hosts.emulate(Spec::default());
    assert!(there(&hosts.a) && there(&hosts.b));
    drop(emulator);
    assert!(!there(&hosts.a) && !there(&hosts.b));
}
