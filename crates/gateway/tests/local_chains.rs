//! Rules of input and output chains, which are for the gateway's own services, and split connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::{need, nft};
use bentpipe_sockets::nfqueue::Queues;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Running, Stage, converse, eventually, listen::listen_at, pattern};

/// The port that rules ask for.
const PORT: u16 = 2222;
/// A client that sends its SYN once more takes a second.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Rules that drop or refuse what is for services of the gateway, and would do so with packets of split connections.
const RULES: [&str; 14] = [
    // By port, by port and interface, by a set; the client's side and the server's.
    "chain c { type filter hook input priority filter; policy accept;
       tcp dport 2222 drop
     }",
    "chain c { type filter hook input priority filter; policy accept;
       iifname sat0 tcp dport 2222 drop
     }",
    "set ports { type inet_service; elements = { 22, 2222 }; }
     chain c { type filter hook input priority raw; policy accept;
       iifname { sat0, wan0 } tcp dport @ports counter reject with tcp reset
     }",
    "chain c { type filter hook input priority filter; policy accept;
       iifname lan0 tcp sport 2222 drop
     }",
    // By the source, as fail2ban has it.
    "set banned { type ipv4_addr; elements = { 10.77.1.2 }; }
     set banned6 { type ipv6_addr; elements = { fd77:1::2 }; }
     chain c { type filter hook input priority filter - 1; policy accept;
       tcp dport 2222 ip saddr @banned reject with icmp port-unreachable
       tcp dport 2222 ip6 saddr @banned6 reject with icmpv6 port-unreachable
     }",
    // By rate, and by the first packet alone.
    "chain c { type filter hook input priority filter; policy accept;
       tcp dport 2222 limit rate over 1/minute burst 1 packets drop
     }",
    "chain c { type filter hook input priority filter; policy accept;
       tcp dport 2222 tcp flags & (syn | ack) == syn drop
     }",
    // By a jump, and a map of verdicts.
    "chain c { type filter hook input priority filter; policy accept;
       iifname sat0 jump wan
     }
     chain wan { tcp dport vmap { 22 : drop, 2222 : drop }
     }",
    // By where a copy of a SYN comes by.
    "chain c { type filter hook input priority filter; policy accept;
       iif lo ip saddr != 127.0.0.0/8 drop
       iif lo ip6 saddr != ::1 drop
     }",
    // As iptables writes it.
    "chain INPUT { type filter hook input priority filter; policy accept;
       iifname sat0 meta l4proto tcp tcp dport 2222 counter drop
     }
     chain OUTPUT { type filter hook output priority filter; policy accept; }",
    // As ufw does, and firewalld.
    "chain INPUT { type filter hook input priority filter; policy drop;
       jump before
     }
     chain before { iifname lo accept
       ct state related,established accept
       ct state invalid drop
       meta l4proto ipv6-icmp accept
       tcp dport 22 accept
     }",
    "chain filter_INPUT { type filter hook input priority filter + 10; policy accept;
       ct state { established, related } accept
       iifname lo accept
       ct state invalid drop
       meta l4proto ipv6-icmp accept
       reject with icmpx admin-prohibited
     }",
    // What the gateway sends.
    "chain c { type filter hook output priority filter; policy accept;
       tcp sport 2222 drop
     }",
    "chain c { type filter hook output priority filter; policy drop;
       ct state established,related accept
       meta l4proto ipv6-icmp accept
     }",
];

fn begun(rules: &str, handshake: Handshake) -> (Stage, Running) {
    let stage = Stage::new();
    stage.apply(&format!("table inet own {{ {rules} }}"));
    let gateway = stage.split_after(handshake);
    (stage, gateway)
}

/// Connections are split from either side at once, and carry bytes.
#[test]
fn rules_for_the_gateways_own_services_meet_no_split_connection() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for half in [&RULES[..7], &RULES[7..]] {
            scope.spawn(move || {
                for rules in half {
                    HANDSHAKES
                        .into_iter()
                        .for_each(|handshake| is_split(rules, handshake));
                }
            });
        }
    });
}

fn is_split(rules: &str, handshake: Handshake) {
    let (stage, gateway) = begun(rules, handshake);
    for ip in Ip::BOTH {
        for (from, at, host) in [
            (&stage.client, &stage.server, ip.server()),
            (&stage.server, &stage.client, ip.client()),
        ] {
            let listener = listen_at(at, host, PORT);
            let begun = Instant::now();
            let mut client = support::connect_in(from, listener.address())
                .unwrap_or_else(|error| panic!("{error}: {rules}"));
            let mut server = listener.accept();
            converse(&mut client, &mut server);
            let took = begun.elapsed();
            assert!(took < AT_ONCE, "{took:?}: {rules}");
        }
    }
    eventually("split flows", || gateway.meter.read().connected == 4);
    let counters = gateway.meter.read();
    assert!(counters.past_chains > 0, "{counters:?}: {rules}");
    assert_eq!(counters.unanswered, 0, "{counters:?}: {rules}");
}

/// A rule that comes under a flow harms it for a moment only, and bytes that were dropped meanwhile come again.
#[test]
fn a_rule_that_comes_later_is_seen() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        converse(&mut client, &mut server);
        assert_eq!(gateway.meter.read().past_chains, 0);
        let rule =
            "table inet own { chain c { type filter hook input priority filter; policy drop; } }";
        if ip == Ip::V4 {
            stage.apply(rule);
        }
        converse(&mut client, &mut server);
        if ip == Ip::V4 {
            // The other family is tried from the beginning again.
            stage.apply("delete table inet own");
            break;
        }
    }
    eventually("packets in the queue", || {
        gateway.meter.read().past_chains > 0
    });
    let (mut client, mut server) = stage.pair(Ip::V6);
    converse(&mut client, &mut server);
}

/// While every number of a queue that would be tried is somebody else's the chains are met; soon afterwards they are gone past.
#[test]
fn what_the_kernel_refuses_at_first_is_tried_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split();
    let (mut client, mut server) = stage.pair(Ip::V4);
    converse(&mut client, &mut server);
    let take_all = || std::iter::from_fn(|| Queues::open(1, 1).ok()).collect::<Vec<_>>();
    let taken = stage.gateway.run(take_all).unwrap();
    assert!(!taken.is_empty());
    stage.apply(
        "table inet own { chain c { type filter hook input priority filter; policy drop;
           meta l4proto ipv6-icmp accept
         } }",
    );
    // Longer than it takes to see that the rules have changed.
    let patience = server.read_timeout().unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    client.write_all(b"x").unwrap();
    let met = server.read(&mut [0]).unwrap_err();
    assert_eq!(met.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(gateway.meter.read().past_chains, 0);
    server.set_read_timeout(patience).unwrap();
    drop(taken);
    eventually("packets in the queue", || {
        gateway.meter.read().past_chains > 0
    });
    server.read_exact(&mut [0]).unwrap();
    converse(&mut client, &mut server);
    let (mut client, mut server) = stage.pair(Ip::V6);
    converse(&mut client, &mut server);
}

/// Every byte of bulk both ways arrives through the queue, in order.
#[test]
fn bulk_goes_past_the_chains_whole() {
    need!(Root, Tproxy);
    const BULK: usize = 30_000_000;
    let closed = "chain c { type filter hook input priority filter; policy drop;
                    meta l4proto ipv6-icmp accept
                  }
                  chain d { type filter hook output priority filter; policy drop;
                    meta l4proto ipv6-icmp accept
                  }";
    let (stage, gateway) = begun(closed, Handshake::EndToEnd);
    let bytes = pattern(BULK);
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        let half = |mut writer: std::net::TcpStream| {
            let mut reader = writer.try_clone().unwrap();
            let bytes = &bytes;
            move || {
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        writer.write_all(bytes).unwrap();
                        writer.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut read = Vec::with_capacity(BULK);
                    reader.read_to_end(&mut read).unwrap();
                    assert!(read == *bytes, "{} bytes", read.len());
                });
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(half(client));
            scope.spawn(half(server));
        });
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.connected, counters.reset), (2, 0));
    assert!(counters.past_chains > 1000, "{counters:?}");
}

/// Rules that meet no packet of ours, and those that let marks of gateways by, cost nothing.
#[test]
fn other_rules_have_no_packet_queued() {
    need!(Root, Tproxy);
    for rules in [
        "chain c { type filter hook input priority filter; policy accept;
           ct state invalid drop
           ct state new tcp dport 2222 drop
           udp dport 2222 drop
           icmp type echo-request limit rate over 1/second drop
         }
         chain f { type filter hook forward priority filter; policy drop;
           tcp dport 2222 accept
           tcp sport 2222 accept
           meta l4proto ipv6-icmp accept
         }",
        "chain c { type filter hook input priority filter; policy drop;
           meta mark and 0xff000000 == 0x62000000 accept
           meta l4proto ipv6-icmp accept
         }",
        // A dial whose address is translated is new, where it has no interface of arrival.
        "chain both { iifname { lan0, sat0 } ct state new tcp dport 2222 drop; }
         chain i { type filter hook input priority filter; jump both; }
         chain o { type filter hook output priority filter; jump both; }
         chain n { type nat hook postrouting priority srcnat; oifname sat0 masquerade; }",
    ] {
        let (stage, gateway) = begun(rules, Handshake::EndToEnd);
        for ip in Ip::BOTH {
            let listener = listen_at(&stage.server, ip.server(), PORT);
            let mut client = stage.connect(listener.address());
            converse(&mut client, &mut listener.accept());
        }
        let counters = gateway.meter.read();
        let queues = stage.gateway.run(|| nft::list(&["tables"]).unwrap());
        assert_eq!(
            (counters.connected, counters.past_chains),
            (2, 0),
            "{rules}"
        );
        // The held SYNs' tables are of two families.
        let tables = queues.unwrap();
        let held = tables.lines().filter(|line| line.contains("hold")).count();
        assert_eq!(held, 2, "{tables}");
    }
}
