//! Torture: our TCP against the kernel's, over TUN interfaces and a path that is a link of the emulator (rate, queue,
//! delay, loss), and that besides doubles packets, damages them and lets them overtake each other. Windows are small,
//! readers pause, some kernels take room back that they had offered; ends close one half before the other, or reset.
//! Every byte that arrives is the right one, an orderly end brings all of them, and nothing is stuck.
//!
//! `BENTPIPE_SEEDS` says how many seeds (300 by default), `BENTPIPE_SEED` which one alone, `BENTPIPE_WORLDS` how many times 50 at
//! once (6). A seed says what both ends do
//! and what the path is like; the kernel's timing is its own.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

#[path = "support/bad_path.rs"]
mod bad_path;

use bad_path::BadPath;
use bentpipe_base::{Bytes, Instant, Machine, Stream};
use bentpipe_driver::Driver;
use bentpipe_host::{Config, ConnectionId, Event, Host, ListenerId, Secret};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_tcp::{self as tcp, State, recovery};
use bentpipe_wire::Payload;
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Seeds of one namespace, over one interface.
const WORLD: u64 = 50;
/// Of these at once.
const WORKERS: usize = 50;
/// A world in which nothing moves for so long is stuck. How long all of it takes is the machine's business.
const PATIENCE: Duration = Duration::from_secs(90);
/// The kernel listens for seed `n` of a world at this port and `n`, and we at `OURS` and `n`.
const KERNELS: u16 = 10_000;
const OURS: u16 = 20_000;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both halves are closed; first the kernel's, or first ours, or each when it has written all.
    Orderly { first: Option<Side> },
    /// One side resets when it has received so much.
    Reset { by: Side, after: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Kernel,
    Ours,
}

/// What both ends of a connection do.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    /// Its number in its world.
    number: u16,
    opens: Side,
    /// Bytes to us, and to the kernel.
    to_us: u64,
    to_kernel: u64,
    end: End,
    /// Bytes taken by one read, and one in how many pauses.
    gulp: u64,
    pauses: u64,
    kernel_buffer: Option<usize>,
    tcp: Arc<tcp::Config>,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "plan");
        let lengths = [0, 1, 700, 20_000, 60_000, 150_000];
        let [to_us, to_kernel] = [dice.choose(&lengths), dice.choose(&lengths)];
        let by = dice.choose(&[Side::Kernel, Side::Ours]);
        let first = dice.choose(&[None, Some(Side::Kernel), Some(Side::Ours)]);
        // Who resets has heard something: so the other end has seen the connection stand.
        let received = if by == Side::Ours { to_us } else { to_kernel };
        let end = match dice.below(4) {
            0 if received > 0 => End::Reset {
                by,
                after: 1 + dice.below(received),
            },
            _ => End::Orderly { first },
        };
        Self {
            seed,
            number: (seed % WORLD) as u16,
            opens: dice.choose(&[Side::Kernel, Side::Ours]),
            to_us,
            to_kernel,
            end,
            gulp: dice.choose(&[1_000, 10_000, 1 << 16]),
            pauses: dice.choose(&[10, 100, u64::MAX]),
            kernel_buffer: dice.choose(&[None, Some(3_000), Some(30_000)]),
            tcp: Arc::new(config(&mut dice)),
        }
    }

    /// Byte `at` of the stream of `side`.
    fn byte(&self, side: Side, at: u64) -> u8 {
        let stream = self.seed * 2 + u64::from(side == Side::Ours);
        Payload::pattern(at + stream * 1_000_003)
    }

    fn bytes(&self, side: Side, from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|at| self.byte(side, at)).collect()
    }

    /// Whether `got` are the bytes from `from` on of what `side` sends.
    fn check(&self, side: Side, from: u64, got: &[u8]) {
        let right = (from..)
            .zip(got)
            .all(|(at, byte)| *byte == self.byte(side, at));
        assert!(
            right,
            "wrong bytes from {from} on, sent by {side:?}: {self:?}"
        );
    }
}

fn config(dice: &mut Stream) -> tcp::Config {
    let variant = dice.choose(&["sack", "cubic", "hybla", "vegas", "newreno", "reno"]);
    let mut config = tcp::Config::rfc().variant(variant).unwrap();
    if config.recovery.without_sack.is_some() {
        let name = dice.choose(&["sack", "fack", "prr-rack", "rack-tlp"]);
        config.recovery = recovery::find(name).unwrap();
    }
    config.mss = dice.choose(&[100, 536, 1_460]);
    config.min_rto = Duration::from_millis(dice.choose(&[100, 200]));
    config.delayed_ack = Duration::from_millis(dice.choose(&[0, 40]));
    config.max_rto = Duration::from_secs(3);
    config.keep_alive = Some(Duration::from_secs(1));
    config.receive_buffer = Bytes(dice.choose(&[4_000, 20_000, 1 << 20]));
    config.send_buffer = Bytes(dice.choose(&[4_000, 20_000, 1 << 20]));
    config.dsack = dice.below(2) == 0;
    config.frto = dice.below(2) == 0;
    config.eifel = config.frto;
    config.timestamps = dice.below(4) > 0;
    config.nagle = dice.below(2) == 0;
    config
}

/// Our end of a connection.
struct Ours {
    plan: Plan,
    id: ConnectionId,
    written: u64,
    read: u64,
    closed: bool,
    rests_until: Instant,
    dice: Stream,
}

impl Ours {
    fn new(plan: Plan, id: ConnectionId) -> Self {
        let dice = Stream::new(plan.seed, "ours");
        Self {
            plan,
            id,
            written: 0,
            read: 0,
            closed: false,
            rests_until: Instant::ZERO,
            dice,
        }
    }

    /// Moves what can be moved; whether it is over.
    fn step(&mut self, host: &mut Host, now: Instant) -> bool {
        let plan = &self.plan;
        let connection = host.connection_mut(self.id).unwrap();
        let opening = matches!(connection.state(), State::SynSent | State::SynReceived);
        if opening {
            return false;
        }
        let peer_closed = matches!(
            connection.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
        );
        if self.written < plan.to_kernel {
            let end = (self.written + 30_000).min(plan.to_kernel);
            let bytes = plan.bytes(Side::Ours, self.written, end);
            self.written += connection.write(&bytes) as u64;
        }
        if self.rests_until <= now {
            let mut room = vec![0; plan.gulp as usize];
            let got = connection.read(&mut room);
            plan.check(Side::Kernel, self.read, &room[..got]);
            self.read += got as u64;
            if got > 0 && self.dice.below(plan.pauses) == 0 {
                self.rests_until = now + Duration::from_millis(self.dice.below(50));
            }
        }
        if let End::Reset { by, after } = plan.end {
            if by == Side::Ours && self.read >= after {
                connection.abort(now);
            }
            return connection.state() == State::Closed;
        }
        let waits = plan.end
            == End::Orderly {
                first: Some(Side::Kernel),
            };
        if self.written == plan.to_kernel && !self.closed && (!waits || peer_closed) {
            self.closed = true;
            connection.close(now);
        }
        let over = matches!(connection.state(), State::TimeWait | State::Closed);
        let all = connection.readable() == 0 && over;
        assert!(!all || self.closed, "ended by itself: {plan:?}");
        assert!(
            !all || self.read == plan.to_us,
            "{} bytes: {plan:?}",
            self.read
        );
        all
    }
}

/// The kernel's end of a connection.
fn kernel_end(plan: &Plan, stream: TcpStream) {
    // An end that is gone without a word, for its reset was lost, is found.
    let alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(1))
        .with_interval(Duration::from_secs(1))
        .with_retries(60);
    SockRef::from(&stream).set_tcp_keepalive(&alive).unwrap();
    match plan.end {
        End::Orderly { first } => {
            let mut writer = stream.try_clone().unwrap();
            thread::scope(|scope| {
                let early = first != Some(Side::Ours);
                let writes = scope.spawn(move || {
                    write(plan, &mut writer).unwrap();
                    if early {
                        writer.shutdown(Shutdown::Write).unwrap();
                    }
                });
                let got = read(plan, &stream, u64::MAX).unwrap();
                assert_eq!(got, plan.to_kernel, "{plan:?}");
                writes.join().unwrap();
            });
            // Dropped: what was not closed yet is now.
        }
        End::Reset {
            by: Side::Kernel,
            after,
        } => reset(plan, stream, after),
        End::Reset { by: Side::Ours, .. } => {
            let mut writer = stream.try_clone().unwrap();
            thread::scope(|scope| {
                let writes = scope.spawn(move || write(plan, &mut writer));
                let ends = [
                    read(plan, &stream, u64::MAX).map(drop),
                    writes.join().unwrap(),
                ];
                for error in ends.into_iter().filter_map(Result::err) {
                    use ErrorKind::{BrokenPipe, ConnectionReset, TimedOut};
                    let known = [BrokenPipe, ConnectionReset, TimedOut].contains(&error.kind());
                    assert!(known, "{error}: {plan:?}");
                }
            });
        }
    }
}

/// Moves what can be moved, until `after` bytes were read; then resets.
fn reset(plan: &Plan, mut stream: TcpStream, after: u64) {
    stream.set_nonblocking(true).unwrap();
    let (mut written, mut at) = (0, 0);
    let mut room = vec![0; plan.gulp as usize];
    let waits = |e: &std::io::Error| e.kind() == ErrorKind::WouldBlock;
    while at < after {
        let bytes = plan.bytes(Side::Kernel, written, (written + 10_000).min(plan.to_us));
        match stream.write(&bytes) {
            Ok(more) => written += more as u64,
            Err(e) => assert!(waits(&e), "{e}: {plan:?}"),
        }
        match stream.read(&mut room) {
            Ok(got) => {
                assert!(got > 0, "it ended by itself: {plan:?}");
                plan.check(Side::Ours, at, &room[..got]);
                at += got as u64;
            }
            Err(e) => {
                assert!(waits(&e), "{e}: {plan:?}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

fn write(plan: &Plan, stream: &mut TcpStream) -> std::io::Result<()> {
    let mut dice = Stream::new(plan.seed, "writes");
    let mut at = 0;
    while at < plan.to_us {
        let end = (at + 1 + dice.below(20_000)).min(plan.to_us);
        stream.write_all(&plan.bytes(Side::Kernel, at, end))?;
        at = end;
    }
    Ok(())
}

/// Reads to the end, or `most` bytes; returns how many.
fn read(plan: &Plan, mut stream: &TcpStream, most: u64) -> std::io::Result<u64> {
    let mut dice = Stream::new(plan.seed, "reads");
    let mut room = vec![0; plan.gulp as usize];
    let mut at = 0;
    while at < most {
        let got = stream.read(&mut room)?;
        if got == 0 {
            break;
        }
        plan.check(Side::Ours, at, &room[..got]);
        at += got as u64;
        if dice.below(plan.pauses) == 0 {
            thread::sleep(Duration::from_millis(dice.below(50)));
        }
    }
    Ok(at)
}

/// A host behind a bad path, and the namespace's kernel at the other end.
fn driver(seed: u64) -> Driver<BadPath> {
    let mut dice = Stream::new(seed, "world");
    let tun = TunConfig {
        offloads: dice.below(2) == 0,
        ..TunConfig::default()
    };
    let tun = Tun::open("ours", tun).unwrap();
    let here = Netns::current().unwrap();
    let (kernel, ours) = addresses(seed);
    let bits = if ours.is_ipv4() { 30 } else { 126 };
    let prefix = format!("{kernel}/{bits}").parse().unwrap();
    here.netlink().unwrap().add_address("ours", prefix).unwrap();
    // Takes room back that it had offered, under pressure; kernels before 6.5 cannot.
    let shrinks = if dice.below(2) == 0 { "1" } else { "0" };
    let _older = here.set_sysctl("net.ipv4.tcp_shrink_window", shrinks);
    let mut key = [0; 16];
    getrandom::fill(&mut key).unwrap();
    let mut host = Host::new(Config::default(), Secret::new(key));
    host.add_address(ours);
    let path = BadPath::new(host, seed, &mut dice, &tun);
    Driver::new(path, tun).unwrap()
}

/// The kernel's and ours: IPv4 and IPv6 in turn.
fn addresses(seed: u64) -> (IpAddr, IpAddr) {
    match seed / WORLD % 2 {
        0 => ("100.64.0.1".parse().unwrap(), "100.64.0.2".parse().unwrap()),
        _ => ("fd00:64::1".parse().unwrap(), "fd00:64::2".parse().unwrap()),
    }
}

/// The kernel's part of all `seeds`; says of each that we are to open it when it may be opened.
fn kernels(seeds: &[u64], next: &AtomicU64, open: &Sender<u16>) {
    while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
        let plan = Plan::new(seed);
        let (kernel, ours) = addresses(seed);
        let buffered = |socket: SockRef<'_>| {
            if let Some(size) = plan.kernel_buffer {
                socket.set_recv_buffer_size(size).unwrap();
                socket.set_send_buffer_size(size).unwrap();
            }
        };
        let stream = match plan.opens {
            Side::Ours => {
                let at = SocketAddr::new(kernel, KERNELS + plan.number);
                let listener = TcpListener::bind(at).unwrap();
                buffered(SockRef::from(&listener));
                open.send(plan.number).unwrap();
                listener.accept().unwrap().0
            }
            Side::Kernel => {
                let to = SocketAddr::new(ours, OURS + plan.number);
                let family = socket2::Domain::for_address(to);
                let socket = socket2::Socket::new(family, socket2::Type::STREAM, None).unwrap();
                buffered(SockRef::from(&socket));
                socket.connect(&to.into()).unwrap();
                socket.into()
            }
        };
        kernel_end(&plan, stream);
    }
}

/// All `seeds`, of one world, in a namespace of their own.
fn world(seeds: &[u64]) {
    let mut driver = driver(seeds[0]);
    let (kernel, ours) = addresses(seeds[0]);
    let plans: HashMap<u16, Plan> = { seeds.iter() }
        .map(|&seed| Plan::new(seed))
        .map(|plan| (plan.number, plan))
        .collect();
    let host = driver.machine_mut().host();
    let listeners: Vec<(u16, ListenerId)> = { plans.values() }
        .filter(|plan| plan.opens == Side::Kernel)
        .map(|plan| {
            let at = SocketAddr::new(ours, OURS + plan.number);
            (plan.number, host.listen(at, &plan.tcp, 4).unwrap())
        })
        .collect();
    let (open, opened) = channel();
    let next = Arc::new(AtomicU64::new(0));
    {
        // Threads of their own, not scoped ones: where something fails here nobody waits for them.
        let workers: Vec<_> = (0..WORKERS.min(seeds.len()))
            .map(|_| {
                let (open, next) = (open.clone(), Arc::clone(&next));
                let (here, seeds) = (Netns::current().unwrap(), seeds.to_vec());
                thread::spawn(move || here.run(|| kernels(&seeds, &next, &open)).unwrap())
            })
            .collect();
        let (mut all, mut ended) = (Vec::new(), 0);
        let (mut moved, mut since) = ((0, 0, 0), driver.now());
        while ended < seeds.len() || !workers.iter().all(|worker| worker.is_finished()) {
            let now = driver.now();
            let finished = workers.iter().filter(|worker| worker.is_finished()).count();
            let progress: u64 = all.iter().map(|ours: &Ours| ours.written + ours.read).sum();
            let progress = (ended, finished, progress);
            if progress != moved {
                (moved, since) = (progress, now);
            }
            let still: Vec<_> = all.iter().map(|ours: &Ours| &ours.plan).collect();
            let stuck = now.since(since) > PATIENCE;
            assert!(!stuck, "{ended} of {} ended: {still:?}", seeds.len());
            let host = driver.machine_mut().host();
            while let Ok(number) = opened.try_recv() {
                let from = SocketAddr::new(ours, 0);
                let to = SocketAddr::new(kernel, KERNELS + number);
                let plan = plans[&number].clone();
                let id = host.connect(from, to, &plan.tcp, now).unwrap();
                all.push(Ours::new(plan, id));
            }
            for (number, listener) in &listeners {
                if let Some((id, _)) = host.accept(*listener) {
                    all.push(Ours::new(plans[number].clone(), id));
                }
            }
            all.retain_mut(|ours| {
                let over = ours.step(host, now);
                if over {
                    host.release(ours.id, now);
                    ended += 1;
                }
                !over
            });
            driver.turn(Some(Duration::from_millis(2))).unwrap();
            while let Some(event) = driver.machine_mut().event() {
                let Event::Connection(id, tcp::Event::Aborted(cause)) = event else {
                    continue;
                };
                let plan = all.iter().find(|ours| ours.id == id).map(|ours| &ours.plan);
                let meant = plan.is_none_or(|plan| matches!(plan.end, End::Reset { .. }));
                assert!(meant, "{cause:?}: {plan:?}");
            }
        }
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    }
    let seen = driver.machine().seen();
    assert!(
        seeds.len() < 10 || seen.all(),
        "the path was not bad: {seen:?}"
    );
}

#[test]
fn every_byte_is_right_and_nothing_is_stuck_on_a_bad_path() {
    need!(Root, Tun);
    let said = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seeds: Vec<u64> = match said("BENTPIPE_SEED") {
        Some(seed) => vec![seed],
        None => (0..said("BENTPIPE_SEEDS").unwrap_or(300)).collect(),
    };
    // A few worlds at a time: most of them wait for timers most of the time.
    let at_once = said("BENTPIPE_WORLDS").unwrap_or(6) as usize;
    let worlds: Vec<_> = seeds.chunk_by(|a, b| a / WORLD == b / WORLD).collect();
    let mut failed = Vec::new();
    for some in worlds.chunks(at_once) {
        thread::scope(|scope| {
            let run = |seeds| {
                move || {
                    Netns::create("torture")
                        .unwrap()
                        .run(|| world(seeds))
                        .unwrap()
                }
            };
            let running: Vec<_> = some.iter().map(|&seeds| scope.spawn(run(seeds))).collect();
            for (one, seeds) in running.into_iter().zip(some) {
                if one.join().is_err() {
                    failed.push(seeds[0]);
                }
            }
        });
    }
    // Each has said above which connection it was, with its seed.
    assert!(
        failed.is_empty(),
        "of the seeds from these on, {WORLD} each: {failed:?}"
    );
}
