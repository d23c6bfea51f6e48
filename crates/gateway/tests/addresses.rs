//! Who is seen by whom, and what is intercepted at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::{Config, Intercept};
use bentpipe_os::diag::{Diag, States};
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_os::{need, nft};
use bentpipe_sockets::{socket, tcp};
use bentpipe_wire::{Flags, Ipv4, Ipv6, Packet, Payload, Tcp, Transport};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::{Ip, Stage, connect_in, eventually, in_order, splitting};

#[test]
fn the_server_sees_the_clients_address_and_port() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    }
    eventually("both connections", || gateway.meter.read().connected == 2);
    assert_eq!(gateway.meter.read().other_port, 0);
}

#[test]
fn connections_from_either_side_are_split_by_default() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let listener = stage.listen_in(&stage.client, ip.client());
        let near = connect_in(&stage.server, listener.address()).unwrap();
        let far = listener.accept();
        assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
    }
    eventually("both connections", || gateway.meter.read().connected == 2);
}

#[test]
fn only_the_configured_side_is_split() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let config = Config {
        intercept: Intercept::Lan,
        ..Stage::config()
    };
    let gateway = stage.split_by(config);
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        client.write_all(b"end to end").unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        assert_eq!(gateway.meter.read().accepted, 0);
    }
}

/// One client port, many servers: the dials share an address and port.
#[test]
fn one_client_port_serves_several_servers() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for (ip, made) in Ip::BOTH.into_iter().zip([2, 4]) {
        let listeners = [stage.listen(ip), stage.listen(ip)];
        let from = SocketAddr::new(ip.client(), 40_001);
        let clients: Vec<TcpStream> = listeners
            .iter()
            .map(|listener| stage.connect_from(from, listener.address()))
            .collect();
        for (listener, client) in listeners.iter().zip(&clients) {
            assert_eq!(listener.accept().peer_addr().unwrap(), from);
            assert_eq!(client.local_addr().unwrap(), from);
        }
        eventually("both connections", || {
            gateway.meter.read().connected == made
        });
        assert_eq!(gateway.meter.read().other_port, 0);
    }
}

/// The client uses the same four numbers again at once: with timestamps its port is free again,
/// whoever closed first and waits out TIME_WAIT.
#[test]
fn a_port_used_again_at_once_is_the_same_port_to_the_server() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        use_one_port_again_and_again(&stage, ip, &gateway);
    }
    assert_eq!(gateway.meter.read().other_port, 0);
}

/// Without timestamps a port in TIME_WAIT cannot be dialled from: another one is, and counted.
#[test]
fn a_port_in_time_wait_is_replaced_and_counted() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let sysctl = "net.ipv4.tcp_timestamps";
    stage.gateway.set_sysctl(sysctl, "0").unwrap();
    stage.has_another_proxy();
    let gateway = stage.split();
    for (ip, replaced) in Ip::BOTH.into_iter().zip([1, 2]) {
        let listener = stage.listen(ip);
        let from = SocketAddr::new(ip.client(), 40_003);
        // A dial of the gateway's namespace that has just ended.
        let dialled = stage.dial_transparently(from, listener.address());
        let mut server = listener.accept();
        dialled.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        drop(server);
        drop(dialled);

        let mut client = stage.connect_from(from, listener.address());
        let mut server = listener.accept();
        assert_eq!(server.peer_addr().unwrap().ip(), from.ip());
        assert_ne!(server.peer_addr().unwrap().port(), from.port());
        server.write_all(b"served all the same").unwrap();
        client.read_exact(&mut [0; 19]).unwrap();
        assert_eq!(gateway.meter.read().other_port, replaced);
    }
}

/// Opens, uses and ends connections of the same four numbers, closed by either side first.
fn use_one_port_again_and_again(stage: &Stage, ip: Ip, gateway: &support::Running) {
    let listener = stage.listen(ip);
    let from = SocketAddr::new(ip.client(), 40_002);
    for client_first in [true, false, true, false, false] {
        let before = gateway.meter.read().finished;
        let start = Instant::now();
        let mut client = stage.connect_from(from, listener.address());
        let mut server = listener.accept();
        // The first SYN was answered. One that a rule for standing connections had delivered to what
        // waits in TIME_WAIT would get an old ACK: Linux tries again at once, others after 1 s.
        assert_eq!(tcp::info(&client).unwrap().total_retrans, 0);
        assert!(start.elapsed() < Duration::from_millis(800));
        assert_eq!(server.peer_addr().unwrap(), from);
        client.write_all(&support::pattern(100_000)).unwrap();
        server.read_exact(&mut vec![0; 100_000]).unwrap();
        let (first, second) = in_order((&mut client, &mut server), client_first);
        first.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
        second.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
        eventually("the end of the flow", || {
            gateway.meter.read().finished > before
        });
        // A FIN whose acknowledgement is still to be read holds the four numbers.
        eventually("the last acknowledgement", || {
            let connections =
                || Diag::open().and_then(|mut diag| diag.connections(States::FIN_PENDING));
            stage.gateway.run(connections).unwrap().unwrap().is_empty()
        });
    }
}

#[test]
fn a_connection_in_midstream_is_not_picked_up() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        let gateway = stage.split();
        for _ in 0..3 {
            client.write_all(b"on we go").unwrap();
            server.read_exact(&mut [0; 8]).unwrap();
            server.write_all(b"and back").unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        assert_eq!(gateway.meter.read().accepted, 0);
    }
}

#[test]
fn the_gateways_own_services_are_not_intercepted() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        // Its address on this side, and the one on the far side.
        for address in [ip.gateway_sat(), ip.gateway_lan()] {
            let listener = stage.listen_in(&stage.gateway, address);
            let _client = stage.connect(listener.address());
            listener.accept();
        }
    }
    assert_eq!(gateway.meter.read().accepted, 0);
}

/// A route that leads back: the dialled connection arrives again by the interface it left by, and is
/// not taken for a new one. It ends as without a gateway, by its hops.
#[test]
fn a_loop_is_not_intercepted() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let there = Route::via(Prefix::host(ip.beyond()), ip.server());
        stage.gateway.netlink().unwrap().add_route(&there).unwrap();
    }
    // The server sends what is not for it back to the gateway.
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        stage.server.set_sysctl(key, "1").unwrap();
    }
    for ip in Ip::BOTH {
        let dial = || TcpStream::connect_timeout(&(ip.beyond(), 80).into(), Duration::from_secs(3));
        let error = stage.client.run(dial).unwrap().unwrap_err();
        let kinds = [ErrorKind::HostUnreachable, ErrorKind::TimedOut];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.accepted, counters.over_limit()), (0, 0));
    // The client's own SYNs, not the dialled ones.
    assert!((2..=6).contains(&counters.held), "{counters:?}");
}

#[test]
fn a_connection_straight_to_the_gateways_port_is_reset() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let port = stage.free_ports_of_the_gateway();
    let config = Config {
        port,
        ..Stage::config()
    };
    let gateway = stage.split_by(config);
    for host in ["127.0.0.1", "::1"] {
        for leg in 0..2 {
            let to = SocketAddr::new(host.parse().unwrap(), port + leg);
            // The reset may come before the connection is seen to stand.
            let end = connect_in(&stage.gateway, to).and_then(|mut s| s.read(&mut [0; 1]));
            let error = end.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to}");
        }
    }
    assert_eq!(gateway.meter.read().direct, 4);
    // From outside nobody listens there.
    for ip in Ip::BOTH {
        let from_outside = stage.try_connect(SocketAddr::new(ip.gateway_sat(), port));
        let error = from_outside.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

/// A client whose source port equals the gateway's own port is served like any other.
#[test]
fn a_client_may_use_the_gateways_port_number() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let port = stage.free_ports_of_the_gateway();
    let config = Config {
        port,
        ..Stage::config()
    };
    let _gateway = stage.split_by(config);
    for ip in Ip::BOTH {
        for port in [port, port + 1] {
            let listener = stage.listen(ip);
            let from = SocketAddr::new(ip.client(), port);
            let _client = stage.connect_from(from, listener.address());
            assert_eq!(listener.accept().peer_addr().unwrap(), from);
        }
    }
}

/// A route beyond the gateway with a smaller MTU: the ICMP error comes for the client's address,
/// but it is the gateway's socket that must hear it.
#[test]
fn path_mtu_discovery_works_on_the_dialled_leg() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        learn_a_path_mtu(&stage, ip);
    }
    assert_eq!(gateway.meter.read().connected, 2);
}

fn learn_a_path_mtu(stage: &Stage, ip: Ip) {
    let (_inner, listener) = stage.behind_a_narrow_router(ip);
    let mut client = stage.connect(listener.address());
    let mut server = listener.accept();
    let sent = support::pattern(200_000);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || client.write_all(&copy).map(|()| client));
    let mut got = vec![0; sent.len()];
    server.read_exact(&mut got).unwrap();
    assert!(got == sent);
    drop(writer.join().unwrap().unwrap());
}

/// A host that sends without DF does not look for the path's MTU: no large packet of either leg forbids to be cut.
#[test]
fn who_lets_packets_be_cut_has_them_cut() {
    need!(Root, Tproxy);
    const COUNT: &str = "table ip large {
        chain input {
            type filter hook input priority 0; policy accept;
            meta l4proto tcp ip length > 600 ip frag-off & 0x4000 != 0 counter
        }
    }";
    for config in [Stage::config(), Stage::early()] {
        for cut in [true, false] {
            let stage = Stage::new();
            let ends = [&stage.client, &stage.server];
            let discovers = if cut { "1" } else { "0" };
            stage
                .client
                .set_sysctl("net.ipv4.ip_no_pmtu_disc", discovers)
                .unwrap();
            for netns in ends {
                netns.run(|| nft::apply(COUNT).unwrap()).unwrap();
            }
            let gateway = stage.split_by(config.clone());
            let (mut client, mut server) = stage.pair(Ip::V4);
            let bytes = support::pattern(20_000);
            client.write_all(&bytes).unwrap();
            server.read_exact(&mut vec![0; 20_000]).unwrap();
            server.write_all(&bytes).unwrap();
            client.read_exact(&mut vec![0; 20_000]).unwrap();
            assert_eq!(gateway.meter.read().connected, 1);
            for netns in ends {
                let list = || nft::list(&["table", "ip", "large"]).unwrap();
                let counted = netns.run(list).unwrap();
                assert_eq!(counted.contains("packets 0 "), cut, "{counted}");
            }
        }
    }
}

/// The rules of conntrack and a firewall that drops what conntrack calls invalid.
#[test]
fn conntrack_and_a_drop_invalid_rule_change_nothing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let firewall = "table inet firewall {
        chain forward { type filter hook forward priority 0; policy accept; ct state invalid drop; }
        chain input { type filter hook input priority 0; policy accept; ct state invalid drop; }
        chain output { type filter hook output priority 0; policy accept; ct state invalid drop; }
        chain track { type filter hook prerouting priority -10; policy accept; ct state established counter; }
    }";
    stage.gateway.run(|| nft::apply(firewall).unwrap()).unwrap();
    let gateway = stage.split();
    for ip in Ip::BOTH {
        use_one_port_again_and_again(&stage, ip, &gateway);
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.finished, counters.reset), (10, 0));
    // ICMP errors about split flows are not invalid either.
    learn_a_path_mtu(&stage, Ip::V4);
    let rules = stage.gateway.run(|| nft::list(&["ruleset"]).unwrap());
    let rules = rules.unwrap();
    assert!(
        rules.contains("ct state established counter packets 0 bytes 0"),
        "split flows are tracked:\n{rules}"
    );
    // A SYN is seen by conntrack, as any that is forwarded; that it does not come out again leaves nothing.
    let entries = "/proc/sys/net/netfilter/nf_conntrack_count";
    let entries = stage
        .gateway
        .run(|| std::fs::read_to_string(entries).unwrap());
    assert_eq!(entries.unwrap().trim(), "0");
}

/// A firewall that lets nothing in spares the queue by the one rule of docs/contract.md.
#[test]
fn a_closed_firewall_may_let_ours_by() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    let firewall = "table inet firewall {
        chain input {
            type filter hook input priority 0; policy drop;
            meta l4proto ipv6-icmp accept
            meta mark and 0xff000000 == 0x62000000 accept
        }
    }";
    stage.gateway.run(|| nft::apply(firewall).unwrap()).unwrap();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        client.write_all(b"let in").unwrap();
        server.read_exact(&mut [0; 6]).unwrap();
    }
    eventually("both connections", || gateway.meter.read().connected == 2);
    assert_eq!(gateway.meter.read().past_chains, 0, "no packet is queued");
}

/// Another transparent proxy of this machine, with rules and a mark of its own: its packets stay as they are, tracked and
/// marked, by an interface of a leg too.
#[test]
fn another_transparent_proxy_keeps_its_packets() {
    need!(Root, Tproxy, Program("ip"));
    let stage = Stage::new();
    stage.has_another_proxy();
    stage.apply(
        "table inet other {
           chain input { type filter hook input priority filter; policy drop;
             ct state established meta mark 5 accept
             meta l4proto ipv6-icmp accept
             meta mark and 0xff000000 == 0x62000000 accept
           }
         }",
    );
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let from = SocketAddr::new(ip.client(), 41_000);
        let mut client = stage.dial_transparently(from, listener.address());
        let mut server = listener.accept();
        support::converse(&mut client, &mut server);
        assert_eq!(server.peer_addr().unwrap(), from);
    }
    assert_eq!(gateway.meter.read().accepted, 0);
    // Ours go on.
    let (mut client, mut server) = stage.pair(Ip::V4);
    support::converse(&mut client, &mut server);
}

/// Counts SYNs of the third interface that come untracked, or marked as the gateway's.
const WATCH: &str = "table inet watch { counter seen { }
 counter touched { }
 chain raw { type filter hook prerouting priority raw + 1; policy accept;
   iifname dmz0 tcp flags & (syn | ack) == syn counter name seen
   iifname dmz0 meta l4proto tcp ct state untracked counter name touched
 }
 chain last { type filter hook prerouting priority 20000; policy accept;
   iifname dmz0 meta l4proto tcp meta mark and 0xff000000 == 0x62000000 counter name touched
 } }";

/// A transparent listener of this machine has its packets from an interface of no leg as they came, also the SYN that is
/// sent again while the connection is not accepted yet.
#[test]
fn a_syn_that_comes_again_by_an_interface_of_no_leg_stays_as_it_is() {
    need!(Root, Tproxy, Tun);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let open = || Tun::open("dmz0", TunConfig::default()).unwrap();
        let wire = stage.gateway.run(open).unwrap();
        let (here, there): (IpAddr, IpAddr) = match ip {
            Ip::V4 => (Ipv4Addr::new(10, 77, 9, 1).into(), [10, 77, 9, 2].into()),
            Ip::V6 => ("fd77:9::1".parse().unwrap(), "fd77:9::2".parse().unwrap()),
        };
        let netlink = stage.gateway.netlink().unwrap();
        netlink.add_address("dmz0", Prefix::host(here)).unwrap();
        netlink
            .add_route(&Route::device(Prefix::host(there), "dmz0"))
            .unwrap();
        let listen = || {
            let at = SocketAddr::new(here, 7000);
            let proxy = socket::stream(at).unwrap();
            socket::set_transparent(&proxy, at).unwrap();
            socket::bind(&proxy, at).unwrap();
            socket::listen(&proxy, 8).unwrap();
            proxy
        };
        let _proxy = stage.gateway.run(listen).unwrap();
        stage.apply(WATCH);
        let gateway = stage.split();
        let syn = Tcp {
            source: 40_000,
            destination: 7000,
            flags: Flags::SYN,
            window: 65_535,
            ..Tcp::default()
        };
        let packet = Packet {
            ip: match (there, here) {
                (IpAddr::V4(there), IpAddr::V4(here)) => {
                    bentpipe_wire::Ip::V4(Ipv4::new(there, here))
                }
                (IpAddr::V6(there), IpAddr::V6(here)) => {
                    bentpipe_wire::Ip::V6(Box::new(Ipv6::new(there, here)))
                }
                _ => unreachable!("both are of one family"),
            },
            transport: Transport::Tcp(syn),
            payload: Payload::Absent,
        };
        for _ in 0..3 {
            wire.send(&packet.to_vec().unwrap()).unwrap();
        }
        let count = |name: &str| {
            let list = || nft::list(&["counter", "inet", "watch", name]).unwrap();
            let text = stage.gateway.run(list).unwrap();
            let number = text.split("packets ").nth(1).unwrap();
            number.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        eventually("three SYNs", || count("seen") == 3);
        assert_eq!(count("touched"), 0, "{ip:?}");
        drop(gateway);
    }
}
