//! A key: what it covers against somebody between client and server who sees and forges everything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_transfer::client::Job;
use bentpipe_transfer::{Key, Link, beacon, client, serve};
use bentpipe_wire::saratoga::{Beacon, Capabilities, Code, Data, Frame, Kind, RequestKind, Width};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::peer::{metadata, octets, request, status};
use support::{LINK, Served, client, config, content, get, give, run_at, take};

/// Between client and server, forging frames of both in the other's name.
struct Between {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Between {
    /// Passes everything on, and after each datagram a lie of `lies` about its session.
    fn new(server: SocketAddr, lies: fn(u32) -> Vec<Frame>) -> Self {
        Self::with(server, |_| Vec::new(), lies)
    }

    /// As [`Self::new`], and answers whatever a client says with `answers`, before the server can.
    fn with(
        server: SocketAddr,
        answers: fn(u32) -> Vec<Frame>,
        lies: fn(u32) -> Vec<Frame>,
    ) -> Self {
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
                    let id = u32::from_be_bytes(buffer[4..8].try_into().unwrap());
                    for answer in answers(id).iter().filter(|_| toward_server) {
                        from.send_to(&octets(answer), peer).unwrap();
                    }
                    to.send_to(&buffer[..len], next).unwrap();
                    // The first word of each is true.
                    let lies = lies(id);
                    if told > 4 && !lies.is_empty() {
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
        ..config()
    });
    std::fs::write(served.file("a"), content(1_000_000)).unwrap();
    let keyed = || client::Config {
        key: Some(key.clone()),
        link: slow,
        ..client()
    };
    let here = tempfile::tempdir().unwrap();
    let between = Between::new(served.address, lies);
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
    let passed = between.end();
    assert!(passed > 2000, "{passed} lies");
    assert!(served.file("a").exists());
}

/// A key is of both sides: a server without one says so at once, and a client that has one believes nobody else.
#[test]
fn a_client_with_a_key_wants_a_server_with_it() {
    let served = Served::new(config());
    std::fs::write(served.file("a"), "a").unwrap();
    let here = tempfile::tempdir().unwrap();
    let config = client::Config {
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
        let beacon = Frame::Beacon(Beacon {
            capabilities: Capabilities::default(),
            free: None,
            name: "rate=9Gbit/s".to_owned(),
        });
        let refusals = codes.map(|code| status(session, code, None, 0));
        refusals.into_iter().chain([beacon]).collect()
    }
    let key = key("0123456789abcdef");
    let served = Served::new(serve::Config {
        key: Some(key.clone()),
        ..config()
    });
    std::fs::write(served.file("a"), content(10_000)).unwrap();
    let keyed = || client::Config {
        key: Some(key.clone()),
        ..client()
    };
    let here = tempfile::tempdir().unwrap();
    let between = Between::with(served.address, refusals, |_| Vec::new());
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
    assert!(between.end() > 20);
}
