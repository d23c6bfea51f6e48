//! What an operator's rules do to the copy of a SYN that comes by `lo`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::need;
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Listener, Stage, converse};

/// How long a client waits at most where nothing is known yet: its second and third SYN go after 1 and 2 s,
/// before Linux 6.5 after 1 and 3 s.
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

const LED_AWAY: &str = "type route hook output priority mangle; meta l4proto tcp meta mark set 16";

/// Rules that let no copy through, and of which family their table is. Past that of an input chain a queue leads.
const LOSE: [(&str, &str); 4] = [
    (
        "inet",
        "type filter hook input priority filter; iif lo ip saddr != 127.0.0.0/8 drop; iif lo ip6 saddr != ::1 drop",
    ),
    (
        "inet",
        "type filter hook prerouting priority raw; iif lo ip saddr != 127.0.0.0/8 drop; iif lo ip6 saddr != ::1 drop",
    ),
    (
        "netdev",
        "type filter hook ingress device lo priority 0; ip saddr != 127.0.0.0/8 drop; ip6 saddr != ::1 drop",
    ),
    ("inet", LED_AWAY),
];

/// The client's own SYN passes when it has come again, and so do connections that follow; after some destinations, all.
#[test]
fn where_no_copy_arrives_nothing_is_left_hanging() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for rule in &LOSE[1..] {
            scope.spawn(move || HANDSHAKES.map(|handshake| passes(*rule, handshake)));
        }
        scope.spawn(translated_passes);
        scope.spawn(passes_without_queues);
    });
}

/// `bentpipe doctor` finds them out by a SYN of its own.
#[test]
fn a_trial_finds_out_rules_that_let_no_copy_through() {
    need!(Root, Tproxy);
    let trial = |stage: &Stage| {
        let lost = stage.gateway.run(bentpipe_gateway::lost_over_loopback);
        let left = stage.gateway.netlink().unwrap().rules().unwrap();
        assert!(left.is_empty(), "{left:?}");
        lost.unwrap().unwrap()
    };
    for (family, rule) in LOSE {
        let stage = Stage::new();
        assert_eq!(trial(&stage), []);
        stage.apply(&format!("table {family} own {{ chain c {{ {rule}\n}} }}"));
        assert_eq!(trial(&stage).len(), 2, "{rule}");
    }
    let stage = Stage::new();
    stage.apply(
        "table inet own { chain c { type filter hook input priority 0; policy drop;
           meta mark and 0xff000000 == 0x62000000 accept
         } }",
    );
    assert_eq!(trial(&stage), []);
}

/// Where addresses are translated too, a copy that is led away, which nobody translates, goes nowhere.
fn translated_passes() {
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        stage.apply(&format!("table inet own {{ chain c {{ {LED_AWAY}\n}} }}"));
        stage.apply(
            "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
    oifname lan0 masquerade
} }",
        );
        for family in ["-4", "-6"] {
            let mut command = stage.server.command("ip");
            let removed = command.args([family, "route", "del", "default"]);
            assert!(removed.status().unwrap().success());
        }
        let _gateway = stage.split_after(handshake);
        for ip in Ip::BOTH {
            let listener = stage.listen(ip);
            for patience in [FIRST * 2, AT_ONCE] {
                let begun = Instant::now();
                let mut client = stage.connect(listener.address());
                let mut server = std::iter::repeat_with(|| listener.accept())
                    .find(|server| server.peer_addr().is_ok())
                    .unwrap();
                converse(&mut client, &mut server);
                assert_eq!(server.peer_addr().unwrap().ip(), ip.gateway_lan());
                assert!(begun.elapsed() < patience, "{handshake:?}");
            }
        }
    }
}

/// Without queues nothing is learnt, but each client's second SYN passes.
fn passes_without_queues() {
    for (family, rule) in LOSE {
        let stage = Stage::new();
        let taken = || bentpipe_sockets::nfqueue::Queues::open(1024, 1).unwrap();
        let _taken = stage.gateway.run(taken).unwrap();
        stage.apply(&format!("table {family} own {{ chain c {{ {rule}\n}} }}"));
        let gateway = stage.split();
        for ip in Ip::BOTH {
            let took = converses(&stage, &stage.listen(ip));
            assert!(took < Duration::from_millis(1900), "{took:?}: {rule}");
        }
        assert_eq!(gateway.meter.read().connected, 0);
    }
}

fn passes((family, rule): (&str, &str), handshake: Handshake) {
    let stage = Stage::new();
    stage.apply(&format!("table {family} own {{ chain c {{ {rule}\n}} }}"));
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
