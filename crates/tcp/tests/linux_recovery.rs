//! Where RFCs leave the end of a loss recovery open, `prr-rack` and `rack-tlp` do as Linux does.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Config, recovery};
use bentpipe_wire::TcpOptions;
use script::{ACK, Script, mss, plain, seg};

fn config() -> Config {
    Config {
        recovery: recovery::find("prr-rack").expect("it is in the registry"),
        sack_blocks: 4,
        initial_window: 10,
        ..plain()
    }
}

fn open(config: Config) -> Script {
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    Script::open_with(config, options)
}

/// RFC 8985, section 6.3.
#[test]
fn after_a_timeout_what_was_sent_within_a_round_trip_does_not_go_again() {
    let mut script = open(Config {
        initial_window: 20,
        ..config()
    });
    script.tcp.write_virtual(10_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(seg(ACK, 1, 1001));
    script.pass(950);
    script.tcp.write_virtual(5000);
    script.expect(10_001, 5);
    assert_eq!(script.expire(), 50);
    assert_eq!(script.data(), [(1001, 1000)]);
    script.inject(seg(ACK, 1, 10_001));
    assert_eq!(script.data(), []);
    script.inject(seg(ACK, 1, 15_001));
    assert_eq!(script.tcp.counters().retransmitted, 1);
}

/// A window of two segments after a timeout, of which the first is lost once more. Returns the script as the peer has told
/// so, 200 ms after the timeout.
fn lost_again(config: Config, stamp: impl Fn(u32) -> Option<u32>) -> Script {
    let mut script = open(config);
    let ack = |number, stamp: Option<u32>| {
        let ack = seg(ACK, 1, number);
        match stamp {
            Some(stamp) => ack.stamp(60, stamp),
            None => ack,
        }
    };
    script.tcp.write_virtual(1_000_000);
    let payload = script.data()[0].1 as u32;
    while script.tcp.counters().timeouts == 0 {
        script.expire();
    }
    assert_eq!(script.data().len(), 1);
    script.pass(100);
    script.inject(ack(1 + i64::from(payload), stamp(100)));
    assert_eq!(script.data().len(), 2);
    script.pass(100);
    let held = (1 + 2 * payload, 1 + 3 * payload);
    script.inject(ack(1 + i64::from(payload), stamp(100)).sack(&[held]));
    assert_eq!(script.data()[0].0, 1 + payload);
    script
}

#[test]
fn a_retransmission_that_is_lost_after_a_timeout_costs_another_reduction() {
    let script = lost_again(config(), |_| None);
    assert_eq!(script.tcp.counters().recoveries, 1);
    assert_eq!(script.tcp.gauges().ssthresh, Some(2));
}

#[test]
fn an_echo_of_what_went_again_after_the_timeout_does_not_take_that_reduction_back() {
    let stamped = Config {
        timestamps: true,
        eifel: true,
        ..config()
    };
    // Our clock of timestamps counts milliseconds: 1,100 at the first flight, and 1,000 more at the timeout.
    let mut script = lost_again(stamped, |after| Some(2100 + after - 100));
    script.pass(10);
    // The first of the two was only late.
    script.inject(seg(ACK, 1, 1 + 2 * 988).stamp(60, 2200));
    assert_eq!(script.tcp.counters().undone, 0);
}

#[test]
fn a_peer_that_tells_of_more_duplicates_than_went_again_takes_nothing_back() {
    let mut script = open(Config {
        dsack: true,
        ..config()
    });
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(seg(ACK, 1, 2001));
    script.data();
    // Somebody else sends copies.
    for copy in [(1, 1001), (1001, 2001)] {
        script.inject(seg(ACK, 1, 2001).sack(&[copy]));
    }
    script.inject(seg(ACK, 1, 2001).sack(&[(3001, 7001)]));
    assert_eq!(script.data()[0], (2001, 1000));
    script.inject(seg(ACK, 1, 12_001));
    script.data();
    script.inject(seg(ACK, 1, 12_001).sack(&[(2001, 3001)]));
    assert_eq!(script.tcp.counters().retransmitted, 1);
    assert_eq!(script.tcp.counters().undone, 0);
}

/// Once a segment came far out of order, what SACK tells of lets the window grow (Linux `tcp_may_raise_cwnd`).
#[test]
fn for_a_duplicate_alone_the_window_does_not_grow() {
    let mut script = open(Config {
        timestamps: true,
        eifel: true,
        dsack: true,
        ..config()
    });
    let ack = |segments: i64| seg(ACK, 1, 1 + segments * 988).stamp(60, 1100);
    let after = |segments: u32| 1 + segments * 988;
    script.tcp.write_virtual(1_000_000);
    assert_eq!(script.data().len(), 10);
    script.pass(100);
    script.inject(ack(0).sack(&[(after(1), after(6))]));
    assert_eq!(script.data()[0].0, 1, "the first goes again");
    script.pass(10);
    // It had only been late, by five segments.
    script.inject(ack(6));
    assert_eq!(script.tcp.counters().undone, 1);
    assert!(!script.data().is_empty());
    script.pass(10);
    script.inject(ack(6).sack(&[(1, after(1))]));
    assert_eq!(script.data(), []);
    script.pass(10);
    script.inject(ack(6).sack(&[(after(7), after(8))]));
    assert_eq!(
        script.data().len(),
        2,
        "one for what arrived, one for growth"
    );
}

#[test]
fn an_acknowledgement_that_ends_a_recovery_and_tells_of_a_loss_begins_the_next_one() {
    let mut script = open(config());
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 10_001)]));
    assert_eq!(script.data()[0], (1, 1000));
    script.pass(50);
    script.inject(seg(ACK, 1, 10_001).sack(&[(11_001, 14_001)]));
    assert_eq!(script.tcp.counters().recoveries, 2);
    assert_eq!(script.data()[0], (10_001, 1000));
}

/// Ten segments in flight to a peer that does not speak SACK, of which the first is lost: the peer tells so by `duplicates`
/// acknowledgements. Returns the script and what was sent for them.
fn without_sack(duplicates: u32) -> (Script, Vec<(u32, usize)>) {
    let mut script = Script::open(Config {
        recovery: recovery::find("rack-tlp").expect("it is in the registry"),
        ..config()
    });
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.pass(100);
    let mut sent = Vec::new();
    for _ in 0..duplicates {
        script.inject(seg(ACK, 1, 1));
        sent.extend(script.data());
    }
    (script, sent)
}

#[test]
fn without_sack_each_partial_acknowledgement_starts_the_timer_anew() {
    let (mut script, sent) = without_sack(8);
    assert!(sent.contains(&(1, 1000)));
    for lost in [3001, 6001, 8001] {
        script.pass(900);
        script.inject(seg(ACK, 1, lost));
        assert_eq!(script.data()[0], (lost as u32, 1000));
    }
    assert_eq!(script.tcp.counters().timeouts, 0);
    assert_eq!(script.tcp.counters().recoveries, 1);
}

#[test]
fn without_sack_the_window_shrinks_in_proportion_and_is_the_threshold_in_the_end() {
    let (mut script, sent) = without_sack(9);
    // Limited transmit, then one for every second that arrives.
    let expected = [10_001, 11_001, 1, 12_001, 13_001];
    assert_eq!(sent, expected.map(|from| (from, 1000)));
    script.pass(100);
    script.inject(seg(ACK, 1, 12_001));
    script.data();
    script.inject(seg(ACK, 1, 13_001));
    assert_eq!(script.tcp.gauges().cwnd, 5.0);
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
}

#[test]
fn without_sack_duplicates_at_the_end_of_a_recovery_begin_no_other() {
    let (mut script, _) = without_sack(9);
    script.inject(seg(ACK, 1, 12_001));
    script.data();
    for _ in 0..4 {
        script.inject(seg(ACK, 1, 12_001));
    }
    assert_eq!(script.data(), []);
    assert_eq!(script.tcp.counters().recoveries, 1);
    script.inject(seg(ACK, 1, 13_001));
    script.data();
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 13_001));
    }
    assert!(script.data().contains(&(13_001, 1000)));
    assert_eq!(script.tcp.counters().recoveries, 2);
}

#[test]
fn a_timeout_within_a_fast_recovery_reduces_the_threshold_no_more() {
    let (mut script, _) = without_sack(3);
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    while script.tcp.counters().timeouts == 0 {
        script.expire();
    }
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    assert_eq!(script.data(), [(1, 1000)]);
}
