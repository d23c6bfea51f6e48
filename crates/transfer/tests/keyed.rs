//! A key: what it covers against somebody between client and server who sees and forges everything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_transfer::{Key, Link, client, serve};
use bentpipe_wire::saratoga::{Code, Data, Frame, Kind, RequestKind, Width};
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
    assert!(said.contains("access denied"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(2));
}
