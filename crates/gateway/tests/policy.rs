//! What is split, what passes, what is refused, and what is counted of the rest.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Seq;
use bentpipe_gateway::{Config, Handshake};
use bentpipe_os::{need, nft};
use bentpipe_sockets::socket::set_traffic_class;
use bentpipe_wire::{
    Flags, Ip as Header, Ipv4, Packet, Payload, RawOptions, Tcp, TcpOptions, Transport,
};
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use support::{Ip, Listener, Running, Stage, converse, eventually};

const HANDSHAKES: [&str; 2] = ["end-to-end", "early"];

/// A gateway with these words besides the usual ones.
fn with(stage: &Stage, text: &str) -> Running {
    let text =
        format!("threads = 2\ncontrol = \"off\"\n{text}\n[sat]\ncongestion_control = \"cubic\"\n");
    let config = Config::parse("test", &text).unwrap();
    stage.split_by(config.between("lan0", "sat0"))
}

/// What the gateway has counted under `name`.
fn passed(gateway: &Running, name: &str) -> u64 {
    let counts = gateway.meter.passed().unwrap();
    let count = counts.iter().find(|count| count.name == name);
    count.unwrap_or_else(|| panic!("no counter {name}")).packets
}

fn listen_at(stage: &Stage, ip: Ip, port: u16) -> Listener {
    support::listen::listen_at(&stage.server, ip.server(), port)
}

/// By port, prefix and direction: the first policy that matches decides.
#[test]
fn the_first_policy_that_matches_decides() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let gateway = with(
            &stage,
            &format!(
                "handshake = \"{handshake}\"
                 policy = [
                   {{ name = 'refused', port = '7000-7001', action = 'reject', to = ['10.77.2.0/24', 'fd77:2::/64'] }},
                   {{ name = 'wanted', port = [7100, 7000], action = 'split' }},
                   {{ name = 'other_way', arrives = 'lan', action = 'split' }},
                   {{ name = 'rest', action = 'bypass' }},
                 ]"
            ),
        );
        for ip in Ip::BOTH {
            let [refused, wanted, rest] =
                [7000, 7100, 7200].map(|port| listen_at(&stage, ip, port));
            let start = Instant::now();
            let error = stage.try_connect(refused.address()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(start.elapsed() < Duration::from_secs(2));
            let before = gateway.meter.read().accepted;
            let mut client = stage.connect(rest.address());
            converse(&mut client, &mut rest.accept());
            assert_eq!(
                gateway.meter.read().accepted,
                before,
                "{handshake}: it was split"
            );
            let mut client = stage.connect(wanted.address());
            converse(&mut client, &mut wanted.accept());
            assert_eq!(gateway.meter.read().accepted, before + 1);
        }
        // Who is refused has no way round by an address whose answers go another way.
        let refused = SocketAddr::new(Ip::V4.server(), 7000);
        let elsewhere = SocketAddr::new(Ip::V4.nobody(), 5000);
        support::flood::forge(&stage.client, elsewhere, refused, Seq(1));
        eventually("a refusal", || passed(&gateway, "policy_refused") == 3);
        let counted = ["refused", "wanted", "other_way", "rest"]
            .map(|name| passed(&gateway, &format!("policy_{name}")));
        assert_eq!(counted, [3, 2, 0, 2], "{handshake}");
        assert!(passed(&gateway, "unsplit_tcp") >= 10);
        assert_eq!(gateway.meter.read().direct, 0);
    }
}

/// A connection's code point is matched, and carried to the far side and back.
#[test]
fn a_code_point_is_matched_and_carried() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let policy = "policy = [{ name = 'ef', dscp = 'ef', action = 'bypass' }]";
        let gateway = with(&stage, &format!("handshake = \"{handshake}\"\n{policy}"));
        for netns in [&stage.client, &stage.server] {
            let count = "table inet seen { counter af41 {
              }
              chain input { type filter hook input priority 0
                ip dscp af41 tcp flags & (syn | fin | psh) != 0 counter name af41
                ip6 dscp af41 tcp flags & (syn | fin | psh) != 0 counter name af41
              }
            }";
            netns.run(|| nft::apply(count).unwrap()).unwrap();
        }
        for ip in Ip::BOTH {
            let listener = stage.listen(ip);
            let mut client = connect_in_class(&stage, listener.address(), 46 << 2);
            converse(&mut client, &mut listener.accept());
            let mut client = connect_in_class(&stage, listener.address(), 34 << 2);
            converse(&mut client, &mut listener.accept());
        }
        assert_eq!(passed(&gateway, "policy_ef"), 2);
        assert_eq!(gateway.meter.read().accepted, 2);
        // At the server the SYN and the question of each, at the client the answer.
        for (netns, least) in [(&stage.server, 4), (&stage.client, 2)] {
            let counts = netns.run(|| {
                let mut tally = nft::Tally::open().unwrap();
                tally.read(nft::TableFamily::Inet, "seen").unwrap()
            });
            let packets = counts.unwrap()[0].packets;
            assert!(packets >= least, "{handshake}: {packets} of {least}");
        }
    }
}

fn connect_in_class(stage: &Stage, to: SocketAddr, class: u8) -> TcpStream {
    connect_with(stage, to, |socket| {
        set_traffic_class(socket, to, class).unwrap();
    })
    .unwrap()
}

fn connect_with(
    stage: &Stage,
    to: SocketAddr,
    prepare: impl FnOnce(&socket2::Socket) + Send,
) -> std::io::Result<TcpStream> {
    let dial = || {
        let domain = socket2::Domain::for_address(to);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
        prepare(&socket);
        socket.connect_timeout(&to.into(), support::PATIENCE)?;
        Ok(TcpStream::from(socket))
    };
    stage.client.run(dial).unwrap()
}

/// SYNs with few hops left are sent to trace the way (traceroute -T), and pass.
#[test]
fn who_traces_the_way_is_not_split() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let policy =
            "policy = [{ port = 7000, action = 'reject' }, { port = 7001, action = 'split' }]";
        let gateway = with(&stage, &format!("handshake = \"{handshake}\"\n{policy}"));
        let count = "table inet seen { counter last_hop {
          }
          chain input { type filter hook input priority 0
            tcp flags syn ip ttl 1 counter name last_hop
            tcp flags syn ip6 hoplimit 1 counter name last_hop
          }
        }";
        stage.server.run(|| nft::apply(count).unwrap()).unwrap();
        for ip in Ip::BOTH {
            let few_hops = |socket: &socket2::Socket| match ip {
                Ip::V4 => socket.set_ttl_v4(2).unwrap(),
                Ip::V6 => socket.set_unicast_hops_v6(2).unwrap(),
            };
            let [refused, split, rest] = [7000, 7001, 7002].map(|port| listen_at(&stage, ip, port));
            for listener in [split, rest] {
                let client = connect_with(&stage, listener.address(), few_hops);
                converse(&mut client.unwrap(), &mut listener.accept());
            }
            let error = connect_with(&stage, refused.address(), few_hops).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        let counts = stage.server.run(|| {
            let mut tally = nft::Tally::open().unwrap();
            tally.read(nft::TableFamily::Inet, "seen").unwrap()
        });
        assert_eq!(counts.unwrap()[0].packets, 4, "{handshake}");
        assert_eq!(passed(&gateway, "few_hops"), 4);
        assert_eq!(gateway.meter.read().accepted, 0);
    }
}

/// A SYN with an option that a split would break passes as it is, and is counted.
#[test]
fn foreign_options_pass_unsplit() {
    need!(Root, Tproxy);
    for handshake in [Handshake::EndToEnd, Handshake::Early] {
        let stage = Stage::new();
        let gateway = stage.split_by(Config {
            handshake,
            ..Stage::config()
        });
        let count = "table inet seen {
            counter syns {
            }
            chain input { type filter hook input priority 0
              tcp dport 9 tcp option mptcp exists counter name syns
              tcp dport 9 tcp option 19 exists counter name syns
              tcp dport 9 tcp option 29 exists counter name syns
              tcp dport 9 tcp option 253 exists counter name syns
            }
        }";
        stage.server.run(|| nft::apply(count).unwrap()).unwrap();
        let options: [&[u8]; 4] = [&[30, 4, 0, 1], &[19, 4, 1, 1], &[29, 4, 1, 1], &[253, 2]];
        for option in options {
            send_raw(&stage, 255, &syn(option));
        }
        let expected = options.len() as u64;
        eventually("the SYNs at the server", || {
            let seen = stage.server.run(|| {
                let mut tally = nft::Tally::open().unwrap();
                tally.read(nft::TableFamily::Inet, "seen").unwrap()
            });
            seen.unwrap()[0].packets == expected
        });
        assert_eq!(passed(&gateway, "foreign_options"), expected);
        assert_eq!(gateway.meter.read().accepted, 0);
    }
}

fn server() -> Ipv4Addr {
    let IpAddr::V4(server) = Ip::V4.server() else {
        unreachable!("of family V4")
    };
    server
}

fn syn(option: &[u8]) -> Vec<u8> {
    let tcp = Tcp {
        source: 40_000 + u16::from(option[0]),
        destination: 9,
        seq: Seq(1),
        flags: Flags::SYN,
        window: 65_535,
        options: TcpOptions {
            unknown: RawOptions::new(option).map(Box::new),
            ..TcpOptions::default()
        }
        .boxed(),
        ..Tcp::default()
    };
    let client = Ipv4Addr::new(10, 77, 1, 77);
    let packet = Packet {
        ip: Header::V4(Ipv4::new(client, server())),
        transport: Transport::Tcp(tcp),
        payload: Payload::Absent,
    };
    packet.to_vec().unwrap()
}

/// Sends from the client's namespace to the server: with protocol 255 the bytes are a whole packet.
fn send_raw(stage: &Stage, protocol: i32, bytes: &[u8]) {
    let send = || {
        let protocol = Some(socket2::Protocol::from(protocol));
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, protocol).unwrap();
        let to = SocketAddr::new(server().into(), 0);
        socket.send_to(bytes, &to.into()).unwrap();
    };
    stage.client.run(send).unwrap();
}

/// QUIC passes and is counted; or it is refused, so that a client falls back to TCP.
#[test]
fn quic_is_counted_or_refused() {
    need!(Root, Tproxy);
    for (quic, refused) in [("count", false), ("reject", true)] {
        let stage = Stage::new();
        let gateway = with(&stage, &format!("quic = \"{quic}\""));
        for ip in Ip::BOTH {
            let bind = |host: IpAddr, port| UdpSocket::bind((host, port)).unwrap();
            let server = stage.server.run(|| bind(ip.server(), 443)).unwrap();
            let client = stage.client.run(|| bind(ip.client(), 0)).unwrap();
            for socket in [&server, &client] {
                socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
            }
            client.connect((ip.server(), 443)).unwrap();
            client.send(b"initial").unwrap();
            if refused {
                let error = client.recv(&mut [0; 9]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            } else {
                let (_, from) = server.recv_from(&mut [0; 9]).unwrap();
                server.send_to(b"answer", from).unwrap();
                client.recv(&mut [0; 9]).unwrap();
            }
            // TCP to the same port is split.
            let listener = listen_at(&stage, ip, 443);
            let mut client = stage.connect(listener.address());
            converse(&mut client, &mut listener.accept());
        }
        let counted = [
            passed(&gateway, "unsplit_quic"),
            passed(&gateway, "rejected_quic"),
        ];
        assert_eq!(counted, if refused { [0, 2] } else { [4, 0] });
        assert_eq!(gateway.meter.read().accepted, 2);
    }
}

/// IPsec and protocols that nobody asked for pass untouched, and are counted.
#[test]
fn other_protocols_pass_and_are_counted() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split();
    let receivers = [50, 132].map(|protocol| {
        let open = || {
            let protocol = Some(socket2::Protocol::from(protocol));
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, protocol).unwrap()
        };
        let socket = stage.server.run(open).unwrap();
        socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
        socket
    });
    for (mut receiver, protocol) in receivers.into_iter().zip([50, 132]) {
        send_raw(&stage, protocol, b"sealed");
        let mut packet = [0; 99];
        let length = receiver.read(&mut packet).unwrap();
        assert!(packet[..length].ends_with(b"sealed"));
    }
    assert_eq!(
        ["unsplit_ipsec", "unsplit_other"].map(|name| passed(&gateway, name)),
        [1, 1]
    );
}
/// A datagram in fragments arrives; it crosses as one packet, or with the rules that docs/operating.md gives fragment by
/// fragment.
#[test]
fn fragments_are_left_alone_where_rules_say_so() {
    need!(Root, Tproxy);
    let page = include_str!("../../../docs/operating.md");
    let from = page.find("table inet fragments {").unwrap();
    let rules = page[from..].split("```").next().unwrap();
    for (rules, packets) in [(None, 1), (Some(rules), 3)] {
        let stage = Stage::new();
        if let Some(rules) = rules {
            stage.apply(rules);
        }
        for ip in Ip::BOTH {
            let gateway = stage.split();
            let bind = |at| move || UdpSocket::bind(SocketAddr::new(at, 0)).unwrap();
            let server = stage.server.run(bind(ip.server())).unwrap();
            server.set_read_timeout(Some(support::PATIENCE)).unwrap();
            let client = stage.client.run(bind(ip.client())).unwrap();
            let to = server.local_addr().unwrap();
            assert_eq!(client.send_to(&[7; 4000], to).unwrap(), 4000);
            assert_eq!(server.recv(&mut [0; 5000]).unwrap(), 4000);
            assert_eq!(passed(&gateway, "unsplit_other"), packets, "{ip:?}");
        }
    }
}

/// The process that holds the table is killed: the table is made again, and its counters go on.
#[test]
fn what_passed_is_not_forgotten_with_the_table() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_with("[[policy]]\nname = \"all\"\naction = \"bypass\"\n");
    for ip in [Ip::V4, Ip::V6, Ip::V4] {
        let _pair = stage.pair(ip);
    }
    assert_eq!(passed(&gateway, "policy_all"), 3);
    stage.signal_nft("-KILL");
    // While there is no table nothing is counted.
    eventually("another table", || {
        let _pair = stage.pair(Ip::V6);
        let counts = gateway.meter.passed().unwrap_or_default();
        let count = counts.iter().find(|count| count.name == "policy_all");
        let packets = count.map_or(3, |count| count.packets);
        assert!(packets >= 3, "it began again at {packets}");
        packets > 3
    });
}
