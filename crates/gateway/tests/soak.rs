//! Hours in minutes: short, long, urgent, aborted, half-closed and stalled flows of IPv4 and IPv6 through a
//! gateway process, while clients and servers are killed at random, rules and tables flushed, links
//! taken down, translation of addresses switched on and off and forged SYNs sent. Some of the flows are a
//! container's, on a bridge of the gateway's. At the end memory and descriptors are where they
//! were, and no stream had a wrong byte.
//!
//! `make soak` runs it for ten minutes, `make soak ARGS=60` for sixty seconds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::print_stdout,
    reason = "what was measured, for whoever asks for it"
)]

#[path = "soak/containers.rs"]
mod containers;
mod support;
#[path = "soak/trouble.rs"]
mod trouble;

use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use containers::Container;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Ip, Stage, abort, child, connect_in, descriptors_of};
use trouble::Trouble;

/// How long, in seconds.
const SECONDS: &str = "BENTPIPE_SOAK_SECONDS";
/// Makes this binary a client or a server.
const ROLE: &str = "BENTPIPE_SOAK_ROLE";
/// Whom a client asks.
const TARGETS: &str = "BENTPIPE_SOAK_TARGETS";
const PORT: u16 = 7001;
/// Processes of clients in their own namespace, and flows of each process at a time.
const CLIENTS: usize = 3;
const FLOWS: usize = 6;
/// What idle pipes may cost.
const SPARE_DESCRIPTORS: usize = 64;
/// What memory that the allocator keeps may cost, in KiB (4096): a sanitizer's keeps more.
const SPARE_MEMORY_KB: &str = "BENTPIPE_SOAK_SPARE_KB";

/// A sequence of numbers that a seed fixes (xorshift64*).
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % below
    }
}

fn byte(seed: u64, at: u64) -> u8 {
    ((seed.wrapping_add(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Writes bytes `0..count` of the stream that `seed` names.
fn write_stream(mut to: &TcpStream, seed: u64, count: u64) -> io::Result<()> {
    let mut at = 0;
    while at < count {
        let part = (count - at).min(32_768);
        let bytes: Vec<u8> = (at..at + part).map(|at| byte(seed, at)).collect();
        to.write_all(&bytes)?;
        at += part;
    }
    Ok(())
}

/// The same with urgent bytes here and there; the last one is never one.
fn write_urgently(to: &TcpStream, seed: u64, count: u64, chance: &mut Chance) -> io::Result<()> {
    let mut at = 0;
    while at < count {
        let part = (count - at).min(1 + chance.next(20_000));
        let bytes: Vec<u8> = (at..at + part).map(|at| byte(seed, at)).collect();
        let mut writer = to;
        let (urgent, rest) = if at + part < count {
            bytes.split_at(1)
        } else {
            bytes.split_at(0)
        };
        if !urgent.is_empty() {
            socket2::SockRef::from(to).send_out_of_band(urgent)?;
        }
        writer.write_all(rest)?;
        at += part;
    }
    Ok(())
}

/// Reads the stream to its end: how much it was. A wrong byte ends the process: that is told.
fn read_stream(mut from: &TcpStream, seed: u64, most: u64) -> io::Result<u64> {
    let mut at = 0;
    let mut part = vec![0; 32_768];
    while at < most {
        let want = part.len().min((most - at) as usize);
        let read = from.read(&mut part[..want])?;
        if read == 0 {
            break;
        }
        for (offset, got) in part[..read].iter().enumerate() {
            if *got != byte(seed, at + offset as u64) {
                tell("wrong");
                std::process::exit(3);
            }
        }
        at += read as u64;
    }
    Ok(at)
}

/// A line for the parent, which counts.
fn tell(word: &str) {
    let line = format!("soak:{word}\n");
    let _ = io::stdout().write_all(line.as_bytes());
}

/// What a client asks of the server, 40 bytes.
struct Head {
    seed: u64,
    up: u64,
    down: u64,
    /// The server reads nothing before that.
    stall_ms: u64,
    /// The server sends only when the client has ended.
    after: u64,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        let fields = [self.seed, self.up, self.down, self.stall_ms, self.after];
        fields
            .iter()
            .flat_map(|field| field.to_be_bytes())
            .collect()
    }

    fn read(mut from: &TcpStream) -> io::Result<Self> {
        let mut bytes = [0; 40];
        from.read_exact(&mut bytes)?;
        let field = |at: usize| u64::from_be_bytes(bytes[at * 8..][..8].try_into().unwrap());
        Ok(Self {
            seed: field(0),
            up: field(1),
            down: field(2),
            stall_ms: field(3),
            after: field(4),
        })
    }
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    // As it comes through the gateway, also where it does not.
    socket2::SockRef::from(stream).set_out_of_band_inline(true)?;
    let head = Head::read(stream)?;
    std::thread::sleep(Duration::from_millis(head.stall_ms));
    std::thread::scope(|scope| {
        let send = || {
            write_stream(stream, !head.seed, head.down)?;
            stream.shutdown(Shutdown::Write)
        };
        let early = (head.after == 0).then(|| scope.spawn(send));
        read_stream(stream, head.seed, u64::MAX)?;
        match early {
            Some(sender) => sender.join().unwrap(),
            None => send(),
        }
    })
}

fn be_a_server() {
    let listeners = ["0.0.0.0", "::"].map(|any| {
        let listener = socket2::Socket::new(
            if any == "::" {
                socket2::Domain::IPV6
            } else {
                socket2::Domain::IPV4
            },
            socket2::Type::STREAM,
            None,
        )
        .unwrap();
        listener.set_reuse_address(true).unwrap();
        let _ = listener.set_only_v6(any == "::");
        let address: SocketAddr = (any.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        listener.bind(&address.into()).unwrap();
        listener.listen(512).unwrap();
        TcpListener::from(listener)
    });
    std::thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || serve(&stream));
                }
            });
        }
    });
}

/// One flow of a kind; `Ok` when it went as it should.
fn flow(to: SocketAddr, chance: &mut Chance) -> io::Result<&'static str> {
    let mut head = Head {
        seed: chance.next(u64::MAX >> 17),
        up: chance.next(20_000),
        down: chance.next(20_000),
        stall_ms: 0,
        after: 0,
    };
    let kind = [
        "short",
        "short",
        "short",
        "long",
        "aborted",
        "half-closed",
        "stalled",
        "urgent",
    ][chance.next(8) as usize];
    match kind {
        "long" => (head.up, head.down) = (chance.next(8_000_000), chance.next(8_000_000)),
        "urgent" => head.up = chance.next(2_000_000),
        "stalled" => (head.up, head.stall_ms) = (6_000_000, 500 + chance.next(1_500)),
        "half-closed" => head.after = 1,
        _ => {}
    }
    let stream = TcpStream::connect_timeout(&to, support::PATIENCE)?;
    stream.set_read_timeout(Some(support::PATIENCE))?;
    stream.set_write_timeout(Some(support::PATIENCE))?;
    (&stream).write_all(&head.bytes())?;
    if kind == "aborted" {
        write_stream(&stream, head.seed, head.up / 2)?;
        abort(stream);
        return Ok(kind);
    }
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            match kind {
                "urgent" => write_urgently(&stream, head.seed, head.up, chance)?,
                _ => write_stream(&stream, head.seed, head.up)?,
            }
            stream.shutdown(Shutdown::Write)
        });
        if kind == "stalled" {
            std::thread::sleep(Duration::from_millis(head.stall_ms));
        }
        let got = read_stream(&stream, !head.seed, u64::MAX);
        sender.join().unwrap()?;
        match got? {
            count if count == head.down => Ok(kind),
            // A server that is killed ends its streams wherever they are.
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    })
}

fn be_clients(seed: u64) {
    let targets = std::env::var(TARGETS).unwrap();
    let targets = targets.split(',').map(|target| target.parse().unwrap());
    let targets: &Vec<SocketAddr> = &targets.collect();
    std::thread::scope(|scope| {
        for number in 0..FLOWS as u64 {
            scope.spawn(move || {
                let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number + 1));
                loop {
                    let target = targets[chance.next(targets.len() as u64) as usize];
                    match flow(target, &mut chance) {
                        Ok(kind) => tell(kind),
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                            tell("refused");
                            std::thread::sleep(Duration::from_millis(20));
                        }
                        Err(_) => tell("broken"),
                    }
                }
            });
        }
    });
}

#[test]
fn soak_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => be_a_server(),
        Ok(seed) => be_clients(seed.parse().unwrap()),
        Err(_) => {}
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// What the processes have told so far.
type Tally = Arc<Mutex<std::collections::BTreeMap<String, u64>>>;

/// A process in a role; killed when dropped.
struct Actor(Child);

impl Actor {
    fn server(netns: &Netns, tally: &Tally) -> Self {
        Self::start(netns, ("server", &[]), tally)
    }

    fn client(home: &Home<'_>, chance: &mut Chance, tally: &Tally) -> Self {
        let seed = chance.next(1 << 40).to_string();
        Self::start(home.netns, (&seed, &home.targets), tally)
    }

    fn start(netns: &Netns, (role, targets): (&str, &[SocketAddr]), tally: &Tally) -> Self {
        let targets: Vec<String> = targets.iter().map(SocketAddr::to_string).collect();
        let mut command: Command = netns.command(std::env::current_exe().unwrap());
        command
            .args(["soak_role", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(TARGETS, targets.join(","))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let tally = Arc::clone(tally);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, word)) = line.split_once("soak:") {
                    *tally.lock().unwrap().entry(word.to_owned()).or_default() += 1;
                }
            }
        });
        Self(child)
    }
}

impl Actor {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Resident memory of a process, in KiB.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Where a process of clients lives, and whom it asks.
struct Home<'a> {
    netns: &'a Netns,
    targets: Vec<SocketAddr>,
}

/// Those outside ask the server behind the gateway and the container; the container's ask one outside.
fn homes<'a>(stage: &'a Stage, container: &'a Container) -> Vec<Home<'a>> {
    let outside = || Home {
        netns: &stage.client,
        targets: Ip::BOTH
            .map(|ip| (ip.server(), PORT).into())
            .into_iter()
            .chain(Container::published())
            .collect(),
    };
    let inside = Home {
        netns: &container.netns,
        targets: Ip::BOTH.map(|ip| (ip.client(), PORT).into()).into(),
    };
    (0..CLIENTS).map(|_| outside()).chain([inside]).collect()
}

/// Lets clients come and go, killed at random with their servers, for `time`; then quiet.
fn churn(
    (stage, container): (&Stage, &Container),
    tally: &Tally,
    chance: &mut Chance,
    time: Duration,
) -> u64 {
    let hosts = [&stage.server, &stage.client, &container.netns];
    let mut servers = hosts.map(|netns| Actor::server(netns, tally));
    let homes = homes(stage, container);
    let mut clients: Vec<Actor> = homes
        .iter()
        .map(|home| Actor::client(home, chance, tally))
        .collect();
    let until = Instant::now() + time;
    let mut kills = 0;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(300 + chance.next(1_500)));
        match chance.next(6) {
            0 => {
                let number = chance.next(hosts.len() as u64) as usize;
                // Its port is free only when it has ended.
                servers[number].end();
                servers[number] = Actor::server(hosts[number], tally);
            }
            1 | 2 => {
                let number = chance.next(homes.len() as u64) as usize;
                clients[number] = Actor::client(&homes[number], chance, tally);
            }
            _ => {
                let trouble = Trouble::ALL[chance.next(Trouble::ALL.len() as u64) as usize];
                trouble.befall(stage, chance);
                let name = format!("{trouble:?}");
                *tally.lock().unwrap().entry(name).or_default() += 1;
                continue;
            }
        }
        kills += 1;
    }
    drop((clients, servers));
    kills
}

#[test]
#[ignore = "takes minutes: make soak"]
fn memory_and_descriptors_stay_flat_and_no_byte_is_wrong() {
    need!(Root, Tproxy);
    let seconds: u64 = std::env::var(SECONDS).map_or(600, |text| text.parse().unwrap());
    let spare = std::env::var(SPARE_MEMORY_KB).map_or(4096, |text| text.parse().unwrap());
    let seed = u64::from(std::process::id()) | 1;
    let stage = Stage::new();
    let container = Container::beside(&stage);
    Trouble::prepare([
        &stage.client,
        &stage.gateway,
        &stage.server,
        &container.netns,
    ]);
    Trouble::begin_containers(&stage);
    let key = "net.ipv4.tcp_keepalive_intvl";
    stage.gateway.set_sysctl(key, "3").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("flows.jsonl");
    let config = format!(
        "metrics = \"127.0.0.1:9463\"
flow_log = \"{}\"
[limits]
keepalive = \"3s\"
[lan]
interface = [\"lan0\", \"{}\"]
[sat]
interface = \"sat0\"
congestion_control = \"cubic\"
",
        log.display(),
        containers::BRIDGE
    );
    let mut gateway = child::start(&stage, &config);
    let pid = gateway.child.id();
    let tally = Tally::default();
    let mut chance = Chance(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    // The first third warms up: pipes, buffers and slots that are kept.
    let part = Duration::from_secs(seconds) / 3;
    let mut kills = churn((&stage, &container), &tally, &mut chance, part);
    let mut quiet = || {
        await_the_end_of_all_flows(&stage, &mut gateway.child);
        (descriptors_of(pid), memory_of(pid))
    };
    let before = quiet();
    kills += churn((&stage, &container), &tally, &mut chance, part * 2);
    let after = quiet();
    let tally = tally.lock().unwrap();
    println!(
        "seed {seed}, {seconds} s, {kills} kills; flows and troubles: {tally:?}; descriptors {} then {}, memory {} then {} KiB",
        before.0, after.0, before.1, after.1
    );
    let count = |word: &str| tally.get(word).copied().unwrap_or(0);
    assert_eq!(count("wrong"), 0, "a wrong byte");
    for kind in [
        "short",
        "long",
        "urgent",
        "aborted",
        "half-closed",
        "stalled",
    ] {
        assert!(count(kind) > 0, "no {kind} flow went through");
    }
    assert!(count("broken") > 0, "no flow met a kill");
    assert!(after.0 <= before.0 + SPARE_DESCRIPTORS, "descriptors grow");
    assert!(after.1 <= before.1 + before.1 / 10 + spare, "memory grows");
}

/// What readers that stood still had not taken is reset within 5 s. Where both ends were killed while their
/// packets did not come through (translation had ceased under the flow), only a probe finds out: without a gateway
/// nobody would have to.
fn await_the_end_of_all_flows(stage: &Stage, gateway: &mut Child) {
    let until = Instant::now() + support::PATIENCE;
    // The page of metrics is another client that must not leave anything behind.
    while !scrape(&stage.gateway).contains("bentpipe_open 0\n") {
        let ended = gateway.try_wait().unwrap();
        assert!(ended.is_none(), "the gateway has ended: {ended:?}");
        assert!(
            Instant::now() < until,
            "flows are left: {:#?}",
            stage.connections()
        );
    }
}

/// Nothing, when the seats of those before are taken still.
fn scrape(netns: &Netns) -> String {
    let address: SocketAddr = "127.0.0.1:9463".parse().unwrap();
    let page = connect_in(netns, address).and_then(|mut stream| {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map(|_| page)
    });
    std::thread::sleep(Duration::from_millis(50));
    page.unwrap_or_default()
}
