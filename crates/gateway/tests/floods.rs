//! Floods of SYNs, forged and real: who is there connects all the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Seq;
use bentpipe_gateway::{Handshake, Snapshot};
use bentpipe_os::diag::{Diag, States};
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Listener, Stage, converse, eventually, exchange, flood};

/// SYN cookies that the gateway's kernel has sent.
fn cookies(stage: &Stage) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let table = stage.gateway.run(read).unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let found = pairs.find(|(name, _)| *name == "SyncookiesSent");
    found.unwrap().1.parse().unwrap()
}

/// With any setting of SYN cookies and a short backlog, during a flood of forged SYNs of IPv4 or IPv6 to an open port and to a
/// closed one, which goes on while they begin: real clients connect, split or not.
#[test]
fn real_clients_connect_during_floods() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for cookie in ["0", "1", "2"] {
            let stage = Stage::new();
            for (key, value) in [
                ("net.core.somaxconn", "64"),
                ("net.ipv4.tcp_syncookies", cookie),
                ("net.ipv4.tcp_max_syn_backlog", "64"),
            ] {
                stage.gateway.set_sysctl(key, value).unwrap();
            }
            let gateway = stage.split_after(handshake);
            for (round, flooded) in (0..).zip([Ip::V4, Ip::V6, Ip::V4]) {
                let open = stage.listen(flooded);
                let closed = stage.listen(flooded).address();
                let flood = |number: u32, each: u32| {
                    let number = round * 100_000 + number;
                    flood::send(&stage, number..number + each, open.address());
                    flood::send(&stage, number + each..number + 2 * each, closed);
                };
                flood(0, 1000);
                let done = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let goes_on = |_: &u32| !done.load(Ordering::Relaxed);
                        let numbers = (2000..100_000).step_by(200).take_while(goes_on);
                        numbers.for_each(|number| flood(number, 100));
                    });
                    let _done = support::ends::SetAtEnd(&done);
                    for ip in Ip::BOTH {
                        let (mut client, mut server) = stage.pair(ip);
                        converse(&mut client, &mut server);
                    }
                });
            }
            let counters = gateway.meter.read();
            assert_eq!(cookies(&stage), 0, "{handshake:?} {cookie} {counters:?}");
            assert_eq!(counters.syn_cookies > 0, cookie == "2", "{counters:?}");
        }
    }
}

/// `net.ipv4.tcp_syncookies` that is set to 2 while connections begin resets none.
#[test]
fn cookies_that_begin_later_reset_nobody() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            let gateway = stage.split_after(handshake);
            let listener = stage.listen(ip);
            for number in 0..60 {
                if number == 10 {
                    let key = "net.ipv4.tcp_syncookies";
                    stage.gateway.set_sysctl(key, "2").unwrap();
                }
                let client = stage.connect(listener.address());
                exchange(&mut (client, listener.accept()));
                std::thread::sleep(Duration::from_millis(20));
            }
            let counters = gateway.meter.read();
            assert!(counters.syn_cookies >= 40, "{counters:?}");
            assert_eq!(cookies(&stage), 0, "{counters:?}");
        }
    }
}

/// Two hundred real clients at once, with a backlog of 128.
#[test]
fn a_burst_of_real_clients_beyond_the_backlog_connects() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            let sysctl = "net.core.somaxconn";
            stage.gateway.set_sysctl(sysctl, "128").unwrap();
            let gateway = stage.split_after(handshake);
            let listener = stage.listen(ip);
            let clients = stage.burst(200, listener.address());
            let mut servers: Vec<_> = (0..200).map(|_| listener.accept()).collect();
            for client in clients {
                let from = client.local_addr().unwrap();
                let whose = |server: &std::net::TcpStream| server.peer_addr().unwrap() == from;
                let server = servers.iter().position(whose).unwrap();
                exchange(&mut (client, servers.swap_remove(server)));
            }
            assert_eq!(cookies(&stage), 0, "{:?}", gateway.meter.read());
        }
    }
}

/// Connections at the server that stand.
fn standing(stage: &Stage) -> usize {
    let ask = || Diag::open().unwrap().connections(States::CARRYING).unwrap();
    stage.server.run(ask).unwrap().len()
}

/// Forged SYNs become few connections at the server, for a short time; then none, however many more come.
#[test]
fn forged_syns_do_not_stay_at_the_server() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = stage.split_after(Handshake::EndToEnd);
    let listener = stage.listen(Ip::V4);
    flood::send(&stage, 0..2000, listener.address());
    let (begun, mut most) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(3) {
        most = most.max(standing(&stage));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..=64).contains(&most), "{most} connections");
    eventually("their end", || standing(&stage) == 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Where nobody accepts, others hear so all the same.
    let closed = SocketAddr::new(Ip::V6.server(), 9);
    let refused = stage.try_connect(closed).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // From now on clients prove first that they are there.
    flood::send(&stage, 2000..4000, listener.address());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(standing(&stage), 0);
    let mut client = stage.connect(listener.address());
    let mut server = from_client(&listener, &client);
    converse(&mut client, &mut server);
}

/// One host that leaves many SYNs pending has not all of its prefix's share, nor do many prefixes have all of a destination's.
#[test]
fn who_has_little_pending_is_split_beside_who_has_much() {
    need!(Root, Tproxy);
    for same_prefix in [true, false] {
        let stage = Stage::new();
        let gateway = stage.split_after(Handshake::EndToEnd);
        let listener = stage.listen(Ip::V4);
        let rules = "table ip silent { chain input { type filter hook input priority 0;
           tcp dport 9 drop
         } }";
        let silence = || bentpipe_os::nft::apply(&rules.replace("} }", "}\n}")).unwrap();
        stage.server.run(silence).unwrap();
        let forged = Prefix::new("10.88.0.0".parse().unwrap(), 16).unwrap();
        let back = Route::via(forged, Ip::V4.client());
        stage.gateway.netlink().unwrap().add_route(&back).unwrap();
        let to = if same_prefix {
            SocketAddr::new(Ip::V4.server(), 9)
        } else {
            listener.address()
        };
        for number in 0..200 {
            let from = if same_prefix {
                SocketAddr::from(([10, 77, 1, 3], 2000 + number))
            } else {
                SocketAddr::from(([10, 88, number as u8, 1], 2000))
            };
            flood::forge(&stage.client, from, to, Seq(number.into()));
        }
        eventually("all of them", || accounted(&gateway.meter.read()) >= 200);
        for _ in 0..5 {
            let before = gateway.meter.read().accepted;
            let mut client = stage.connect(listener.address());
            let mut server = from_client(&listener, &client);
            converse(&mut client, &mut server);
            let counters = gateway.meter.read();
            assert_eq!(counters.accepted, before + 1, "{counters:?}");
        }
    }
}

/// The server's end of the connection of `client`: those of forged SYNs, which were reset, wait in its queue too.
fn from_client(listener: &Listener, client: &TcpStream) -> TcpStream {
    let from = client.local_addr().unwrap();
    std::iter::repeat_with(|| listener.accept())
        .find(|server| server.peer_addr().is_ok_and(|peer| peer == from))
        .unwrap()
}

/// What became of SYNs, by the workers' word.
fn accounted(counters: &Snapshot) -> u64 {
    counters.held
        + counters.early
        + counters.repeated
        + counters.over_limit()
        + counters.queue_overrun
        + counters.syn_cookies
}

/// No SYN is lost without a trace, however many come at once.
#[test]
fn each_syn_of_a_burst_is_accounted_for() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_after(Handshake::EndToEnd);
    let silent = SocketAddr::new(Ip::V4.nobody(), 9);
    flood::send(&stage, 0..20_000, silent);
    // What was left out is known by what comes after it, in each queue.
    std::thread::sleep(Duration::from_millis(300));
    flood::send(&stage, 20_000..20_050, silent);
    eventually("each SYN in a counter", || {
        let passed = gateway.meter.passed().unwrap();
        let crowded = passed.iter().find(|count| count.name == "crowded");
        let crowded = crowded.map_or(0, |count| count.packets);
        accounted(&gateway.meter.read()) + crowded == 20_050
    });
}
