//! Tunnels over a satellite link: what the two drivers of a TCP connection do, and see.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures are for the docs")]

mod support;

use bentpipe_base::Instant;
use bentpipe_connect_tcp::DialError;
use bentpipe_quic::{Code, Direction, End, Quic, StreamRef};
use bentpipe_tunnel::{Closed, Event, OpenError, Read};
use bytes::Bytes;
use std::time::Duration;
use support::{Pair, read, write};

/// The request and the first bytes are one flight: half a round trip after it the far side can dial and forward.
#[test]
fn the_first_bytes_go_with_the_request_and_the_answer_is_back_after_one_round_trip() {
    let mut pair = Pair::over(0.0);
    let began = pair.now;
    let tunnel = pair.open("[2001:db8::7]:443");
    write(&mut pair.near, tunnel, b"hello");
    pair.until(|pair| pair.asked().is_some());
    assert!(
        pair.now.since(began) <= Duration::from_millis(305),
        "{}",
        pair.now
    );
    let Some(Event::Asked(asked, request)) = pair.far_told.pop() else {
        panic!("{:?}", pair.far_told)
    };
    assert_eq!(
        (asked, request.target.to_string().as_str()),
        (tunnel, "[2001:db8::7]:443")
    );
    // Nothing is forwarded before it is dialled.
    assert_eq!(read(&mut pair.far, tunnel), (Vec::new(), false));
    assert_eq!(
        pair.far.write(tunnel, &mut Bytes::from_static(b"x")),
        Err(Closed)
    );
    pair.far.accept(tunnel).unwrap();
    assert_eq!(read(&mut pair.far, tunnel), (b"hello".to_vec(), false));
    write(&mut pair.far, tunnel, b"welcome");
    pair.until(|pair| pair.near_told.contains(&Event::Readable(tunnel)));
    assert!(
        pair.now.since(began) <= Duration::from_millis(610),
        "{}",
        pair.now
    );
    assert_eq!(pair.near_told[0], Event::Answered(tunnel, Ok(())));
    assert_eq!(read(&mut pair.near, tunnel), (b"welcome".to_vec(), false));
}

/// Fetches 100 kB through a tunnel that is asked for as soon as it may be; when all has come.
fn fetch(pair: &mut Pair) -> Instant {
    let connection = pair.connection;
    let may = [Event::Early(connection), Event::Ready(connection)];
    pair.until(|pair| pair.near_told.iter().any(|event| may.contains(event)));
    let tunnel = pair.open("192.0.2.9:80");
    write(&mut pair.near, tunnel, b"a hundred, please");
    pair.until(|pair| pair.asked().is_some());
    // The two sides count connections each by itself.
    let asked = pair.asked().unwrap();
    pair.far.accept(asked).unwrap();
    assert_eq!(
        read(&mut pair.far, asked),
        (b"a hundred, please".to_vec(), false)
    );
    let mut rest = Bytes::from(vec![7; 100_000]);
    let (mut got, end) = (0, pair.now + Duration::from_secs(20));
    while got < 100_000 && pair.now < end {
        pair.far.write(asked, &mut rest).unwrap();
        pair.run_for(Duration::from_millis(1));
        got += read(&mut pair.near, tunnel).0.len();
    }
    assert_eq!(got, 100_000);
    pair.now
}

/// SETTINGS come with the handshake, so that the first connection of all takes no third round trip for them; one that is made again asks
/// in its first flight.
#[test]
fn the_first_answer_of_all_takes_two_round_trips_and_that_of_a_connection_made_again_one() {
    let mut pair = Pair::connecting(0.0);
    let first = fetch(&mut pair).since(Instant::ZERO);
    pair.connect_again();
    let began = pair.now;
    let again = fetch(&mut pair).since(began);
    println!("100 kB at 600 ms through a tunnel: first of all {first:?}, made again {again:?}");
    assert!((1280..=1310).contains(&first.as_millis()), "{first:?}");
    assert!((683..=720).contains(&again.as_millis()), "{again:?}");
    pair.run_for(Duration::from_secs(5));
    let connection = pair.connection;
    let order: Vec<_> = { pair.near_told.iter() }
        .filter(|event| {
            matches!(
                event,
                Event::Early(_) | Event::Ready(_) | Event::Connected { .. }
            )
        })
        .collect();
    assert!(
        matches!(
            order[..],
            [Event::Early(_), Event::Connected { .. }, Event::Ready(_)]
        ),
        "{order:?}"
    );
    // It goes on as any other, and hears what its peer says later on the control stream.
    assert_eq!(pair.near.tunnels(connection), 1);
    pair.far.shut_down();
    pair.until(|pair| pair.near_told.contains(&Event::GoingAway(connection)));
}

/// The far side has forgotten the ticket: the same tunnels are asked for after the handshake, each once.
#[test]
fn a_far_side_that_has_forgotten_is_asked_again() {
    let mut pair = Pair::connecting(0.01);
    fetch(&mut pair);
    pair.near.close(pair.connection, "done", pair.now);
    pair.run_for(Duration::from_secs(20));
    pair.restart_far();
    pair.connect_again();
    let began = pair.now;
    let took = fetch(&mut pair).since(began);
    assert!(pair.near_told.contains(&Event::Early(pair.connection)));
    assert!(took < Duration::from_secs(5), "{took:?}");
    pair.run_for(Duration::from_secs(5));
    let asked = |event: &&Event| matches!(event, Event::Asked(..));
    assert_eq!(pair.far_told.iter().filter(asked).count(), 1);
    assert!(pair.near_told.contains(&Event::Ready(pair.connection)));
}

#[test]
fn either_side_may_finish_first_and_the_other_goes_on() {
    for near_first in [true, false] {
        let mut pair = Pair::over(0.0);
        let tunnel = pair.stand();
        let (first, second) = if near_first {
            (&mut pair.near, &mut pair.far)
        } else {
            (&mut pair.far, &mut pair.near)
        };
        write(first, tunnel, b"the last");
        first.finish(tunnel).unwrap();
        assert_eq!(
            first.write(tunnel, &mut Bytes::from_static(b"x")),
            Err(Closed)
        );
        write(second, tunnel, b"not yet");
        pair.run_for(Duration::from_secs(1));
        let (first, second) = if near_first {
            (&mut pair.near, &mut pair.far)
        } else {
            (&mut pair.far, &mut pair.near)
        };
        assert_eq!(read(second, tunnel), (b"the last".to_vec(), true));
        assert_eq!(read(first, tunnel), (b"not yet".to_vec(), false));
        write(second, tunnel, b", but now");
        second.finish(tunnel).unwrap();
        pair.run_for(Duration::from_secs(1));
        let first = if near_first {
            &mut pair.near
        } else {
            &mut pair.far
        };
        assert_eq!(read(first, tunnel), (b", but now".to_vec(), true));
        pair.run_for(Duration::from_secs(3));
        // Both streams have ended, and nothing is kept of them.
        assert_eq!(
            (
                pair.near.tunnels(pair.connection),
                pair.far.tunnels(pair.connection)
            ),
            (0, 0)
        );
        let resets = |told: &[Event]| told.iter().any(|event| matches!(event, Event::Reset(_)));
        assert!(!resets(&pair.near_told) && !resets(&pair.far_told));
    }
}

/// Megabytes through a lossy link, more than any window: what cannot be written waits, and all of it arrives.
#[test]
fn a_long_transfer_arrives_whole() {
    let mut pair = Pair::over(0.02);
    let tunnel = pair.stand();
    let sent: Vec<u8> = (0..8_000_000_u32)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect();
    let mut rest = Bytes::from(sent.clone());
    let mut got = Vec::new();
    let mut last = false;
    let end = pair.now + Duration::from_secs(60);
    while !last && pair.now < end {
        pair.far.write(tunnel, &mut rest).unwrap();
        if rest.is_empty() {
            pair.far.finish(tunnel).unwrap();
        }
        pair.run_for(Duration::from_millis(20));
        let (data, ended) = read(&mut pair.near, tunnel);
        got.extend(data);
        last |= ended;
    }
    assert!(last && got == sent, "{} of {}", got.len(), sent.len());
    // 6.4 s on the line, and what repairs take.
    let took = pair.now.since(Instant::ZERO);
    assert!(took < Duration::from_secs(14), "{took:?}");
}

#[test]
fn every_way_in_which_a_dial_fails_is_told() {
    let mut pair = Pair::over(0.0);
    for why in DialError::all() {
        let tunnel = pair.open("192.0.2.1:80");
        write(&mut pair.near, tunnel, b"in vain");
        pair.until(|pair| pair.asked().is_some());
        pair.far_told.clear();
        pair.far.refuse(tunnel, why).unwrap();
        assert_eq!(pair.far.accept(tunnel), Err(Closed));
        pair.until(|pair| pair.near_told.contains(&Event::Answered(tunnel, Err(why))));
        assert_eq!(
            pair.near.write(tunnel, &mut Bytes::from_static(b"x")),
            Err(Closed)
        );
    }
    pair.run_for(Duration::from_secs(3));
    assert_eq!(
        (
            pair.near.tunnels(pair.connection),
            pair.far.tunnels(pair.connection)
        ),
        (0, 0)
    );
    let reset = |event: &Event| matches!(event, Event::Reset(_));
    assert!(!pair.near_told.iter().any(reset) && !pair.far_told.iter().any(reset));
}

#[test]
fn a_reset_reaches_the_other_side_whoever_begins_and_whenever() {
    for (near_first, stands) in [(true, true), (false, true), (true, false)] {
        let mut pair = Pair::over(0.0);
        let tunnel = if stands {
            pair.stand()
        } else {
            let tunnel = pair.open("192.0.2.1:80");
            pair.until(|pair| pair.asked().is_some());
            tunnel
        };
        // Data that is not read does not keep it from being seen.
        write(&mut pair.near, tunnel, &[7; 5000]);
        pair.run_for(Duration::from_secs(1));
        let first = if near_first {
            &mut pair.near
        } else {
            &mut pair.far
        };
        first.reset(tunnel);
        assert_eq!(first.read(tunnel), Err(Closed));
        pair.until(|pair| {
            let told = if near_first {
                &pair.far_told
            } else {
                &pair.near_told
            };
            told.contains(&Event::Reset(tunnel))
        });
        assert_eq!(
            (
                pair.near.tunnels(pair.connection),
                pair.far.tunnels(pair.connection)
            ),
            (0, 0)
        );
        let own = if near_first {
            &pair.near_told
        } else {
            &pair.far_told
        };
        assert!(
            !own.contains(&Event::Reset(tunnel)),
            "who resets is not told"
        );
    }
}

/// A far end that has answered whole may say that it reads no more, with H3_NO_ERROR (RFC 9114, section 4.1): what it has said counts.
#[test]
fn what_a_far_end_says_that_listens_no_more_is_not_lost() {
    const NO_ERROR: Code = Code(0x100);
    let mut pair = Pair::over(0.0);
    // A refusal, before which the word comes.
    let refused = pair.open("192.0.2.1:80");
    pair.until(|pair| pair.asked().is_some());
    let quic = pair.far.quic_mut();
    quic.end(refused, End::Stop(NO_ERROR)).unwrap();
    pair.run_for(Duration::from_millis(100));
    pair.far.refuse(refused, DialError::Refused).unwrap();
    let told = Event::Answered(refused, Err(DialError::Refused));
    pair.until(|pair| pair.near_told.contains(&told));
    pair.near_told.clear();
    pair.far_told.clear();
    // The last of what a server sent that has closed.
    for half_closed in [false, true] {
        let tunnel = pair.stand();
        write(&mut pair.near, tunnel, b"hello");
        if half_closed {
            pair.near.finish(tunnel).unwrap();
        }
        pair.run_for(Duration::from_secs(1));
        write(&mut pair.far, tunnel, &[7; 50_000]);
        pair.far.finish(tunnel).unwrap();
        let quic = pair.far.quic_mut();
        quic.end(tunnel, End::Finish).unwrap();
        quic.end(tunnel, End::Stop(NO_ERROR)).unwrap();
        pair.run_for(Duration::from_secs(2));
        if !half_closed {
            write(&mut pair.near, tunnel, b"nobody hears it");
        }
        assert_eq!(read(&mut pair.near, tunnel), (vec![7; 50_000], true));
        if !half_closed {
            let mut more = Bytes::from_static(b"now it is told");
            assert_eq!(pair.near.write(tunnel, &mut more), Err(Closed));
            pair.near.finish(tunnel).unwrap();
        }
        assert!(!pair.near_told.contains(&Event::Reset(tunnel)));
        assert_eq!(pair.near.tunnels(pair.connection), 0);
    }
    // Any other word is a reset.
    let tunnel = pair.stand();
    let quic = pair.far.quic_mut();
    quic.end(tunnel, End::Stop(Code(0x10c))).unwrap();
    pair.until(|pair| pair.near_told.contains(&Event::Reset(tunnel)));
}

/// A tunnel on which the near side, by hand, has sent a frame of DATA with `body`, and the end of the stream.
fn ends_with(body: &[u8]) -> (Pair, StreamRef) {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand();
    let mut frame = vec![0, body.len() as u8];
    frame.extend_from_slice(body);
    let quic = pair.near.quic_mut();
    let written = quic.write(tunnel, &mut Bytes::from(frame.clone()));
    assert_eq!(written, Ok(frame.len()));
    quic.end(tunnel, End::Finish).unwrap();
    pair.run_for(Duration::from_secs(1));
    (pair, tunnel)
}

/// A peer that says more after FINAL_DATA breaks the protocol.
#[test]
fn a_stream_that_breaks_the_protocol_is_a_reset() {
    let (mut pair, tunnel) = ends_with(b"\xa0\x28\xd7\xf3\x00\x17\x00");
    read(&mut pair.far, tunnel);
    pair.until(|pair| pair.far_told.contains(&Event::Reset(tunnel)));
    assert_eq!(pair.far.tunnels(pair.connection), 0);
}

/// A peer whose stream simply ends has not said FINAL_DATA: that is a reset, behind what it has said.
#[test]
fn a_stream_that_ends_without_final_data_is_a_reset_behind_what_was_said() {
    for (body, said) in [
        (&b""[..], &b""[..]),
        (b"\xa0\x28\xd7\xf2\x02ab", b"ab"),
        (b"\xa0\x28\xd7\xf2\x05ab", b"ab"),
    ] {
        let (mut pair, tunnel) = ends_with(body);
        assert!(pair.far_told.contains(&Event::Readable(tunnel)));
        if !said.is_empty() {
            assert_eq!(
                pair.far.read(tunnel),
                Ok(Read::Data(Bytes::from_static(said)))
            );
        }
        assert_eq!(pair.far.read(tunnel), Ok(Read::BrokenOff));
        assert!(!pair.far_told.contains(&Event::Reset(tunnel)));
        pair.far.reset(tunnel);
        pair.until(|pair| pair.near_told.contains(&Event::Reset(tunnel)));
        assert_eq!(pair.near.tunnels(pair.connection), 0);
    }
}

/// What a side says and then breaks off arrives whole over a link that loses packets, and neither side's end is told as a FIN.
#[test]
fn what_was_said_before_a_tunnel_is_broken_off_arrives() {
    for near_first in [true, false] {
        let mut pair = Pair::over(0.05);
        let tunnel = pair.stand();
        let [first, _] = pair.sides(near_first);
        write(first, tunnel, &[7; 200_000]);
        assert!(first.break_off(tunnel));
        assert!(!first.break_off(tunnel), "it is broken off");
        let more = &mut Bytes::from_static(b"x");
        assert_eq!(first.write(tunnel, more), Err(Closed));
        let (mut got, end) = (0, pair.now + Duration::from_secs(20));
        while got < 200_000 && pair.now < end {
            pair.run_for(Duration::from_millis(10));
            let (data, last) = read(pair.sides(near_first)[1], tunnel);
            assert!(!last);
            got += data.len();
        }
        assert_eq!(got, 200_000);
        pair.sides(near_first)[1].reset(tunnel);
        pair.run_for(Duration::from_secs(5));
        let told = [&pair.far_told, &pair.near_told][usize::from(near_first)];
        assert!(told.contains(&Event::Reset(tunnel)));
        assert!(!told.contains(&Event::Done(tunnel)));
    }
}

/// Before its target is dialled, what a near side has said is kept, and where it has said nothing nobody is dialled any more.
#[test]
fn a_request_that_is_broken_off_is_dialled_for_what_it_said() {
    for said in [&b"hello"[..], b""] {
        let mut pair = Pair::over(0.0);
        let tunnel = pair.open("192.0.2.1:80");
        if !said.is_empty() {
            write(&mut pair.near, tunnel, said);
        }
        assert!(pair.near.break_off(tunnel));
        pair.until(|pair| pair.asked().is_some());
        pair.run_for(Duration::from_secs(1));
        let given_up = pair.far_told.contains(&Event::Reset(tunnel));
        assert_eq!(given_up, said.is_empty());
        if !given_up {
            pair.far.accept(tunnel).unwrap();
            let hello = Bytes::from_static(said);
            assert_eq!(pair.far.read(tunnel), Ok(Read::Data(hello)));
            assert_eq!(pair.far.read(tunnel), Ok(Read::BrokenOff));
        }
    }
}

/// What is given up behind a break-off is reset all the same, and so the peer's window is free.
#[test]
fn a_tunnel_that_was_broken_off_can_be_reset() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand();
    write(&mut pair.near, tunnel, &[7; 5000]);
    assert!(pair.near.break_off(tunnel));
    pair.run_for(Duration::from_secs(1));
    assert!(!pair.far_told.contains(&Event::Reset(tunnel)));
    pair.near.reset(tunnel);
    pair.until(|pair| pair.far_told.contains(&Event::Reset(tunnel)));
    assert_eq!(pair.far.tunnels(pair.connection), 0);
}

/// What is no request for a tunnel is refused by the far side itself, and the driver hears nothing.
#[test]
fn nonsense_is_refused_and_ends_at_most_its_connection() {
    let mut pair = Pair::over(0.0);
    let connection = pair.connection;
    // A GET of `/`: HEADERS of static-table fields (RFC 9204, appendix A): method GET, scheme https, path /, authority "a".
    let get = b"\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a".to_vec();
    let stream = pair
        .near
        .quic_mut()
        .open(connection, Direction::Both)
        .unwrap();
    let stream = StreamRef { connection, stream };
    let quic = pair.near.quic_mut();
    quic.write(stream, &mut Bytes::from(get)).unwrap();
    quic.end(stream, End::Finish).unwrap();
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.far_told, []);
    assert_eq!(pair.far.tunnels(connection), 0);
    // It goes on, and a frame that no stream of requests may have ends it.
    pair.stand();
    let stream = pair
        .near
        .quic_mut()
        .open(connection, Direction::Both)
        .unwrap();
    let settings = Bytes::from_static(b"\x04\x00");
    let stream = StreamRef { connection, stream };
    pair.near
        .quic_mut()
        .write(stream, &mut settings.clone())
        .unwrap();
    pair.until(|pair| {
        pair.far_told
            .iter()
            .any(|event| matches!(event, Event::Lost { .. }))
    });
    pair.until(|pair| {
        pair.near_told
            .iter()
            .any(|event| matches!(event, Event::Lost { .. }))
    });
}

#[test]
fn a_far_side_that_shuts_down_takes_no_more_and_ends_what_stands_in_peace() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand();
    pair.far.shut_down();
    pair.until(|pair| pair.near_told.contains(&Event::GoingAway(pair.connection)));
    let target = "192.0.2.1:80".parse().unwrap();
    assert_eq!(
        pair.near.open(pair.connection, &target, None),
        Err(OpenError::GoingAway)
    );
    write(&mut pair.near, tunnel, b"still here");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read(&mut pair.far, tunnel), (b"still here".to_vec(), false));
}

#[test]
fn a_lost_connection_takes_its_tunnels_along() {
    let mut pair = Pair::over(0.0);
    let tunnel = pair.stand();
    let (connection, now) = (pair.connection, pair.now);
    pair.far
        .quic_mut()
        .close(connection, Code(0x100), "killed", now);
    pair.until(|pair| {
        pair.near_told
            .iter()
            .any(|event| matches!(event, Event::Lost { .. }))
    });
    assert_eq!(pair.near.read(tunnel), Err(Closed));
    assert_eq!(pair.near.finish(tunnel), Err(Closed));
    let target = "192.0.2.1:80".parse().unwrap();
    assert_eq!(
        pair.near.open(connection, &target, None),
        Err(OpenError::NotReady)
    );
}

/// A near driver that does not read holds one tunnel's window; another tunnel is not kept waiting.
#[test]
fn who_does_not_read_holds_his_own_window() {
    let mut pair = Pair::over(0.0);
    let idle = pair.stand();
    let busy = pair.stand();
    let mut rest = Bytes::from(vec![1; 20_000_000]);
    for _ in 0..200 {
        pair.far.write(idle, &mut rest).unwrap();
        pair.run_for(Duration::from_millis(50));
    }
    let held = 20_000_000 - rest.len();
    assert!((1_000_000..4_000_000).contains(&held), "{held}");
    let began = pair.now;
    write(&mut pair.far, busy, &[2; 10_000]);
    pair.until(|pair| pair.near_told.contains(&Event::Readable(busy)));
    assert!(pair.now.since(began) < Duration::from_millis(400));
}
