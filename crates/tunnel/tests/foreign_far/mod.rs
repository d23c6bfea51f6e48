//! A far end of HTTP/2 that is none of ours.

use super::foreign_client::{
    DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, carry, frame,
};
use super::http2_pair::*;
use bentpipe_connect_tcp::{Target, Template, fields};
use bentpipe_quic::{ConnectionId, Endpoint, Limits};
use bentpipe_tunnel::{Event, Http2, Read, Role};
use bytes::Bytes as Chunk;
use std::io;

/// A far end that is none of ours: TLS of rustls, and frames of HTTP/2 as RFC 9113 writes them.
struct Foreign {
    tls: rustls::ServerConnection,
    near: Http2,
    id: ConnectionId,
    told: Vec<Event>,
}

fn template() -> Template {
    Template::of_authority("far.example").unwrap()
}

impl Foreign {
    fn new() -> Self {
        let [config, far] = configs(Limits::default(), true);
        let server = { Endpoint::new(&far, true).unwrap() }.tls_server(b"h2");
        let endpoint = Endpoint::new(&config, false).unwrap();
        let mut near = Http2::new(&endpoint, &config, Role::Near, vec![template()]).unwrap();
        let id = near.begin("10.0.0.2:443".parse().unwrap()).unwrap();
        let mut foreign = Self {
            tls: rustls::ServerConnection::new(server.unwrap().for_connection()).unwrap(),
            near,
            id,
            told: Vec::new(),
        };
        // ENABLE_CONNECT_PROTOCOL = 1.
        foreign.say(&frame(SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 1]));
        assert!(foreign.told.contains(&Event::Ready(id)));
        foreign
    }

    fn say(&mut self, bytes: &[u8]) {
        io::Write::write_all(&mut self.tls.writer(), bytes).unwrap();
        carry(&mut self.tls, &mut self.near, self.id, &mut self.told);
    }
}

/// Who has said all of an answer, and wants to hear no more of the request, resets its stream with NO_ERROR (RFC 9113, section 8.1).
#[test]
fn all_that_a_far_end_says_is_read_though_it_listens_no_more() {
    let mut far = Foreign::new();
    let target: Target = "192.0.2.9:80".parse().unwrap();
    let (_, framing) = fields(&template(), &target, None);
    let tunnel = far.near.open(far.id, &target, None).unwrap();
    far.say(&[]);
    // :status 200 is entry 8.
    let mut all = frame(HEADERS, END_HEADERS, 1, &[0x88]);
    for piece in [b"all", b"of ", b"it!"] {
        let capsule = framing.header(3, false);
        all.extend(frame(DATA, 0, 1, &[&capsule, &piece[..]].concat()));
    }
    all.extend(frame(DATA, END_STREAM, 1, &framing.header(0, true)));
    all.extend(frame(RST_STREAM, 0, 1, &0_u32.to_be_bytes()));
    far.say(&all);
    assert!(far.told.contains(&Event::Answered(tunnel, Ok(()))));
    let mut more = Chunk::from_static(b"more");
    assert_eq!(far.near.write(tunnel, &mut more), Ok(4));
    let mut read = Vec::new();
    loop {
        match far.near.read(tunnel).unwrap() {
            Read::Data(data) => read.extend(data),
            Read::Final => break,
            Read::BrokenOff | Read::Blocked => panic!("the end is missing behind {read:?}"),
        }
        far.say(&[]);
    }
    assert_eq!(read, b"allof it!");
    far.near.finish(tunnel).unwrap();
    far.say(&[]);
    assert!(far.told.contains(&Event::Done(tunnel)), "{:?}", far.told);
    assert!(!far.told.contains(&Event::Reset(tunnel)));
}
