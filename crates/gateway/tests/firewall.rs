//! The operator's firewall and source checks decide about split connections as about forwarded ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Bytes;
use bentpipe_gateway::{Config, Handshake};
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_os::{need, nft};
use bentpipe_sockets::socket;
use bentpipe_wire::{Checksums, Flags, Ipv6, Packet, Payload, Tcp, Transport};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, Running, Stage, converse, eventually, pattern};

/// Rule sets that forward connections to port OPEN and nothing else, and what a client hears that tries
/// another: nothing, or a refusal.
const RULES: [(&str, ErrorKind); 7] = [
    // By port.
    (
        "table inet f { chain forward { type filter hook forward priority filter; policy drop;
           ct state established,related accept
           tcp dport OPEN accept
         } }",
        ErrorKind::TimedOut,
    ),
    // By a set, without conntrack.
    (
        "table inet f { set open { type inet_service; elements = { OPEN }; }
         chain forward { type filter hook forward priority filter; policy drop;
           icmpv6 type != echo-request accept
           tcp dport @open accept
           tcp sport @open accept
         } }",
        ErrorKind::TimedOut,
    ),
    // In another table, later, by a reset.
    (
        "table inet accepts { chain forward { type filter hook forward priority filter; policy accept;
           accept
         } }
         table inet refuses { chain forward { type filter hook forward priority security; policy accept;
           ct state new tcp dport != OPEN reject with tcp reset
         } }",
        ErrorKind::ConnectionRefused,
    ),
    // Before conntrack.
    (
        "table inet r { chain raw { type filter hook prerouting priority raw - 10; policy accept;
           iifname sat0 tcp flags & (syn | ack) == syn tcp dport != OPEN drop
         } }",
        ErrorKind::TimedOut,
    ),
    // With the way back looked for, before conntrack and behind it, also by the mark.
    (
        "table inet r { chain raw { type filter hook prerouting priority raw; policy accept;
           meta nfproto ipv4 fib saddr . iif oif missing drop
           icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
           meta nfproto ipv6 fib saddr . iif oif missing drop
         }
         chain later { type filter hook prerouting priority filter + 10; policy accept;
           meta nfproto ipv4 fib saddr . mark . iif oif missing drop
         }
         chain forward { type filter hook forward priority filter; policy accept;
           tcp flags & (syn | ack) == syn tcp dport != OPEN drop
         } }",
        ErrorKind::TimedOut,
    ),
    // As firewalld has it.
    (
        "table inet firewalld {
           chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept; }
           chain filter_PREROUTING { type filter hook prerouting priority filter + 10; policy accept;
             icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
             meta nfproto ipv6 fib saddr . mark . iif oif missing drop
           }
           chain filter_INPUT { type filter hook input priority filter + 10; policy accept;
             ct state { established, related } accept
             ct status dnat accept
             iifname lo accept
             ct state invalid drop
             meta mark and 0xff000000 == 0x62000000 accept
             meta l4proto ipv6-icmp accept
             reject with icmpx admin-prohibited
           }
           chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
             ct state { established, related } accept
             ct status dnat accept
             iifname lo accept
             ct state invalid drop
             jump filter_FORWARD_POLICIES
             reject with icmpx admin-prohibited
           }
           chain filter_FORWARD_POLICIES { iifname sat0 oifname lan0 goto filter_FWD_public
           }
           chain filter_FWD_public { tcp dport OPEN ct state new accept
             meta l4proto ipv6-icmp accept
             reject with icmpx admin-prohibited
           }
           chain filter_OUTPUT { type filter hook output priority filter + 10; policy accept;
             ct state { established, related } accept
             oifname lo accept
           }
         }",
        ErrorKind::HostUnreachable,
    ),
    // As Docker has it, with its translation.
    (
        "table inet filter {
           chain FORWARD { type filter hook forward priority filter; policy drop;
             jump DOCKER-USER
             jump DOCKER-FORWARD
           }
           chain DOCKER-USER { iifname sat0 oifname lan0 tcp dport OPEN accept
             ct state established,related accept
             iifname sat0 drop
           }
           chain DOCKER-FORWARD { oifname docker0 ct state related,established accept
             iifname docker0 oifname != docker0 accept
           }
         }
         table inet nat {
           chain PREROUTING { type nat hook prerouting priority dstnat; policy accept;
             fib daddr type local jump DOCKER
           }
           chain OUTPUT { type nat hook output priority -100; policy accept;
             ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER
           }
           chain DOCKER { iifname docker0 return
           }
           chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept;
             ip saddr 172.17.0.0/16 oifname != docker0 masquerade
           }
         }",
        ErrorKind::TimedOut,
    ),
];

/// Whether `error` is what the rules tell the client. Of "administratively prohibited" in IPv6 only that there is no
/// connection.
fn is_refused(error: &std::io::Error, (ip, expected): (Ip, ErrorKind)) -> bool {
    if ip == Ip::V6 && expected == ErrorKind::HostUnreachable {
        return true;
    }
    error.kind() == expected || expected == ErrorKind::TimedOut && is_timeout(error)
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[test]
fn forward_rules_are_asked() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for (rules, refusal) in RULES {
            let stage = Stage::new();
            for ip in Ip::BOTH {
                let [open, closed] = [stage.listen(ip), stage.listen(ip)];
                let port = open.address().port().to_string();
                stage.apply("flush ruleset");
                stage.apply(&rules.replace("OPEN", &port));
                let gateway = stage.split_after(handshake);
                let client = stage.try_connect(open.address());
                let mut client = client.unwrap_or_else(|error| {
                    let rules = stage.gateway.run(|| nft::list(&["ruleset"]).unwrap());
                    let counters = gateway.meter.read();
                    panic!("{ip:?}, {error}: {counters:?}\n{}", rules.unwrap())
                });
                let mut server = open.accept();
                converse(&mut client, &mut server);
                let from = client.local_addr().unwrap();
                assert_eq!(server.peer_addr().unwrap(), from, "{rules}");
                eventually("a split flow", || gateway.meter.read().connected == 1);

                let dial = || {
                    let patience = Duration::from_millis(600);
                    TcpStream::connect_timeout(&closed.address(), patience)
                };
                let error = stage.client.run(dial).unwrap().unwrap_err();
                assert!(
                    is_refused(&error, (ip, refusal)),
                    "{ip:?}, {error}: {rules}"
                );
                assert!(closed.accept_within(Duration::ZERO).is_none(), "{rules}");
                let counters = gateway.meter.read();
                assert_eq!(counters.held + counters.early, 1, "{counters:?} {rules}");
            }
        }
    }
}

/// Sends SYNs from `from` out of the client's namespace, whoever has that address.
fn forge(stage: &Stage, from: IpAddr, to: SocketAddr) {
    let send = || {
        let forged = socket::stream(to).unwrap();
        socket::set_transparent(&forged, to).unwrap();
        socket::bind(&forged, SocketAddr::new(from, 0)).unwrap();
        // It is under way.
        let _ = socket::connect(&forged, to);
        forged
    };
    let forged = stage.client.run(send).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(forged);
}

/// What the gateway has let pass for that reason.
fn passed(gateway: &Running, name: &str) -> u64 {
    let counts = gateway.meter.passed().unwrap();
    let count = counts.iter().find(|count| count.name == name);
    count.map_or(0, |count| count.packets)
}

/// A SYN with a source that is not behind the interface it comes by never makes a connection at the server:
/// rp_filter or the operator's own rule drops it; without either it passes as it came, and whoever has
/// that address refuses the answer.
#[test]
fn a_forged_source_makes_no_connection() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for guard in ["rp_filter", "raw rule", "none"] {
            let stage = Stage::new();
            if guard == "rp_filter" {
                for interface in ["all", "sat0"] {
                    let key = format!("net.ipv4.conf.{interface}.rp_filter");
                    stage.gateway.set_sysctl(&key, "1").unwrap();
                }
            }
            if guard == "raw rule" {
                stage.apply(
                    "table inet r { chain raw { type filter hook prerouting priority raw; policy accept;
                       iifname sat0 fib saddr . iif oif missing drop
                     } }",
                );
            }
            let gateway = stage.split_after(handshake);
            for ip in Ip::BOTH {
                let listener = stage.listen(ip);
                // An address of the server's side.
                let before = passed(&gateway, "asymmetric");
                forge(&stage, ip.nobody(), listener.address());
                assert!(listener.accept_within(Duration::from_millis(100)).is_none());
                let counters = gateway.meter.read();
                assert_eq!((counters.held, counters.early), (0, 0), "{guard}");
                let passes = guard == "none" || guard == "rp_filter" && ip == Ip::V6;
                let more = passed(&gateway, "asymmetric") - before;
                assert_eq!(more > 0, passes, "{guard} {ip:?}");
            }
        }
    }
}

/// A kernel that looks by a packet's mark for the way back to its source finds the way that it would find without us,
/// on both legs, whoever begins.
#[test]
fn sources_may_be_checked_by_the_mark() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for filter in ["0", "1", "2"] {
            let stage = Stage::new();
            for key in ["src_valid_mark", "rp_filter"] {
                for interface in ["all", "sat0", "lan0"] {
                    let value = if key == "rp_filter" { filter } else { "1" };
                    let key = format!("net.ipv4.conf.{interface}.{key}");
                    stage.gateway.set_sysctl(&key, value).unwrap();
                }
            }
            let gateway = stage.split_after(handshake);
            for ip in Ip::BOTH {
                let (mut client, mut server) = stage.pair(ip);
                converse(&mut client, &mut server);
                // And from the other side.
                let listener = stage.listen_in(&stage.client, ip.client());
                let connect =
                    || TcpStream::connect_timeout(&listener.address(), Duration::from_secs(5));
                let mut client = stage.server.run(connect).unwrap().unwrap();
                let mut server = listener.accept();
                converse(&mut client, &mut server);
            }
            assert_eq!(gateway.meter.read().connected, 4, "rp_filter {filter}");
            // Whoever is not behind the interface is still found out.
            let listener = stage.listen(Ip::V4);
            forge(&stage, Ip::V4.nobody(), listener.address());
            assert!(listener.accept_within(Duration::from_millis(100)).is_none());
        }
    }
}

/// The unspecified address, which is forwarded by a default route, is this machine to who connects to it: nothing of this
/// machine answers it, held or early.
#[test]
fn a_destination_that_would_be_this_machine_is_not_dialled() {
    need!(Root, Tproxy, Tun);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let netlink = stage.gateway.netlink().unwrap();
        let default = Route::via("::/0".parse().unwrap(), Ip::V6.server());
        netlink.add_route(&default).unwrap();
        let open = || Tun::open("sat1", TunConfig::default()).unwrap();
        let wire = stage.gateway.run(open).unwrap();
        let client: Ipv6Addr = "fd78::2".parse().unwrap();
        let there = Route::device(Prefix::host(client.into()), "sat1");
        netlink.add_route(&there).unwrap();
        let own = stage.listen_in(&stage.gateway, Ipv6Addr::LOCALHOST.into());
        let config = Config {
            sat_interfaces: vec!["sat0".to_owned(), "sat1".to_owned()],
            handshake,
            ..Stage::config()
        };
        let gateway = stage.split_by(config);
        let syn = |destination, port| {
            let tcp = Tcp {
                source: 40_000,
                destination: port,
                flags: Flags::SYN,
                window: 65_535,
                ..Tcp::default()
            };
            let packet = Packet {
                ip: bentpipe_wire::Ip::V6(Box::new(Ipv6::new(client, destination))),
                transport: Transport::Tcp(tcp),
                payload: Payload::Absent,
            };
            wire.send(&packet.to_vec().unwrap()).unwrap();
        };
        // What answers on the wire within a second and a half.
        let answers = || {
            let until = Instant::now() + Duration::from_millis(1500);
            let (mut buffer, mut from) = ([0; 1500], Vec::new());
            while Instant::now() < until {
                let Some(length) = wire.receive(&mut buffer).unwrap() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let packet = Packet::parse(&buffer[..length], Checksums::Ignore);
                if let Ok(Packet {
                    ip: bentpipe_wire::Ip::V6(ip),
                    transport: Transport::Tcp(_),
                    ..
                }) = packet
                {
                    from.push(ip.source);
                }
            }
            from
        };
        let listener = stage.listen(Ip::V6);
        let IpAddr::V6(server) = Ip::V6.server() else {
            unreachable!("it is of IPv6");
        };
        syn(server, listener.address().port());
        assert!(answers().contains(&server), "this wire is not split");
        for port in [own.address().port(), 9] {
            syn(Ipv6Addr::UNSPECIFIED, port);
        }
        let answers = answers();
        assert!(!answers.contains(&Ipv6Addr::LOCALHOST), "{answers:?}");
        let counters = gateway.meter.read();
        assert_eq!(
            (counters.connected, counters.refused),
            (0, 0),
            "{counters:?}"
        );
    }
}

/// From now on no packet longer than `most` octets gets to these, without a word, and none crosses as several in one.
fn swallow<const N: usize>(stage: &Stage, most: u32, by: [&Netns; N]) {
    for (netns, name) in [
        (&stage.client, "eth0"),
        (&stage.gateway, "sat0"),
        (&stage.gateway, "lan0"),
        (&stage.server, "eth0"),
    ] {
        netns.netlink().unwrap().disable_offloads(name).unwrap();
    }
    let rules = format!(
        "table inet swallow {{ chain c {{ type filter hook prerouting priority -500; policy accept;
           meta l4proto tcp meta length > {most} drop
         }}
         }}"
    );
    for netns in by {
        netns.run(|| nft::apply(&rules).unwrap()).unwrap();
    }
}

/// 100,000 bytes each way, one way after the other.
fn carry_each_way(client: &TcpStream, server: &TcpStream) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        let all = pattern(100_000);
        let mut read = vec![0; all.len()];
        from.write_all(&all).unwrap();
        to.read_exact(&mut read).unwrap();
        assert!(read == all);
    }
}

/// A server that says a small MSS, because it knows paths that swallow more, has it hold on the client's leg too.
#[test]
fn what_a_server_says_of_segments_holds_for_the_client() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let link = stage.server.netlink().unwrap();
    link.set_mtu("eth0", Bytes(1400)).unwrap();
    swallow(&stage, 1400, [&stage.client, &stage.gateway]);
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        carry_each_way(&client, &server);
    }
    assert_eq!(gateway.meter.read().connected, 2);
}

/// Answered early, a client has been asked for larger segments by then; but it gets none.
#[test]
fn what_a_server_says_later_holds_for_what_the_client_gets() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let link = stage.server.netlink().unwrap();
    link.set_mtu("eth0", Bytes(1400)).unwrap();
    swallow(&stage, 1400, [&stage.client]);
    let gateway = stage.split_after(Handshake::Early);
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        client.write_all(b"a request").unwrap();
        server.read_exact(&mut [0; 9]).unwrap();
        let answer = pattern(100_000);
        server.write_all(&answer).unwrap();
        let mut read = vec![0; answer.len()];
        client.read_exact(&mut read).unwrap();
        assert!(read == answer);
    }
    assert_eq!(gateway.meter.read().connected, 2);
}

/// An operator's rule that makes the MSS of forwarded SYNs smaller keeps the segments of split connections small
/// too, in both directions on both sides.
#[test]
fn an_mss_clamp_in_the_forward_chain_holds() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        swallow(&stage, 1100, [&stage.client, &stage.gateway, &stage.server]);
        stage.apply(
            "table inet clamp { chain forward { type filter hook forward priority mangle; policy accept;
               tcp flags & (syn | rst) == syn tcp option maxseg size set 1000
             } }",
        );
        let gateway = stage.split_after(handshake);
        for ip in Ip::BOTH {
            let (client, server) = stage.pair(ip);
            carry_each_way(&client, &server);
        }
        assert_eq!(gateway.meter.read().connected, 2);
    }
}

/// Also for a port that was used before the rule came.
#[test]
fn an_mss_clamp_that_comes_holds_for_a_port_used_again() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let _gateway = stage.split_after(handshake);
        let listeners = Ip::BOTH.map(|ip| (stage.listen(ip), SocketAddr::new(ip.client(), 5555)));
        for clamped in [false, true] {
            if clamped {
                stage.apply(
                    "table inet clamp { chain forward { type filter hook forward priority mangle; policy accept;
                       tcp flags & (syn | rst) == syn tcp option maxseg size set 1000
                     } }",
                );
            }
            for (listener, from) in &listeners {
                let mut client = stage.connect_from(*from, listener.address());
                converse(&mut client, &mut listener.accept());
                let segment = bentpipe_sockets::tcp::info(&client).unwrap().mss;
                assert_eq!(segment.0 <= 1000, clamped, "{handshake:?}: {segment:?}");
                support::abort(client);
            }
            support::eventually("their end", || stage.connections().is_empty());
        }
    }
}

/// A transparent proxy of this machine that listens at a port of all addresses takes nothing from the connections to that
/// port that pass unsplit, nor from those that are split.
#[test]
fn a_transparent_listener_for_all_addresses_takes_no_packet() {
    need!(Root, Tproxy);
    for (policy, split) in [("bypass", 0), ("split", 1)] {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            let listener = stage.listen(ip);
            let port = listener.address().port();
            let any: SocketAddr = match ip {
                Ip::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
                Ip::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
            };
            let listen = || {
                let proxy = socket::stream(any).unwrap();
                socket::set_transparent(&proxy, any).unwrap();
                socket::bind(&proxy, any).unwrap();
                socket::listen(&proxy, 1).unwrap();
                proxy
            };
            let _proxy = stage.gateway.run(listen).unwrap();
            let gateway = stage.split_with(&format!(
                "policy = [{{ name = 'all', action = '{policy}' }}]\n[sat]\ncongestion_control = 'cubic'"
            ));
            let mut client = stage.connect(listener.address());
            converse(&mut client, &mut listener.accept());
            assert_eq!(gateway.meter.read().connected, split, "{policy} {ip:?}");
        }
    }
}
