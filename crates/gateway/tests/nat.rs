//! A gateway that translates addresses, or stands where somebody else does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::need;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Stage, converse, eventually, pattern};

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
    let stage = Stage::new();
    let gateway = stage.split_after(Handshake::EndToEnd);
    let sees = |wanted: IpAddr| {
        let listener = stage.listen(Ip::V4);
        let mut client = stage.connect(listener.address());
        let mut server = listener.accept();
        converse(&mut client, &mut server);
        server.peer_addr().unwrap().ip() == wanted
    };
    assert!(sees(Ip::V4.client()));
    stage.apply(MASQUERADE);
    eventually("translation", || sees(Ip::V4.gateway_lan()));
    stage.apply("delete table inet nat");
    assert!(sees(Ip::V4.client()));
    assert_eq!(gateway.meter.read().starved, 0);
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
