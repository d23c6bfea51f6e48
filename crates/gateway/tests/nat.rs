//! A gateway that translates addresses, or stands where somebody else does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Listener, Stage, converse, eventually, pattern};

const MASQUERADE: &str =
    "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
    oifname lan0 masquerade
} }";
const SNAT: &str =
    "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
    oifname lan0 snat ip to 10.77.2.1
    oifname lan0 snat ip6 to fd77:2::1
} }";
/// What many have beside it.
const STATEFUL: &str = "table inet stateful {
    chain input { type filter hook input priority filter; policy accept; ct state invalid drop; }
    chain forward { type filter hook forward priority filter; policy accept; ct state invalid drop; }
    chain output { type filter hook output priority filter; policy accept; ct state invalid drop; }
}";

/// The server sees the gateway's address, as it would of a forwarded connection; bytes go both ways, ports are
/// used again, and the refused hear of it.
#[test]
fn split_connections_are_translated_as_forwarded_ones() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for rules in [MASQUERADE, SNAT] {
            let stage = Stage::new();
            stage.apply(rules);
            stage.apply(STATEFUL);
            let gateway = stage.split_after(handshake);
            for ip in Ip::BOTH {
                translated(&stage, ip, ip.gateway_lan());
                refused(&stage, ip, handshake);
            }
            let counters = gateway.meter.read();
            assert_eq!(counters.connected, 6, "{counters:?}");
        }
    }
}

/// Three connections of one port, one after the other, each of which carries some bytes both ways.
fn translated(stage: &Stage, ip: Ip, seen: IpAddr) {
    let listener = stage.listen(ip);
    let from = SocketAddr::new(ip.client(), 40_010);
    for _ in 0..3 {
        let mut client = stage.connect_from(from, listener.address());
        let mut server = listener.accept();
        assert_eq!(server.peer_addr().unwrap().ip(), seen);
        for size in [5, 300_000] {
            let bytes = pattern(size);
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&bytes).unwrap());
                let mut got = vec![0; size];
                server.read_exact(&mut got).unwrap();
                assert!(got == bytes);
            });
            server.write_all(&bytes[..5]).unwrap();
            client.read_exact(&mut [0; 5]).unwrap();
        }
        drop(server);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        drop(client);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn refused(stage: &Stage, ip: Ip, handshake: Handshake) {
    let closed = stage.listen(ip).address();
    for _ in 0..2 {
        let start = Instant::now();
        let error = stage
            .try_connect(closed)
            .and_then(|mut client| client.read(&mut [0; 1]))
            .unwrap_err();
        let expected = match handshake {
            Handshake::EndToEnd => ErrorKind::ConnectionRefused,
            Handshake::Early => ErrorKind::ConnectionReset,
        };
        let kinds = [expected, ErrorKind::ConnectionRefused];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

/// The operator begins to translate, and ceases, while the gateway works.
#[test]
fn translation_may_come_and_go() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let gateway = stage.split_after(Handshake::EndToEnd);
        let sees = |wanted: IpAddr| {
            let listener = stage.listen(ip);
            let mut client = stage.connect(listener.address());
            let mut server = listener.accept();
            converse(&mut client, &mut server);
            server.peer_addr().unwrap().ip() == wanted
        };
        assert!(sees(ip.client()));
        stage.apply(MASQUERADE);
        eventually("translation", || sees(ip.gateway_lan()));
        stage.apply("delete table inet nat");
        assert!(sees(ip.client()));
        assert_eq!(gateway.meter.read().starved, 0);
    }
}

/// The operator ceases to translate while a flow stands. What its server then says comes to an address that the
/// kernel no longer knows whose it is, and is answered by a reset, with us and without. The client, which has nothing
/// to say, would hear nothing for ever; through us it hears of it once the dial is probed.
#[test]
fn a_flow_whose_translation_ceases_is_found_by_a_probe() {
    need!(Root, Tproxy);
    for splits in [false, true] {
        let stage = Stage::new();
        stage.apply(MASQUERADE);
        let key = "net.ipv4.tcp_keepalive_intvl";
        stage.gateway.set_sysctl(key, "1").unwrap();
        let mut config = Stage::config();
        config.limits.keepalive = Duration::from_secs(1);
        let gateway = splits.then(|| stage.split_by(config));
        let pairs = Ip::BOTH.map(|ip| stage.pair(ip));
        stage.apply("delete table inet nat");
        // The gateway's own chain of that type goes when it sees that there is no other.
        eventually("the end of translation", || {
            let rules = || bentpipe_os::nft::list(&["ruleset"]).unwrap();
            !stage.gateway.run(rules).unwrap().contains("type nat")
        });
        let patience = Duration::from_secs(if splits { 10 } else { 3 });
        for (mut client, mut server) in pairs {
            server.write_all(b"lost").unwrap();
            let reset = server.read(&mut [0; 1]).unwrap_err();
            assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
            client.set_read_timeout(Some(patience)).unwrap();
            let heard = loop {
                let error = client.read(&mut [0; 1]).unwrap_err();
                if error.kind() != ErrorKind::Interrupted {
                    break error;
                }
            };
            let expected = if splits {
                ErrorKind::ConnectionReset
            } else {
                ErrorKind::WouldBlock
            };
            assert_eq!(heard.kind(), expected);
        }
        if let Some(gateway) = gateway {
            eventually("the end", || gateway.meter.read().open == 0);
        }
    }
}

/// A destination that is translated is one the gateway could not answer for: such connections pass, and are
/// counted.
#[test]
fn a_translated_destination_passes_unsplit() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let listeners = Ip::BOTH.map(|ip| stage.listen(ip));
        let ports = listeners.each_ref().map(|one| one.address().port());
        stage.apply(
            &format!(
                "table inet nat {{ chain pre {{ type nat hook prerouting priority dstnat; policy accept;
                   ip daddr 10.77.9.9 tcp dport 80 dnat ip to 10.77.2.2:{}
                   ip6 daddr fd77:9::9 tcp dport 80 dnat ip6 to [fd77:2::2]:{}
                 }} }}",
                ports[0], ports[1]
            ),
        );
        let gateway = stage.split_after(handshake);
        for (ip, listener) in Ip::BOTH.into_iter().zip(&listeners) {
            let mut client = stage.connect(SocketAddr::new(ip.beyond(), 80));
            let mut server = listener.accept();
            converse(&mut client, &mut server);
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        let counts = gateway.meter.passed().unwrap();
        let translated = counts.iter().find(|count| count.name == "translated");
        assert_eq!(translated.unwrap().packets, 2);
        assert_eq!(gateway.meter.read().accepted, 0);
        // Others are split.
        let (mut client, mut server) = stage.pair(Ip::V4);
        converse(&mut client, &mut server);
        assert_eq!(gateway.meter.read().connected, 1);
    }
}

/// The ends of a connection that is not held up: who the server sees, and how long it took.
fn seen(stage: &Stage, listener: &Listener) -> (IpAddr, Duration) {
    let begun = Instant::now();
    let client = stage.try_connect(listener.address());
    let mut client = client.unwrap_or_else(|error| {
        let rules = stage.gateway.run(|| nft::list(&["ruleset"]).unwrap());
        panic!("{error}: {}", rules.unwrap())
    });
    let mut server = listener.accept();
    converse(&mut client, &mut server);
    (server.peer_addr().unwrap().ip(), begun.elapsed())
}

/// Has the server answer nobody but its neighbours, as if the clients' addresses were private.
fn hide_the_clients(stage: &Stage) {
    for family in ["-4", "-6"] {
        let mut command = stage.server.command("ip");
        let removed = command.args([family, "route", "del", "default"]).status();
        assert!(removed.unwrap().success());
    }
}

/// Translates what comes by sat0 and goes by lan0, in words that do not know a dial.
const UNLIKE_A_DIAL: [&str; 3] = [
    "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
       iifname sat0 oifname lan0 masquerade
     } }",
    "table inet nat { chain pre { type filter hook prerouting priority mangle; policy accept;
       iifname sat0 meta mark set 7
     }
     chain post { type nat hook postrouting priority srcnat; policy accept;
       meta mark 7 masquerade
     } }",
    "table inet nat { chain forward { type filter hook forward priority filter; policy accept;
       iifname sat0 ct mark set 9
     }
     chain post { type nat hook postrouting priority srcnat; policy accept;
       ct mark 9 masquerade
     } }",
];

/// How long a client waits at most where nothing is known yet.
const FIRST: Duration = Duration::from_millis(4500);
const AT_ONCE: Duration = Duration::from_millis(900);

/// Rules that translate packets for what a dial lacks leave it untranslated, and nobody answers: the client's own SYN
/// passes, is translated, and works; those that follow pass at once.
#[test]
fn what_translates_no_dial_leaves_nothing_hanging() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for rules in UNLIKE_A_DIAL {
            scope.spawn(move || passes_unsplit(rules));
        }
    });
}

fn passes_unsplit(rules: &str) {
    let stage = Stage::new();
    hide_the_clients(&stage);
    stage.apply(rules);
    stage.apply(STATEFUL);
    let gateway = stage.split_after(Handshake::EndToEnd);
    let mut count = 0;
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let (address, took) = seen(&stage, &listener);
        assert_eq!(address, ip.gateway_lan(), "{rules}");
        assert!(took < FIRST, "{took:?}: {rules}");
        // That destination is known now.
        let (_, took) = seen(&stage, &listener);
        assert!(took < AT_ONCE, "{took:?}: {rules}");
        // Two more, and it is the client's way.
        let others: Vec<_> = (0..2).map(|_| stage.listen(ip)).collect();
        std::thread::scope(|scope| {
            for listener in &others {
                scope.spawn(|| assert!(seen(&stage, listener).1 < FIRST));
            }
        });
        let (_, took) = seen(&stage, &stage.listen(ip));
        assert!(took < AT_ONCE, "{took:?}: {rules}");
        count += 5;
        assert_eq!(gateway.meter.read().unanswered, count);
    }
    let counters = gateway.meter.read();
    assert_eq!(
        (counters.connected, counters.accepted),
        (0, 0),
        "{counters:?}"
    );
}

/// Rules that compare a few bits of the mark, as kube-proxy's and mwan3's do, take split connections for what they take the
/// client's own packets for: for packets without mark.
#[test]
fn rules_for_some_bits_of_a_mark_do_not_match_split_connections() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let rules = (10..22).map(|bit| format!("meta mark & {0:#x} == {0:#x} masquerade", 1 << bit));
    let rules = rules.collect::<Vec<_>>().join("\n");
    stage.apply(&format!(
        "table inet kube {{\nchain post {{\ntype nat hook postrouting priority srcnat;\n{rules}\n}}\n}}"
    ));
    let gateway = stage.split_after(Handshake::EndToEnd);
    for ip in Ip::BOTH {
        let (address, _) = seen(&stage, &stage.listen(ip));
        assert_eq!(address, ip.client());
    }
    assert_eq!(gateway.meter.read().connected, 2);
}

/// Answered early, a client cannot be sent on: it waits. But those that come when its dial has been silent pass.
#[test]
fn what_translates_no_dial_is_learnt_by_early_dials_too() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    hide_the_clients(&stage);
    stage.apply(UNLIKE_A_DIAL[0]);
    let gateway = stage.split_after(Handshake::Early);
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let _waits = stage.connect(listener.address());
        std::thread::sleep(FIRST);
        let (address, took) = seen(&stage, &listener);
        assert_eq!(address, ip.gateway_lan());
        assert!(took < AT_ONCE, "{took:?}");
    }
    assert_eq!(gateway.meter.read().unanswered, 2);
}

/// What the gateway's own programs are led to, dials are not: they are split as others.
#[test]
fn a_proxy_for_the_gateways_own_programs_gets_no_dial() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let own = Ip::BOTH.map(|ip| stage.listen_in(&stage.gateway, ip.gateway_lan()));
        let ports = own.each_ref().map(|one| one.address().port());
        stage.apply(&format!(
            "table inet own {{ chain out {{ type nat hook output priority -100; policy accept;
                   meta l4proto tcp dnat ip to 10.77.2.1:{}
                   meta l4proto tcp dnat ip6 to [fd77:2::1]:{}
                 }} }}",
            ports[0], ports[1]
        ));
        let gateway = stage.split_after(handshake);
        for ip in Ip::BOTH {
            let (address, _) = seen(&stage, &stage.listen(ip));
            assert_eq!(address, ip.client());
        }
        let counters = gateway.meter.read();
        assert_eq!(
            (counters.connected, counters.unanswered),
            (2, 0),
            "{counters:?}"
        );
        for listener in &own {
            assert!(listener.accept_within(Duration::ZERO).is_none());
        }
    }
}

/// A route that asks by what interface a packet came is not the dial's. It leaves by no other leg's interface, and the
/// client's own SYN goes its way.
#[test]
fn a_route_by_the_interface_of_arrival_leaves_nothing_hanging() {
    need!(Root, Tproxy, Program("ip"));
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let ip = |netns: &Netns, words: &str| {
            let mut command = netns.command("ip");
            assert!(
                command.args(words.split(' ')).status().unwrap().success(),
                "{words}"
            );
        };
        // By the ordinary route it is behind an interface that is nobody's leg.
        ip(&stage.gateway, "link add spare type veth peer name beyond");
        for one in ["spare", "beyond"] {
            stage
                .gateway
                .set_sysctl(&format!("net.ipv6.conf.{one}.disable_ipv6"), "1")
                .unwrap();
            ip(&stage.gateway, &format!("link set {one} arp off up"));
        }
        ip(&stage.gateway, "route add 10.77.9.9/32 dev spare");
        ip(
            &stage.gateway,
            "route add 10.77.9.9/32 via 10.77.2.2 dev lan0 table 100",
        );
        ip(&stage.gateway, "rule add iif sat0 lookup 100 pref 200");
        ip(&stage.server, "addr add 10.77.9.9/32 dev lo");
        stage.apply(
            "table inet spare { chain post { type filter hook postrouting priority 0; policy accept;
               oifname spare counter
             } }",
        );
        let gateway = stage.split_after(handshake);
        let listener = stage.listen_in(&stage.server, Ip::V4.beyond());
        let waits = (handshake == Handshake::Early).then(|| stage.connect(listener.address()));
        if waits.is_some() {
            std::thread::sleep(FIRST);
        }
        for patience in [FIRST, AT_ONCE] {
            let (address, took) = seen(&stage, &listener);
            assert_eq!(address, Ip::V4.client());
            assert!(took < patience, "{took:?}");
        }
        let sent = stage
            .gateway
            .run(|| nft::list(&["table", "inet", "spare"]).unwrap());
        let sent = sent.unwrap();
        assert!(
            sent.contains("counter packets 0 bytes 0"),
            "a dial left by an interface of no leg: {sent}"
        );
        // Others are split as ever.
        let before = gateway.meter.read().connected;
        let (mut client, mut server) = stage.pair(Ip::V6);
        converse(&mut client, &mut server);
        assert_eq!(gateway.meter.read().connected, before + 1);
    }
}

/// Silence has other causes too: a server that is not there, packets that are lost, a path of seconds. To a server that
/// is not there a SYN passes, and what is lost once is not silence.
#[test]
fn a_loss_is_not_taken_for_silence() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    // The server hears no first SYN.
    stage
        .server
        .run(|| {
            nft::apply(
                "table inet lossy {
                   set heard { type inet_service . inet_service; flags dynamic; size 65535; }
                   chain input {
                     type filter hook input priority filter; policy accept;
                     tcp flags & (syn | ack) == syn add @heard { tcp sport . tcp dport limit rate over 1/day burst 1 packets } accept
                     tcp flags & (syn | ack) == syn drop
                   }
                 }",
            )
            .unwrap();
        })
        .unwrap();
    let gateway = stage.split_after(Handshake::EndToEnd);
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let (address, took) = seen(&stage, &listener);
        assert_eq!(address, ip.client());
        assert!(took < FIRST, "{took:?}");
    }
    let counters = gateway.meter.read();
    assert_eq!(
        (counters.connected, counters.unanswered),
        (2, 0),
        "{counters:?}"
    );
}
