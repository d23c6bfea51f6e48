//! What peers make a server work for: checksums and lists are made beside its loop, a few at once, and for nobody who has
//! gone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga_udp::client::Job;
use bentpipe_saratoga_udp::{Link, serve};
use bentpipe_wire::saratoga::{Code, Frame, RequestKind, Width};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::peer::{Peer, request, status};
use support::{LINK, Served, config, get, run};

/// The tests count threads of this process, so that each runs by itself.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn threads(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        all.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|own| own.trim() == name).count()
}

/// A file that is asked for with its checksum first, by somebody who does not ask again: it is not summed up to its end.
#[test]
fn what_nobody_asks_for_again_is_not_prepared() {
    let _alone = alone();
    let served = Served::new(serve::ServerConfig {
        link: Link {
            silence: Duration::from_secs(1),
            ..LINK
        },
        ..config()
    });
    let large = std::fs::File::create(served.file("large")).unwrap();
    // It takes a quarter of an hour to be summed up.
    large.set_len(1 << 40).unwrap();
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    let Frame::Request(mut request) = request(1, RequestKind::Get, "large") else {
        unreachable!("it is one");
    };
    request.late_checksum = false;
    peer.send(&Frame::Request(request.clone()));
    peer.prove(1);
    // As long as it asks it is done.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(300));
        peer.send(&Frame::Request(request.clone()));
    }
    assert!(threads("checksum") > 0);
    let until = Instant::now() + Duration::from_secs(5);
    while peer
        .hear()
        .is_none_or(|frame| !matches!(frame, Frame::Status(status) if status.code != Code::OK))
    {
        assert!(Instant::now() < until, "it goes on");
    }
    // The server goes on, and the work for that session does not.
    let until = Instant::now() + Duration::from_secs(2);
    while threads("checksum") > 0 {
        assert!(Instant::now() < until, "work that nobody waits for goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let list = Job::List {
        remote: String::new(),
    };
    assert!(!run(&served, list).unwrap().is_empty());
}

/// Large files that are summed up for one, first or because it says that it has them already: others get their lists.
#[test]
fn lists_do_not_wait_for_sums_over_whole_files() {
    let _alone = alone();
    let served = Served::new(config());
    let large = std::fs::File::create(served.file("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let mut greedy = Peer::new("127.0.0.9:0", served.address);
    for session in 1..=8 {
        let Frame::Request(mut request) = request(session, RequestKind::Get, "large") else {
            unreachable!("it is one");
        };
        request.late_checksum = session > 4;
        greedy.send(&Frame::Request(request));
        if session == 1 {
            greedy.prove(1);
            greedy.hear_all(Duration::from_millis(300));
        }
    }
    for session in 5..=8 {
        let Frame::Status(mut all) = status(session, Code::OK, None, 1 << 40) else {
            unreachable!("it is one");
        };
        (all.width, all.in_response_to) = (Width::Bits64, all.progress);
        greedy.send(&Frame::Status(all));
    }
    let until = Instant::now() + Duration::from_secs(10);
    while threads("checksum") < 4 || threads("sum") < 4 {
        greedy.hear_all(Duration::from_millis(100));
        assert!(Instant::now() < until, "nothing is summed up");
    }
    let list = Job::List {
        remote: String::new(),
    };
    run(&served, list).unwrap();
    assert!(threads("checksum") >= 4 && threads("sum") >= 4);
}

/// Many lists of a large directory, asked for by one: others are served meanwhile.
#[test]
fn lists_of_a_large_directory_hold_nobody_up() {
    let _alone = alone();
    let served = Served::new(serve::ServerConfig {
        max_sessions: 1024,
        ..config()
    });
    std::fs::create_dir(served.file("large")).unwrap();
    for i in 0..20_000 {
        std::fs::File::create(served.file(&format!("large/a name that is not short {i}"))).unwrap();
    }
    std::fs::write(served.file("b"), "b").unwrap();
    let mut greedy = Peer::new("127.0.0.9:0", served.address);
    greedy.send(&request(1, RequestKind::Get, "b"));
    greedy.prove(1);
    greedy.hear_all(Duration::from_millis(300));
    for session in 2..250 {
        greedy.send(&request(session, RequestKind::List, "large"));
    }
    let here = tempfile::tempdir().unwrap();
    let began = Instant::now();
    run(&served, get("b", here.path())).unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    // The other gets there as well, behind its own.
    assert!(threads("list") > 0);
    let list = Job::List {
        remote: String::new(),
    };
    assert!(!run(&served, list).unwrap().is_empty());
}

/// A directory whose path is written in many ways is in memory once.
#[test]
fn a_list_is_in_memory_once_however_its_path_is_written() {
    let _alone = alone();
    let served = Served::new(serve::ServerConfig {
        max_sessions: 1024,
        ..config()
    });
    std::fs::create_dir(served.file("d")).unwrap();
    for i in 0..3000 {
        let name = format!("d/{i}{}", "x".repeat(200));
        std::fs::File::create(served.file(&name)).unwrap();
    }
    std::fs::write(served.file("b"), "b").unwrap();
    let memory = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let mut peer = Peer::new("127.0.0.11:0", served.address);
    peer.send(&request(1, RequestKind::Get, "b"));
    peer.prove(1);
    peer.hear_all(Duration::from_millis(300));
    let before = memory();
    for session in 2..202 {
        let path = format!("d{}", "/.".repeat(session as usize));
        peer.send(&request(session, RequestKind::List, &path));
    }
    std::thread::sleep(Duration::from_millis(300));
    while threads("list") > 0 {
        peer.hear_all(Duration::from_millis(100));
    }
    let more = memory().saturating_sub(before);
    // 200 lists of 660 kB would be 130 MB.
    assert!(more < 60_000_000, "{more} octets");
}

/// REQUESTs for the session of another, from other ports of its address: they end nothing, begin no more
/// than is allowed, and the work for those that end is not done to its end.
#[test]
fn a_request_from_another_port_ends_nothing_and_stays_within_the_bounds() {
    let _alone = alone();
    let served = Served::new(serve::ServerConfig {
        max_sessions: 8,
        link: Link {
            silence: Duration::from_secs(3),
            ..LINK
        },
        ..config()
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
