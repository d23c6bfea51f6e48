//! What passes unsplit stays so, and is disturbed by nothing that was split before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::protocol::Request;
use bentpipe_os::{need, nft};
use bentpipe_wire::Flags;
use std::io::Read as _;
use std::time::{Duration, Instant};
use support::managed::{Managed, QUICK, managed, managed_by};
use support::peer::Peer;
use support::{Ip, Stage, eventually, exchange, flood};

/// A SYN whose answer is slow comes again; if it passed before, it passes then, for the server has begun to answer that
/// connection.
#[test]
fn a_syn_that_passed_passes_when_it_comes_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    for ip in Ip::BOTH {
        bypass(&gateway, true);
        it_passes_again(&stage, &gateway, ip, || bypass(&gateway, false));
    }
    // Others are split.
    exchange(&mut stage.pair(Ip::V4));
    assert_eq!(gateway.accepted(), 1);
}

/// A SYN passes now, and again when `split_from_now_on` has been called.
fn it_passes_again(stage: &Stage, gateway: &Managed, ip: Ip, split_from_now_on: impl FnOnce()) {
    let answers = "table inet slow { chain c { type filter hook input priority 0; \
                   tcp flags & (syn | ack) == (syn | ack) drop; }; }";
    let apply = |rules: &'static str| move || nft::apply(rules).unwrap();
    stage.client.run(apply(answers)).unwrap();
    let listener = stage.listen(ip);
    let clients = stage.burst(1, listener.address());
    std::thread::sleep(Duration::from_millis(300));
    split_from_now_on();
    // The client's second SYN comes, and finds that new connections are split.
    std::thread::sleep(Duration::from_millis(1000));
    stage.client.run(apply("delete table inet slow")).unwrap();
    let server = listener.accept();
    for client in clients {
        exchange(&mut (client, server.try_clone().unwrap()));
    }
    let counters = gateway.handle.counters();
    assert_eq!((counters.held, counters.accepted), (0, 0), "{counters:?}");
}

/// Lets all new connections pass, or splits them again.
fn bypass(gateway: &Managed, on: bool) {
    gateway.ask(&Request::Bypass { on }).unwrap();
}

/// How many SYNs the gateway's table remembers of all hosts.
fn room_for_syns_that_passed(stage: &Stage) -> u32 {
    let list = || nft::list(&["ruleset"]).unwrap();
    let rules = stage.gateway.run(list).unwrap();
    let (_, set) = rules.split_once("set passed_1 {").unwrap();
    let (_, size) = set.split_once("size ").unwrap();
    let mut digits = size.split(|other: char| !other.is_ascii_digit());
    digits.next().unwrap().parse().unwrap()
}

/// Though another host has sent more SYNs that passed than are remembered of all.
#[test]
fn one_host_does_not_fill_the_memory_of_syns_that_passed() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let room = room_for_syns_that_passed(&stage);
    bypass(&gateway, true);
    let nobody = (Ip::V4.nobody(), 80).into();
    flood::send_of_one_host(&stage, room + room / 8, nobody);
    let passed = || gateway.handle.status().unwrap().passed["unsplit_tcp"];
    eventually("more SYNs than there is room for", || {
        passed() > u64::from(room)
    });
    it_passes_again(&stage, &gateway, Ip::V4, || bypass(&gateway, false));
}

/// So does one that a policy let pass: the policy may have another action by then.
#[test]
fn a_syn_that_a_policy_let_pass_passes_when_it_comes_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    // The agent of `snoop` takes a start.
    let snoops = format!("{QUICK}[[policy]]\naction = \"snoop\"\n");
    let gateway = managed_by(&stage, snoops.leak());
    let reload = |action: &str| {
        *gateway.text.lock().unwrap() = format!("{QUICK}[[policy]]\naction = \"{action}\"\n");
        gateway.ask(&Request::Reload).unwrap();
    };
    for (action, ip) in [("snoop", Ip::V4), ("bypass", Ip::V4), ("bypass", Ip::V6)] {
        reload(action);
        it_passes_again(&stage, &gateway, ip, || reload("split"));
    }
    exchange(&mut stage.pair(Ip::V4));
    assert_eq!(gateway.accepted(), 1, "others are split");
}

/// Where the client closed first, its dial waits in TIME_WAIT. The next connection of the same four numbers, which passes, is
/// answered at once all the same, and refused at once; with ECN and without, translated or not.
#[test]
fn what_waits_of_a_dial_takes_no_answer_of_a_connection_that_passes() {
    need!(Root, Tproxy);
    for (translated, ecn, ip) in [
        (false, "0", Ip::V4),
        (false, "1", Ip::V6),
        (true, "1", Ip::V4),
        (true, "0", Ip::V6),
    ] {
        let stage = Stage::new();
        stage.client.set_sysctl("net.ipv4.tcp_ecn", ecn).unwrap();
        if translated {
            stage.apply(
                "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept; \
                 oifname lan0 masquerade\n} }",
            );
        }
        let gateway = managed(&stage);
        let split = |how: &str, on: bool| match how {
            "bypass" => gateway.ask(&Request::Bypass { on: !on }).unwrap(),
            _ => {
                let policy = if on {
                    ""
                } else {
                    "[[policy]]\naction = \"bypass\"\n"
                };
                *gateway.text.lock().unwrap() = format!("{QUICK}{policy}");
                gateway.ask(&Request::Reload).unwrap()
            }
        };
        for (how, refuses) in [("policy", false), ("bypass", false), ("policy", true)] {
            let case = format!("{how} {refuses} {translated} {ip:?}");
            let listener = support::listen::listen_at(&stage.server, ip.server(), 7000);
            let from = std::net::SocketAddr::new(ip.client(), 5555);
            let before = gateway.accepted();
            let client = stage.connect_from(from, listener.address());
            let mut pair = (client, listener.accept());
            exchange(&mut pair);
            assert_eq!(gateway.accepted(), before + 1, "{case}");
            let (client, mut server) = pair;
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
            drop((server, client));
            eventually("its end", || stage.connections().is_empty());
            split(how, false);
            let to = listener.address();
            let begun = Instant::now();
            if refuses {
                drop(listener);
                let refused = support::refused_from(&stage.client, from, to);
                assert!(refused, "{case}");
            } else {
                let client = stage.connect_from(from, to);
                let mut pair = (client, listener.accept());
                exchange(&mut pair);
                support::abort(pair.0);
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_millis(700), "{case}: {took:?}");
            assert_eq!(gateway.accepted(), before + 1, "{case}");
            split(how, true);
        }
    }
}

/// Only the very SYN that passed passes again. Another with its source and number, to a port that a policy refuses, is refused;
/// also at a limit, when nothing is split.
#[test]
fn what_passes_lets_nothing_else_by_a_policy() {
    need!(Root, Tproxy);
    const REFUSES: &str =
        "[[policy]]\naction = \"reject\"\nport = 22\n[[policy]]\naction = \"bypass\"\nport = 80\n";
    let stage = Stage::new();
    let gateway = managed_by(&stage, format!("{REFUSES}{QUICK}").leak());
    let listeners = [80, 22].map(|port| {
        let host = Ip::V4.server();
        support::listen::listen_at(&stage.server, host, port)
    });
    let mut peer = Peer::beside(&stage, true);
    for bypassed in [false, true] {
        gateway.ask(&Request::Bypass { on: bypassed }).unwrap();
        let [passes, refused] = [0, 1].map(|which| peer.knock(listeners[which].address(), b""));
        assert_eq!(passes, Some(Flags::SYN | Flags::ACK));
        assert_eq!(refused, Some(Flags::RST | Flags::ACK), "{bypassed}");
        peer.own.1 += 1;
    }
    assert_eq!(gateway.accepted(), 0);
}
