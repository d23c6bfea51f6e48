//! UDP on tunnels over a satellite link: unordered, never repeated, bounded, and whatever a peer makes up.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Machine;
use bentpipe_connect_tcp::{DialError, Framing};
use bentpipe_quic::{Quic, StreamRef};
use bentpipe_tunnel::{Closed, Event, NotSent, Read, TunnelId};
use bytes::Bytes;
use std::time::Duration;
use support::Pair;

impl Pair {
    fn open_udp(&mut self) -> TunnelId {
        let target = "192.0.2.9:443".parse().unwrap();
        self.near.open_udp(self.connection, &target, None).unwrap()
    }

    /// A tunnel of UDP that stands.
    fn stand_udp(&mut self) -> TunnelId {
        let tunnel = self.open_udp();
        self.accepted(tunnel)
    }
}

fn payloads(told: &[Event], of: TunnelId) -> Vec<Bytes> {
    let own = told.iter().filter_map(|event| match event {
        Event::Udp(tunnel, payload) if *tunnel == of => Some(payload.clone()),
        _ => None,
    });
    own.collect()
}

/// The near side need not wait for the answer, and what overtakes the dial is handed on when that is done: the answer is back after one
/// round trip.
#[test]
fn the_first_payload_goes_with_the_request() {
    let mut pair = Pair::over(0.0);
    let began = pair.now;
    let tunnel = pair.open_udp();
    pair.near.send_udp(tunnel, b"initial").unwrap();
    pair.near.send_udp(tunnel, b"").unwrap();
    pair.until(|pair| pair.asked().is_some());
    let request = pair.far_told.iter().find_map(|event| match event {
        Event::Asked(_, request) => Some(request.clone()),
        _ => None,
    });
    let request = request.unwrap();
    assert_eq!(request.framing, Framing::Datagrams);
    assert_eq!(request.target.to_string(), "192.0.2.9:443");
    pair.run_for(Duration::from_millis(5));
    assert_eq!(payloads(&pair.far_told, tunnel), Vec::<Bytes>::new());
    pair.far.accept(tunnel).unwrap();
    pair.drain();
    let came = payloads(&pair.far_told, tunnel);
    assert_eq!(came, [Bytes::from_static(b"initial"), Bytes::new()]);
    pair.far.send_udp(tunnel, b"answer").unwrap();
    pair.until(|pair| !payloads(&pair.near_told, tunnel).is_empty());
    let took = pair.now.since(began);
    assert!(took <= Duration::from_millis(620), "{took:?}");
    // It carries no bytes of a stream.
    let mut bytes = Bytes::from_static(b"x");
    assert_eq!(pair.near.write(tunnel, &mut bytes), Err(Closed));
}

/// Of what is lost on the way nothing is repeated, and nothing waits for it.
#[test]
fn what_is_lost_stays_lost() {
    let mut pair = Pair::over(0.1);
    let tunnel = pair.stand_udp();
    let before = pair.far.datagrams().received;
    for number in 0..1000_u32 {
        pair.near.send_udp(tunnel, &number.to_be_bytes()).unwrap();
        pair.run_for(Duration::from_millis(2));
    }
    pair.run_for(Duration::from_secs(10));
    let came = payloads(&pair.far_told, tunnel);
    let mut numbers: Vec<u32> = { came.iter() }
        .map(|payload| u32::from_be_bytes(payload[..].try_into().unwrap()))
        .collect();
    assert!((800..1000).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(pair.far.datagrams().received - before, numbers.len() as u64);
    numbers.dedup();
    assert_eq!(numbers.len(), came.len());
    assert!(numbers.is_sorted(), "this link does not reorder");
}

/// What is too long is told with the length that is not; a flood finds a bound, and a stream beside it has half of the link.
#[test]
fn queues_are_bounded_and_streams_have_their_turn() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand_udp();
    let most = pair.far.udp_room(tunnel).unwrap();
    assert!((1400..1472).contains(&most), "{most}");
    let long = vec![7; most + 1];
    assert_eq!(
        pair.far.send_udp(tunnel, &long),
        Err(NotSent::TooLong(most))
    );
    assert_eq!(pair.far.datagrams().too_long, 1);
    let stream = pair.open("192.0.2.9:80");
    pair.until(|pair| pair.asked().is_some());
    pair.far.accept(stream).unwrap();
    pair.run_for(Duration::from_secs(1));
    let mut got = 0;
    let mut rest = Bytes::from(vec![1; 20_000_000]);
    let before = pair.near.datagrams().received;
    for _ in 0..500 {
        pair.far.write(stream, &mut rest).unwrap();
        while pair.far.send_udp(tunnel, &long[..most]).is_ok() {}
        pair.run_for(Duration::from_millis(20));
        while let Ok(Read::Data(data)) = pair.near.read(stream) {
            got += data.len();
        }
        pair.near_told.clear();
    }
    assert!(pair.far.datagrams().full > 0);
    // Ten seconds at 10 Mbit/s, less the first half round trip.
    let of_udp = (pair.near.datagrams().received - before) as f64 * most as f64 * 8.0 / 1e7;
    let of_stream = got as f64 * 8.0 / 1e7;
    let both = of_udp + of_stream;
    assert!(
        (8.0..9.9).contains(&both),
        "{of_udp} and {of_stream} Mbit/s"
    );
    assert!(
        (0.4..0.6).contains(&(of_udp / both)),
        "{of_udp} and {of_stream} Mbit/s"
    );
}

/// A side that has ended a tunnel is told that the other has, and nothing stays.
#[test]
fn either_side_may_end_it() {
    for near_first in [true, false] {
        let mut pair = Pair::over(0.0);
        let tunnel = pair.stand_udp();
        let first = if near_first {
            &mut pair.near
        } else {
            &mut pair.far
        };
        first.finish(tunnel).unwrap();
        assert_eq!(first.send_udp(tunnel, b"x"), Err(NotSent::Closed));
        pair.run_for(Duration::from_secs(1));
        let second = if near_first {
            &mut pair.far
        } else {
            &mut pair.near
        };
        assert_eq!(second.read(tunnel), Ok(Read::Final));
        second.finish(tunnel).unwrap();
        pair.run_for(Duration::from_secs(2));
        let first = if near_first {
            &mut pair.near
        } else {
            &mut pair.far
        };
        let _ = first.read(tunnel);
        pair.run_for(Duration::from_secs(2));
        let left = (
            pair.near.tunnels(pair.connection),
            pair.far.tunnels(pair.connection),
        );
        assert_eq!(left, (0, 0));
    }
}

#[test]
fn a_refused_flow_is_told_and_what_it_sent_is_dropped() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.open_udp();
    for _ in 0..40 {
        pair.near.send_udp(tunnel, b"x").unwrap();
    }
    pair.until(|pair| pair.asked().is_some());
    pair.run_for(Duration::from_millis(100));
    assert!(
        pair.far.datagrams().unwanted >= 20,
        "{:?}",
        pair.far.datagrams()
    );
    pair.far.refuse(tunnel, DialError::Prohibited).unwrap();
    let refused = Event::Answered(tunnel, Err(DialError::Prohibited));
    pair.until(|pair| pair.near_told.contains(&refused));
    assert_eq!(pair.near.send_udp(tunnel, b"x"), Err(NotSent::Closed));
}

impl Pair {
    /// A DATAGRAM frame as a peer who keeps to nothing may send it: behind the number of a request.
    fn forge(&mut self, request: TunnelId, content: &[u8]) {
        let quarter = (request.stream.0 / 4) as u8;
        let frame = [&[quarter], content].concat();
        let quic = self.near.quic_mut();
        quic.send_datagram(request.connection, frame.into())
            .unwrap();
    }
}

#[test]
fn forged_contexts_are_dropped_and_counted() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand_udp();
    pair.forge(tunnel, &[2, 1, 1]);
    pair.forge(tunnel, &[0xff; 20]);
    // Of a request that has never been, and of one that the far side would open.
    let at = |stream| StreamRef {
        stream: bentpipe_quic::StreamId(stream),
        ..tunnel
    };
    for _ in 0..100 {
        pair.forge(at(tunnel.stream.0 + 40), &[0, 1]);
    }
    pair.forge(tunnel, &[0, 9]);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(payloads(&pair.far_told, tunnel), [Bytes::from_static(&[9])]);
    let counted = pair.far.datagrams();
    assert_eq!(counted.unknown_context, 2);
    assert!((60..=100).contains(&counted.unwanted), "{counted:?}");
    assert_eq!(counted.malformed, 0);
    // Without a context at all the request is at fault.
    pair.forge(tunnel, &[]);
    pair.until(|pair| pair.far_told.contains(&Event::Reset(tunnel)));
    pair.until(|pair| pair.near_told.contains(&Event::Reset(tunnel)));
}

#[test]
fn datagrams_on_a_tunnel_of_tcp_end_it_alone() {
    let mut pair = Pair::over(0.0);
    let udp = pair.stand_udp();
    let tcp = pair.stand();
    pair.forge(tcp, &[0, 1]);
    pair.until(|pair| pair.near_told.contains(&Event::Reset(tcp)));
    assert!(pair.far_told.contains(&Event::Reset(tcp)));
    assert_eq!(pair.far.datagrams().malformed, 1);
    pair.near.send_udp(udp, b"still").unwrap();
    pair.until(|pair| !payloads(&pair.far_told, udp).is_empty());
}

/// Who sends a DATAGRAM frame without the number of a request breaks HTTP/3.
#[test]
fn a_frame_of_no_request_ends_the_connection() {
    let mut pair = Pair::over(0.0);
    let connection = pair.connection;
    let quic = pair.near.quic_mut();
    quic.send_datagram(connection, Bytes::from_static(&[0x40]))
        .unwrap();
    let lost = |told: &[Event]| told.iter().any(|event| matches!(event, Event::Lost { .. }));
    pair.until(|pair| lost(&pair.far_told) && lost(&pair.near_told));
    assert!(pair.near.event().is_none());
}
