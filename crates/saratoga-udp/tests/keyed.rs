//! A key: what it covers against somebody between client and server who sees and forges everything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Bytes, Rate};
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::client::Job;
use bentpipe_saratoga_udp::{Key, Link, Tree, beacon, client, posix_times, serve};
use bentpipe_sockets::socket::set_receive_buffer;
use bentpipe_wire::saratoga::{
    Beacon, Capabilities, Code, Data, Entry, Frame, Kind, Metadata, RequestKind, Width,
};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::peer::{Peer, metadata, octets, request, status};
use support::{LINK, Served, client, config, content, get, give, put, run_at, take};

/// Between client and server, forging frames of both in the other's name.
struct Between {
    address: SocketAddr,
    /// What the server hears, and sees the address of.
    far: UdpSocket,
    stop: Arc<AtomicBool>,
    /// Nothing gets through to the server.
    cut: Arc<AtomicBool>,
    thread: Option<JoinHandle<Passed>>,
}

/// What came by.
#[derive(Default)]
struct Passed {
    datagrams: usize,
    /// All that the client has said.
    said: Vec<Vec<u8>>,
    /// REQUESTs that ask for something, each once.
    requests: BTreeSet<Vec<u8>>,
}

/// What it does beside passing everything on.
#[derive(Clone, Copy)]
enum Mischief {
    None,
    /// Answers whatever a client says, before the server can, and tells a lie after each datagram.
    Lies {
        answers: fn(u32) -> Vec<Frame>,
        lies: fn(u32) -> Vec<Frame>,
    },
    /// Plays the REQUESTs again, in the client's name, when the server knows where that is.
    PlaysLate,
    /// Plays everything from an address of its own first, and the REQUESTs from everywhere again; what the server
    /// says to that, it says to the client in the server's name.
    Plays,
}

/// A socket with room for what comes at once.
fn roomy() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    set_receive_buffer(&socket, Bytes(4 << 20)).unwrap();
    socket
}

impl Between {
    fn new(server: SocketAddr, mischief: Mischief) -> Self {
        let far = roomy();
        Self::from(far, server, mischief)
    }

    fn from(far: UdpSocket, server: SocketAddr, mischief: Mischief) -> Self {
        let [near, own] = [(); 2].map(|()| roomy());
        let address = near.local_addr().unwrap();
        let seen = far.try_clone().unwrap();
        for socket in [&near, &far, &own] {
            socket.set_nonblocking(true).unwrap();
        }
        let [stop, cut] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (asked, is_cut) = (Arc::clone(&stop), Arc::clone(&cut));
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client, mut passed) = ([0; 70_000], None, Passed::default());
            while !asked.load(Ordering::Relaxed) {
                let before = passed.datagrams;
                for (from, to, toward_server) in [(&near, &far, true), (&far, &near, false)] {
                    let Ok((len, peer)) = from.recv_from(&mut buffer) else {
                        continue;
                    };
                    let datagram = &buffer[..len];
                    if toward_server {
                        client = Some(peer);
                        passed.said.push(datagram.to_vec());
                        if datagram[0] == 0x21 && datagram[3] != 0 {
                            passed.requests.insert(datagram.to_vec());
                        }
                        if is_cut.load(Ordering::Relaxed) {
                            continue;
                        }
                    }
                    let Some(next) = (if toward_server { Some(server) } else { client }) else {
                        continue;
                    };
                    let id = u32::from_be_bytes(datagram[4..8].try_into().unwrap());
                    if let Mischief::Lies { answers, .. } = mischief {
                        for answer in answers(id).iter().filter(|_| toward_server) {
                            from.send_to(&octets(answer), peer).unwrap();
                        }
                    }
                    if matches!(mischief, Mischief::Plays if toward_server) {
                        own.send_to(datagram, server).unwrap();
                    }
                    to.send_to(datagram, next).unwrap();
                    match mischief {
                        // The first word of each is true.
                        Mischief::Lies { lies, .. } if passed.datagrams > 4 => {
                            let lies = lies(id);
                            if !lies.is_empty() {
                                let lie = &lies[passed.datagrams % lies.len()];
                                to.send_to(&octets(lie), next).unwrap();
                            }
                        }
                        Mischief::Plays if toward_server => {
                            for request in &passed.requests {
                                far.send_to(request, server).unwrap();
                                own.send_to(request, server).unwrap();
                            }
                        }
                        Mischief::PlaysLate if toward_server && passed.datagrams > 50 => {
                            for request in &passed.requests {
                                far.send_to(request, server).unwrap();
                            }
                        }
                        _ => {}
                    }
                    passed.datagrams += 1;
                }
                if let Mischief::Plays = mischief
                    && let (Ok((len, _)), Some(client)) = (own.recv_from(&mut buffer), client)
                {
                    near.send_to(&buffer[..len], client).unwrap();
                }
                if passed.datagrams == before {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            passed
        });
        Self {
            address,
            far: seen,
            stop,
            cut,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> Passed {
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

/// A server that has a key and 1 MB as `a`, and a client's configuration with that key, slow enough for what lies between
/// them, which reads one datagram at a time.
fn slow_and_keyed() -> (Served, impl Fn() -> client::ClientConfig) {
    let key = key("0123456789abcdef");
    let link = Link {
        rate: Rate::from_bits_per_sec(10_000_000),
        ..LINK
    };
    let served = Served::new(serve::ServerConfig {
        key: Some(key.clone()),
        link,
        ..config()
    });
    std::fs::write(served.file("a"), content(1_000_000)).unwrap();
    let keyed = move || client::ClientConfig {
        key: Some(key.clone()),
        link,
        ..client()
    };
    (served, keyed)
}

/// With a key no frame counts that who has it has not sent.
#[test]
fn a_key_covers_every_frame_that_changes_a_session() {
    let (served, keyed) = slow_and_keyed();
    let here = tempfile::tempdir().unwrap();
    let between = Between::new(
        served.address,
        Mischief::Lies {
            answers: |_| Vec::new(),
            lies,
        },
    );
    run_at(between.address, keyed(), get("a", here.path()))
        .result
        .unwrap();
    let got = here.path().join("got");
    assert!(std::fs::read(&got).unwrap() == content(1_000_000));
    run_at(between.address, keyed(), give(&got, "b"))
        .result
        .unwrap();
    assert!(std::fs::read(served.file("b")).unwrap() == content(1_000_000));
    run_at(between.address, keyed(), take("b", here.path()))
        .result
        .unwrap();
    let passed = between.end().datagrams;
    assert!(passed > 2000, "{passed} lies");
    assert!(served.file("a").exists());
}

/// A key is of both sides: a server without one says so at once, and a client that has one believes nobody else.
#[test]
fn a_client_with_a_key_wants_a_server_with_it() {
    let served = Served::new(config());
    std::fs::write(served.file("a"), "a").unwrap();
    let here = tempfile::tempdir().unwrap();
    let config = client::ClientConfig {
        key: Some(key("0123456789abcdef")),
        ..client()
    };
    let began = Instant::now();
    let report = run_at(served.address, config, get("a", here.path()));
    let said = report.result.unwrap_err().to_string();
    assert!(
        said.contains("access denied") && said.contains("without a seal"),
        "{said}"
    );
    assert!(began.elapsed() < Duration::from_secs(6));
    assert_eq!(support::names(here.path()), [""; 0], "nothing is left");
}

/// What somebody on the path has put into a part before a key was used is none of what comes under one, though he knew what
/// would be announced.
#[test]
fn what_came_without_a_key_is_not_gone_on_with_under_one() {
    let here = tempfile::tempdir().unwrap();
    let (file, right) = (here.path().join("a"), content(1_000_000));
    std::fs::write(&file, &right).unwrap();
    let (modified, created) = posix_times(&file.metadata().unwrap());
    let entry = Entry {
        modified,
        created,
        ..Entry::file("a", 1_000_000)
    };
    let known = Metadata {
        checksum: Algorithm::Md5.sum_octets(&right),
        ..Metadata::new(7, Kind::File, entry)
    };
    let open = Served::new(config());
    let forger = Peer::new("127.0.0.1:0", open.address);
    let mut forged = octets(&Frame::Data(Data {
        offset: 990_000,
        ..unasked(7, 1000)
    }));
    forged.extend_from_slice(&[7; 1000]);
    for datagram in [&octets(&Frame::Metadata(known)), &forged] {
        forger.socket.send_to(datagram, open.address).unwrap();
    }
    let record = open.file(".a.saratoga-record");
    support::until(|| record.exists());
    let folder = open.stop();
    let key = Some(key("0123456789abcdef"));
    let server = serve::ServerConfig {
        key: key.clone(),
        ..config()
    };
    let served = Served::of(Tree::open(folder.path()).unwrap(), server);
    let keyed = || client::ClientConfig {
        key: key.clone(),
        ..client()
    };
    run_at(served.address, keyed(), put(&file, "a"))
        .result
        .unwrap();
    assert!(std::fs::read(folder.path().join("a")).unwrap() == right);
}

fn unasked(session: u32, len: u32) -> Data {
    Data {
        session,
        width: Width::Bits32,
        kind: Kind::File,
        timestamp: None,
        status_wanted: false,
        end: false,
        offset: 0,
        len,
    }
}

/// What somebody on the way says without a seal, before the server that has the key can answer, ends nothing, nor
/// does it lead astray: a refusal, or another's rate.
#[test]
fn what_is_said_without_a_seal_before_the_server_answers_is_not_believed() {
    fn refusals(session: u32) -> Vec<Frame> {
        let codes = [
            Code::DENIED,
            Code::UNKNOWN_ID,
            Code::CANNOT_SEND,
            Code::NOT_FOUND,
        ];
        let refusals = codes.map(|code| status(session, code, None, 0));
        let beacon = beacon_of(&format!("asked={session:08x} rate=9Gbit/s"));
        refusals.into_iter().chain([beacon]).collect()
    }
    let key = key("0123456789abcdef");
    let served = Served::new(serve::ServerConfig {
        key: Some(key.clone()),
        ..config()
    });
    std::fs::write(served.file("a"), content(10_000)).unwrap();
    let keyed = || client::ClientConfig {
        key: Some(key.clone()),
        ..client()
    };
    let here = tempfile::tempdir().unwrap();
    let between = Between::new(
        served.address,
        Mischief::Lies {
            answers: refusals,
            lies: |_| Vec::new(),
        },
    );
    let rate = beacon::ask_rate(between.address, Some(&key), Duration::from_secs(5)).unwrap();
    assert_eq!(rate, LINK.rate);
    let delete = |remote: &str| Job::Delete {
        remote: remote.to_owned(),
    };
    for job in [
        get("a", here.path()),
        give(&here.path().join("got"), "b"),
        take("b", here.path()),
        delete("a"),
    ] {
        let path = job.remote().to_owned();
        let report = run_at(between.address, keyed(), job);
        report
            .result
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(std::fs::read(here.path().join("got")).unwrap() == content(10_000));
    assert_eq!(served.count(), 0);
    assert!(between.end().datagrams > 20);
}

fn beacon_of(name: &str) -> Frame {
    Frame::Beacon(Beacon {
        capabilities: Capabilities::default(),
        free: None,
        name: name.to_owned(),
    })
}

/// Without a key, too: who forges the server's address, and does not see what it is asked, neither sets the rate at which
/// a client sends nor has it give up.
#[test]
fn a_rate_is_believed_only_of_who_has_heard_the_question() {
    fn forged(_: u32) -> Vec<Frame> {
        let guess = std::process::id();
        let names = [
            "rate=1kbit/s".to_owned(),
            "asked=00000000 rate=40Gbit/s".to_owned(),
            format!("asked={guess:08x} rate=1kbit/s"),
        ];
        let beacons = names.iter().map(|name| beacon_of(name));
        let refusals = [0, guess].map(|session| status(session, Code::DENIED, None, 0));
        beacons.chain(refusals).collect()
    }
    let served = Served::new(config());
    let between = Between::new(
        served.address,
        Mischief::Lies {
            answers: forged,
            lies: |_| Vec::new(),
        },
    );
    let rate = beacon::ask_rate(between.address, None, Duration::from_secs(20)).unwrap();
    assert_eq!(rate, LINK.rate);
}

/// It does not wait for another: a server of another version may say it in another way, or only that all is well.
#[test]
fn an_answer_without_a_rate_that_can_be_read_is_an_error_at_once() {
    let answers: [fn(u32) -> Frame; 3] = [
        |session| beacon_of(&format!("name asked={session:08x} rate=8Mbaud")),
        |session| beacon_of(&format!("asked={session:08x}")),
        |session| status(session, Code::OK, None, 0),
    ];
    for answer in answers {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2_000];
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            let (asked, _) = Frame::parse(&buffer[..len]).unwrap();
            let answer = answer(asked.session().unwrap());
            server.send_to(&octets(&answer), from).unwrap();
        });
        let begun = Instant::now();
        let asked = beacon::ask_rate(address, None, Duration::from_secs(30));
        thread.join().unwrap();
        let said = asked.unwrap_err().to_string();
        assert!(said.contains("give --rate"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{said}");
    }
}

/// What a server says to somebody who plays a session again ends that session neither there nor at its client.
#[test]
fn what_is_played_again_while_it_goes_on_ends_nothing() {
    let (served, keyed) = slow_and_keyed();
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    for job in [
        get("a", here.path()),
        give(&got, "b"),
        take("b", here.path()),
    ] {
        let what = job.remote().to_owned();
        let between = Between::new(served.address, Mischief::Plays);
        if what == "a" {
            // A REQUEST of the same session that the server has never seen.
            between.cut.store(true, Ordering::Relaxed);
            let mut config = keyed();
            config.link.silence = Duration::from_secs(1);
            let report = run_at(between.address, config, get("a", here.path()));
            report.result.unwrap_err();
            between.cut.store(false, Ordering::Relaxed);
        }
        let report = run_at(between.address, keyed(), job);
        report
            .result
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let requests = between.end().requests.len();
        assert_eq!(requests, 1 + usize::from(what == "a"), "{what} began anew");
    }
    assert!(std::fs::read(&got).unwrap() == content(1_000_000));
    assert!(!served.file("b").exists());
}

/// A REQUEST that never got through, and whose client has given up, is played from the address of another that is heard and
/// known: nothing is deleted without a word of its own client.
#[test]
fn a_deletion_that_was_withheld_is_not_made_up_for_by_others() {
    let (served, keyed) = slow_and_keyed();
    std::fs::write(served.file("b"), content(1000)).unwrap();
    let delete = || Job::Delete {
        remote: "b".to_owned(),
    };
    let between = Between::new(served.address, Mischief::PlaysLate);
    between.cut.store(true, Ordering::Relaxed);
    let mut config = keyed();
    config.link.silence = Duration::from_secs(1);
    let report = run_at(between.address, config, delete());
    report.result.unwrap_err();
    between.cut.store(false, Ordering::Relaxed);
    let here = tempfile::tempdir().unwrap();
    let report = run_at(between.address, keyed(), get("a", here.path()));
    report.result.unwrap();
    assert!(served.file("b").exists(), "it was deleted");
    assert_eq!(between.end().requests.len(), 2, "and it was played");
    run_at(served.address, keyed(), delete()).result.unwrap();
    assert!(!served.file("b").exists());
}

/// All that a client has said to one server is played to another that has the key, and knows the address from which it comes:
/// nothing is put there or deleted. A server that was started again is another one.
#[test]
fn what_was_recorded_is_not_done_again_elsewhere() {
    for timestamps in [true, false] {
        let [here, there] = [(); 2].map(|()| {
            let mut server = serve::ServerConfig {
                key: Some(key("0123456789abcdef")),
                ..config()
            };
            server.link.timestamps = timestamps;
            let served = Served::new(server);
            std::fs::write(served.file("taken"), content(1000)).unwrap();
            served
        });
        let keyed = || client::ClientConfig {
            key: Some(key("0123456789abcdef")),
            ..client()
        };
        let local = tempfile::tempdir().unwrap();
        let [given, other] = ["given", "other"].map(|name| local.path().join(name));
        for job in [give(&given, "given"), take("taken", local.path())] {
            std::fs::write(&given, content(1000)).unwrap();
            let between = Between::new(here.address, Mischief::None);
            let from = between.far.try_clone().unwrap();
            run_at(between.address, keyed(), job).result.unwrap();
            let said = between.end().said;
            // Its address becomes known.
            let between = Between::from(from, there.address, Mischief::None);
            let from = between.far.try_clone().unwrap();
            std::fs::write(&other, content(1000)).unwrap();
            run_at(between.address, keyed(), put(&other, "other"))
                .result
                .unwrap();
            between.end();
            for _ in 0..3 {
                for datagram in &said {
                    from.send_to(datagram, there.address).unwrap();
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        assert!(!here.file("taken").exists() && here.file("given").exists());
        assert!(!there.file("given").exists(), "it was put again");
        assert!(there.file("taken").exists(), "it was deleted again");
    }
}

/// Its REQUEST alone deletes nothing at a server that sends content without timestamps, either.
#[test]
fn a_deletion_wants_a_word_of_its_client_where_content_has_no_timestamps() {
    let key = key("0123456789abcdef");
    let mut server = serve::ServerConfig {
        key: Some(key.clone()),
        ..config()
    };
    server.link.timestamps = false;
    let served = Served::new(server);
    std::fs::write(served.file("a"), "a").unwrap();
    let ask = |address, silence| {
        let mut config = client::ClientConfig {
            key: Some(key.clone()),
            ..client()
        };
        config.link.silence = Duration::from_secs(silence);
        let delete = Job::Delete {
            remote: "a".to_owned(),
        };
        run_at(address, config, delete).result
    };
    let between = Between::new(served.address, Mischief::PlaysLate);
    between.cut.store(true, Ordering::Relaxed);
    ask(between.address, 1).unwrap_err();
    let withheld = between.end().requests;
    assert_eq!(withheld.len(), 1);
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    for request in &withheld {
        peer.socket.send_to(request, served.address).unwrap();
    }
    peer.hear_all(Duration::from_millis(300));
    assert!(peer.received > 0);
    assert!(served.file("a").exists(), "it was deleted");
    ask(served.address, 20).unwrap();
    assert!(!served.file("a").exists());
}
