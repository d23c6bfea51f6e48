//! Tunnels on HTTP/2, both ends in memory: bytes, half-closes, resets, refused dials, windows, trust.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod foreign_client;
mod foreign_far;
mod http2_pair;

use bentpipe_connect_tcp::{DialError, Target, UDP_CAPSULE_MAX};
use bentpipe_quic::Limits;
use bentpipe_tunnel::{Closed, Event, NotSent, OpenError, Read, TunnelId};
use bytes::Bytes as Chunk;
use http2_pair::*;

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
    let near = pair.sides[NEAR]
        .open(pair.ids[NEAR], &target, None)
        .unwrap();
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

/// The stream ends without FINAL_DATA behind what was said before.
#[test]
fn what_was_said_before_a_tunnel_is_broken_off_arrives() {
    for own in [NEAR, FAR] {
        let mut pair = Pair::new();
        let tunnels = pair.stand();
        let other = 1 - own;
        let said = Chunk::from(vec![7; 30_000]);
        pair.sides[own]
            .write(tunnels[own], &mut said.clone())
            .unwrap();
        assert!(pair.sides[own].break_off(tunnels[own]));
        pair.run();
        let mut got = Vec::new();
        while let Read::Data(data) = pair.sides[other].read(tunnels[other]).unwrap() {
            got.extend(data);
        }
        assert_eq!(got, said);
        assert!(!pair.told[other].contains(&Event::Reset(tunnels[other])));
        pair.sides[other].reset(tunnels[other]);
        pair.run();
        assert!(pair.told[own].contains(&Event::Reset(tunnels[own])));
        assert!(!pair.sides[own].has(tunnels[own]));
        // The connection goes on.
        pair.stand();
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
    let second = pair.stand();
    // The stack itself would take one more, and not ask.
    assert_eq!(pair.open(), Err(OpenError::Limited));
    pair.sides[NEAR].reset(first[NEAR]);
    pair.run();
    assert!(pair.told[NEAR].contains(&Event::Room(pair.ids[NEAR])));
    pair.stand();
    // Also where the far side ends one.
    assert_eq!(pair.open(), Err(OpenError::Limited));
    pair.told[NEAR].clear();
    pair.sides[FAR].reset(second[FAR]);
    pair.run();
    assert!(pair.told[NEAR].contains(&Event::Room(pair.ids[NEAR])));
    pair.stand();
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
    let near = pair.sides[NEAR]
        .open_udp(pair.ids[NEAR], &target, None)
        .unwrap();
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
