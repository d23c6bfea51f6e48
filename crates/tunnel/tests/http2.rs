//! Tunnels on HTTP/2, both ends in memory: bytes, half-closes, resets, refused dials, windows, trust.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod http2_pair;

use bentpipe_connect_tcp::{DialError, Target, Template, UDP_CAPSULE_MAX};
use bentpipe_quic::{ConnectionId, Endpoint, Limits};
use bentpipe_tunnel::{Closed, Event, Http2, NotSent, OpenError, Read, Role, TunnelId};
use bytes::Bytes as Chunk;
use http2_pair::*;
use std::collections::VecDeque;
use std::io;

#[test]
fn bytes_and_half_closes_go_both_ways() {
    let mut pair = Pair::new();
    let tunnels = pair.stand();
    let data: Chunk = (0..3_000_000_u32).map(|n| n as u8).collect();
    for own in [NEAR, FAR] {
        // The first way has ended when the second begins.
        let (read, ended) = pair.carry(own, tunnels, data.clone());
        assert!(read == data && ended, "{} of {}", read.len(), data.len());
    }
    for own in [NEAR, FAR] {
        assert!(pair.told[own].contains(&Event::Done(tunnels[own])));
        assert!(!pair.sides[own].has(tunnels[own]));
    }
}

#[test]
fn what_is_said_at_once_arrives_with_the_request() {
    let mut pair = Pair::new();
    let target: Target = "192.0.2.9:80".parse().unwrap();
    let near = pair.sides[NEAR].open(pair.ids[NEAR], &target).unwrap();
    pair.sides[NEAR]
        .write(near, &mut Chunk::from_static(b"hello"))
        .unwrap();
    pair.run();
    let far = pair.asked();
    // Not before somebody hears it.
    assert_eq!(pair.sides[FAR].read(far), Ok(Read::Blocked));
    pair.sides[FAR].answer(far, None).unwrap();
    let hello = Chunk::from_static(b"hello");
    assert_eq!(pair.sides[FAR].read(far), Ok(Read::Data(hello)));
}

#[test]
fn resets_of_either_side_are_told() {
    for own in [NEAR, FAR] {
        let mut pair = Pair::new();
        let tunnels = pair.stand();
        pair.sides[own].reset(tunnels[own]);
        pair.run();
        let other = 1 - own;
        assert!(pair.told[other].contains(&Event::Reset(tunnels[other])));
        assert_eq!(pair.sides[other].read(tunnels[other]), Err(Closed));
        // The connection goes on.
        pair.stand();
    }
}

#[test]
fn thousands_of_tunnels_come_and_go_on_one_connection() {
    let mut pair = Pair::new();
    for turn in 0..3000 {
        let tunnels = pair.stand();
        let data = Chunk::from_static(b"a small answer");
        match turn % 3 {
            0 => {
                for own in [NEAR, FAR] {
                    assert_eq!(
                        pair.carry(own, tunnels, data.clone()),
                        (data.to_vec(), true)
                    );
                }
            }
            reset => {
                let own = reset - 1;
                let mut data = data;
                pair.sides[1 - own]
                    .write(tunnels[1 - own], &mut data)
                    .unwrap();
                pair.sides[own].reset(tunnels[own]);
                pair.run();
            }
        }
        pair.told.iter_mut().for_each(Vec::clear);
        let left = [NEAR, FAR].map(|own| pair.sides[own].tunnels(pair.ids[own]));
        assert_eq!(left, [0; 2], "after {turn}");
    }
}

#[test]
fn a_request_that_is_given_up_is_told() {
    let mut pair = Pair::new();
    let near = pair.open().unwrap();
    let far = pair.asked();
    pair.sides[NEAR].reset(near);
    pair.run();
    assert!(pair.told[FAR].contains(&Event::Reset(far)));
    assert_eq!(pair.sides[FAR].answer(far, None), Err(Closed));
}

#[test]
fn why_a_dial_failed_is_told() {
    let mut pair = Pair::new();
    for why in DialError::all() {
        let near = pair.open().unwrap();
        let far = pair.asked();
        pair.sides[FAR].answer(far, Some(why)).unwrap();
        pair.run();
        assert!(pair.told[NEAR].contains(&Event::Answered(near, Err(why))));
        assert_eq!(
            pair.sides.each_ref().map(|side| side.tunnels(pair.ids[0])),
            [0; 2]
        );
    }
}

#[test]
fn who_does_not_read_holds_only_his_own_tunnel() {
    let mut pair = Pair::new();
    let slow = pair.stand();
    let mut data = Chunk::from(vec![0; 8_000_000]);
    while pair.sides[FAR].write(slow[FAR], &mut data).unwrap() > 0 {
        pair.run();
    }
    assert!(!data.is_empty(), "a window bounds what waits");
    let quick = pair.stand();
    let other = Chunk::from(vec![7; 1_000_000]);
    assert_eq!(pair.carry(FAR, quick, other.clone()).0, other);
    // What waited is there, and then there is room for more.
    pair.told[FAR].clear();
    let mut read = 0;
    while let Read::Data(got) = pair.sides[NEAR].read(slow[NEAR]).unwrap() {
        read += got.len();
        pair.run();
    }
    assert!(read > 100_000, "{read}");
    assert!(pair.told[FAR].contains(&Event::Writable(slow[FAR])));
}

#[test]
fn beyond_the_far_ends_tunnels_the_near_one_waits() {
    let limits = Limits {
        streams: 2,
        ..Limits::default()
    };
    let mut pair = Pair::with(limits, true);
    let first = pair.stand();
    pair.stand();
    // One more is queued by the stack itself.
    let mut refused = 0;
    while pair.open() != Err(OpenError::Limited) {
        refused += 1;
        assert!(refused < 3);
    }
    pair.sides[NEAR].reset(first[NEAR]);
    pair.run();
    assert!(pair.told[NEAR].contains(&Event::Room(pair.ids[NEAR])));
}

#[test]
fn who_shuts_down_takes_no_more() {
    let mut pair = Pair::new();
    let tunnels = pair.stand();
    pair.sides[FAR].shut_down();
    pair.run();
    assert!(pair.told[NEAR].contains(&Event::GoingAway(pair.ids[NEAR])));
    assert_eq!(pair.open(), Err(OpenError::GoingAway));
    let data = Chunk::from_static(b"still");
    assert_eq!(pair.carry(NEAR, tunnels, data.clone()).0, data);
}

#[test]
fn a_stranger_is_refused() {
    let pair = Pair::with(Limits::default(), false);
    let lost = { pair.told[FAR].iter() }.find_map(|event| match event {
        Event::Lost { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(lost.unwrap().contains("is not trusted"), "{lost:?}");
    assert!(
        !pair.told[FAR]
            .iter()
            .any(|event| matches!(event, Event::Connected { .. }))
    );
}

#[test]
fn a_ping_is_answered() {
    let mut pair = Pair::new();
    let before = pair.sides[NEAR].received(pair.ids[NEAR]);
    pair.run();
    assert_eq!(pair.sides[NEAR].received(pair.ids[NEAR]), before);
    pair.sides[NEAR].ping(pair.ids[NEAR]);
    pair.run();
    assert!(pair.sides[NEAR].received(pair.ids[NEAR]) > before);
}

/// A client that is none of ours: TLS of rustls, and frames of HTTP/2 as RFC 9113 writes them.
struct Foreign {
    tls: rustls::ClientConnection,
    far: Http2,
    id: ConnectionId,
    /// Frames that the far side has sent: type, flags, stream and payload.
    frames: Vec<(u8, u8, u32, Vec<u8>)>,
    incoming: Vec<u8>,
    told: Vec<Event>,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A literal of HPACK without indexing, its name in the static table (RFC 7541, section 6.2.2) or a new one.
fn field(name: Result<u8, &str>, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let name = match name {
        Ok(index) => vec![index],
        Err(name) => [vec![0], text(name)].concat(),
    };
    [name, text(value)].concat()
}

/// Indices of the static table.
const AUTHORITY: Result<u8, &str> = Ok(1);
const METHOD: Result<u8, &str> = Ok(2);

impl Foreign {
    fn new() -> Self {
        let [near, config] = configs(Limits::default(), true);
        let tls = Endpoint::new(&near, false)
            .unwrap()
            .tls_client(b"h2")
            .unwrap();
        let mut far = {
            let endpoint = Endpoint::new(&config, true).unwrap();
            let templates = vec![Template::of_authority("far.example").unwrap()];
            Http2::new(&endpoint, &config, Role::Far, templates).unwrap()
        };
        let id = far.begin("10.0.0.1:4433".parse().unwrap()).unwrap();
        let mut foreign = Self {
            tls: rustls::ClientConnection::new(tls, "far.example".try_into().unwrap()).unwrap(),
            far,
            id,
            frames: Vec::new(),
            incoming: Vec::new(),
            told: Vec::new(),
        };
        foreign.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        foreign.say(&frame(SETTINGS, 0, 0, &[]));
        foreign
    }

    fn say(&mut self, bytes: &[u8]) {
        io::Write::write_all(&mut self.tls.writer(), bytes).unwrap();
        for _ in 0..8 {
            let (mut to_far, mut to_near) = (VecDeque::new(), VecDeque::new());
            while self.tls.wants_write() {
                self.tls.write_tls(&mut to_far).unwrap();
            }
            let socket = &mut Socket {
                incoming: &mut to_far,
                outgoing: &mut to_near,
            };
            while self.far.receive(self.id, socket) {}
            self.far.work();
            self.far.send(self.id, socket).unwrap();
            while !to_near.is_empty() {
                self.tls.read_tls(&mut to_near).unwrap();
                let state = self.tls.process_new_packets().unwrap();
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                io::Read::read_exact(&mut self.tls.reader(), &mut plain).unwrap();
                self.incoming.extend(plain);
            }
            self.told.extend(std::iter::from_fn(|| self.far.event()));
        }
        while self.incoming.len() >= 9 {
            let head = &self.incoming[..9];
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let (kind, flags) = (head[3], head[4]);
            if self.incoming.len() < 9 + length {
                return;
            }
            let payload = self.incoming[9..9 + length].to_vec();
            self.incoming.drain(..9 + length);
            self.frames.push((kind, flags, stream, payload));
        }
    }

    /// Frames of a kind on a stream since the last call.
    fn heard(&mut self, kind: u8, stream: u32) -> Vec<(u8, Vec<u8>)> {
        let frames = core::mem::take(&mut self.frames);
        let (wanted, others): (Vec<_>, _) =
            { frames.into_iter() }.partition(|(found, _, on, _)| (*found, *on) == (kind, stream));
        self.frames = others;
        { wanted.into_iter() }
            .map(|(_, flags, _, payload)| (flags, payload))
            .collect()
    }

    fn asked(&mut self) -> (TunnelId, bentpipe_connect_tcp::Request) {
        let told = core::mem::take(&mut self.told);
        let mut asked = { told.into_iter() }.filter_map(|event| match event {
            Event::Asked(tunnel, request) => Some((tunnel, request)),
            _ => None,
        });
        asked.next().unwrap()
    }
}

#[test]
fn a_foreign_client_does_classic_connect() {
    let mut client = Foreign::new();
    // ENABLE_CONNECT_PROTOCOL = 1.
    let settings = client.heard(SETTINGS, 0);
    let extended = [0, 8, 0, 0, 0, 1];
    assert!(settings[0].1.chunks(6).any(|setting| setting == extended));
    let fields = [field(METHOD, "CONNECT"), field(AUTHORITY, "192.0.2.9:80")].concat();
    client.say(&frame(HEADERS, END_HEADERS, 1, &fields));
    let (tunnel, request) = client.asked();
    assert_eq!(request.framing, bentpipe_connect_tcp::Framing::Bare);
    assert_eq!(request.target.to_string(), "192.0.2.9:80");
    client.far.answer(tunnel, None).unwrap();
    client.say(&frame(DATA, 0, 1, b"hello"));
    // :status 200 is entry 8.
    assert_eq!(client.heard(HEADERS, 1)[0].1[0], 0x88);
    let hello = Chunk::from_static(b"hello");
    assert_eq!(client.far.read(tunnel), Ok(Read::Data(hello)));
    // The client's FIN, and the server goes on.
    client.say(&frame(DATA, END_STREAM, 1, &[]));
    assert_eq!(client.far.read(tunnel), Ok(Read::Final));
    let mut said = Chunk::from_static(b"bye");
    client.far.write(tunnel, &mut said).unwrap();
    client.far.finish(tunnel).unwrap();
    client.say(&[]);
    let heard = client.heard(DATA, 1);
    let bytes: Vec<u8> = heard.iter().flat_map(|(_, data)| data.clone()).collect();
    assert_eq!(bytes, b"bye");
    assert_eq!(heard.last().unwrap().0, END_STREAM);
}

#[test]
fn resets_of_a_foreign_client_and_of_the_far_side_are_connect_errors() {
    let mut client = Foreign::new();
    let fields = [field(METHOD, "CONNECT"), field(AUTHORITY, "192.0.2.9:80")].concat();
    for (stream, of_client) in [(1, true), (3, false)] {
        client.say(&frame(HEADERS, END_HEADERS, stream, &fields));
        let (tunnel, _) = client.asked();
        client.far.answer(tunnel, None).unwrap();
        client.say(&[]);
        if of_client {
            client.say(&frame(RST_STREAM, 0, stream, &10_u32.to_be_bytes()));
            assert!(client.told.contains(&Event::Reset(tunnel)));
        } else {
            client.far.reset(tunnel);
            client.say(&[]);
            let code = 10_u32.to_be_bytes().to_vec();
            assert_eq!(client.heard(RST_STREAM, stream), [(0, code)]);
        }
    }
}

#[test]
fn what_is_no_request_for_a_tunnel_is_refused_and_nonsense_ends_its_connection() {
    let mut client = Foreign::new();
    let extended = |protocol: &str, path: &str| {
        let fields = [
            field(METHOD, "CONNECT"),
            field(Err(":protocol"), protocol),
            field(Err(":scheme"), "https"),
            field(AUTHORITY, "far.example"),
            field(Err(":path"), path),
            field(Err("capsule-protocol"), "?1"),
        ];
        fields.concat()
    };
    let tcp = "/.well-known/masque/tcp/192.0.2.9/80/";
    // A status is entry 8 and its text, or an entry of its own: 404 is 13, 400 is 12.
    for (stream, protocol, path, status) in [
        (1, "websocket", tcp, "501"),
        (3, "connect-tcp-12", "/", "404"),
        (5, "connect-tcp-12", "/.well-known/masque/tcp/h/0/", "400"),
    ] {
        client.say(&frame(
            HEADERS,
            END_HEADERS,
            stream,
            &extended(protocol, path),
        ));
        let (flags, answer) = client.heard(HEADERS, stream).remove(0);
        assert_eq!(flags, END_HEADERS | END_STREAM, "{protocol} {path}");
        let is = match status {
            "404" => answer[0] == 0x8d,
            "400" => answer[0] == 0x8c,
            _ => true,
        };
        assert!(is, "{protocol} {path}: {answer:?}");
    }
    assert!(
        client
            .told
            .iter()
            .all(|event| !matches!(event, Event::Asked(..)))
    );
    // A frame of DATA on a stream that was never opened.
    client.say(&frame(DATA, 0, 99, b"x"));
    let lost = |event: &Event| matches!(event, Event::Lost { .. });
    assert!(client.told.iter().any(lost), "{:?}", client.told);
}

/// The UDP payloads that a side was told of on a tunnel.
fn udp(told: &[Event], tunnel: TunnelId) -> Vec<&[u8]> {
    let payloads = told.iter().filter_map(|event| match event {
        Event::Udp(of, payload) if *of == tunnel => Some(&payload[..]),
        _ => None,
    });
    payloads.collect()
}

/// Payloads keep their bounds, empty ones included, and those that leave with the request wait for its answer; the end of either side is the
/// flow's.
#[test]
fn udp_goes_in_capsules_both_ways() {
    let mut pair = Pair::new();
    let target: Target = "192.0.2.9:80".parse().unwrap();
    let near = pair.sides[NEAR].open_udp(pair.ids[NEAR], &target).unwrap();
    pair.sides[NEAR].send_udp(near, b"early").unwrap();
    pair.run();
    let far = pair.asked();
    assert!(pair.sides[FAR].is_udp(far) && pair.sides[NEAR].is_udp(near));
    assert!(udp(&pair.told[FAR], far).is_empty());
    assert_eq!(pair.sides[FAR].send_udp(far, b"x"), Err(NotSent::Closed));
    pair.sides[FAR].answer(far, None).unwrap();
    pair.run();
    let long = vec![7; UDP_CAPSULE_MAX];
    let sent: [&[u8]; 3] = [b"", b"two", &long];
    for payload in sent {
        pair.sides[NEAR].send_udp(near, payload).unwrap();
        pair.sides[FAR].send_udp(far, payload).unwrap();
    }
    pair.run();
    assert_eq!(
        udp(&pair.told[FAR], far),
        [&b"early"[..], b"", b"two", &long]
    );
    assert_eq!(udp(&pair.told[NEAR], near), sent);
    let longer = vec![7; UDP_CAPSULE_MAX + 1];
    let refused = pair.sides[NEAR].send_udp(near, &longer);
    assert_eq!(refused, Err(NotSent::TooLong(UDP_CAPSULE_MAX)));
    let counters = *pair.sides[NEAR].datagrams();
    assert_eq!(
        [counters.sent, counters.received, counters.too_long],
        [4, 3, 1]
    );
    // What TCP has no room for is dropped, and does not wait.
    let full = (0..10_000).find_map(|_| pair.sides[NEAR].send_udp(near, &[7; 1400]).err());
    assert_eq!(full, Some(NotSent::Full));
    pair.run();
    pair.sides[NEAR].send_udp(near, b"again").unwrap();
    pair.run();
    assert_eq!(udp(&pair.told[FAR], far).last(), Some(&&b"again"[..]));
    pair.sides[NEAR].finish(near).unwrap();
    pair.run();
    assert!(pair.told[FAR].contains(&Event::Readable(far)));
    assert_eq!(pair.sides[FAR].read(far), Ok(Read::Final));
    pair.sides[FAR].finish(far).unwrap();
    pair.run();
    assert_eq!(pair.sides[NEAR].read(near), Ok(Read::Final));
    assert!(!pair.sides[FAR].has(far) && !pair.sides[NEAR].has(near));
}

/// Capsules of a foreign client: of an unknown type and context they are dropped, cut short they end their stream alone.
#[test]
fn a_foreign_clients_capsules_are_understood_or_end_their_stream() {
    let mut client = Foreign::new();
    let fields = [
        field(METHOD, "CONNECT"),
        field(Err(":protocol"), "connect-udp"),
        field(Err(":scheme"), "https"),
        field(AUTHORITY, "far.example"),
        field(Err(":path"), "/.well-known/masque/udp/192.0.2.9/80/"),
        field(Err("capsule-protocol"), "?1"),
    ];
    for stream in [1, 3] {
        client.say(&frame(HEADERS, END_HEADERS, stream, &fields.concat()));
        let (tunnel, _) = client.asked();
        client.far.answer(tunnel, None).unwrap();
        // An unknown type; a payload, cut in two frames; an unknown context.
        client.say(&frame(DATA, 0, stream, b"\x17\x02ab\x00\x04\x00u"));
        client.say(&frame(DATA, 0, stream, b"dp\x00\x02\x05x"));
        assert_eq!(udp(&client.told, tunnel), [b"udp"]);
        match stream {
            // No context at all.
            1 => client.say(&frame(DATA, 0, stream, b"\x00\x00")),
            // The end within one.
            _ => client.say(&frame(DATA, END_STREAM, stream, b"\x00\x05\x00")),
        }
        assert!(client.told.contains(&Event::Reset(tunnel)));
        assert_eq!(client.heard(RST_STREAM, stream).len(), 1);
    }
    let counters = client.far.datagrams();
    assert_eq!(
        [
            counters.received,
            counters.unknown_context,
            counters.malformed
        ],
        [2, 2, 1]
    );
}

#[test]
fn many_requests_that_come_with_their_resets_end_no_connection() {
    let mut client = Foreign::new();
    let fields = [field(METHOD, "CONNECT"), field(AUTHORITY, "192.0.2.9:80")].concat();
    client.say(&frame(HEADERS, END_HEADERS, 1, &fields));
    let (stands, _) = client.asked();
    let given_up = |number: u32| {
        let stream = 3 + 2 * number;
        let request = frame(HEADERS, END_HEADERS, stream, &fields);
        [request, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let all: Vec<u8> = (0..500).flat_map(given_up).collect();
    client.say(&all);
    assert!(client.far.has(stands), "{:?}", client.told);
    assert_eq!(client.far.tunnels(client.id), 1);
    // Nobody is to be dialled for them.
    let is_told = |event: &Event| matches!(event, Event::Asked(..) | Event::Reset(_));
    assert!(!client.told.iter().any(is_told), "{:?}", client.told);
}

#[test]
fn who_changes_windows_again_and_again_is_sent_away() {
    let mut client = Foreign::new();
    // INITIAL_WINDOW_SIZE is 4.
    let changes = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).repeat(900);
    client.say(&changes);
    assert!(client.far.has_connection(client.id));
    client.say(&changes);
    let lost = |event: &Event| matches!(event, Event::Lost { reason, .. } if reason.contains("settings again and again"));
    assert!(client.told.iter().any(lost), "{:?}", client.told);
}

/// A socket that takes nothing.
struct Stuffed<'a>(&'a mut VecDeque<u8>);

impl io::Read for Stuffed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let outgoing = &mut VecDeque::new();
        let incoming = &mut *self.0;
        Socket { incoming, outgoing }.read(buffer)
    }
}

impl io::Write for Stuffed<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_asks_and_reads_no_answers_is_not_read_for_ever() {
    const PINGS: usize = 200_000;
    let mut client = Foreign::new();
    client.frames.clear();
    let mut waiting = VecDeque::new();
    for _ in 0..PINGS / 100 {
        let pings = frame(PING, 0, 0, &[7; 8]).repeat(100);
        io::Write::write_all(&mut client.tls.writer(), &pings).unwrap();
        client.tls.write_tls(&mut waiting).unwrap();
    }
    let all = waiting.len();
    for _ in 0..10 {
        let socket = &mut Stuffed(&mut waiting);
        while client.far.receive(client.id, socket) {}
        for connection in client.far.work() {
            client.far.send(connection, socket).unwrap();
        }
    }
    let taken = all - waiting.len();
    assert!(taken < 1 << 20, "{taken} of {all}");
    // When it reads at last, each is answered.
    let mut outgoing = VecDeque::new();
    let (mut turns, mut read) = (0, 0);
    while client.far.has_connection(client.id) && turns < PINGS {
        let socket = &mut Socket {
            incoming: &mut waiting,
            outgoing: &mut outgoing,
        };
        while client.far.receive(client.id, socket) {}
        for connection in client.far.work() {
            client.far.send(connection, socket).unwrap();
        }
        while !outgoing.is_empty() {
            client.tls.read_tls(&mut outgoing).unwrap();
            let state = client.tls.process_new_packets().unwrap();
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            io::Read::read_exact(&mut client.tls.reader(), &mut plain).unwrap();
            read += plain.len();
        }
        turns += 1;
        if read == PINGS * 17 {
            break;
        }
    }
    assert_eq!(read, PINGS * 17, "after {turns} turns");
}
