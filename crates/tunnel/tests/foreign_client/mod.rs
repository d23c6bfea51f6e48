//! A client of HTTP/2 that is none of ours, honest and not.

use super::http2_pair::*;
use super::udp;
use bentpipe_connect_tcp::Template;
use bentpipe_quic::{ConnectionId, Endpoint, Limits};
use bentpipe_tunnel::{Event, Http2, Read, Role, TunnelId};
use bytes::Bytes as Chunk;
use std::collections::VecDeque;
use std::io;

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

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
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

/// Carries what the foreign end has written to ours, and back; returns what ours says, and adds what it tells to `told`.
pub(crate) fn carry<Data>(
    foreign: &mut rustls::ConnectionCommon<Data>,
    ours: &mut Http2,
    id: ConnectionId,
    told: &mut Vec<Event>,
) -> Vec<u8> {
    let mut plain = Vec::new();
    for _ in 0..8 {
        let (mut to_ours, mut to_foreign) = (VecDeque::new(), VecDeque::new());
        while foreign.wants_write() {
            foreign.write_tls(&mut to_ours).unwrap();
        }
        let socket = &mut Socket {
            incoming: &mut to_ours,
            outgoing: &mut to_foreign,
        };
        while ours.receive(id, socket) {}
        ours.work();
        ours.send(id, socket).unwrap();
        while !to_foreign.is_empty() {
            foreign.read_tls(&mut to_foreign).unwrap();
            let state = foreign.process_new_packets().unwrap();
            let known = plain.len();
            plain.resize(known + state.plaintext_bytes_to_read(), 0);
            io::Read::read_exact(&mut foreign.reader(), &mut plain[known..]).unwrap();
        }
        told.extend(std::iter::from_fn(|| ours.event()));
    }
    plain
}

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
        let plain = carry(&mut self.tls, &mut self.far, self.id, &mut self.told);
        self.incoming.extend(plain);
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
