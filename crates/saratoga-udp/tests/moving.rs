//! Clients whose port changes while they put: a NAT gives them another, or they were killed and begin again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_saratoga::echo;
use bentpipe_saratoga_udp::{Link, client, serve};
use bentpipe_wire::saratoga::{Code, Data, Frame, Kind, RequestKind, Status, Timestamp, Width};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::line::Line;
use support::peer::{Peer, metadata, octets, request};
use support::{LINK, Served, client, config, content, put, run_at};

/// Puts of one client: the same half Id, each begun anew.
const IDS: [u32; 3] = [0x0007_0001, 0x0007_0002, 0x0007_0003];
const SIZE: u64 = 100_000;

/// The next STATUS of `session`.
fn said(peer: &mut Peer, session: u32) -> Status {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Some(Frame::Status(status)) = peer.hear()
            && status.session == session
        {
            return status;
        }
    }
    panic!("nothing is said of {session:x}");
}

/// The question whether it hears the server.
fn question(peer: &mut Peer, session: u32) -> Option<Timestamp> {
    let status = said(peer, session);
    assert_eq!((status.code, status.metadata_missing), (Code::OK, true));
    assert!(status.timestamp.is_some(), "nothing is asked");
    status.timestamp
}

/// A put that goes on, with the first octets of its content.
fn begin(peer: &mut Peer, session: u32) {
    peer.send(&request(session, RequestKind::Put, "a"));
    let asked = question(peer, session);
    peer.send(&echo(session, asked));
    peer.send(&metadata(session, "a", SIZE));
    ask(peer, session);
    assert_eq!(said(peer, session).code, Code::OK);
}

fn ask(peer: &mut Peer, session: u32) {
    peer.send(&Frame::Data(Data {
        session,
        width: Width::Bits32,
        kind: Kind::File,
        timestamp: Some(Timestamp::local([7; 15])),
        status_wanted: true,
        end: false,
        offset: 0,
        len: 0,
    }));
}

/// Who begins again shows that it is there in a datagram that METADATA may overtake, or that is lost: it is asked again,
/// and not told that its own file is in use. Who shows nothing ends nothing.
#[test]
fn metadata_that_overtakes_the_proof_is_no_second_put() {
    let served = Served::new(config());
    let mut before = Peer::new("127.0.0.1:0", served.address);
    begin(&mut before, IDS[0]);
    let mut after = Peer::new("127.0.0.1:0", served.address);
    after.send(&request(IDS[1], RequestKind::Put, "./a"));
    let first = question(&mut after, IDS[1]);
    for _ in 0..3 {
        after.send(&metadata(IDS[1], "a", SIZE));
        question(&mut after, IDS[1]);
    }
    before.hear_all(Duration::from_millis(200));
    ask(&mut before, IDS[0]);
    assert_eq!(said(&mut before, IDS[0]).code, Code::OK, "it goes on");
    after.send(&echo(IDS[1], first));
    after.send(&metadata(IDS[1], "a", SIZE));
    ask(&mut after, IDS[1]);
    let end = Instant::now() + Duration::from_secs(10);
    while said(&mut after, IDS[1]).metadata_missing {
        assert!(Instant::now() < end, "it never begins");
        after.send(&metadata(IDS[1], "a", SIZE));
    }
    before.hear_all(Duration::from_millis(200));
    ask(&mut before, IDS[0]);
    assert_eq!(said(&mut before, IDS[0]).code, Code::UNKNOWN_ID);
}

/// A REQUEST that somebody forges in the name of who puts, whose address is known, ends nothing: it is asked for a proof.
#[test]
fn a_forged_request_for_the_same_file_ends_no_put() {
    let served = Served::new(config());
    let mut peer = Peer::new("127.0.0.1:0", served.address);
    begin(&mut peer, IDS[0]);
    for (session, path) in [(IDS[1], "a"), (0x1234_5678, "./a")] {
        peer.send(&request(session, RequestKind::Put, path));
        question(&mut peer, session);
        ask(&mut peer, IDS[0]);
        assert_eq!(said(&mut peer, IDS[0]).code, Code::OK, "it goes on");
    }
    // Another file is its own matter.
    peer.send(&request(IDS[2], RequestKind::Put, "b"));
    peer.send(&metadata(IDS[2], "b", SIZE));
    ask(&mut peer, IDS[0]);
    assert_eq!(said(&mut peer, IDS[0]).code, Code::OK);
}

/// A name that somebody has put blindly, in whoever's name, is not in use for who is about to show that he is there.
#[test]
fn metadata_that_overtakes_the_proof_is_not_refused_for_a_forged_put() {
    let served = Served::new(config());
    let mut forged = Peer::new("127.0.0.9:0", served.address);
    forged.send(&metadata(1, "a", SIZE));
    forged.hear_all(Duration::from_millis(200));
    begin_after_metadata(&mut Peer::new("127.0.0.1:0", served.address), IDS[0]);
}

fn begin_after_metadata(peer: &mut Peer, session: u32) {
    peer.send(&request(session, RequestKind::Put, "a"));
    question(peer, session);
    peer.send(&metadata(session, "a", SIZE));
    let asked = question(peer, session);
    peer.send(&echo(session, asked));
    assert_eq!(said(peer, session).code, Code::OK);
}

/// What comes first from the new port may be METADATA: it is to begin anew too. Others hear that the file is in use.
#[test]
fn metadata_from_another_port_is_to_begin_anew() {
    let served = Served::new(config());
    begin(&mut Peer::new("127.0.0.1:0", served.address), IDS[0]);
    for (from, session, code) in [
        ("127.0.0.1:0", IDS[0], Code::UNKNOWN_ID),
        ("127.0.0.1:0", IDS[2], Code::IN_USE),
        ("127.0.0.9:0", IDS[0], Code::IN_USE),
    ] {
        let mut other = Peer::new(from, served.address);
        other.send(&metadata(session, "a", SIZE));
        assert_eq!(said(&mut other, session).code, code, "{from} {session:x}");
    }
}

/// Behind a NAT that gives another port again and again a put begins anew each time, and goes on from where it was. What
/// the server still says of the session before does not count for the next.
#[test]
fn a_put_goes_on_however_often_its_port_changes() {
    let link = Link {
        rate: Rate::from_bits_per_sec(8_000_000),
        ..LINK
    };
    let served = Served::new(serve::ServerConfig { link, ..config() });
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(2_500_000)).unwrap();
    let (nat, moves) = Line::moving(served.address, Duration::from_millis(10), 150);
    let config = client::ClientConfig { link, ..client() };
    let report = run_at(nat.address, config, put(&local, "a"));
    let moves = moves.load(Ordering::Relaxed);
    report
        .result
        .unwrap_or_else(|error| panic!("after {moves} moves: {error}"));
    assert!(std::fs::read(served.file("a")).unwrap() == content(2_500_000));
    assert!(moves > 8, "its port changed only {moves} times");
}

/// Over IPv6 the kernel takes packets that say to come from where they go, as it does over IPv4 on loopback: the server's
/// question goes to itself.
#[test]
fn what_says_to_come_from_the_server_itself_proves_nothing() {
    bentpipe_os::need!(Root);
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
    let served = Served::new(config());
    let own = served.address.port().to_be_bytes();
    let raw = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::UDP),
    )
    .unwrap();
    let say = |frame: &Frame| {
        let octets = octets(frame);
        let len = (8 + octets.len() as u16).to_be_bytes();
        let datagram = [&own, &own, &len, &[0, 0], &octets[..]].concat();
        rustix::net::sendto(&raw, &datagram, SendFlags::empty(), &served.address).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    };
    say(&request(IDS[0], RequestKind::Put, "a"));
    say(&metadata(IDS[0], "a", SIZE));
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(1000)).unwrap();
    run_at(served.address, client(), put(&local, "a"))
        .result
        .unwrap();
    assert!(std::fs::read(served.file("a")).unwrap() == content(1000));
}
