//! Sizes that a peer chooses: of what it sends, and of what it says that it will send. In a process of its own, whose memory
//! is measured.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::{Error, serve};
use bentpipe_wire::saratoga::{Code, Frame, Hole, RequestKind, Width};
use std::time::{Duration, Instant};
use support::peer::{Peer, metadata, request, status};
use support::{Served, client, config, get, run, run_all_at, slow};

/// Octets of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    1024 * kib.parse::<usize>().unwrap()
}

/// A REQUEST may carry whatever its sender calls an authentication. A server without a key has no use for that, and keeps
/// none of it while it waits for a proof that never comes.
#[test]
fn what_no_server_can_check_is_not_kept() {
    let served = Served::new(config());
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    let before = resident();
    let mut answered = 0;
    for session in 0..2000 {
        let Frame::Request(mut request) = request(session, RequestKind::Get, "a") else {
            unreachable!("it is one");
        };
        request.authentication = vec![b'x'; 60_000];
        peer.send(&Frame::Request(request));
        // One after the other: none is lost for want of room in a socket.
        answered += usize::from(peer.hear().is_some());
    }
    assert!(answered > 1900, "{answered} were answered");
    std::thread::sleep(Duration::from_millis(100));
    let more = resident().saturating_sub(before);
    assert!(more < 20 << 20, "{more} octets more");
}

/// A reader may name holes that are none, 65,536 in a session, and have many sessions: their memory is bounded together.
#[test]
fn what_many_sessions_have_to_repair_is_bounded() {
    const SESSIONS: u32 = 60;
    let served = Served::new(serve::ServerConfig {
        max_sessions: 4 * SESSIONS as usize,
        checksum: Algorithm::None,
        link: slow(),
        ..config()
    });
    let file = std::fs::File::create(served.file("a")).unwrap();
    file.set_len(50_000_000).unwrap();
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    let before = resident();
    for session in 0..SESSIONS {
        peer.send(&request(session, RequestKind::Get, "a"));
        if session == 0 {
            peer.prove(session);
        }
        // Of what has been sent already, as far as the server can tell.
        let sent = loop {
            match peer.hear() {
                Some(Frame::Data(data)) if data.session == session && data.len > 0 => break data,
                _ => {}
            }
        };
        for part in 0..10u128 {
            let Frame::Status(mut report) = status(session, Code::OK, sent.timestamp, 0) else {
                unreachable!("it is one");
            };
            report.in_response_to = 50_000_000;
            report.holes = (part * 7000..(part + 1) * 7000)
                .map(|i| Hole {
                    first: 3 * i,
                    last: 3 * i,
                })
                .collect();
            peer.send(&Frame::Status(report));
            // One after the other: none is lost for want of room in a socket.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let more = resident().saturating_sub(before);
    assert!(more < 60 << 20, "{more} octets more");
    // And a client is served meanwhile.
    std::fs::write(served.file("b"), "content").unwrap();
    let here = tempfile::tempdir().unwrap();
    run(&served, get("b", here.path())).unwrap();
}

/// A server may announce what no disk holds: that is refused, for each file that it is said of.
#[test]
fn sizes_that_a_server_makes_up_are_refused() {
    let mut server = Peer::new("127.0.0.1:0", "127.0.0.1:9".parse().unwrap());
    let address = server.socket.local_addr().unwrap();
    let lies = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(20);
        let mut refused = 0;
        while refused < 3 && Instant::now() < until {
            let mut buffer = [0; 2000];
            let Ok((len, from)) = server.socket.recv_from(&mut buffer) else {
                continue;
            };
            server.server = from;
            match Frame::parse(&buffer[..len]) {
                Ok((Frame::Request(asked), _)) if asked.kind == RequestKind::Get => {
                    let Frame::Metadata(mut announced) = metadata(asked.session, &asked.path, 0)
                    else {
                        unreachable!("it is METADATA");
                    };
                    (announced.width, announced.entry.width) = (Width::Bits64, Width::Bits64);
                    announced.entry.size = u64::MAX.into();
                    server.send(&Frame::Metadata(announced));
                }
                Ok((Frame::Status(said), _)) if said.code == Code::TOO_LONG => refused += 1,
                _ => {}
            }
        }
        refused
    });
    let here = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let jobs = here.iter().zip(["a", "b", "c"]);
    let jobs = jobs.map(|(here, path)| get(path, here.path())).collect();
    let reports = run_all_at(address, client(), jobs);
    assert_eq!(lies.join().unwrap(), 3);
    assert_eq!(reports.len(), 3);
    for report in reports {
        assert!(
            matches!(report.result, Err(Error::TooLong { .. })),
            "{:?}",
            report.result
        );
    }
}
