//! A server and a client among people who lie about who they are: forged addresses, sessions of others,
//! frames that the peer never sent. All by sockets on the loopback, whose every address can be had.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::Rate;
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga::{HoleEnd, echo};
use bentpipe_transfer::checksum::Algorithm;
use bentpipe_transfer::client::{self, Job, Report, Target};
use bentpipe_transfer::{Client, Key, Link, Server, Tree, serve};
use bentpipe_wire::saratoga::{
    Capabilities, Checksum, Code, Data, Entry, EntryKind, Frame, Kind, Metadata, Request,
    RequestKind, Status, Time, Timestamp, Width,
};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LINK: Link = Link {
    rate: Rate::from_bits_per_sec(50_000_000),
    packet: 1500,
    congestion: Congestion::None,
    silence: Duration::from_secs(20),
    hole_end: HoleEnd::Inclusive,
    timestamps: true,
};
/// IPv4 and UDP.
const HEADERS: usize = 28;

/// A server in a thread; stopped when dropped.
struct Served {
    folder: TempDir,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn serving() -> serve::Config {
    serve::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        link: LINK,
        put: true,
        delete: true,
        key: None,
        max_size: 100_000_000,
        max_sessions: 64,
        checksum: Algorithm::Sha1,
        name: None,
    }
}

impl Served {
    fn new(config: serve::Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(tree, config).unwrap();
            tell.send(server.address().unwrap()).unwrap();
            server.run(&asked).unwrap();
        });
        Self {
            folder,
            address: told.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// What is in the served directory, however deep.
    fn count(&self) -> usize {
        fn below(folder: &Path) -> usize {
            // What is being tidied up may be gone by now.
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let count = entries.map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => 1 + below(&entry.path()),
                _ => 1,
            });
            count.sum()
        }
        below(self.folder.path())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn asking() -> client::Config {
    client::Config {
        link: LINK,
        key: None,
        checksum: Algorithm::Md5,
        max_size: 100_000_000,
        parallel: 4,
    }
}

fn run_at(address: SocketAddr, config: client::Config, job: Job) -> Report {
    let mut client = Client::new(address, config).unwrap();
    let reports = client.run(vec![job], &AtomicBool::new(false), &mut |_| {});
    reports.unwrap().pop().unwrap()
}

fn get(remote: &str, to: &Path, take: bool) -> Job {
    Job::Get {
        remote: remote.to_owned(),
        target: Target::File(Tree::open(to).unwrap(), "got".to_owned()),
        take,
        size: None,
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn request(session: u32, kind: RequestKind, path: &str) -> Frame {
    Frame::Request(Request {
        capabilities: Capabilities {
            width: Width::Bits64,
            ..Capabilities::default()
        },
        session,
        kind,
        late_checksum: true,
        path: path.to_owned(),
        authentication: Vec::new(),
    })
}

fn metadata(session: u32, path: &str, size: u64) -> Frame {
    Frame::Metadata(Metadata {
        session,
        width: Width::Bits32,
        kind: Kind::File,
        ended: false,
        unreliable: false,
        mode: None,
        checksum: Checksum::None,
        entry: Entry {
            kind: EntryKind::File,
            width: Width::Bits32,
            unreliable: false,
            size: size.into(),
            modified: Time(800_000_000),
            created: Time(800_000_000),
            path: path.to_owned(),
        },
    })
}

fn status(session: u32, code: Code, timestamp: Option<Timestamp>, progress: u64) -> Frame {
    Frame::Status(Status {
        session,
        width: Width::Bits32,
        timestamp,
        metadata_missing: false,
        incomplete: false,
        voluntary: true,
        code,
        progress: progress.into(),
        in_response_to: progress.into(),
        holes: Vec::new(),
    })
}

fn octets(frame: &Frame) -> Vec<u8> {
    let mut octets = Vec::new();
    frame.emit(&mut octets).unwrap();
    octets
}

/// A peer that writes its own datagrams, and counts what goes and comes with its headers.
struct Peer {
    socket: UdpSocket,
    server: SocketAddr,
    sent: usize,
    received: usize,
}

impl Peer {
    fn new(from: &str, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(from).unwrap();
        let pause = Duration::from_millis(100);
        socket.set_read_timeout(Some(pause)).unwrap();
        Self {
            socket,
            server,
            sent: 0,
            received: 0,
        }
    }

    fn send(&mut self, frame: &Frame) {
        let octets = octets(frame);
        self.sent += octets.len() + HEADERS;
        self.socket.send_to(&octets, self.server).unwrap();
    }

    fn hear(&mut self) -> Option<Frame> {
        let mut buffer = [0; 70_000];
        let len = self.socket.recv(&mut buffer).ok()?;
        self.received += len + HEADERS;
        Frame::parse(&buffer[..len]).ok().map(|(frame, _)| frame)
    }

    /// Hears until nothing came for `time`.
    fn hear_all(&mut self, time: Duration) {
        let mut last = Instant::now();
        while last.elapsed() < time {
            if self.hear().is_some() {
                last = Instant::now();
            }
        }
    }

    /// Shows that it hears the server, as every receiver of the draft does.
    fn prove(&mut self, session: u32) {
        loop {
            if let Some(Frame::Data(Data { timestamp, .. })) = self.hear() {
                return self.send(&echo(session, timestamp));
            }
        }
    }
}

/// Whoever writes another's address into a REQUEST cannot have a file sent there: not by asking often, nor by
/// guessing what the other would answer, nor by asking for what is checked, listed or taken.
#[test]
fn a_forged_request_brings_no_more_than_ten_times_what_came() {
    let served = Served::new(serving());
    std::fs::write(served.file("a"), content(10_000_000)).unwrap();
    for kind in [
        RequestKind::Get,
        RequestKind::Take,
        RequestKind::List,
        RequestKind::Put,
        RequestKind::Delete,
        RequestKind::None,
    ] {
        let mut victim = Peer::new("127.0.0.9:0", served.address);
        let path = if kind == RequestKind::List { "." } else { "a" };
        let path = if kind == RequestKind::Delete {
            "b"
        } else {
            path
        };
        for session in [1, 1, 2] {
            victim.send(&request(session, kind, path));
            for guess in [0, 7, 0xff] {
                let stamp = Timestamp([guess; 16]);
                victim.send(&status(session, Code::OK, Some(stamp), 1000));
                victim.send(&status(session, Code::OK, None, 0));
            }
        }
        victim.hear_all(Duration::from_millis(600));
        let (sent, received) = (victim.sent, victim.received);
        assert!(received <= 10 * sent, "{kind:?}: {received} for {sent}");
        assert!(received > 0, "{kind:?}: it is answered");
    }
    // Holes cost the liar ten times less than they cost the other, and no less.
    let mut victim = Peer::new("127.0.0.9:0", served.address);
    victim.send(&request(3, RequestKind::Put, "holes"));
    victim.send(&metadata(3, "holes", 1 << 30));
    for i in 0..5000u32 {
        victim.send(&Frame::Data(Data {
            session: 3,
            width: Width::Bits32,
            kind: Kind::File,
            timestamp: None,
            status_wanted: i % 10 == 0,
            end: false,
            offset: (20_000 * i).into(),
            len: 0,
        }));
    }
    victim.hear_all(Duration::from_secs(3));
    let (sent, received) = (victim.sent, victim.received);
    assert!(received <= 10 * sent, "{received} for {sent}");
}

/// Peers that cannot echo are served by who sends no timestamps, and by nobody else.
#[test]
fn without_timestamps_nothing_is_asked_first() {
    for timestamps in [true, false] {
        let served = Served::new(serve::Config {
            link: Link { timestamps, ..LINK },
            ..serving()
        });
        std::fs::write(served.file("a"), content(20_000)).unwrap();
        let mut peer = Peer::new("127.0.0.1:0", served.address);
        peer.send(&request(1, RequestKind::Get, "a"));
        peer.hear_all(Duration::from_millis(300));
        assert_eq!(peer.received > 20_000, !timestamps, "{}", peer.received);
    }
}

/// An address that is known, because its owner fetches something, is sent little more on a forged REQUEST.
#[test]
fn the_address_of_a_client_is_worth_little_to_others() {
    let served = Served::new(serving());
    std::fs::write(served.file("a"), content(10_000_000)).unwrap();
    std::fs::write(served.file("b"), content(1000)).unwrap();
    let mut victim = Peer::new("127.0.0.9:0", served.address);
    victim.send(&request(1, RequestKind::Get, "b"));
    victim.prove(1);
    victim.hear_all(Duration::from_millis(300));
    let before = (victim.sent, victim.received);
    victim.send(&request(2, RequestKind::Get, "a"));
    victim.hear_all(Duration::from_secs(1));
    let (sent, received) = (victim.sent - before.0, victim.received - before.1);
    assert!(received > 500_000, "it is served at once: {received}");
    assert!(received <= (1 << 20) + 10 * sent, "{received} for {sent}");
}

fn threads(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        all.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|own| own.trim() == name).count()
}

/// REQUESTs for the session of another, from other ports of its address: they end nothing, begin no more
/// than is allowed, and the work for those that end is not done to its end.
#[test]
fn a_request_from_another_port_ends_nothing_and_stays_within_the_bounds() {
    let served = Served::new(serve::Config {
        max_sessions: 8,
        link: Link {
            silence: Duration::from_secs(3),
            ..LINK
        },
        ..serving()
    });
    let large = std::fs::File::create(served.file("large")).unwrap();
    large.set_len(20 << 30).unwrap();
    let mut peers: Vec<Peer> = (0..8)
        .map(|_| Peer::new("127.0.0.1:0", served.address))
        .collect();
    for peer in &mut peers {
        let Frame::Request(mut request) = request(1, RequestKind::Get, "large") else {
            unreachable!("it is one");
        };
        request.late_checksum = false;
        peer.send(&Frame::Request(request));
    }
    // Before a proof nothing is done for anybody.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(threads("checksum"), 0);
    for peer in &mut peers {
        peer.prove(1);
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(threads("checksum"), 2, "a quarter of the sessions");
    let refused = peers.iter_mut().filter_map(|peer| {
        std::iter::from_fn(|| peer.hear()).find_map(|frame| match frame {
            Frame::Status(status) => Some(status.code),
            _ => None,
        })
    });
    assert_eq!(refused.collect::<Vec<_>>(), [Code::CANNOT_SEND; 6]);
    drop(served);
    // 20 GiB take SHA-1 far longer than this.
    let until = Instant::now() + Duration::from_secs(3);
    while threads("checksum") > 0 {
        assert!(Instant::now() < until, "work that nobody waits for goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two clients behind one address with the same command have the same Id, and each its own session.
#[test]
fn clients_behind_one_address_with_one_command_do_not_meet() {
    let served = Served::new(serving());
    std::fs::write(served.file("a"), content(5_000_000)).unwrap();
    let fetch = |pause: u64| {
        let address = served.address;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(pause));
            let here = tempfile::tempdir().unwrap();
            run_at(address, asking(), get("a", here.path(), false))
                .result
                .unwrap();
            std::fs::read(here.path().join("got")).unwrap()
        })
    };
    let fetched = [fetch(0), fetch(100), fetch(200)];
    for fetched in fetched {
        assert!(fetched.join().unwrap() == content(5_000_000));
    }
}

/// What is asked for and never comes leaves nothing behind, however deep its path.
#[test]
fn puts_that_bring_nothing_leave_nothing() {
    let served = Served::new(serve::Config {
        link: Link {
            silence: Duration::from_secs(2),
            ..LINK
        },
        ..serving()
    });
    let deep = |i: usize| format!("{i}/{}file", "d/".repeat(400));
    let shallow = |i: usize| format!("{i}/{}file", "d/".repeat(20));
    let mut peers: Vec<Peer> = (0..20)
        .map(|_| Peer::new("127.0.0.1:0", served.address))
        .collect();
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.send(&request(1, RequestKind::Put, &shallow(i)));
        peer.send(&request(2, RequestKind::Put, &deep(i)));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(served.count(), 0, "nothing is made for a REQUEST alone");
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.send(&metadata(1, &shallow(i), 1000));
        peer.send(&metadata(2, &deep(i), 1000));
    }
    std::thread::sleep(Duration::from_millis(500));
    // A quarter of the sessions, and 21 directories and the part of each.
    let made = served.count();
    assert!((1..=16 * 23).contains(&made), "{made}");
    let until = Instant::now() + Duration::from_secs(10);
    while served.count() > 0 {
        assert!(Instant::now() < until, "{} are left", served.count());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Forged puts from as many addresses as there may be sessions: who is there is served all the same.
#[test]
fn many_forged_addresses_do_not_shut_the_service() {
    let served = Served::new(serving());
    std::fs::write(served.file("a"), content(100_000)).unwrap();
    let mut forged: Vec<Peer> = (0..80)
        .map(|i| {
            Peer::new(
                &format!("{}:0", Ipv4Addr::new(127, 0, 1, i)),
                served.address,
            )
        })
        .collect();
    for (i, peer) in forged.iter_mut().enumerate() {
        peer.send(&request(1, RequestKind::Get, "a"));
        peer.send(&request(2, RequestKind::Put, &format!("b{i}")));
        peer.send(&metadata(2, &format!("b{i}"), 1000));
        peer.send(&metadata(3, &format!("c{i}"), 1000));
    }
    std::thread::sleep(Duration::from_millis(300));
    let here = tempfile::tempdir().unwrap();
    let began = Instant::now();
    run_at(served.address, asking(), get("a", here.path(), false))
        .result
        .unwrap();
    let put = Job::Put {
        local: Some(here.path().join("got")),
        remote: "mine".to_owned(),
        give: false,
        size: None,
    };
    run_at(served.address, asking(), put).result.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(
        std::fs::read(served.file("mine")).unwrap(),
        content(100_000)
    );
}

/// A stream of numbers that a seed repeats (xorshift64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A frame that makes sense by itself.
    fn frame(&mut self) -> Frame {
        let session = self.below(4) as u32;
        let path = ["a", "b", "deep/c", ".", "../x", "b/under"][self.below(6) as usize];
        let kinds = [
            RequestKind::Get,
            RequestKind::Put,
            RequestKind::Take,
            RequestKind::Give,
            RequestKind::Delete,
            RequestKind::List,
            RequestKind::None,
            RequestKind::Other(77),
        ];
        match self.below(4) {
            0 => request(session, kinds[self.below(8) as usize], path),
            1 => metadata(session, path, self.below(1 << 32)),
            2 => Frame::Data(Data {
                session,
                width: Width::Bits32,
                kind: Kind::File,
                timestamp: None,
                status_wanted: self.below(2) == 0,
                end: self.below(8) == 0,
                offset: self.below(1 << 32).into(),
                len: 0,
            }),
            _ => match self.below(3) {
                0 => status(session, Code::OK, None, self.below(1 << 20)),
                code => status(session, Code(code as u8 * 6), None, 0),
            },
        }
    }
}

/// A crowd that says anything, some of it damaged, some of whom answer when they are asked: the server neither
/// ends nor falls silent, and who comes after is served.
#[test]
fn a_crowd_that_says_anything_does_not_disturb_who_comes_after() {
    let served = Served::new(serve::Config {
        link: Link {
            silence: Duration::from_secs(1),
            ..LINK
        },
        ..serving()
    });
    for seed in 1..=3 {
        let mut chance = Chance(0x5a7a_706a_0000_0000 + seed);
        let mut crowd: Vec<Peer> = (0..12)
            .map(|i| Peer::new(&format!("127.0.2.{i}:0"), served.address))
            .collect();
        for peer in &crowd {
            peer.socket.set_nonblocking(true).unwrap();
        }
        for _ in 0..4000 {
            let who = chance.below(12) as usize;
            let mut said = octets(&chance.frame());
            if chance.below(4) == 0 {
                let at = chance.below(said.len() as u64) as usize;
                said[at] ^= 1 << chance.below(8);
                said.truncate(1 + chance.below(said.len() as u64) as usize);
            }
            // Content, where it is DATA.
            said.extend(vec![7; chance.below(40) as usize]);
            crowd[who].socket.send_to(&said, served.address).unwrap();
            for _ in 0..4 {
                if let Some(Frame::Data(data)) = crowd[who].hear()
                    && who.is_multiple_of(2)
                {
                    crowd[who].send(&echo(data.session, data.timestamp));
                }
            }
        }
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("mine"), content(50_000)).unwrap();
        let remote = format!("mine-{seed}");
        let put = Job::Put {
            local: Some(here.path().join("mine")),
            size: None,
            remote: remote.clone(),
            give: false,
        };
        run_at(served.address, asking(), put).result.unwrap();
        run_at(served.address, asking(), get(&remote, here.path(), false))
            .result
            .unwrap();
        assert!(std::fs::read(here.path().join("got")).unwrap() == content(50_000));
    }
}

/// Between client and server, forging frames of both in the other's name.
struct Between {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Between {
    /// Passes everything on, and after each datagram a lie of `lies` about its session.
    fn new(server: SocketAddr, lies: fn(u32) -> Vec<Frame>) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap();
        for socket in [&near, &far] {
            let pause = Duration::from_micros(200);
            socket.set_read_timeout(Some(pause)).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client, mut told) = ([0; 70_000], None, 0);
            while !asked.load(Ordering::Relaxed) {
                for (from, to, toward_server) in [(&near, &far, true), (&far, &near, false)] {
                    let Ok((len, peer)) = from.recv_from(&mut buffer) else {
                        continue;
                    };
                    if toward_server {
                        client = Some(peer);
                    }
                    let Some(next) = (if toward_server { Some(server) } else { client }) else {
                        continue;
                    };
                    to.send_to(&buffer[..len], next).unwrap();
                    let id = u32::from_be_bytes(buffer[4..8].try_into().unwrap());
                    // The first word of each is true.
                    let lies = lies(id);
                    if told > 4 {
                        to.send_to(&octets(&lies[told % lies.len()]), next).unwrap();
                    }
                    told += 1;
                }
            }
            told
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// How much passed.
    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Everything that changes how a session stands.
fn lies(session: u32) -> Vec<Frame> {
    let data = |offset: u32, end| {
        Frame::Data(Data {
            session,
            width: Width::Bits32,
            kind: Kind::File,
            timestamp: None,
            status_wanted: true,
            end,
            offset: offset.into(),
            len: 0,
        })
    };
    vec![
        metadata(session, "a", 17),
        status(session, Code::OK, None, 3_000_000),
        status(session, Code::TERMINATED, None, 0),
        status(session, Code::UNKNOWN_ID, None, 0),
        data(17, true),
        data(4_000_000_000, false),
        request(session, RequestKind::Delete, "a"),
        request(session, RequestKind::Get, "a"),
    ]
}

fn key(octets: &str) -> Key {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), octets).unwrap();
    Key::load(file.path()).unwrap()
}

/// With a key no frame counts that who has it has not sent.
#[test]
fn a_key_covers_every_frame_that_changes_a_session() {
    let key = key("0123456789abcdef");
    // What lies between reads one datagram at a time.
    let slow = Link {
        rate: Rate::from_bits_per_sec(10_000_000),
        ..LINK
    };
    let served = Served::new(serve::Config {
        key: Some(key.clone()),
        link: slow,
        ..serving()
    });
    std::fs::write(served.file("a"), content(1_000_000)).unwrap();
    let keyed = || client::Config {
        key: Some(key.clone()),
        link: slow,
        ..asking()
    };
    let here = tempfile::tempdir().unwrap();
    let between = Between::new(served.address, lies);
    run_at(between.address, keyed(), get("a", here.path(), false))
        .result
        .unwrap();
    let got = here.path().join("got");
    assert!(std::fs::read(&got).unwrap() == content(1_000_000));
    let put = Job::Put {
        local: Some(got),
        remote: "b".to_owned(),
        give: true,
        size: None,
    };
    run_at(between.address, keyed(), put).result.unwrap();
    assert!(std::fs::read(served.file("b")).unwrap() == content(1_000_000));
    run_at(between.address, keyed(), get("b", here.path(), true))
        .result
        .unwrap();
    let passed = between.end();
    assert!(passed > 2000, "{passed} lies");
    assert!(served.file("a").exists());
}

/// A key is of both sides: a server without one says so at once, and a client that has one believes nobody else.
#[test]
fn a_client_with_a_key_wants_a_server_with_it() {
    let served = Served::new(serving());
    std::fs::write(served.file("a"), "a").unwrap();
    let here = tempfile::tempdir().unwrap();
    let config = client::Config {
        key: Some(key("0123456789abcdef")),
        ..asking()
    };
    let began = Instant::now();
    let report = run_at(served.address, config, get("a", here.path(), false));
    let said = report.result.unwrap_err().to_string();
    assert!(said.contains("access denied"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(2));
}
