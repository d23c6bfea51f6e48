//! Many datagrams that cost who sends them little, from addresses that need not be his own; and many sessions, of a few.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga_udp::serve;
use bentpipe_wire::saratoga::{Frame, RequestKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::peer::{Peer, metadata, request};
use support::{Served, config, content, get, put, run, slow};

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
