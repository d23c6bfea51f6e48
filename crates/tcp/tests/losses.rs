//! Congestion window, retransmission timer and loss recovery: RFC 5681, 6298, 6582, 6675, 9937,
//! 8985, 3042.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Config, recovery};
use bentpipe_wire::TcpOptions;
use script::{ACK, SYN, Script, mss, plain, seg};
use std::time::Duration;

fn with(recovery: &str) -> Config {
    let recovery = recovery::find(recovery).expect("it is in the registry");
    Config {
        recovery,
        sack_blocks: if recovery.without_sack.is_some() {
            4
        } else {
            0
        },
        ..plain()
    }
}

/// Ten segments in flight, cwnd 10, from number 1.
fn flight(recovery: &str) -> Script {
    let config = Config {
        initial_window: 10,
        ..with(recovery)
    };
    let options = TcpOptions {
        sack_permitted: config.sack_blocks > 0,
        ..mss(1000)
    };
    let mut script = Script::open_with(config, options);
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.pass(100);
    script
}

fn cwnd(script: &Script) -> f64 {
    script.tcp.gauges().cwnd
}

#[test]
fn slow_start_adds_at_most_a_segment_a_segment_and_avoidance_one_a_round_trip() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 4);
    script.inject(seg(ACK, 1, 2001));
    assert_eq!(cwnd(&script), 6.0);
    // Split acknowledgements earn nothing more.
    script.data();
    for i in 1..=10 {
        script.inject(seg(ACK, 1, 2001 + i * 100));
        script.data();
    }
    assert_eq!(cwnd(&script), 7.0);
    // ssthresh = 5 after a timeout: 1 to 5 in slow start, then one a window.
    let mut script = flight("newreno");
    script.expire();
    let mut acked = 1001;
    let mut windows = Vec::new();
    for _ in 0..18 {
        script.data();
        script.inject(seg(ACK, 1, acked));
        acked += 1000;
        windows.push(cwnd(&script) as u32);
    }
    assert_eq!(
        windows,
        [2, 3, 4, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7]
    );
}

#[test]
fn the_first_window_is_as_configured_and_one_after_a_lost_syn() {
    assert_eq!(Config::rfc().initial_window, 10, "RFC 6928");
    let mut script = Script::connect(plain());
    script.out();
    assert_eq!(script.expire(), 1000, "RFC 6298, section 2.1");
    script.out();
    script.pass(100);
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    script.tcp.write_virtual(10_000);
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.expire(), 3000, "RFC 6298, section 5.7");
}

#[test]
fn the_timer_follows_samples_doubles_and_starts_anew_with_each_acknowledgement() {
    let mut script = flight("newreno");
    // R = 100 ms in the handshake: SRTT 100, RTTVAR 50; but at least 1 s (section 2.4).
    assert_eq!(script.expire(), 900, "one second after the first segment");
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.expire(), 2000);
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.expire(), 4000);
    assert_eq!(cwnd(&script), 1.0, "RFC 5681, equation 4: the loss window");
    script.data();
    // Karn: what was sent again takes no sample, so the backoff stays.
    script.pass(50);
    script.inject(seg(ACK, 1, 1001));
    script.data();
    assert_eq!(script.tcp.gauges().rto, Duration::from_secs(8));
    script.pass(50);
    script.inject(seg(ACK, 1, 10_001));
    script.data();
    script.pass(100);
    script.inject(seg(ACK, 1, 11_001));
    assert_eq!(
        script.tcp.gauges().rto,
        Duration::from_secs(1),
        "a clean sample"
    );
    // All acknowledged: no timer (section 5.2).
    let mut script = Script::open(plain());
    script.tcp.write_virtual(1000);
    script.data();
    script.inject(seg(ACK, 1, 1001));
    assert_eq!(script.tcp.deadline(), None);
}

#[test]
fn the_threshold_falls_once_for_one_segment_and_never_below_two() {
    let mut script = flight("newreno");
    script.expire();
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    script.data();
    script.expire();
    assert_eq!(
        script.tcp.gauges().ssthresh,
        Some(5),
        "RFC 5681, section 3.1"
    );
    let mut script = Script::open(Config {
        initial_window: 2,
        ..plain()
    });
    script.tcp.write_virtual(9000);
    script.data();
    script.expire();
    assert_eq!(script.tcp.gauges().ssthresh, Some(2));
}

#[test]
fn limited_transmit_sends_two_segments_and_the_third_duplicate_means_a_loss() {
    for (recovery, ssthresh) in [("tahoe", 5), ("reno", 5), ("newreno", 5)] {
        let mut script = flight(recovery);
        for number in [10_001, 11_001] {
            script.inject(seg(ACK, 1, 1));
            assert_eq!(script.data(), [(number, 1000)], "{recovery}");
        }
        script.inject(seg(ACK, 1, 1));
        let sent = script.data();
        assert_eq!(sent[0], (1, 1000), "{recovery}");
        assert_eq!(script.tcp.gauges().ssthresh, Some(ssthresh));
        assert_eq!(script.tcp.counters().recoveries, 1);
    }
}

#[test]
fn what_is_no_duplicate_does_not_count_as_one() {
    let mut script = flight("newreno");
    for i in 0..4 {
        // With data, or another window: RFC 5681, section 2.
        script.inject(seg(ACK, 1 + i * 10, 1).data(10));
        script.inject(seg(ACK, 11 + i * 10, 1).window(50_000 + i as u16));
    }
    assert_eq!(script.tcp.counters().dupacks, 0);
    assert!(script.data().is_empty());
}

#[test]
fn the_first_window_after_a_syn_is_no_window_update() {
    // The SYN could say no more than 65,535 bytes; the acknowledgements say 512 << 7, one more.
    let config = Config {
        initial_window: 10,
        window_scaling: true,
        ..with("newreno")
    };
    let scaled = TcpOptions {
        window_scale: Some(7),
        ..mss(1000)
    };
    let mut script = Script::open_with(config.clone(), scaled);
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.inject(seg(ACK, 1, 1).window(512));
    assert_eq!(script.tcp.counters().dupacks, 1);
    // From then on another window is an update again.
    script.inject(seg(ACK, 1, 1).window(513));
    assert_eq!(script.tcp.counters().dupacks, 1);
    // Where no scale was agreed on, the SYN's window is the window.
    let mut script = Script::open_with(config, mss(1000));
    script.tcp.write_virtual(1_000_000);
    script.data();
    script.inject(seg(ACK, 1, 1).window(512));
    assert_eq!(script.tcp.counters().dupacks, 0);
}

#[test]
fn a_lost_syn_leaves_the_threshold_but_not_the_first_window() {
    let mut script = Script::connect(plain());
    script.out();
    script.expire();
    script.out();
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    script.tcp.write_virtual(100_000);
    assert_eq!(script.data(), [(1, 1000)]);
    // RFC 5681: equation 4 is for lost data, so slow start goes on.
    assert_eq!(script.tcp.gauges().ssthresh, None);
    for (acked, window) in [(1001, 2.0), (3001, 4.0), (7001, 8.0)] {
        script.inject(seg(ACK, 1, acked));
        script.data();
        assert_eq!(cwnd(&script), window);
    }
    // Where the set-up is an exchange of another connection, a loss of it leaves nothing.
    let mut script = Script::connect(Config {
        ns2: bentpipe_tcp::ns2::Quirks {
            first_is_syn: true,
            ..bentpipe_tcp::ns2::Quirks::NONE
        },
        ..plain()
    });
    script.out();
    script.expire();
    script.out();
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    script.tcp.write_virtual(100_000);
    assert_eq!(script.data().len(), 4);
}

#[test]
fn tahoe_goes_back_to_one_segment() {
    let mut script = flight("tahoe");
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 1));
    }
    assert_eq!(cwnd(&script), 1.0);
    assert_eq!(script.data(), [(1, 1000)]);
    script.inject(seg(ACK, 1, 10_001));
    assert_eq!(script.data(), [(10_001, 1000), (11_001, 1000)]);
}

#[test]
fn reno_inflates_by_duplicates_and_deflates_to_the_threshold() {
    let mut script = flight("reno");
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 1));
    }
    assert_eq!(
        script.data(),
        [(1, 1000)],
        "5 + 3 segments are all in flight"
    );
    for _ in 0..2 {
        script.inject(seg(ACK, 1, 1));
    }
    assert!(script.data().is_empty(), "5 + 5 are ten");
    script.inject(seg(ACK, 1, 1));
    assert_eq!(script.data(), [(10_001, 1000)]);
    script.inject(seg(ACK, 1, 10_001));
    assert_eq!(cwnd(&script), 5.0);
    script.expect(11_001, 4);
}

#[test]
fn newreno_sends_the_next_loss_at_each_partial_acknowledgement() {
    let mut script = flight("newreno");
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 1));
    }
    assert_eq!(script.data(), [(1, 1000)]);
    script.inject(seg(ACK, 1, 3001));
    assert_eq!(script.data()[0], (3001, 1000));
    script.inject(seg(ACK, 1, 6001));
    assert_eq!(script.data()[0], (6001, 1000));
    let max = script.tcp.gauges().flight + 6001;
    script.inject(seg(ACK, 1, 10_001));
    // min(ssthresh, flight + 1), RFC 6582, section 3.2.
    let left = (max - 10_001) / 1000;
    assert_eq!(cwnd(&script), 5f64.min(left.max(1) as f64 + 1.0));
    assert_eq!(script.tcp.counters().recoveries, 1);
    // Duplicates of what was sent before the recovery point begin no second one.
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 10_001));
    }
    assert_eq!(script.tcp.counters().recoveries, 1);
}

#[test]
fn sack_sends_exactly_what_is_lost_within_the_pipe() {
    let mut script = flight("sack");
    // Segments 1 and 3 of ten are lost.
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 2001)]));
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 4001), (1001, 2001)]));
    script.data();
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 5001), (1001, 2001)]));
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    assert_eq!(script.data(), [(1, 1000)]);
    // Two more held: 2001 has four segments above it now, but the pipe is still full.
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 6001), (1001, 2001)]));
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 7001), (1001, 2001)]));
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 8001), (1001, 2001)]));
    let mut sent = script.data();
    script.inject(seg(ACK, 1, 1).sack(&[(3001, 10_001), (1001, 2001)]));
    sent.extend(script.data());
    assert_eq!(sent[0], (2001, 1000));
    assert!(!sent.contains(&(1, 1000)), "once is enough");
    assert_eq!(script.tcp.counters().retransmitted, 2);
    script.inject(seg(ACK, 1, 13_001));
    assert_eq!(cwnd(&script), 5.0);
    assert_eq!(script.tcp.counters().recoveries, 1);
}

#[test]
fn fack_needs_only_the_highest_byte() {
    let mut script = flight("fack");
    script.inject(seg(ACK, 1, 1).sack(&[(4001, 5001)]));
    let sent = script.data();
    assert_eq!(sent[0], (1, 1000));
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
}

#[test]
fn rack_finds_a_retransmission_that_is_lost_too_and_prr_shrinks_in_proportion() {
    let mut script = flight("prr-rack");
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 4001)]));
    assert_eq!(script.data()[0], (1, 1000));
    // 10 in flight, goal 5. Two went out for three delivered; then with 5, 7, 9 delivered:
    // ceil(5 * 5 / 10) - 2 = 1 while the pipe is above 5; 0 at 5; two to fill a pipe of 3 up to 5.
    for (end, due) in [(6001, 1), (8001, 0), (10_001, 2)] {
        script.inject(seg(ACK, 1, 1).sack(&[(1001, end)]));
        assert_eq!(script.data().len(), due, "held up to {end}");
    }
    script.pass(120);
    // What was sent after the retransmission arrives, the retransmission does not.
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 11_001)]));
    script.pass(100);
    assert!(script.data().contains(&(1, 1000)));
    assert_eq!(script.tcp.counters().timeouts, 0);
}

/// RFC 9937, section 6.2: two go out for one delivered only where that is in order and no more is lost.
#[test]
fn prr_fills_the_pipe_faster_only_while_no_more_is_lost() {
    let mut script = flight("prr-rack");
    // Seven are lost: three go again for three delivered.
    script.inject(seg(ACK, 1, 1).sack(&[(7001, 10_001)]));
    assert_eq!(script.data(), [(1, 1000), (1001, 1000), (2001, 1000)]);
    script.pass(120);
    script.inject(seg(ACK, 1, 1001).sack(&[(7001, 10_001)]));
    assert_eq!(script.data(), [(3001, 1000), (4001, 1000)]);
    // The second retransmission was lost.
    script.inject(seg(ACK, 1, 1001).sack(&[(2001, 3001), (7001, 10_001)]));
    assert_eq!(script.data(), [(1001, 1000)]);
}

/// Ten segments in flight and nothing to follow them; the first and the last are lost.
#[test]
fn rack_finds_what_lies_above_all_that_is_held_by_a_retransmission_that_arrives() {
    let mut script = Script::open_with(
        Config {
            initial_window: 10,
            ..with("prr-rack")
        },
        TcpOptions {
            sack_permitted: true,
            ..mss(1000)
        },
    );
    script.tcp.write_virtual(10_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 9001)]));
    assert_eq!(script.data(), [(1, 1000)]);
    script.pass(100);
    // RFC 8985, section 6.2, step 5: the last segment was sent before the retransmission.
    script.inject(seg(ACK, 1, 9001));
    assert_eq!(script.data(), [(9001, 1000)]);
    assert_eq!(script.tcp.counters().timeouts, 0);
}

#[test]
fn rack_waits_a_quarter_of_the_round_trip_for_what_is_late_and_longer_after_d_sack() {
    let mut script = flight("prr-rack");
    // Sent 100 ms ago, and given 25 more; the timer is for the last of them.
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 3001)]));
    let mut sent = script.data();
    assert_eq!(script.expire(), 25, "step 5");
    assert_eq!(script.data(), [(1, 1000)]);
    // They were only late; what is resent arrives too, which the peer tells (RFC 2883).
    script.pass(10);
    script.inject(seg(ACK, 1, 3001));
    sent.extend(script.data());
    let (last, _) = sent.pop().expect("limited transmit sends new data");
    script.pass(100);
    script.inject(seg(ACK, 1, i64::from(last) + 1000).sack(&[(1, 1001)]));
    let sent = script.data();
    let [(first, _), (second, _), ..] = sent[..] else {
        panic!("two segments at least: {sent:?}");
    };
    script.pass(100);
    let held = seg(ACK, 1, i64::from(first)).sack(&[(second, second + 1000)]);
    script.inject(held);
    script.data();
    assert_eq!(script.expire(), 50, "step 4: RACK.reo_wnd_mult is 2");
    assert!(script.data().contains(&(first, 1000)));
}

#[test]
fn rack_does_not_take_an_earlier_transmission_for_the_last() {
    let config = Config {
        initial_window: 10,
        timestamps: true,
        ..with("prr-rack")
    };
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1012)
    };
    for (echo, found) in [(1100, false), (1200, true)] {
        let mut script = Script::open_with(config.clone(), options.clone());
        script.tcp.write_virtual(10 * 988);
        let sent = script.out();
        assert_eq!((sent.len(), sent[0].len), (10, 988));
        assert_eq!(sent[0].stamp.map(|stamp| stamp.value), Some(1100));
        script.pass(100);
        let sack = seg(ACK, 1, 1).sack(&[(989, 9 * 988 + 1)]);
        script.inject(sack.stamp(60, 1100));
        assert_eq!(script.data(), [(1, 988)]);
        script.pass(110);
        // The peer echoes the timestamp of the first transmission, or of the second one.
        script.inject(seg(ACK, 1, 9 * 988 + 1).stamp(70, echo));
        let again = script.data();
        assert_eq!(!again.is_empty(), found, "echo of {echo}: {again:?}");
    }
}

#[test]
fn duplicate_sack_blocks_and_nonsense_are_harmless() {
    let mut script = flight("sack");
    script.inject(seg(ACK, 1, 5001));
    script.data();
    for blocks in [
        &[(1, 1001)][..],
        &[(5001, 5001), (6001, 5001)],
        &[(2_000_000, 2_001_000)],
        &[(1, 1001), (1, 5001)],
    ] {
        script.inject(seg(ACK, 1, 5001).sack(blocks));
        assert!(script.data().iter().all(|&(seq, _)| seq > 10_000));
    }
    assert_eq!(script.tcp.counters().retransmitted, 0);
}

#[test]
fn a_timeout_sends_only_what_is_not_held_and_forgets_a_peer_that_reneges() {
    let mut script = flight("sack");
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 2001)]));
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 3001)]));
    script.data();
    script.expire();
    assert_eq!(script.data(), [(1, 1000)]);
    script.inject(seg(ACK, 1, 3001));
    assert_eq!(script.data(), [(3001, 1000), (4001, 1000)]);
    // It held 4001 to 5001 and then acknowledges less: after a timeout all is sent again.
    script.inject(seg(ACK, 1, 3001).sack(&[(4001, 5001)]));
    script.data();
    script.inject(seg(ACK, 1, 4001));
    script.data();
    script.expire();
    assert_eq!(script.data()[0], (4001, 1000));
}

#[test]
fn without_sack_at_the_peer_sack_falls_back_to_newreno() {
    let mut script = Script::open(with("sack"));
    script.tcp.write_virtual(100_000);
    script.expect(1, 4);
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 1));
    }
    assert!(script.data().contains(&(1, 1000)));
}

#[test]
fn after_a_silence_the_first_window_is_used_again() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(40_000);
    let mut acked = 1;
    for _ in 0..4 {
        acked += 1000 * script.data().len() as i64;
        script.inject(seg(ACK, 1, acked));
    }
    assert!(cwnd(&script) > 20.0);
    script.pass(5000);
    script.tcp.write_virtual(100_000);
    assert_eq!(script.data().len(), 4, "RFC 5681, section 4.1");
}

#[test]
fn a_paced_sender_spreads_its_segments() {
    let config = Config::rfc().variant("rate").expect("a variant");
    let rate = bentpipe_base::Rate::from_bits_per_sec(1_000_000);
    let mut script = Script::open(Config {
        settings: bentpipe_cc::Settings {
            link: bentpipe_cc::LinkParams::of_rate(rate),
            ..bentpipe_cc::Settings::default()
        },
        congestion: config.congestion,
        ..with("newreno")
    });
    script.tcp.write_virtual(1_000_000);
    script.data();
    // Ten leave at once; the rest in pairs, at 98.5% of 1 Mb/s, 1000 of 1040 bytes payload: 8.446 ms each.
    let mut gaps = Vec::new();
    for _ in 0..4 {
        script.inject(seg(ACK, 1, 10_001));
        let before = script.now;
        script.tcp.timeout(script.now);
        script.data();
        script.expire();
        gaps.push(script.now.since(before).as_micros());
        assert_eq!(script.data().len(), 2);
    }
    assert!(
        gaps[1..].iter().all(|gap| (16_600..17_200).contains(gap)),
        "{gaps:?}"
    );
}
