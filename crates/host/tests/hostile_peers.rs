//! Peers that keep the letter of the protocol and mean harm, or are merely poor: what they cost, and that nobody else
//! pays.

mod common;

use bentpipe_base::{Bytes, Seq};
use bentpipe_host::{Config, ConnectionId, ListenerId};
use bentpipe_tcp::State;
use bentpipe_wire::{
    Flags, Ip, Ipv4, Packet, Payload, Tcp, TcpOptions, Timestamps, Transport, checksum, protocol,
};
use common::{CLIENT, Net, SERVER};
use std::net::IpAddr;
use std::time::Duration;

/// A peer of the server, made by hand: what it says is written out packet by packet.
struct Peer {
    port: u16,
    /// Its next number, and the server's.
    seq: u32,
    ack: u32,
    window: u16,
    stamp: Option<Timestamps>,
}

fn ip(source: IpAddr, destination: IpAddr) -> Ip {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("IPv4");
    };
    Ip::V4(Ipv4::new(source, destination))
}

impl Peer {
    /// Opens a connection to port 80, with a SYN that says so of its largest segment.
    fn open(net: &mut Net, port: u16, mss: u16, stamp: Option<Timestamps>) -> Self {
        let mut peer = Self {
            port,
            seq: 0,
            ack: 0,
            window: 60_000,
            stamp,
        };
        let mut syn = peer.packet(Flags::SYN, 0, &[]);
        if let Transport::Tcp(tcp) = &mut syn.transport {
            tcp.options = TcpOptions {
                mss: Some(mss),
                ..TcpOptions::default()
            }
            .boxed();
        }
        net.inject(1, syn);
        let answer = net.sent[1].last().expect("SYN and ACK");
        let Transport::Tcp(tcp) = &answer.transport else {
            panic!("TCP");
        };
        (peer.seq, peer.ack) = (1, tcp.seq.0.wrapping_add(1));
        peer.says(net, 0, &[]);
        peer
    }

    /// A packet whose payload begins `ahead` bytes behind what was sent by now.
    fn packet(&self, flags: Flags, ahead: u32, payload: &[u8]) -> Packet {
        Packet {
            ip: ip(CLIENT, SERVER),
            transport: Transport::Tcp(Tcp {
                source: self.port,
                destination: 80,
                seq: Seq(self.seq.wrapping_add(ahead)),
                ack: Seq(self.ack),
                flags,
                window: self.window,
                timestamps: self.stamp,
                ..Tcp::default()
            }),
            payload: Payload::from(payload),
        }
    }

    fn says(&self, net: &mut Net, ahead: u32, payload: &[u8]) {
        net.inject(1, self.packet(Flags::ACK, ahead, payload));
    }
}

/// A server to whose packets nobody answers but the test.
fn server(config: Config) -> Net {
    let mut net = Net::with(Config::default(), config);
    net.fate = Box::new(|_, _| Vec::new());
    net
}

fn accepted(net: &mut Net, at: ListenerId) -> ConnectionId {
    net.hosts[1].accept(at).expect("it stands").0
}

fn buffered(net: &Net, ids: &[ConnectionId]) -> u64 {
    let held = ids.iter().filter_map(|id| net.hosts[1].connection(*id));
    held.map(bentpipe_tcp::Connection::buffered).sum()
}

#[test]
fn bytes_beyond_gaps_take_no_more_than_the_bound_and_others_go_on() {
    let config = Config {
        buffered: Bytes(150_000),
        ..Config::default()
    };
    let mut net = server(config);
    let listener = net.listen(80, 64);
    let mut ids = Vec::new();
    for port in 1..=40 {
        let peer = Peer::open(&mut net, port, 1_460, None);
        ids.push(accepted(&mut net, listener));
        for stretch in 0..10 {
            peer.says(&mut net, 1 + stretch * 1_400, &[1; 1_400]);
        }
        peer.says(&mut net, 59_000, b"x");
    }
    assert!(buffered(&net, &ids) <= 150_000 + 1_400);
    assert!(net.hosts[1].counters().payloads_dropped > 200);
    // A new one sends and is read, though slowly.
    let mut peer = Peer::open(&mut net, 1_000, 1_460, None);
    let id = accepted(&mut net, listener);
    for _ in 0..100 {
        peer.says(&mut net, 0, &[7; 1_000]);
        peer.seq += 1_000;
        let mut room = [0; 2_000];
        let read = net.hosts[1]
            .connection_mut(id)
            .expect("it stands")
            .read(&mut room);
        assert_eq!(read, 1_000);
        net.run(Duration::from_millis(50));
    }
}

#[test]
fn a_peer_of_tiny_segments_gets_small_ones() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 8);
    for mss in [1, 13, 47] {
        Peer::open(&mut net, mss, mss, None);
        let id = accepted(&mut net, listener);
        let connection = net.hosts[1].connection(id).expect("it stands");
        assert_eq!(connection.segment_size(), 48);
    }
}

#[test]
fn who_takes_nothing_of_what_nobody_holds_is_given_up() {
    let config = Config {
        orphan_for: Duration::from_secs(100),
        ..Config::default()
    };
    let mut net = server(config);
    let listener = net.listen(80, 8);
    let mut peer = Peer::open(&mut net, 1, 1_460, None);
    peer.window = 0;
    peer.says(&mut net, 0, &[]);
    let id = accepted(&mut net, listener);
    let now = net.now;
    net.hosts[1]
        .connection_mut(id)
        .expect("it stands")
        .write(&[1; 5_000]);
    net.hosts[1].release(id, now);
    // It answers each probe.
    for second in 0..120 {
        assert_eq!(net.hosts[1].connections().0 == 1, second < 100, "{second}");
        net.run(Duration::from_secs(1));
        peer.says(&mut net, 0, &[]);
    }
}

#[test]
fn who_takes_room_back_and_answers_is_waited_for() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 8);
    let mut peer = Peer::open(&mut net, 1, 1_460, None);
    let id = accepted(&mut net, listener);
    net.hosts[1]
        .connection_mut(id)
        .expect("it stands")
        .write(&[1; 50_000]);
    net.run(Duration::from_millis(50));
    peer.window = 0;
    for _ in 0..3_600 {
        peer.says(&mut net, 0, &[]);
        net.run(Duration::from_secs(1));
    }
    assert_eq!(net.state(1, id), Some(State::Established));
}

#[test]
fn an_end_within_what_is_held_is_no_end() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 8);
    let mut peer = Peer::open(&mut net, 1, 1_460, None);
    let id = accepted(&mut net, listener);
    peer.says(&mut net, 100, &[2; 1_000]);
    net.inject(1, peer.packet(Flags::ACK | Flags::FIN, 500, &[]));
    peer.says(&mut net, 0, &[1; 100]);
    let connection = net.hosts[1].connection(id).expect("it stands");
    assert_eq!(
        (connection.readable(), connection.state()),
        (1_100, State::Established)
    );
    peer.seq += 1_100;
    net.inject(1, peer.packet(Flags::ACK | Flags::FIN, 0, &[3; 10]));
    let connection = net.hosts[1].connection(id).expect("it stands");
    assert_eq!(
        (connection.readable(), connection.state()),
        (1_110, State::CloseWait)
    );
}

#[test]
fn what_comes_again_with_other_bytes_changes_nothing() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 8);
    let peer = Peer::open(&mut net, 1, 1_460, None);
    let id = accepted(&mut net, listener);
    // Beyond a gap, over both its ends, over all of it; then in front of what was not read yet.
    for (ahead, bytes) in [
        (10, &b"first"[..]),
        (8, b"other-"),
        (13, b"ot-others"),
        (0, b"begin-to-end-of-all-twice"),
        (0, b"BEGIN-TO-END-OF-ALL-TWICE"),
    ] {
        peer.says(&mut net, ahead, bytes);
    }
    let mut got = [0; 25];
    let connection = net.hosts[1].connection_mut(id).expect("it stands");
    assert_eq!(connection.read(&mut got), 25);
    assert_eq!(&got, b"begin-tootfirst-othersice");
}

#[test]
fn a_false_acknowledgement_moves_no_clock() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 8);
    let stamp = |value| Some(Timestamps { value, echo: 0 });
    let mut peer = Peer::open(&mut net, 1, 1_460, stamp(1_000));
    let id = accepted(&mut net, listener);
    let forged = Peer {
        ack: peer.ack.wrapping_add(1 << 30),
        stamp: stamp(1 << 30),
        ..peer
    };
    forged.says(&mut net, 0, b"forged");
    peer.stamp = stamp(1_001);
    peer.says(&mut net, 0, b"true");
    assert_eq!(net.hosts[1].connection(id).map(|c| c.readable()), Some(4));
}

#[test]
fn a_connection_by_cookie_knows_its_path() {
    let mut net = server(Config::default());
    let listener = net.listen(80, 1);
    let peer = Peer::open(&mut net, 1, 1_460, None);
    let first = accepted(&mut net, listener);
    net.hosts[1]
        .connection_mut(first)
        .expect("it stands")
        .write(&[1; 1_460]);
    net.drain();
    let long = net.sent[1].last().expect("a segment").clone();
    net.inject(1, too_big(1_000, &long));
    let size = |net: &Net, id| net.hosts[1].connection(id).map(|c| c.segment_size());
    assert_eq!(size(&net, first), Some(960));
    // Handshakes under way as many as there may be: the next is answered by a cookie.
    net.inject(1, Peer { port: 2, ..peer }.packet(Flags::SYN, 0, &[]));
    Peer::open(&mut net, 3, 1_460, None);
    assert_eq!(net.hosts[1].counters().cookies_accepted, 1);
    let second = accepted(&mut net, listener);
    // Cookies keep but a few sizes of segments.
    assert!(size(&net, second).is_some_and(|size| size <= 960));
}

/// What a router says to whom `packet` is from, whose next link takes but `mtu`.
fn too_big(mtu: u16, packet: &Packet) -> Packet {
    let quoted = packet.to_vec().expect("a packet that can be written");
    let mut body = vec![3, 4, 0, 0, 0, 0];
    body.extend_from_slice(&mtu.to_be_bytes());
    body.extend_from_slice(&quoted[..28]);
    let sum = checksum::checksum(&body).to_be_bytes();
    body[2..4].copy_from_slice(&sum);
    Packet {
        ip: ip(IpAddr::from([10, 9, 9, 9]), packet.ip.source()),
        transport: Transport::Other {
            protocol: protocol::ICMP,
        },
        payload: Payload::from(body.as_slice()),
    }
}
