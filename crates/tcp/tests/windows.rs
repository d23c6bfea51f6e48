//! Flow control, acknowledgements and options: RFC 9293, sections 3.7 and 3.8; RFC 7323; RFC 2018.

#[path = "support/script.rs"]
mod script;

use bentpipe_base::Bytes;
use bentpipe_tcp::{Config, State};
use bentpipe_wire::{TcpOptions, Timestamps};
use script::{ACK, FIN, RST, SYN, Script, mss, plain, seg};
use std::time::Duration;

fn small_buffer(bytes: u64) -> Config {
    Config {
        receive_buffer: Bytes(bytes),
        ..plain()
    }
}

#[test]
fn every_second_segment_is_acknowledged_and_one_waits_at_most_the_delay() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, 1, 1).data(1000));
    assert!(script.out().is_empty());
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(script.acks(), [2001]);
    script.inject(seg(ACK, 2001, 1).data(1000));
    assert_eq!(script.expire(), 100);
    assert_eq!(script.acks(), [3001]);
    assert!(Config::rfc().delayed_ack < Duration::from_millis(500));
}

#[test]
fn what_is_out_of_order_or_fills_a_gap_is_acknowledged_at_once() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(script.acks(), [1]);
    script.inject(seg(ACK, 2001, 1).data(1000));
    assert_eq!(script.acks(), [1]);
    script.inject(seg(ACK, 1, 1).data(1000));
    assert_eq!(script.acks(), [3001]);
    script.inject(seg(ACK, 1, 1).data(1000));
    assert_eq!(script.acks(), [3001], "a duplicate");
    assert_eq!(script.tcp.readable(), 3000);
}

#[test]
fn a_duplicate_acknowledgement_offers_the_window_of_the_last() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, 1, 1).data(1000));
    script.expire();
    let before = script.out()[0].window;
    script.tcp.consume(1000);
    script.inject(seg(ACK, 2001, 1).data(1000));
    assert_eq!(script.out()[0].window, before);
}

#[test]
fn the_receiver_avoids_silly_windows_and_never_shrinks_its_own() {
    let mut script = Script::open(small_buffer(3000));
    script.inject(seg(ACK, 1, 1).data(1000));
    script.inject(seg(ACK, 1001, 1).data(2000));
    assert_eq!(script.out()[0].window, 0);
    script.tcp.consume(900);
    assert!(script.out().is_empty(), "900 bytes are silly");
    script.tcp.consume(100);
    assert_eq!(script.out()[0].window, 1000);
    // The edge stays where it was when nothing more was read.
    script.inject(seg(ACK, 3001, 1).data(400));
    script.expire();
    let out = script.out();
    assert_eq!((out[0].ack, out[0].window), (3401, 600));
}

#[test]
fn bytes_beyond_the_window_are_dropped() {
    let mut script = Script::open(small_buffer(1500));
    script.inject(seg(ACK, 1, 1).data(1000));
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(script.tcp.readable(), 1500);
    assert_eq!(script.acks(), [1501]);
}

#[test]
fn a_shut_window_is_probed_for_ever_while_it_is_answered() {
    let mut script = Script::open(Config {
        max_retries: 3,
        ..plain()
    });
    script.tcp.write_virtual(5000);
    script.expect(1, 4);
    script.inject(seg(ACK, 1, 4001).window(0));
    assert!(script.data().is_empty());
    let mut last = 0;
    for i in 0..40 {
        let wait = script.expire();
        assert!(wait >= last && wait <= 60_000, "{last} then {wait} ms");
        last = wait;
        let probe = script.out();
        assert_eq!((probe.len(), probe[0].seq), (1, 4000), "probe {i}");
        script.inject(seg(ACK, 1, 4001).window(0));
    }
    assert_eq!((last, script.tcp.state()), (60_000, State::Established));
    script.inject(seg(ACK, 1, 4001));
    assert_eq!(script.data(), [(4001, 1000)]);
}

/// RFC 9293, section 3.4: a shut window keeps data out, not resets and acknowledgements.
#[test]
fn resets_and_acknowledgements_count_at_a_shut_window() {
    let mut script = Script::open(small_buffer(1000));
    script.tcp.write_virtual(2000);
    script.expect(1, 2);
    script.inject(seg(ACK, 1, 1).data(1000));
    script.expire();
    assert_eq!(script.out()[0].window, 0);
    script.inject(seg(ACK, 1001, 2001));
    assert_eq!(script.tcp.gauges().flight, 0);
    script.inject(seg(RST, 1001, 0));
    assert_eq!(script.tcp.state(), State::Closed);
}

/// RFC 9293, section 3.1: 60,000 bytes are no negative window.
#[test]
fn windows_are_unsigned() {
    let mut script = Script::open(Config {
        initial_window: 100,
        ..plain()
    });
    script.tcp.write_virtual(100_000);
    script.inject(seg(ACK, 1, 1).window(60_000));
    script.expect(1, 60);
}

#[test]
fn a_window_that_shrinks_is_borne() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(10_000);
    script.expect(1, 4);
    script.inject(seg(ACK, 1, 1001).window(500));
    assert!(
        script.data().is_empty(),
        "3000 bytes are in flight beyond the edge"
    );
    script.expire();
    assert_eq!(
        script.data(),
        [(1001, 1000)],
        "what was sent may be sent again"
    );
    script.inject(seg(ACK, 1, 4001).window(20_000));
    assert!(!script.data().is_empty());
}

#[test]
fn the_sender_avoids_silly_segments_until_a_timer_overrides() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(9000);
    script.expect(1, 4);
    // 300 bytes of a window that was once 60,000.
    script.inject(seg(ACK, 1, 4001).window(300));
    assert!(script.data().is_empty());
    script.expire();
    assert_eq!(script.data(), [(4001, 300)]);
}

#[test]
fn nagle_holds_a_small_segment_back_while_data_is_in_flight() {
    let mut script = Script::open(Config {
        nagle: true,
        ..plain()
    });
    script.tcp.write_virtual(100);
    assert_eq!(script.data(), [(1, 100)]);
    script.tcp.write_virtual(100);
    assert!(script.data().is_empty());
    script.tcp.write_virtual(950);
    assert_eq!(script.data(), [(101, 1000)]);
    script.inject(seg(ACK, 1, 1101));
    assert_eq!(script.data(), [(1101, 50)]);
    // Switched off, nothing waits.
    let mut script = Script::open(plain());
    for i in 0..3 {
        script.tcp.write_virtual(100);
        assert_eq!(script.data(), [(1 + 100 * i, 100)]);
    }
}

#[test]
fn an_old_segment_does_not_bring_an_old_window() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, 1, 1).data(100));
    script.inject(seg(ACK, 101, 1).data(100).window(5000));
    script.inject(seg(ACK, 51, 1).data(100).window(9));
    assert_eq!(script.tcp.gauges().peer_window, 5000);
}

#[test]
fn window_fields_are_scaled_after_the_handshake_and_not_in_it() {
    let config = Config {
        window_scaling: true,
        receive_buffer: Bytes(1 << 20),
        ..plain()
    };
    let mut script = Script::connect(config.clone());
    let syn = script.out();
    let options = syn[0].options.as_ref().expect("a SYN has options");
    // 2^20 / 2^5 fits 16 bits.
    assert_eq!((options.window_scale, syn[0].window), (Some(5), 65_535));
    let answer = TcpOptions {
        window_scale: Some(3),
        ..mss(1000)
    };
    script.inject(seg(SYN | ACK, 0, 1).options(answer).window(1000));
    assert_eq!(script.tcp.gauges().peer_window, 1000);
    assert_eq!(u64::from(script.out()[0].window) << 5, 1 << 20);
    script.inject(seg(ACK, 1, 1).window(1000));
    assert_eq!(script.tcp.gauges().peer_window, 8000);

    // A shift above 14 counts as 14; without the peer's option there is none.
    let answer = TcpOptions {
        window_scale: Some(200),
        ..mss(1000)
    };
    let mut script = Script::open_with(config.clone(), answer);
    script.inject(seg(ACK, 1, 1).window(2));
    assert_eq!(script.tcp.gauges().peer_window, 2 << 14);
    let mut script = Script::open(config);
    script.inject(seg(ACK, 1, 1).window(60_000).data(1));
    assert_eq!(script.tcp.gauges().peer_window, 60_000);
    script.expire();
    assert!(script.out()[0].window > 60_000, "unscaled");
}

fn stamped() -> Script {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    Script::open_with(config, mss(1000))
}

#[test]
fn once_agreed_all_segments_carry_timestamps_and_echo_the_right_one() {
    let mut script = stamped();
    script.inject(seg(ACK, 1, 1).data(1000).stamp(60, 0));
    script.inject(seg(ACK, 1001, 1).data(1000).stamp(70, 0));
    let ack = script.out();
    // Of the earliest segment that it acknowledges (RFC 7323, section 4.3).
    assert_eq!(ack[0].stamp.map(|stamp| stamp.echo), Some(60));
    // A segment beyond a gap does not count.
    script.inject(seg(ACK, 3001, 1).data(1000).stamp(90, 0));
    assert_eq!(script.out()[0].stamp.map(|stamp| stamp.echo), Some(60));
    script.tcp.write_virtual(2000);
    // 1000 bytes less the option's 12 (RFC 6691).
    let out = script.out();
    assert_eq!((out[0].len, out[1].len), (988, 988));
    assert!(out.iter().all(|out| out.stamp.is_some()));
    // Milliseconds since the start.
    let millis = script.now.as_nanos() / 1_000_000;
    assert_eq!(
        out[0].stamp.map(|stamp| u64::from(stamp.value)),
        Some(millis)
    );
}

#[test]
fn old_timestamps_are_refused_except_on_resets() {
    let mut script = stamped();
    script.inject(seg(ACK, 1, 1).data(10).stamp(100, 0));
    script.expire();
    script.out();
    script.inject(seg(ACK, 11, 1).data(10).stamp(99, 0));
    assert_eq!(script.acks(), [11], "PAWS answers");
    assert_eq!((script.tcp.readable(), script.tcp.counters().paws), (10, 1));
    script.inject(seg(ACK, 11, 1).data(10));
    assert_eq!(script.tcp.readable(), 10, "without a timestamp: dropped");
    script.inject(seg(RST, 11, 1));
    assert_eq!(script.tcp.state(), State::Closed);
}

#[test]
fn timestamps_older_than_24_days_are_not_believed() {
    let mut script = stamped();
    script.inject(seg(ACK, 1, 1).data(10).stamp(100, 0));
    script.pass(25 * 86_400 * 1000);
    script.inject(seg(ACK, 11, 1).data(10).stamp(99, 0));
    assert_eq!(script.tcp.readable(), 20);
}

#[test]
fn a_peer_that_does_not_answer_with_timestamps_gets_none() {
    let mut script = Script::connect(Config {
        timestamps: true,
        ..plain()
    });
    assert!(matches!(
        script.out()[0].stamp,
        Some(Timestamps { echo: 0, .. })
    ));
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    assert_eq!(script.out()[0].stamp, None);
}

#[test]
fn sack_blocks_name_the_latest_first_and_only_if_permitted() {
    let config = Config {
        sack_blocks: 4,
        ..plain()
    };
    let permitted = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    let mut script = Script::open_with(config.clone(), permitted);
    let mut sacks = |seq| {
        script.inject(seg(ACK, seq, 1).data(1000));
        let out = script.out();
        (out[0].ack, out[0].sack.clone())
    };
    assert_eq!(sacks(2001), (1, vec![(2001, 3001)]));
    assert_eq!(sacks(6001), (1, vec![(6001, 7001), (2001, 3001)]));
    assert_eq!(
        sacks(4001),
        (1, vec![(4001, 5001), (6001, 7001), (2001, 3001)])
    );
    // The block holds the segment that triggered it, joined with its neighbour.
    assert_eq!(sacks(3001), (1, vec![(2001, 5001), (6001, 7001)]));
    assert_eq!(sacks(1), (1001, vec![(2001, 5001), (6001, 7001)]));
    assert_eq!(sacks(1001), (5001, vec![(6001, 7001)]));
    let mut script = Script::open(config);
    script.inject(seg(ACK, 2001, 1).data(1000));
    assert!(script.out()[0].sack.is_empty());
}

#[test]
fn data_after_the_fin_is_no_part_of_the_stream() {
    let mut script = Script::open(plain());
    script.inject(seg(FIN | ACK, 11, 1));
    script.inject(seg(ACK, 1, 1).data(30));
    assert_eq!(script.tcp.readable(), 10);
    assert_eq!(script.tcp.state(), State::CloseWait);
}

#[test]
fn real_bytes_come_out_as_they_went_in() {
    let mut script = Script::open(plain());
    let text = b"bent pipe";
    assert_eq!(script.tcp.write(text), 9);
    assert_eq!(
        script.tcp.write_virtual(5),
        0,
        "a stream is real or virtual"
    );
    let segment = script.tcp.transmit(script.now).expect("data is due");
    assert_eq!(segment.payload, bentpipe_wire::Payload::from(&text[..]));
}
