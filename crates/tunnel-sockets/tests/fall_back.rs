//! UDP does not get through, from the start or all at once, or not all of it, and comes back: what near and far end do with a relay between them
//! that drops it. And nothing gets through for so long that the connection is gone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "figures")]

mod support;

#[path = "fall_back/first_flight.rs"]
mod first_flight;
#[path = "fall_back/relay.rs"]
mod relay;

use bentpipe_base::Rate;
use bentpipe_cc::{LinkParams, Settings};
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{CongestionControl, Limits};
use bentpipe_tunnel_sockets::{Driver, Handle, Near, NoTunnel, Rule, Status, TcpSettings};
use relay::{Gates, relay};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::loopback;

/// What a pair is like.
struct Plan {
    rate: u64,
    round_trip: Duration,
    /// Whether UDP gets through at first.
    udp: bool,
    /// HTTP/2 stands by.
    http2: bool,
    /// Nothing is heard for so long: the connection is gone.
    idle: Option<Duration>,
    limits: Limits,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            // Windows for more would not fit the bound of memory.
            rate: 50_000_000,
            round_trip: Duration::from_millis(2),
            udp: true,
            http2: true,
            idle: None,
            limits: Limits::default(),
        }
    }
}

struct Pair {
    near: Near,
    gates: Arc<Gates>,
    handles: [Handle; 2],
    threads: Vec<JoinHandle<()>>,
    began: Instant,
}

impl Pair {
    fn new(udp: bool) -> Self {
        let plan = Plan {
            udp,
            ..Plan::default()
        };
        Self::after(&plan, |_| {})
    }

    fn over(round_trip: Duration) -> Self {
        let plan = Plan {
            round_trip,
            ..Plan::default()
        };
        Self::after(&plan, |_| {})
    }

    /// `meanwhile` has the far end's address before the near end does.
    fn after(plan: &Plan, meanwhile: impl FnOnce(SocketAddr)) -> Self {
        let rate = Rate::from_bits_per_sec(plan.rate);
        let round_trip = plan.round_trip;
        let configs = support::configs(plan.limits, Instant::now());
        let [near, far] = configs.map(|mut config| {
            config.path.rate = rate;
            let settings = Settings {
                link: LinkParams::of_rate(rate),
                ..Settings::default()
            };
            config.control = CongestionControl::new("rate", settings).unwrap();
            config.path.round_trip = round_trip.max(config.path.round_trip);
            if let Some(idle) = plan.idle {
                (config.idle_timeout, config.keep_alive) = (idle, Some(idle / 3));
            }
            config
        });
        let template = Template::of_authority("far.example").unwrap();
        let rules = vec![Rule {
            prefix: "127.0.0.1/32".parse().unwrap(),
            ports: 1..=65_535,
            allow: true,
        }];
        let serve = support::far(&template, rules, 1000, Duration::from_secs(120));
        let http2 = |driver: Driver, most| match plan.http2 {
            true => driver.with_http2(TcpSettings::default(), most),
            false => Ok(driver),
        };
        // Somebody may have the TCP port of that number.
        let far = (0..100)
            .find_map(|_| http2(Driver::far(&far, loopback(), serve.clone()).unwrap(), 10).ok())
            .expect("a port number that both have free");
        let gates = Arc::new(Gates::default());
        Gates::set(&gates.no_udp, !plan.udp);
        let address = far.address().unwrap();
        meanwhile(address);
        let peer = relay(&gates, address, round_trip / 2);
        let (driver, near) = Driver::near(&near, loopback(), peer, template).unwrap();
        let driver = http2(driver, 1).unwrap().with_early_data(round_trip);
        let began = Instant::now();
        let handles = [driver.handle(), far.handle()];
        let threads =
            [driver, far].map(|driver| thread::spawn(move || driver.run().map(drop).unwrap()));
        let pair = Self {
            near,
            gates,
            handles,
            threads: threads.into(),
            began,
        };
        pair.until("tunnels may be opened", 5, |status| status.up);
        pair
    }

    /// Both carriers stand.
    fn whole() -> Self {
        Self::new(true).stands()
    }

    fn stands(self) -> Self {
        self.until("both carriers stand", 5, |status| {
            status.connections.len() == 2 && status.carrier == Some("quic")
        });
        self
    }

    fn status(&self) -> Status {
        self.handles[0].status(Duration::from_secs(5)).unwrap()
    }

    /// How long it takes.
    fn until(&self, what: &str, seconds: u64, is: impl Fn(&Status) -> bool) -> Duration {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is(&status) {
                return began.elapsed();
            }
            let late = began.elapsed() > Duration::from_secs(seconds);
            assert!(!late, "not within {seconds} s: {what}: {status:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn client(&self, target: Target) -> TcpStream {
        support::client(&self.near, target)
    }

    /// An echo through the pair works, half-closes included.
    fn echoes(&self, bytes: usize) {
        let (target, server) = echo();
        let mut client = self.client(target);
        let sent: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let mut writer = client.try_clone().unwrap();
        let data = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&data).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        server.join().unwrap();
        assert!(got == sent, "{} of {bytes}", got.len());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for handle in &self.handles {
            handle.stop();
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
        Gates::set(&self.gates.over, true);
    }
}

/// A server that says what it hears, and ends when its client has.
fn echo() -> (Target, JoinHandle<()>) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let target = listener.local_addr().unwrap().into();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = socket.read(&mut buffer) {
            if socket.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    });
    (target, server)
}

fn is_reset(result: io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn blocked_from_the_start_tunnels_take_tcp() {
    let pair = Pair::new(false);
    let waited = pair.began.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(pair.status().carrier, Some("http2"));
    pair.echoes(2_000_000);
    pair.until("it is told", 8, |status| status.udp_blocked);
    assert_eq!(pair.status().counters.fall_backs, 1);
}

#[test]
fn who_connects_by_tcp_and_says_nothing_keeps_nobody_out() {
    let mut silent = Vec::new();
    let plan = Plan {
        udp: false,
        ..Plan::default()
    };
    let pair = Pair::after(&plan, |far| {
        silent.extend((0..100).map(|_| TcpStream::connect(far).unwrap()));
    });
    assert_eq!(pair.status().carrier, Some("http2"));
    pair.echoes(100_000);
}

#[test]
fn with_udp_tunnels_take_quic_and_tcp_stands_by() {
    let pair = Pair::whole();
    pair.echoes(1_000_000);
    let status = pair.status();
    assert!(!status.udp_blocked && status.counters.fall_backs == 0);
    let by_tcp = { status.connections.iter() }.find(|one| one.carrier == "http2");
    assert!(by_tcp.unwrap().received < 50, "{status:?}");
}

#[test]
fn blocked_in_mid_life_it_is_recognised_and_undone() {
    let pair = Pair::whole();
    let (target, _server) = echo();
    let mut client = pair.client(target);
    client.write_all(b"before").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    Gates::set(&pair.gates.no_udp, true);
    let began = Instant::now();
    client.write_all(b"after").unwrap();
    // What QUIC carries is reset.
    assert!(is_reset(client.read(&mut [0; 6])));
    let recognised = began.elapsed();
    println!("recognised after {recognised:?}");
    assert!(recognised < Duration::from_secs(4), "{recognised:?}");
    let status = pair.status();
    assert!(status.up && status.udp_blocked && status.carrier == Some("http2"));
    pair.echoes(1_000_000);
    Gates::set(&pair.gates.no_udp, false);
    let back = pair.until("QUIC is back", 45, |status| status.carrier == Some("quic"));
    println!("back after {back:?}");
    assert!(!pair.status().udp_blocked);
    pair.echoes(1_000_000);
}

/// As on QUIC: what finds no room is not left hanging, and is not taken while there is none.
#[test]
fn beyond_the_far_ends_tunnels_nothing_hangs_on_http2() {
    let limits = Limits {
        streams: 2,
        ..Limits::default()
    };
    let plan = Plan {
        udp: false,
        limits,
        ..Plan::default()
    };
    let pair = Pair::after(&plan, |_| {});
    let standing = [(); 2].map(|()| {
        let (target, _server) = echo();
        let mut client = pair.client(target);
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        client
    });
    let (target, _server) = echo();
    let began = Instant::now();
    let mut beyond = pair.client(target);
    beyond.write_all(b"hello").unwrap();
    assert!(is_reset(beyond.read(&mut [0; 5])));
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(8), "{waited:?}");
    assert!(!pair.near.is_up());
    drop(standing);
    let began = Instant::now();
    while !pair.near.is_up() {
        assert!(began.elapsed() < Duration::from_secs(2), "no room");
        thread::sleep(Duration::from_millis(10));
    }
    pair.echoes(100_000);
}

/// Only HTTP/2 is there, and what is on the way forgets it: new flows wait for it no longer.
#[test]
fn a_silent_tcp_connection_takes_no_new_flows() {
    let pair = Pair::new(false);
    let (target, _server) = echo();
    let mut client = pair.client(target);
    client.write_all(b"before").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    Gates::set(&pair.gates.no_tcp, true);
    let down = pair.until("it is doubted", 9, |status| !status.up);
    println!("doubted after {down:?}");
    Gates::set(&pair.gates.no_tcp, false);
    pair.until("it answers again", 9, |status| status.up);
    client.write_all(b"after").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
}

/// At the round trip of a geostationary satellite, while a flow sends and while it is silent.
#[test]
fn it_is_recognised_within_four_seconds_over_a_satellite() {
    for sends in [true, false] {
        let pair = Pair::over(Duration::from_millis(600)).stands();
        let (target, _server) = echo();
        let mut client = pair.client(target);
        client.write_all(b"before").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        // So long a silence alone is none.
        thread::sleep(Duration::from_secs(5));
        assert_eq!(pair.status().counters.fall_backs, 0);
        Gates::set(&pair.gates.no_udp, true);
        let began = Instant::now();
        if sends {
            client.write_all(&[7; 20_000]).unwrap();
        }
        assert!(is_reset(client.read(&mut [0; 6])));
        let recognised = began.elapsed();
        println!("recognised after {recognised:?}, a flow that sends: {sends}");
        assert!(recognised < Duration::from_secs(4), "{recognised:?}");
        pair.echoes(100_000);
    }
}

/// A link that loses packets is none where UDP is blocked, however long a flow is silent on it.
#[test]
fn losses_are_not_taken_for_it() {
    let pair = Pair::over(Duration::from_millis(600)).stands();
    let (target, _server) = echo();
    let mut client = pair.client(target);
    client.write_all(b"before").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    pair.gates.loss.store(1000, Ordering::SeqCst);
    thread::sleep(Duration::from_secs(20));
    client.write_all(b"after").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(pair.status().counters.fall_backs, 0);
}

#[test]
fn an_outage_of_both_moves_nothing() {
    let pair = Pair::whole();
    let (target, _server) = echo();
    let mut client = pair.client(target);
    client.write_all(b"before").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    let gates = &pair.gates;
    for gate in [&gates.no_udp, &gates.no_tcp] {
        Gates::set(gate, true);
    }
    client.write_all(b"after").unwrap();
    thread::sleep(Duration::from_secs(8));
    assert!(!pair.status().udp_blocked);
    // TCP may be heard first.
    Gates::set(&gates.no_tcp, false);
    Gates::set(&gates.no_udp, false);
    let mut got = [0; 5];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"after");
    let status = pair.status();
    assert!(!status.udp_blocked && status.counters.fall_backs == 0);
}

#[test]
fn resets_and_refusals_go_by_tcp() {
    let pair = Pair::new(false);
    // The server's.
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut client = pair.client(listener.local_addr().unwrap().into());
    let (mut served, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    served.read_exact(&mut [0]).unwrap();
    client.write_all(b"unread").unwrap();
    thread::sleep(Duration::from_millis(100));
    drop(served);
    assert!(is_reset(client.read(&mut [0])));
    // The client's.
    let mut client = pair.client(listener.local_addr().unwrap().into());
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"unread").unwrap();
    client.write_all(b"x").unwrap();
    served.read_exact(&mut [0]).unwrap();
    client.peek(&mut [0]).unwrap();
    drop(client);
    assert!(is_reset(served.read(&mut [0])));
    // A port where nobody listens.
    let nobody = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let (sender, answer) = channel();
    let _ticket = pair.near.ask(nobody.into(), nobody, move |result| {
        sender.send(result).unwrap();
    });
    let answer = answer.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(
        matches!(answer, Err(NoTunnel::Dial(why)) if why.name() == "connection_refused"),
        "{answer:?}"
    );
}

/// Downloads without end from a server on loopback.
struct Download(Arc<AtomicU64>);

impl Download {
    fn start(pair: &Pair) -> Self {
        let listener = TcpListener::bind(loopback()).unwrap();
        let target = listener.local_addr().unwrap().into();
        // Both threads end with the pair.
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            while socket.write_all(&[7; 16_384]).is_ok() {}
        });
        let mut client = pair.client(target);
        let got = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&got);
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(length @ 1..) = client.read(&mut buffer) {
                counted.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        Self(got)
    }

    /// Of the next seconds, in kbit/s.
    fn goodput(&self, seconds: u64) -> u64 {
        let before = self.0.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(seconds));
        (self.0.load(Ordering::Relaxed) - before) / seconds * 8 / 1000
    }

    /// It has most of ten megabits, at the latest after a while.
    fn fills_the_link(&self) {
        let began = Instant::now();
        loop {
            let goodput = self.goodput(1);
            if goodput > 7_000 {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{goodput} kbit/s"
            );
        }
    }
}

/// UDP towards the near end is policed to so many kbit/s of ten megabits. It is recognised within three seconds on a host that has time; what QUIC carries stays, and has
/// more than half of what gets through, which is what TCP would at most; new flows take TCP.
fn is_policed(kbps: u32) {
    let plan = Plan {
        rate: 10_000_000,
        round_trip: Duration::from_millis(600),
        ..Plan::default()
    };
    let pair = Pair::after(&plan, |_| {}).stands();
    let on_quic = Download::start(&pair);
    on_quic.fills_the_link();
    pair.gates.policer.store(kbps, Ordering::SeqCst);
    let recognised = pair.until("it is recognised", 10, |status| {
        status.udp_policed && status.carrier == Some("http2")
    });
    // What was lost before is repeated first.
    thread::sleep(Duration::from_secs(8));
    let stays = on_quic.goodput(5);
    println!("{kbps} kbit/s: recognised after {recognised:?}; {stays} kbit/s by QUIC then");
    assert!(recognised < Duration::from_secs(4), "{recognised:?}");
    assert!(stays > u64::from(kbps) / 2);
    pair.echoes(300_000);
    let status = pair.handles[1].status(Duration::from_secs(5)).unwrap();
    assert!(status.udp_policed);
    let status = pair.status();
    assert!(!status.udp_blocked && status.counters.fall_backs == 1);
    pair.gates.policer.store(0, Ordering::SeqCst);
    let back = pair.until("QUIC is back", 40, |status| status.carrier == Some("quic"));
    println!("{kbps} kbit/s: back after {back:?}");
    assert!(!pair.status().udp_policed);
    on_quic.fills_the_link();
}

#[test]
fn policed_udp_is_recognised_and_kept_to() {
    thread::scope(|scope| {
        for kbps in [500, 2_000, 5_000] {
            scope.spawn(move || is_policed(kbps));
        }
    });
}
