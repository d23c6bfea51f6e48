//! Packets of nobody, of the past, and of those who mean harm.

mod common;

use bentpipe_base::{Bytes, Machine, Seq};
use bentpipe_host::{Config, ConnectError, Event, ListenError};
use bentpipe_tcp::{Cause, Event as TcpEvent, State};
use bentpipe_wire::{
    Checksums, Flags, Ip, Ipv4, Packet, Payload, Tcp, TcpOptions, Transport, checksum, protocol,
};
use common::{CLIENT, Net, SERVER, any, tcp};
use proptest::prelude::any as arbitrary_value;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_oneof, proptest};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn ip(source: IpAddr, destination: IpAddr) -> Ip {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("IPv4");
    };
    Ip::V4(Ipv4::new(source, destination))
}

fn segment(port: u16, to: u16, flags: Flags, seq: u32, ack: u32) -> Packet {
    Packet {
        ip: ip(CLIENT, SERVER),
        transport: Transport::Tcp(Tcp {
            source: port,
            destination: to,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: 60_000,
            options: TcpOptions {
                mss: Some(1_460),
                ..TcpOptions::default()
            }
            .boxed(),
            ..Tcp::default()
        }),
        payload: Payload::Absent,
    }
}

/// An ICMP error about `packet`, as a router sends it to who sent it.
fn error(kind: u8, code: u8, mtu: u16, packet: &Packet) -> Packet {
    let quoted = packet.to_vec().expect("a packet that can be written");
    let mut body = vec![kind, code, 0, 0, 0, 0];
    body.extend_from_slice(&mtu.to_be_bytes());
    body.extend_from_slice(&quoted[..28]);
    let sum = checksum::checksum(&body).to_be_bytes();
    body[2..4].copy_from_slice(&sum);
    let router = IpAddr::from([10, 9, 9, 9]);
    Packet {
        ip: ip(router, packet.ip.source()),
        transport: Transport::Other {
            protocol: protocol::ICMP,
        },
        payload: Payload::from(body.as_slice()),
    }
}

#[test]
fn what_nobody_listens_for_is_reset() {
    let mut net = Net::new();
    let client = net.connect(81);
    net.run(Duration::from_secs(1));
    let refused = Event::Connection(client, TcpEvent::Aborted(Cause::Refused));
    assert_eq!(net.events[0].pop_front(), Some(refused));
    assert_eq!(net.hosts[1].counters().resets_sent, 1);
    let now = net.now;
    net.hosts[0].release(client, now);
    net.drain();
    assert_eq!(net.hosts[0].connections(), (0, 0));
}

#[test]
fn answers_to_nobody_are_limited() {
    let limited = Config {
        replies_per_second: 50,
        ..Config::default()
    };
    let mut net = Net::with(Config::default(), limited);
    for port in 1..=1_000 {
        net.inject(1, segment(port, 81, Flags::ACK, 1, 1));
    }
    let counters = net.hosts[1].counters();
    assert_eq!(
        (counters.resets_sent, counters.replies_kept_back),
        (50, 950)
    );
}

#[test]
fn a_flood_of_syns_is_answered_by_cookies_and_clients_connect_beside_it() {
    let mut net = Net::new();
    let listener = net.listen(80, 16);
    for port in 1..=2_000 {
        net.inject(1, segment(port, 80, Flags::SYN, port.into(), 0));
    }
    let counters = *net.hosts[1].counters();
    assert_eq!((counters.syns, counters.cookies_sent), (16, 1_984));
    assert_eq!(net.hosts[1].connections(), (16, 0));
    let client = net.connect(80);
    net.run(Duration::from_secs(1));
    assert_eq!(net.state(0, client), Some(State::Established));
    let (server, tuple) = net.hosts[1].accept(listener).expect("it stands");
    assert_eq!(
        Some(tuple.remote.port()),
        net.hosts[0].tuple(client).map(|t| t.local.port())
    );
    assert_eq!(net.hosts[1].counters().cookies_accepted, 1);
    // Bytes go both ways, with what was agreed on.
    let bytes: Vec<u8> = (0..100_000).map(Payload::pattern).collect();
    net.hosts[1]
        .connection_mut(server)
        .expect("it stands")
        .write(&bytes);
    let mut got = Vec::new();
    net.run_until(Duration::from_secs(10), |net| {
        let mut room = [0; 4_096];
        while let Some(connection) = net.hosts[0].connection_mut(client) {
            let read = connection.read(&mut room);
            got.extend_from_slice(&room[..read]);
            if read == 0 {
                break;
            }
        }
        net.drain();
        got.len() == bytes.len()
    });
    assert!(got == bytes);
}

#[test]
fn a_forged_cookie_makes_no_connection() {
    let mut net = Net::new();
    let listener = net.listen(80, 1);
    net.inject(1, segment(1, 80, Flags::SYN, 1, 0));
    net.inject(1, segment(2, 80, Flags::SYN, 1, 0));
    for guess in 0..1_000u32 {
        net.inject(
            1,
            segment(3, 80, Flags::ACK, 2, guess.wrapping_mul(0x9e37_79b9)),
        );
    }
    assert_eq!(net.hosts[1].counters().cookies_false, 1_000);
    assert_eq!(net.hosts[1].accept(listener), None);
}

#[test]
fn whom_nobody_accepts_waits_and_no_more_come() {
    let mut net = Net::new();
    let listener = net.listen(80, 4);
    let clients: Vec<_> = (0..10).map(|_| net.connect(80)).collect();
    // Whose cookie comes back while nobody accepts is heard when it sends something.
    for client in &clients {
        net.hosts[0]
            .connection_mut(*client)
            .expect("it opens")
            .write(b"hello");
    }
    net.run(Duration::from_millis(500));
    assert!(net.hosts[1].connections().0 <= 8);
    let mut accepted = 0;
    net.run_until(Duration::from_secs(120), |net| {
        while net.hosts[1].accept(listener).is_some() {
            accepted += 1;
        }
        accepted == clients.len()
    });
    assert_eq!(accepted, clients.len());
    let all = clients
        .iter()
        .all(|client| net.state(0, *client) == Some(State::Established));
    assert!(all);
}

#[test]
fn a_reset_ends_a_handshake_and_leaves_nothing() {
    let mut net = Net::new();
    net.listen(80, 4);
    net.inject(1, segment(9, 80, Flags::SYN, 100, 0));
    assert_eq!(net.hosts[1].connections().0, 1);
    net.inject(1, segment(9, 80, Flags::RST, 101, 0));
    assert_eq!(net.hosts[1].connections().0, 0);
}

#[test]
fn handshakes_that_nobody_ends_are_given_up() {
    let mut net = Net::new();
    net.listen(80, 4);
    net.inject(1, segment(9, 80, Flags::SYN, 100, 0));
    net.fate = Box::new(|_, _| Vec::new());
    net.run(Duration::from_secs(3_600));
    assert_eq!(net.hosts[1].connections(), (0, 0));
}

#[test]
fn from_itself_to_itself_nothing_comes() {
    let mut net = Net::new();
    net.listen(80, 4);
    let mut land = segment(80, 80, Flags::SYN, 1, 0);
    land.ip = ip(SERVER, SERVER);
    net.inject(1, land);
    for source in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        let mut packet = segment(9, 80, Flags::SYN, 1, 0);
        packet.ip = ip(source.into(), SERVER);
        net.inject(1, packet);
    }
    let mut elsewhere = segment(9, 80, Flags::SYN, 1, 0);
    elsewhere.ip = ip(CLIENT, [10, 0, 0, 77].into());
    net.inject(1, elsewhere);
    assert_eq!(net.hosts[1].counters().misdirected, 5);
    assert_eq!((net.hosts[1].connections(), net.sent[1].len()), ((0, 0), 0));
}

/// Somebody who sees the connection writes into it, both ways, so that each end has what the other never sent, takes the
/// other's acknowledgements for old, and would answer them for ever (an "ACK storm").
#[test]
fn two_ends_that_were_set_apart_soon_stop_answering_each_other() {
    let mut net = Net::new();
    let (client, server) = net.pair(80);
    let ends = [(0, client), (1, server)];
    for (side, id) in ends {
        let connection = net.hosts[side].connection_mut(id);
        connection.expect("it stands").write(&[1; 100]);
    }
    net.run(Duration::from_secs(1));
    let before: usize = net.sent.iter().map(Vec::len).sum();
    let forged = [0, 1].map(|side| {
        let last = net.sent[side].last().expect("an acknowledgement");
        let payload = Payload::from(&[2; 700][..]);
        Packet {
            payload,
            ..last.clone()
        }
    });
    for (side, packet) in forged.into_iter().enumerate() {
        net.inject(1 - side, packet);
    }
    net.run(Duration::from_secs(600));
    let sent = net.sent.iter().map(Vec::len).sum::<usize>() - before;
    assert!((2..10).contains(&sent), "{sent}");
    for (side, id) in ends {
        let connection = net.hosts[side].connection(id).expect("it stands");
        assert!(connection.counters().acks_skipped > 0);
    }
}

#[test]
fn the_same_four_numbers_are_used_again_at_once() {
    let mut net = Net::new();
    let listener = net.listen(80, 8);
    let from = SocketAddr::new(CLIENT, 5_000);
    let to = SocketAddr::new(SERVER, 80);
    for round in 0..5 {
        let now = net.now;
        let client = net.hosts[0]
            .connect(from, to, &tcp(), now)
            .expect("a free port");
        net.run(Duration::from_millis(200));
        let (server, _) = net.hosts[1].accept(listener).expect("it stands");
        assert_eq!(
            net.state(0, client),
            Some(State::Established),
            "round {round}"
        );
        // The server closes first: TIME-WAIT is its.
        let now = net.now;
        net.hosts[1].release(server, now);
        net.run(Duration::from_millis(200));
        let now = net.now;
        net.hosts[0].release(client, now);
        net.run(Duration::from_millis(200));
        assert_eq!(net.hosts[0].connections(), (0, 0));
        assert_eq!(net.hosts[1].connections(), (0, 1));
    }
}

#[test]
fn a_port_in_time_wait_is_not_chosen_to_connect() {
    let mut net = Net::new();
    let (client, server) = net.pair(80);
    let tuple = net.hosts[0].tuple(client).expect("it stands");
    let now = net.now;
    net.hosts[0].release(client, now);
    net.run(Duration::from_millis(200));
    let now = net.now;
    net.hosts[1].release(server, now);
    net.run(Duration::from_millis(200));
    assert_eq!(net.hosts[0].connections(), (0, 1));
    let now = net.now;
    let again = net.hosts[0].connect(tuple.local, tuple.remote, &tcp(), now);
    assert_eq!(again, Err(ConnectError::PortInUse(tuple.local.port())));
    net.run(Duration::from_secs(61));
    let now = net.now;
    assert!(
        net.hosts[0]
            .connect(tuple.local, tuple.remote, &tcp(), now)
            .is_ok()
    );
}

#[test]
fn what_was_let_go_of_ends_though_the_peer_never_closes() {
    let mut net = Net::new();
    let (client, _server) = net.pair(80);
    let now = net.now;
    net.hosts[0].release(client, now);
    net.run(Duration::from_secs(59));
    assert_eq!(net.hosts[0].connections().0, 1);
    net.run(Duration::from_secs(2));
    assert_eq!(net.hosts[0].connections().0, 0);
}

#[test]
fn packets_too_big_make_segments_shorter_and_nothing_waits_for_a_timeout() {
    let mut net = Net::new();
    let (client, server) = net.pair(80);
    let bytes: Vec<u8> = (0..60_000).map(Payload::pattern).collect();
    net.hosts[0]
        .connection_mut(client)
        .expect("it stands")
        .write(&bytes);
    let start = net.now;
    // A router takes 1,400 bytes, and says so of each longer one.
    net.fate = Box::new(|packet, _| {
        if packet.length() > Bytes(1_400) {
            Vec::new()
        } else {
            vec![Duration::from_millis(10)]
        }
    });
    let mut told = net.sent[0].len();
    let mut got = 0;
    let done = net.run_until(Duration::from_secs(10), |net| {
        while told < net.sent[0].len() {
            let packet = net.sent[0][told].clone();
            told += 1;
            if packet.length() > Bytes(1_400) {
                net.inject(0, error(3, 4, 1_400, &packet));
            }
        }
        let mut room = [0; 4_096];
        while let Some(connection) = net.hosts[1].connection_mut(server) {
            let read = connection.read(&mut room);
            if read == 0 {
                break;
            }
            assert!((0..read).all(|i| room[i] == Payload::pattern((got + i) as u64)));
            got += read;
        }
        net.drain();
        got == bytes.len()
    });
    assert!(done, "{got}");
    assert!(
        net.now.since(start) < Duration::from_millis(200),
        "{:?}",
        net.now.since(start)
    );
    let connection = net.hosts[0].connection(client).expect("it stands");
    assert_eq!(connection.segment_size(), 1_400 - 40 - 12);
}

#[test]
fn icmp_about_what_was_not_sent_tells_nothing() {
    let mut net = Net::new();
    let (client, _) = net.pair(80);
    let sent = net.sent[0].last().expect("an acknowledgement").clone();
    let before = net.hosts[0].connection(client).map(|c| c.segment_size());
    for shift in [1u32, 1_000, 1 << 31] {
        let mut forged = sent.clone();
        if let Transport::Tcp(tcp) = &mut forged.transport {
            tcp.seq = tcp.seq + shift;
        }
        net.inject(0, error(3, 4, 552, &forged));
        net.inject(0, error(3, 3, 0, &forged));
    }
    assert_eq!(net.hosts[0].counters().icmp_ignored, 6);
    assert_eq!(
        net.hosts[0].connection(client).map(|c| c.segment_size()),
        before
    );
    assert_eq!(net.state(0, client), Some(State::Established));
}

#[test]
fn icmp_ends_no_connection_that_stands_and_tells_who_connects() {
    let mut net = Net::new();
    let (client, _) = net.pair(80);
    net.fate = Box::new(|_, _| Vec::new());
    net.hosts[0]
        .connection_mut(client)
        .expect("it stands")
        .write(b"hello");
    net.drain();
    let sent = net.sent[0].last().expect("data").clone();
    net.inject(0, error(3, 1, 0, &sent));
    assert_eq!(net.hosts[0].counters().icmp, 1);
    assert_eq!(net.state(0, client), Some(State::Established));
    for (code, cause) in [
        (1, Cause::Unreachable),
        (3, Cause::Refused),
        (13, Cause::Unreachable),
    ] {
        let opening = net.connect(82);
        net.drain();
        let syn = net.sent[0].last().expect("a SYN").clone();
        net.events[0].clear();
        net.inject(0, error(3, code, 0, &syn));
        let told = Event::Connection(opening, TcpEvent::Aborted(cause));
        assert_eq!(net.events[0].pop_front(), Some(told));
    }
}

/// Headers that the reference implementation of SCPS-TP compressed. Nobody here offers to read them: they are left alone without a
/// word, beside a connection that goes on.
#[test]
fn compressed_headers_are_nobodys_and_disturb_nobody() {
    let mut net = Net::new();
    let (client, server) = net.pair(80);
    let recorded = include_str!("../../wire/tests/scps/reference.txt").lines();
    let recorded = recorded.filter_map(|line| line.strip_prefix("compressed "));
    let mut count = 0;
    let sent = net.sent[1].len();
    for hex in recorded {
        let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        let octets: Vec<u8> = (0..hex.len()).step_by(2).map(octet).collect();
        let packet = Packet::parse(&octets, Checksums::Verify).expect("a recorded packet");
        let packet = Packet {
            ip: ip(CLIENT, SERVER),
            ..packet
        };
        assert_eq!(packet.transport.protocol(), protocol::SCPS_TP);
        net.inject(1, packet);
        count += 1;
    }
    assert!(count >= 7);
    assert_eq!(net.hosts[1].counters().foreign, count);
    net.run(Duration::from_secs(1));
    assert_eq!(net.sent[1].len(), sent, "no reset, no ICMP");
    for (side, id) in [(0, client), (1, server)] {
        assert_eq!(net.state(side, id), Some(State::Established));
    }
}

#[test]
fn mistakes_of_the_caller_are_told() {
    let mut net = Net::new();
    net.listen(80, 4);
    let now = net.now;
    let host = &mut net.hosts[1];
    let elsewhere: SocketAddr = "192.0.2.1:80".parse().expect("an address");
    let at: SocketAddr = "0.0.0.0:80".parse().expect("an address");
    assert_eq!(
        host.listen(elsewhere, &tcp(), 1),
        Err(ListenError::NotHere(elsewhere.ip()))
    );
    assert_eq!(host.listen(at, &tcp(), 1), Err(ListenError::InUse(at)));
    let mut of_one_family = common::host(Config::default(), 3, &[CLIENT]);
    let six: SocketAddr = "[fd99::1]:80".parse().expect("an address");
    let refused = of_one_family.connect(any(), six, &tcp(), now);
    assert_eq!(refused, Err(ConnectError::NoAddress(six.ip())));
    let from: SocketAddr = "192.0.2.7:0".parse().expect("an address");
    let refused = host.connect(
        from,
        "10.0.0.1:80".parse().expect("an address"),
        &tcp(),
        now,
    );
    assert!(
        matches!(refused, Err(ConnectError::NoAddress(_))),
        "{refused:?}"
    );
}

#[test]
fn an_idle_connection_takes_little_memory() {
    // Its record; buffers are empty while nothing waits.
    let size = size_of::<bentpipe_tcp::Connection>();
    assert!(size <= 1_536, "{size}");
}

fn arbitrary() -> impl Strategy<Value = Packet> {
    let flags = any_flags();
    let ports = (
        prop_oneof![Just(80u16), 0u16..10],
        prop_oneof![Just(80u16), 0u16..10],
    );
    let payload = proptest::collection::vec(arbitrary_value::<u8>(), 0..40);
    (ports, flags, arbitrary_value::<(u32, u32, u16)>(), payload).prop_map(
        |((source, destination), flags, (seq, ack, window), payload)| Packet {
            ip: ip(CLIENT, SERVER),
            transport: Transport::Tcp(Tcp {
                source,
                destination,
                // Near what the host expects, often enough.
                seq: Seq(seq % 64),
                ack: Seq(ack),
                flags: Flags::from_bits(flags),
                window,
                ..Tcp::default()
            }),
            payload: Payload::from(payload.as_slice()),
        },
    )
}

fn any_flags() -> impl Strategy<Value = u16> {
    prop_oneof![Just(2u16), Just(16), Just(18), Just(4), Just(17), 0u16..512]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_packets_make_it_panic_or_grow(packets in proptest::collection::vec(arbitrary(), 1..400)) {
        let small = Config { connections: 20, time_wait: 5, ..Config::default() };
        let mut net = Net::with(Config::default(), small);
        let listener = net.listen(80, 8);
        net.fate = Box::new(|_, _| Vec::new());
        for packet in packets {
            net.inject(1, packet);
            net.run(Duration::from_millis(5));
            let (connections, time_waits) = net.hosts[1].connections();
            prop_assert!(connections <= 20 && time_waits <= 5);
        }
        while net.hosts[1].accept(listener).is_some() {}
        // Time goes on: every handshake that nobody ends is given up.
        net.run(Duration::from_secs(4_000));
        prop_assert!(net.hosts[1].deadline().is_none() || net.hosts[1].connections().0 > 0);
    }
}
