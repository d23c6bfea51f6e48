//! What is still on its way of an earlier session counts for no later one, though the server hears both from one port.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga_udp::client::Job;
use bentpipe_wire::saratoga::{Code, Frame, RequestKind};
use std::time::{Duration, Instant};
use support::line::Line;
use support::peer::{Peer, metadata, request, status};
use support::{Served, client, config, content, get, give, put, run_at};

const DELAY: Duration = Duration::from_millis(150);

/// The same name with another content each time, one behind the other, each way: with an echo of what is sent, and by
/// the ways to peers that echo nothing.
#[test]
fn what_is_given_or_got_is_of_now() {
    for (blind, timestamps) in [(false, true), (true, true), (false, false), (true, false)] {
        let case = format!("blind {blind}, timestamps {timestamps}");
        let mut config = config();
        config.link.timestamps = timestamps;
        let served = Served::new(config);
        let line = Line::delayed(served.address, DELAY);
        let here = tempfile::tempdir().unwrap();
        let mut client = client();
        client.blind = blind;
        client.link.timestamps = timestamps;
        let local = here.path().join("a");
        for round in 0..3u8 {
            let given = [vec![round; 10], content(50_000)].concat();
            std::fs::write(&local, &given).unwrap();
            let report = run_at(line.address, client.clone(), give(&local, "a"));
            let there = std::fs::read(served.file("a")).unwrap_or_default();
            assert!(there == given, "{case}, {round}: {:?}", report.result);
            report.result.unwrap();
            assert!(!local.exists());
        }
        for round in 3..6u8 {
            let there = [vec![round; 10], content(50_000)].concat();
            std::fs::write(served.file("a"), &there).unwrap();
            let report = run_at(line.address, client.clone(), get("a", here.path()));
            report.result.unwrap();
            let got = std::fs::read(here.path().join("got")).unwrap();
            assert!(got == there, "{case}, {round}");
        }
    }
}

/// A client has drawn an Id that it has used: 16 bits of a put's are new with each command.
#[test]
fn an_id_that_was_used_is_drawn_anew() {
    let served = Served::new(config());
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    let mut of_ours = metadata(7, "a", 0);
    if let Frame::Metadata(metadata) = &mut of_ours {
        metadata.mode = Some(0o644);
    }
    for first in [true, false] {
        peer.send(&request(7, RequestKind::Put, "a"));
        let said = peer.hear().unwrap();
        if first {
            peer.send(&of_ours);
            peer.hear_all(Duration::from_millis(300));
            assert!(served.file("a").exists());
            // It has heard the last word.
            peer.send(&status(7, Code::OK, None, 0));
            peer.hear_all(Duration::from_millis(300));
        } else {
            let Frame::Status(said) = said else {
                panic!("{said:?}");
            };
            assert_eq!(said.code, Code::UNKNOWN_ID);
        }
    }
}

fn delete() -> Job {
    Job::Delete {
        remote: "a".to_owned(),
    }
}

/// A network that duplicates, one way much longer than the other: what is there since stays.
#[test]
fn what_comes_a_second_time_is_not_done_again() {
    const LATER: Duration = Duration::from_millis(500);
    for (blind, size) in [(false, 10), (false, 50_000), (true, 10), (true, 50_000)] {
        let case = format!("blind {blind}, {size}");
        let served = Served::new(config());
        let line = Line::repeating(served.address, LATER);
        let here = tempfile::tempdir().unwrap();
        let mut client = client();
        client.blind = blind;
        let local = here.path().join("b");
        std::fs::write(&local, content(size)).unwrap();
        let began = Instant::now();
        let report = run_at(line.address, client.clone(), put(&local, "a"));
        report.result.unwrap();
        assert!(began.elapsed() < LATER, "the host was too busy");
        std::fs::write(served.file("a"), "newer").unwrap();
        std::thread::sleep(2 * LATER);
        let there = std::fs::read(served.file("a")).unwrap();
        assert_eq!(there, b"newer", "{case}");
        run_at(line.address, client.clone(), delete())
            .result
            .unwrap();
        assert!(!served.file("a").exists());
        std::fs::write(served.file("a"), "another").unwrap();
        std::thread::sleep(2 * LATER);
        assert!(served.file("a").exists(), "{case}");
        // Who asks anew is heard.
        run_at(line.address, client, delete()).result.unwrap();
        assert!(!served.file("a").exists());
    }
}

/// Where the round trip is longer than who deletes waits before it asks again.
#[test]
fn one_deletion_deletes_once() {
    let served = Served::new(config());
    let line = Line::delayed(served.address, Duration::from_millis(800));
    std::fs::write(served.file("a"), "old").unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            while served.file("a").exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(served.file("a"), "new").unwrap();
        });
        run_at(line.address, client(), delete()).result.unwrap();
        next.join().unwrap();
    });
    // What was sent before the answer came is there then.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(std::fs::read(served.file("a")).unwrap(), b"new");
}
