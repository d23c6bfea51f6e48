//! Receivers that take nothing, peers that have vanished, and many flows that break at once: those who are not
//! concerned notice nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Bytes;
use bentpipe_gateway::Config;
use bentpipe_os::need;
use bentpipe_os::netlink::Prefix;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::peer::Peer;
use support::{Ip, Stage, child, eventually, exchange, in_order, pattern};

/// Writes until the path is full; returns the bytes written.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut written, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_millis(100) {
        match stream.write(&[7; 65_536]) {
            Ok(count) => {
                written += count;
                last = Instant::now();
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    stream.set_nonblocking(false).unwrap();
    written
}

/// An upload that nobody reads and whose ends have little room: its ends, and how many bytes found room on its path.
fn stall(stage: &Stage, listener: &support::Listener) -> ((TcpStream, TcpStream), usize) {
    let mut client = stage.connect(listener.address());
    let server = listener.accept();
    let room = fill(&mut client);
    ((client, server), room)
}

/// An address of the client's namespace beside its first.
fn another_client(stage: &Stage) -> SocketAddr {
    client_at(stage, [10, 77, 1, 3])
}

fn client_at(stage: &Stage, address: [u8; 4]) -> SocketAddr {
    let address = IpAddr::from(address);
    let prefix = Prefix::new(address, 24).unwrap();
    let netlink = stage.client.netlink().unwrap();
    netlink.add_address("eth0", prefix).unwrap();
    SocketAddr::new(address, 0)
}

/// One client fills buffers with uploads that the server never reads, again and again: others are split all the
/// time, and in the end it is that client's flows that are reset, no more of them than have to be.
#[test]
fn a_few_stalled_receivers_stop_no_splitting() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(128 << 20));
    config.limits.stalled = Duration::from_secs(30);
    let gateway = stage.split_by(config);
    let other = another_client(&stage);
    let listener = stage.listen(Ip::V4);
    let (mut stalled, mut rooms) = (Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(20);
    while gateway.meter.read().stalled < 3 {
        assert!(Instant::now() < until, "{:?}", gateway.meter.read());
        if stalled.len() < 60 {
            let (pair, room) = stall(&stage, &listener);
            stalled.push(pair);
            rooms.push(room);
        }
        for _ in 0..3 {
            let before = gateway.meter.read().accepted;
            let client = stage.connect_from(other, listener.address());
            let mut pair = (client, listener.accept());
            exchange(&mut pair);
            let counters = gateway.meter.read();
            assert_eq!(counters.accepted, before + 1, "it is split: {counters:?}");
            std::thread::sleep(Duration::from_millis(70));
        }
    }
    let counters = gateway.meter.read();
    assert_eq!(counters.suspended, 0, "{counters:?}");
    assert!(counters.shrunk > 3, "{counters:?}");
    // Those that began when their client was over its share have little.
    let of_first = rooms[..5].iter().max().unwrap();
    for _ in 0..3 {
        let before = gateway.meter.read().accepted;
        let (_stalled, room) = stall(&stage, &listener);
        assert_eq!(gateway.meter.read().accepted, before + 1, "it is split");
        assert!(room < of_first / 4, "{room} and {of_first} bytes");
    }
}

/// A connection that is split; a busy host may have some pass.
fn split_pair(
    stage: &Stage,
    gateway: &support::Running,
    from: SocketAddr,
    to: &support::Listener,
) -> (TcpStream, TcpStream) {
    loop {
        let before = gateway.meter.read().connected;
        let client = stage.connect_from(from, to.address());
        let mut pair = (client, to.accept());
        exchange(&mut pair);
        if gateway.meter.read().connected > before {
            return pair;
        }
    }
}

/// Where many clients have stalled flows, the share of each is smaller than what one flow holds: those that have several give way,
/// and who has one keeps it.
#[test]
fn who_has_one_stalled_flow_does_not_give_way_to_who_has_several() {
    need!(Root, Tproxy);
    const CLIENTS: u8 = 8;
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(32 << 20));
    config.limits.stalled = Duration::from_secs(60);
    let gateway = stage.split_by(config);
    let listener = stage.listen(Ip::V4);
    let from = SocketAddr::new(Ip::V4.client(), 0);
    let mut one = split_pair(&stage, &gateway, from, &listener);
    let mut several = Vec::new();
    for number in 0..CLIENTS {
        let from = client_at(&stage, [10, 77, 1, 10 + number]);
        several.extend((0..2).map(|_| split_pair(&stage, &gateway, from, &listener)));
    }
    let written = fill(&mut one.0);
    for (client, _) in &mut several {
        fill(client);
    }
    let enough = u64::from(CLIENTS) / 2;
    eventually("resets", || gateway.meter.read().stalled >= enough);
    one.1.read_exact(&mut vec![0; written]).unwrap();
    exchange(&mut one);
}

/// Nor do many flows of one client whose receivers take a little all the while: they hold too much for their pace.
#[test]
fn many_slow_receivers_stop_no_splitting() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(128 << 20));
    let gateway = stage.split_by(config);
    let other = another_client(&stage);
    let listener = stage.listen(Ip::V4);
    let slow = std::sync::Mutex::new(Vec::<(TcpStream, TcpStream)>::new());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for (_, server) in slow.lock().unwrap().iter_mut() {
                    server.read_exact(&mut [0; 10_000]).unwrap();
                }
                std::thread::sleep(Duration::from_millis(600));
            }
        });
        let _done = support::ends::SetAtEnd(&done);
        let until = Instant::now() + Duration::from_secs(14);
        while Instant::now() < until {
            if slow.lock().unwrap().len() < 30 {
                let mut client = stage.connect(listener.address());
                let server = listener.accept();
                fill(&mut client);
                slow.lock().unwrap().push((client, server));
            }
            let before = gateway.meter.read().accepted;
            let client = stage.connect_from(other, listener.address());
            let mut pair = (client, listener.accept());
            exchange(&mut pair);
            let counters = gateway.meter.read();
            assert_eq!(counters.accepted, before + 1, "it is split: {counters:?}");
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    let counters = gateway.meter.read();
    assert!(counters.shrunk > 3 && counters.stalled == 0, "{counters:?}");
}

/// Where more than twice the bound is held before it is known whose it is, splitting may stop for so long.
const ALL_AT_ONCE: Duration = Duration::from_secs(5);

/// Waits until stalled flows have been reset and connections of another client are split, five in a row. All in all they may have
/// passed for `unsplit`, which is none at all where it is zero.
fn others_are_split(
    stage: &Stage,
    gateway: &support::Running,
    to: &support::Listener,
    unsplit: Duration,
) {
    let other = another_client(stage);
    let (mut in_a_row, mut passed) = (0, Duration::ZERO);
    eventually("that others are split", || {
        let (begun, before) = (Instant::now(), gateway.meter.read());
        let client = stage.connect_from(other, to.address());
        let mut pair = (client, to.accept());
        exchange(&mut pair);
        std::thread::sleep(Duration::from_millis(100));
        let is_split = gateway.meter.read().accepted > before.accepted;
        if !is_split {
            passed += begun.elapsed();
        }
        in_a_row = if is_split && before.stalled > 0 {
            in_a_row + 1
        } else {
            0
        };
        in_a_row == 5
    });
    let counters = gateway.meter.read();
    if unsplit.is_zero() {
        // A busy host may have single ones pass for other reasons.
        assert_eq!(counters.suspended, 0, "{counters:?}");
    } else {
        assert!(passed < unsplit, "{passed:?} {counters:?}");
    }
}

/// Uploads that fit into a send buffer as a whole, so that nothing waits in the gateway's own, stop splitting for seconds at most.
#[test]
fn receivers_of_what_a_buffer_holds_stop_no_splitting() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    stage
        .server
        .set_sysctl("net.ipv4.tcp_rmem", "4096 16384 65536")
        .unwrap();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(64 << 20));
    config.limits.stalled = Duration::from_secs(20);
    let gateway = stage.split_by(config);
    let listener = stage.listen(Ip::V4);
    let stalled: Vec<_> = (0..80)
        .map(|_| {
            let mut client = stage.connect(listener.address());
            let server = listener.accept();
            client.write_all(&[7; 1_500_000]).unwrap();
            (client, server)
        })
        .collect();
    let to = stage.listen(Ip::V4);
    others_are_split(&stage, &gateway, &to, ALL_AT_ONCE);
    let counters = gateway.meter.read();
    assert!(counters.shrunk > 3, "{counters:?}");
    drop(stalled);
}

/// Nor does what comes out of order, which nobody can read.
#[test]
fn what_comes_out_of_order_stops_no_splitting() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(4 << 20));
    config.limits.stalled = Duration::from_secs(20);
    let gateway = stage.split_by(config);
    let listener = stage.listen(Ip::V4);
    let mut peer = Peer::beside(&stage, true);
    for number in 0..40 {
        peer.own.1 = 5000 + number;
        peer.connect(listener.address(), b"");
        // All but the first octet, as far as a window without a scale goes.
        let missing = peer.next;
        peer.next = peer.next + 1;
        for piece in 0..40 {
            peer.say(&[piece; 1400]);
        }
        peer.next = missing;
    }
    let _servers: Vec<_> = (0..40).map(|_| listener.accept()).collect();
    let to = stage.listen(Ip::V4);
    others_are_split(&stage, &gateway, &to, Duration::ZERO);
}

/// Nor does what a carrier keeps for a host in space: what comes from there out of order, and what it never acknowledges of
/// connections that have ended on the ground, which the relay does not know any more; these stop splitting for seconds at most.
#[test]
fn what_a_carrier_keeps_stops_no_splitting() {
    need!(Root, Nft, Tproxy);
    for ended in [false, true] {
        let stage = Stage::new();
        let text = "threads = 2\n[sat]\ncarrier = \"scps\"\nrate = \"200Mbit/s\"\n";
        let mut config = Config::parse("test", text).unwrap().between("lan0", "sat0");
        config.limits.buffered = Some(Bytes(2 << 20));
        config.limits.stalled = Duration::from_secs(if ended { 5 } else { 20 });
        let gateway = stage.split_by(config);
        let ground = stage.listen(Ip::V4);
        let mut peer = Peer::beside(&stage, true);
        let mut servers = Vec::new();
        for number in 0..50 {
            peer.own.1 = 5000 + number;
            peer.connect(ground.address(), b"");
            let mut server = ground.accept();
            if ended {
                server.write_all(&[7; 60_000]).unwrap();
                peer.end();
            } else {
                let missing = peer.next;
                peer.next = peer.next + 1;
                for piece in 0..40 {
                    peer.say(&[piece; 1400]);
                }
                peer.next = missing;
                servers.push(server);
            }
        }
        let to = stage.listen(Ip::V4);
        let unsplit = if ended { ALL_AT_ONCE } else { Duration::ZERO };
        others_are_split(&stage, &gateway, &to, unsplit);
        eventually("memory that is not short", || {
            gateway.handle.status().unwrap().buffered < 2 << 20
        });
    }
}

/// Shrunk and left alone, stalled flows lose nothing when their receivers go on, and are as fast as before.
#[test]
fn a_stalled_flow_that_goes_on_has_lost_nothing() {
    need!(Root, Tproxy);
    const EACH: usize = 40_000_000;
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(32 << 20));
    // A busy host may take more than a tenth of the default.
    config.limits.stalled = Duration::from_secs(600);
    let gateway = stage.split_by(config);
    let ends = [
        (Ip::V4, true),
        (Ip::V6, true),
        (Ip::V4, false),
        (Ip::V6, false),
    ];
    let pairs = ends.map(|(ip, upload)| in_order(stage.pair(ip), upload));
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for (mut from, to) in pairs {
            readers.push(to);
            scope.spawn(move || from.write_all(&pattern(EACH)).unwrap());
        }
        eventually("less room", || gateway.meter.read().shrunk >= 4);
        std::thread::sleep(Duration::from_secs(1));
        for mut to in readers {
            scope.spawn(move || {
                let mut all = Vec::new();
                to.read_to_end(&mut all).unwrap();
                assert!(all == pattern(EACH), "{} bytes of {EACH}", all.len());
            });
        }
    });
    assert_eq!(gateway.meter.read().stalled, 0);
}

/// A host that is gone without a word is found by probes, on either leg; the other side gets a reset.
#[test]
fn a_peer_that_vanished_is_found() {
    need!(Root, Tproxy);
    for client_vanishes in [true, false] {
        let stage = Stage::new();
        for (key, value) in [("intvl", "1"), ("probes", "2")] {
            let key = format!("net.ipv4.tcp_keepalive_{key}");
            stage.gateway.set_sysctl(&key, value).unwrap();
        }
        let mut config = Stage::config();
        config.limits.keepalive = Duration::from_secs(1);
        let gateway = stage.split_by(config);
        let pairs = Ip::BOTH.map(|ip| stage.pair(ip));
        let gone = if client_vanishes {
            &stage.client
        } else {
            &stage.server
        };
        gone.netlink().unwrap().set_down("eth0").unwrap();
        for (client, server) in pairs {
            let (mut left, _gone) = in_order((server, client), client_vanishes);
            let error = left.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        eventually("the end", || gateway.meter.read().open == 0);
        assert_eq!(gateway.meter.read().vanished, 2);
    }
}

/// Processor time of a process, in seconds.
fn processor_time(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// Thousands of flows of which one side is reset while the other cannot be reached: each waits out the time that
/// bytes before a reset have, and the gateway has nearly nothing to do.
#[test]
fn many_flows_that_break_at_once_cost_little() {
    need!(Root, Tproxy);
    const FLOWS: usize = 3_000;
    bentpipe_process::limits::raise_descriptors().unwrap();
    let stage = Stage::new();
    let gateway = child::start(&stage, "threads = 1");
    let listener = stage.listen(Ip::V4);
    let pairs = (0..FLOWS).map(|_| (stage.connect(listener.address()), listener.accept()));
    let (clients, mut servers): (Vec<_>, Vec<_>) = pairs.unzip();
    let pid = gateway.child.id();
    assert!(support::descriptors_of(pid) > 2 * FLOWS);
    stage.client.netlink().unwrap().set_down("eth0").unwrap();
    servers
        .iter_mut()
        .for_each(|server| server.write_all(b"last").unwrap());
    std::thread::sleep(Duration::from_millis(200));
    let before = processor_time(pid);
    servers.into_iter().for_each(support::abort);
    let start = Instant::now();
    eventually("the last reset", || {
        support::descriptors_of(pid) < FLOWS / 10
    });
    assert!(start.elapsed() < Duration::from_secs(8));
    let spent = processor_time(pid) - before;
    // Measured: see docs/contract.md. Looking at each of them a hundred times a second takes seconds.
    assert!(spent < 1.0, "{spent} s of processor time");
    drop(clients);
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
