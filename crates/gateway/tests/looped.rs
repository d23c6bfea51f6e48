//! What an operator's rules do to the copy of a SYN that comes by `lo`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::need;
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Listener, Stage, converse};

/// How long a client waits at most where nothing is known yet: its second and third SYN go after 1 and 3 s.
const FIRST: Duration = Duration::from_millis(4500);
const AT_ONCE: Duration = Duration::from_millis(900);

/// One connection from end to end, and how long it took.
fn converses(stage: &Stage, listener: &Listener) -> Duration {
    let begun = Instant::now();
    let mut client = stage.connect(listener.address());
    // A dial that was given up may have come before.
    let mut server = std::iter::repeat_with(|| listener.accept())
        .find(|server| server.peer_addr().is_ok())
        .unwrap();
    converse(&mut client, &mut server);
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    begun.elapsed()
}

/// Rules for tc, which set priority or mark of all TCP.
const CLASSIFY: [&str; 6] = [
    "type filter hook output priority mangle; meta l4proto tcp meta priority set 1:10",
    "type filter hook postrouting priority mangle; meta l4proto tcp meta priority set 1:10",
    "type filter hook prerouting priority mangle; meta l4proto tcp meta priority set 1:10",
    "type filter hook output priority mangle; meta l4proto tcp meta mark set 16",
    "type filter hook postrouting priority mangle; meta l4proto tcp meta mark set 16",
    "type filter hook prerouting priority mangle; meta l4proto tcp meta mark set 16",
];

/// Connections are split, by the worker that has dialled for them.
#[test]
fn priorities_and_marks_may_be_set() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for rule in CLASSIFY {
            scope.spawn(move || HANDSHAKES.map(|handshake| is_split(rule, handshake)));
        }
    });
}

fn is_split(rule: &str, handshake: Handshake) {
    let stage = Stage::new();
    stage.apply(&format!("table inet tc {{ chain c {{ {rule}\n}} }}"));
    let gateway = stage.split_after(handshake);
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        for _ in 0..8 {
            let took = converses(&stage, &listener);
            assert!(took < AT_ONCE, "{took:?}: {rule}");
        }
    }
    let counters = gateway.meter.read();
    assert_eq!(
        (counters.connected, counters.other_port, counters.unanswered),
        (16, 0, 0),
        "{rule}: {counters:?}"
    );
}

/// Rules that let no copy through.
const LOSE: [&str; 3] = [
    "type filter hook input priority filter; iif lo ip saddr != 127.0.0.0/8 drop; iif lo ip6 saddr != ::1 drop",
    "type filter hook prerouting priority raw; iif lo ip saddr != 127.0.0.0/8 drop; iif lo ip6 saddr != ::1 drop",
    "type route hook output priority mangle; meta l4proto tcp meta mark set 16",
];

/// The client's own SYN passes when it has come again, and so do connections that follow; after some destinations, all.
#[test]
fn where_no_copy_arrives_nothing_is_left_hanging() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for rule in LOSE {
            scope.spawn(move || HANDSHAKES.map(|handshake| passes(rule, handshake)));
        }
    });
}

fn passes(rule: &str, handshake: Handshake) {
    let stage = Stage::new();
    stage.apply(&format!("table inet own {{ chain c {{ {rule}\n}} }}"));
    let gateway = stage.split_after(handshake);
    for ip in Ip::BOTH {
        let listeners: Vec<_> = (0..3).map(|_| stage.listen(ip)).collect();
        for listener in &listeners {
            for patience in [FIRST, AT_ONCE] {
                let took = converses(&stage, listener);
                assert!(took < patience, "{handshake:?}, {took:?}: {rule}");
            }
        }
        let took = converses(&stage, &stage.listen(ip));
        assert!(took < AT_ONCE, "{handshake:?}, {took:?}: {rule}");
    }
    let counters = gateway.meter.read();
    // Answered early, a copy that is led away goes where the SYN would have gone.
    let led = handshake == Handshake::Early && rule.contains("route");
    let unanswered = if led { 0 } else { 14 };
    assert_eq!(
        (counters.connected, counters.unanswered),
        (0, unanswered),
        "{handshake:?}, {rule}: {counters:?}"
    );
}
