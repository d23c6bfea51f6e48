//! Many datagrams that cost who sends them little, from addresses that need not be his own; and many sessions, of a few.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_saratoga::echo;
use bentpipe_saratoga_udp::{Link, serve};
use bentpipe_wire::saratoga::{Code, Data, Frame, Kind, RequestKind, Timestamp, Width};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::peer::{Peer, metadata, octets, request};
use support::{LINK, Served, client, config, content, get, put, run, run_at, slow};

/// METADATA of no session, which any address may be forged for, has descriptors, a part and up to 64 directories made. That
/// takes a part of the time of the server's one thread, and what is there of it at once is as much as one peer may have.
#[test]
fn a_flood_of_blind_puts_keeps_nobody_from_what_is_asked_for() {
    let served = Served::new(serve::ServerConfig {
        max_sessions: 16,
        ..config()
    });
    std::fs::write(served.file("a"), content(1_000_000)).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (address, end) = (served.address, Arc::clone(&over));
    let flood = std::thread::spawn(move || {
        let forged = |i| Peer::new(&format!("127.0.2.{i}:0"), address);
        let mut forged: Vec<Peer> = (1..=16).map(forged).collect();
        let mut most = 0;
        for i in 0..6000 {
            let path = format!("{i}{}/f", "/d".repeat(63));
            forged[i % 16].send(&metadata(i as u32, &path, 1000));
            if i % 4 == 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            most = i;
            if i >= 2000 && end.load(Ordering::Relaxed) {
                break;
            }
        }
        most
    });
    std::thread::sleep(Duration::from_millis(300));
    let here = tempfile::tempdir().unwrap();
    let began = Instant::now();
    run(&served, get("a", here.path())).unwrap();
    let took = began.elapsed();
    over.store(true, Ordering::Relaxed);
    let sent = flood.join().unwrap();
    assert!(took < Duration::from_secs(3), "{took:?} beside {sent}");
    // A quarter of 16 sessions, and one that begins or ends.
    let count = served.count();
    assert!(count < 5 * 66, "{count} files and directories");
    // Who puts and shows that it is there is served too.
    run(&served, put(&here.path().join("got"), "mine")).unwrap();
    assert_eq!(
        std::fs::read(served.file("mine")).unwrap(),
        content(1_000_000)
    );
}

/// Four addresses, each of which has as many sessions as it may, leave some for others.
#[test]
fn a_few_addresses_do_not_have_all_sessions() {
    let served = Served::new(serve::ServerConfig {
        max_sessions: 16,
        link: slow(),
        ..config()
    });
    let file = std::fs::File::create(served.file("a")).unwrap();
    file.set_len(90_000_000).unwrap();
    let mut peers = Vec::new();
    for host in 20..24 {
        let mut peer = Peer::new(&format!("127.0.0.{host}:0"), served.address);
        peer.send(&request(1, RequestKind::Get, "a"));
        peer.prove(1);
        for session in 2..=4 {
            peer.send(&request(session, RequestKind::Get, "a"));
            let begun = |frame| match frame {
                Frame::Metadata(metadata) => metadata.session == session,
                Frame::Data(data) => data.session == session,
                Frame::Status(status) => status.session == session,
                _ => false,
            };
            while !peer.hear().is_some_and(begun) {}
        }
        peers.push(peer);
    }
    let mut other = Peer::new("127.0.0.30:0", served.address);
    other.send(&request(1, RequestKind::Get, "a"));
    let said = std::iter::from_fn(|| other.hear()).next();
    assert!(matches!(said, Some(Frame::Data(_))), "{said:?}");
}

/// An octet of the file that session 7 puts, or a question.
fn piece(offset: u64, len: u32) -> Vec<u8> {
    let mut datagram = octets(&Frame::Data(Data {
        session: 7,
        width: Width::Bits32,
        kind: Kind::File,
        timestamp: Some(Timestamp([7; 16])),
        status_wanted: len == 0,
        end: false,
        offset: offset.into(),
        len,
    }));
    datagram.resize(datagram.len() + len as usize, 0);
    datagram
}

/// A peer of a server of 8 Mbit/s that has put every other octet.
fn with_holes(served: &Served) -> Peer {
    let mut peer = Peer::new("127.0.0.40:0", served.address);
    peer.send(&request(7, RequestKind::Put, "holes"));
    let Some(Frame::Status(question)) = peer.hear() else {
        panic!("it is asked");
    };
    assert_eq!(question.code, Code::OK);
    peer.send(&echo(7, question.timestamp));
    peer.send(&metadata(7, "holes", 90_000_000));
    std::thread::sleep(Duration::from_millis(200));
    for i in 0..3000 {
        let octet = piece(2 * i + 10, 1);
        peer.socket.send_to(&octet, peer.server).unwrap();
        if i % 200 == 0 {
            peer.hear_all(Duration::from_millis(5));
        }
    }
    peer.hear_all(Duration::from_millis(200));
    peer
}

/// Lists of holes for who asks a thousand times a second have the share of the rate that a file of his would have.
#[test]
fn what_is_asked_for_again_and_again_is_answered_at_the_rate() {
    let rate = Rate::from_bits_per_sec(8_000_000);
    let served = Served::new(serve::ServerConfig {
        link: Link { rate, ..LINK },
        ..config()
    });
    std::fs::write(served.file("a"), content(1_000_000)).unwrap();
    let mut peer = with_holes(&served);
    let asking = peer.socket.try_clone().unwrap();
    let (server, over) = (served.address, Arc::new(AtomicBool::new(false)));
    let end = Arc::clone(&over);
    let flood = std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            asking.send_to(&piece(6010, 0), server).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut heard = |time: Duration| {
        let (began, before) = (Instant::now(), peer.received);
        while began.elapsed() < time {
            peer.hear();
        }
        let octets = (peer.received - before) as f64;
        octets / rate.over(began.elapsed()).0 as f64
    };
    let alone = heard(Duration::from_secs(2));
    let getting = std::thread::spawn(move || {
        let here = tempfile::tempdir().unwrap();
        let began = Instant::now();
        run(&served, get("a", here.path())).unwrap();
        began.elapsed()
    });
    let beside = heard(Duration::from_millis(1500));
    let took = getting.join().unwrap();
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!((0.7..1.1).contains(&alone), "{alone} of the rate");
    assert!((0.3..0.7).contains(&beside), "{beside} of the rate");
    // A megabyte at half of 8 Mbit/s.
    assert!((1.7..2.8).contains(&took.as_secs_f64()), "{took:?}");
}

/// Who asks at a second address of the server's host is answered from it, whatever else comes to the server, from however
/// many ports.
#[test]
fn datagrams_from_many_ports_take_no_session_its_address() {
    let served = Served::new(serve::ServerConfig {
        listen: "0.0.0.0:0".parse().unwrap(),
        link: slow(),
        ..config()
    });
    std::fs::write(served.file("a"), content(4_000_000)).unwrap();
    let port = served.address.port();
    let over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&over);
    // Of a higher address than the client's, and at another address of the server's.
    let flood = std::thread::spawn(move || {
        let mut rounds = 0;
        while !end.load(Ordering::Relaxed) {
            for own in 10_000..15_000 {
                if let Ok(socket) = UdpSocket::bind(("127.0.0.9", own)) {
                    // A session's Id, for some.
                    let junk = [0x24, 0, 0, 0, 0, 0, 0, own as u8];
                    socket.send_to(&junk, ("127.0.0.1", port)).unwrap();
                }
            }
            rounds += 1;
        }
        rounds
    });
    std::thread::sleep(Duration::from_millis(300));
    let here = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let address = ([127, 0, 0, 7], port).into();
    let report = run_at(address, client(), get("a", here.path()));
    let took = began.elapsed();
    over.store(true, Ordering::Relaxed);
    let rounds = flood.join().unwrap();
    report.result.unwrap();
    assert!(rounds > 1, "{rounds}");
    // Without the others it takes 1.7 s.
    assert!(took < Duration::from_secs(8), "{took:?} beside {rounds}");
}
