//! A server and a client among people who lie about who they are: forged addresses, sessions of others,
//! frames that the peer never sent. All by sockets on the loopback, whose every address can be had.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga::echo;
use bentpipe_saratoga_udp::{Link, client, serve};
use bentpipe_wire::saratoga::{Checksum, Code, Data, Frame, Kind, RequestKind, Timestamp, Width};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use support::line::Line;
use support::peer::{Peer, metadata, octets, request, status};
use support::{LINK, Served, client, config, content, get, put, run, run_at, slow, take};

/// Whoever writes another's address into a REQUEST cannot have a file sent there: not by asking often, nor by
/// guessing what the other would answer, nor by asking for what is checked, listed or taken.
#[test]
fn a_forged_request_brings_no_more_than_ten_times_what_came() {
    let served = Served::new(config());
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
        let served = Served::new(serve::ServerConfig {
            link: Link { timestamps, ..LINK },
            ..config()
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
    let served = Served::new(config());
    std::fs::write(served.file("a"), content(10_000_000)).unwrap();
    std::fs::write(served.file("b"), content(1000)).unwrap();
    let mut victim = Peer::new("127.0.0.9:0", served.address);
    victim.send(&request(1, RequestKind::Get, "b"));
    victim.prove(1);
    victim.hear_all(Duration::from_millis(300));
    let before = (victim.sent, victim.received);
    for session in 2..40 {
        victim.send(&request(session, RequestKind::Get, "a"));
    }
    victim.hear_all(Duration::from_secs(2));
    let (sent, received) = (victim.sent - before.0, victim.received - before.1);
    assert!(received > 500_000, "it is served at once: {received}");
    assert!(received <= (1 << 20) + 10 * sent, "{received} for {sent}");
}

/// A server that lets anybody put is no voice for those who speak in its name: what another server asks it, it
/// never answers with that server's own proof, whatever was said before in the other's name.
#[test]
fn a_server_proves_for_nobody_that_it_has_asked_for_something() {
    let served = Served::new(config());
    let stamp = Timestamp::local([7; 15]);
    let question = |session, width| {
        Frame::Data(Data {
            session,
            width,
            kind: Kind::File,
            timestamp: Some(stamp),
            status_wanted: true,
            end: false,
            offset: 0,
            len: 0,
        })
    };
    let announced = |session, checksum: Checksum, size| {
        let Frame::Metadata(mut said) = metadata(session, &format!("m{session}"), size) else {
            unreachable!("it is one");
        };
        said.checksum = checksum;
        Frame::Metadata(said)
    };
    let put = |session| request(session, RequestKind::Put, &format!("p{session}"));
    let before = [
        vec![],
        vec![announced(2, Checksum::None, 1000)],
        vec![announced(3, Checksum::Later(1), 0)],
        vec![put(4)],
        vec![put(5), announced(5, Checksum::None, 1000)],
        vec![question(6, Width::Bits32)],
    ];
    for (session, frames) in (1..).zip(before) {
        let mut other = Peer::new("127.0.0.1:0", served.address);
        for frame in &frames {
            other.send(frame);
        }
        for width in [Width::Bits16, Width::Bits32, Width::Bits64] {
            other.send(&question(session, width));
        }
        let mut heard = 0;
        while let Some(frame) = other.hear() {
            heard += 1;
            let echoed = match &frame {
                Frame::Status(status) => status.timestamp,
                Frame::Data(data) => data.timestamp,
                _ => None,
            };
            assert_ne!(echoed, Some(stamp), "case {session}: {frame:?}");
        }
        assert!(heard > 0, "case {session}: it is answered");
    }
}

/// A put in another's name does not keep a name from who is there.
#[test]
fn a_forged_put_keeps_no_name_from_who_is_there() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(100_000)).unwrap();
    for (session, from) in [(1, "127.0.0.9:0"), (2, "127.0.0.1:0")] {
        let mut forged = Peer::new(from, served.address);
        forged.send(&metadata(session, "mine", 1000));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(served.count(), session as usize, "it has begun");
        run(&served, put(&local, "mine")).unwrap();
        assert!(std::fs::read(served.file("mine")).unwrap() == content(100_000));
        assert_eq!(served.count(), 1);
    }
}

/// A NAT gives a client that puts another port: it is told to begin anew, not taken for somebody who puts blindly.
#[test]
fn a_put_that_comes_from_another_port_is_to_begin_anew() {
    let served = Served::new(config());
    let [mut before, mut after] = [(); 2].map(|()| Peer::new("127.0.0.1:0", served.address));
    before.send(&request(1, RequestKind::Put, "x"));
    before.send(&metadata(1, "x", 1000));
    before.hear_all(Duration::from_millis(200));
    for session in [1, 2] {
        after.send(&Frame::Data(Data {
            session,
            width: Width::Bits32,
            kind: Kind::File,
            timestamp: None,
            status_wanted: true,
            end: false,
            offset: 0,
            len: 0,
        }));
        let Some(Frame::Status(said)) = after.hear() else {
            panic!("it is not answered");
        };
        let anew = said.code == Code::UNKNOWN_ID;
        assert_eq!((anew, said.metadata_missing), (session == 1, session == 2));
    }
}

/// The word that what was taken is deleted may be lost: it is said again to who asks, and to nobody else.
#[test]
fn the_last_word_of_a_take_is_said_again() {
    let served = Served::new(config());
    std::fs::write(served.file("a"), content(1000)).unwrap();
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    peer.send(&request(1, RequestKind::Take, "a"));
    peer.prove(1);
    let until = Instant::now() + Duration::from_secs(10);
    while served.file("a").exists() {
        assert!(Instant::now() < until, "it stays");
        if let Some(Frame::Data(data)) = peer.hear() {
            peer.send(&status(1, Code::OK, data.timestamp, 1000));
        }
    }
    peer.hear_all(Duration::from_millis(500));
    for (session, code) in [(1, Code::OK), (1, Code::OK), (2, Code::UNKNOWN_ID)] {
        peer.send(&status(session, Code::OK, None, 1000));
        let Some(Frame::Status(said)) = peer.hear() else {
            panic!("it is not answered");
        };
        assert_eq!((said.session, said.code), (session, code));
    }
}

/// What is in the way of a deletion is found however its path is written.
#[test]
fn what_arrives_is_in_use_by_whatever_path() {
    let served = Served::new(config());
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    peer.send(&request(1, RequestKind::Put, "x"));
    peer.send(&metadata(1, "x", 1000));
    peer.hear_all(Duration::from_millis(200));
    for (session, path) in [(2, "x"), (3, "./x"), (4, ".//x/")] {
        peer.send(&request(session, RequestKind::Delete, path));
        let said = std::iter::from_fn(|| peer.hear()).find(|said| said.session() == Some(session));
        let Some(Frame::Status(status)) = said else {
            panic!("{path}: {said:?}");
        };
        assert_eq!(status.code, Code::IN_USE, "{path}");
    }
}

/// What others send in its name, and to it, does not end a transfer, from whichever port and address.
#[test]
fn a_transfer_survives_everybody_else() {
    let served = Served::new(serve::ServerConfig {
        link: slow(),
        ..config()
    });
    std::fs::write(served.file("a"), content(4_000_000)).unwrap();
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(4_000_000)).unwrap();
    for (job, path) in [
        (get("a", here.path()), "a"),
        (put(&local, "b"), "b"),
        (take("a", here.path()), "a"),
    ] {
        let (line, first) = Line::of_one(served.address);
        let address = line.address;
        let transfer = std::thread::spawn(move || {
            let config = client::ClientConfig {
                link: slow(),
                ..client()
            };
            run_at(address, config, job).result
        });
        let (session, client) = first.recv().unwrap();
        let mut others: Vec<Peer> = ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.9:0"]
            .map(|from| Peer::new(from, served.address))
            .into();
        others.push(Peer::new("127.0.0.1:0", client));
        let mut rounds = 0;
        while !transfer.is_finished() {
            for other in &mut others {
                for kind in [
                    RequestKind::Get,
                    RequestKind::Put,
                    RequestKind::Take,
                    RequestKind::Give,
                ] {
                    other.send(&request(session, kind, path));
                }
                other.send(&metadata(session, path, 17));
                other.send(&status(session, Code::OK, None, 4_000_000));
                other.send(&status(session, Code::TERMINATED, None, 0));
                other.send(&status(session, Code::UNKNOWN_ID, None, 0));
                other.send(&Frame::Data(Data {
                    session,
                    width: Width::Bits32,
                    kind: Kind::File,
                    timestamp: None,
                    status_wanted: true,
                    end: true,
                    offset: 17,
                    len: 0,
                }));
            }
            rounds += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        transfer.join().unwrap().unwrap();
        assert!(rounds > 20, "{rounds}");
        let there = if path == "a" {
            here.path().join("got")
        } else {
            served.file(path)
        };
        assert!(
            std::fs::read(there).unwrap() == content(4_000_000),
            "{path}"
        );
    }
}

/// Clients behind one address with the same command, from ports of their own: each has its own session (with one Id too:
/// `work::a_request_from_another_port_ends_nothing_and_stays_within_the_bounds`). What they take is deleted when one of them
/// has it, and no sooner.
#[test]
fn clients_behind_one_address_with_one_command_do_not_meet() {
    for job in [get, take] {
        let served = Served::new(config());
        let there = served.file("a");
        std::fs::write(&there, content(5_000_000)).unwrap();
        let here: [_; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        let whole = |folder: &tempfile::TempDir| {
            std::fs::read(folder.path().join("got")).is_ok_and(|got| got == content(5_000_000))
        };
        std::thread::scope(|scope| {
            let clients = [0, 100, 200].map(|pause| {
                let (server, here) = (served.address, here[pause / 100].path());
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(pause as u64));
                    run_at(server, client(), job("a", here)).result
                })
            });
            while there.exists() && !clients.iter().all(|client| client.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let deleted = !there.exists();
            assert!(!deleted || here.iter().any(whole), "nobody has it");
            let results = clients.map(|client| client.join().unwrap());
            let done = results.iter().filter(|result| result.is_ok()).count();
            assert_eq!(done, if deleted { 1 } else { 3 }, "{results:?}");
            for (result, here) in results.iter().zip(&here) {
                assert!(result.is_err() || whole(here));
            }
        });
    }
}

/// What is asked for and never comes leaves nothing behind, however deep its path.
#[test]
fn puts_that_bring_nothing_leave_nothing() {
    let served = Served::new(serve::ServerConfig {
        link: Link {
            silence: Duration::from_secs(2),
            ..LINK
        },
        ..config()
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
    let served = Served::new(config());
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
    run(&served, get("a", here.path())).unwrap();
    run(&served, put(&here.path().join("got"), "mine")).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(
        std::fs::read(served.file("mine")).unwrap(),
        content(100_000)
    );
}

/// Whose REQUEST was forgotten before its proof came hears so, and asks again.
#[test]
fn a_proof_of_nothing_that_is_known_is_answered() {
    let served = Served::new(config());
    let mut peer = Peer::new("127.0.0.12:0", served.address);
    peer.send(&request(1, RequestKind::Get, "missing"));
    let stamp = loop {
        if let Some(Frame::Data(data)) = peer.hear() {
            break data.timestamp;
        }
    };
    for code in [Code::NOT_FOUND, Code::UNKNOWN_ID] {
        peer.send(&status(1, Code::OK, stamp, 0));
        let said = std::iter::from_fn(|| peer.hear()).next();
        assert!(matches!(said, Some(Frame::Status(status)) if status.code == code));
    }
}

/// Who was heard once, and does not show in its sessions that it hears them, keeps no place in the end.
#[test]
fn a_session_that_nobody_hears_gives_way_in_the_end() {
    let served = Served::new(serve::ServerConfig {
        max_sessions: 4,
        ..config()
    });
    std::fs::write(served.file("a"), content(3_000_000)).unwrap();
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    peer.send(&request(1, RequestKind::Get, "missing"));
    peer.prove(1);
    peer.send(&request(2, RequestKind::Get, "a"));
    for _ in 0..11 {
        std::thread::sleep(Duration::from_secs(1));
        peer.send(&status(2, Code::OK, None, 0));
    }
    let mut other = Peer::new("127.0.0.1:0", served.address);
    other.send(&request(1, RequestKind::Get, "a"));
    other.prove(1);
    let said = std::iter::from_fn(|| other.hear()).next();
    assert!(matches!(said, Some(Frame::Metadata(_))), "{said:?}");
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
    let served = Served::new(serve::ServerConfig {
        link: Link {
            silence: Duration::from_secs(1),
            ..LINK
        },
        ..config()
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
        run(&served, put(&here.path().join("mine"), &remote)).unwrap();
        run(&served, get(&remote, here.path())).unwrap();
        assert!(std::fs::read(here.path().join("got")).unwrap() == content(50_000));
    }
}

/// Whoever forges the question has a beacon sent to somebody else.
#[test]
fn a_name_in_beacons_is_no_longer_than_ten_questions() {
    let named = |len| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config();
        config.name = Some("n".repeat(len));
        bentpipe_saratoga_udp::Server::new(
            bentpipe_saratoga_udp::Tree::open(folder.path()).unwrap(),
            config,
        )
    };
    assert!(named(201).is_err());
    let mut config = config();
    config.name = Some("n".repeat(200));
    let served = Served::new(config);
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    peer.send(&request(7, RequestKind::None, ""));
    peer.hear_all(Duration::from_millis(300));
    assert!(peer.received > 200, "it is answered");
    assert!(
        peer.received <= 10 * peer.sent,
        "{} for {}",
        peer.received,
        peer.sent
    );
}
