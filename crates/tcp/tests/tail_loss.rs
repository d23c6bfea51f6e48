//! The tail loss probe of RFC 8985, section 7.

#[path = "support/script.rs"]
mod script;

use bentpipe_base::TimerWheel;
use bentpipe_tcp::{Config, recovery};
use bentpipe_wire::TcpOptions;
use script::{ACK, Script, mss, plain, seg};
use std::time::Duration;

fn config() -> Config {
    Config {
        recovery: recovery::find("rack-tlp").expect("it is in the registry"),
        sack_blocks: 4,
        initial_window: 10,
        dsack: true,
        ..plain()
    }
}

/// `bytes` written, and out; a round trip of 100 ms is known.
fn sent(config: Config, bytes: u64) -> Script {
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    let mut script = Script::open_with(config, options);
    script.tcp.write_virtual(bytes);
    script.data();
    script
}

#[test]
fn a_silence_of_two_round_trips_sends_one_new_segment_whatever_the_window_says() {
    let mut script = sent(config(), 1_000_000);
    assert_eq!(script.expire(), 200, "2 SRTT");
    assert_eq!(script.data(), [(10_001, 1000)]);
    let counters = *script.tcp.counters();
    assert_eq!((counters.loss_probes, counters.retransmitted), (1, 0));
    // Section 7.3: the next timer is the RTO, from now on; there is no second probe.
    assert_eq!(script.expire(), 1000);
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.tcp.counters().loss_probes, 1);
    assert_eq!(script.tcp.counters().timeouts, 1);
}

#[test]
fn timers_of_a_wheel_are_late_by_its_ticks() {
    let mut script = sent(
        Config {
            timers: TimerWheel::new(Duration::from_millis(4)),
            ..config()
        },
        1_000_000,
    );
    // 1100 ms from the start, which are 275 ticks: the probe is due with the 325th.
    assert_eq!(script.expire(), 204);
    assert_eq!(script.data(), [(10_001, 1000)]);
    // The timeout with the 576th of them; so far ahead only each eighth one counts.
    assert_eq!(script.expire(), 1032);
    assert_eq!(script.data(), [(1, 1000)]);
}

#[test]
fn the_last_segment_goes_again_where_nothing_is_new_and_shows_what_is_missing() {
    let mut script = sent(config(), 10_000);
    script.pass(100);
    // The last three are lost.
    script.inject(seg(ACK, 1, 7001));
    assert_eq!(script.data(), []);
    assert_eq!(script.expire(), 200, "anew with each acknowledgement");
    assert_eq!(script.data(), [(9001, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 7001).sack(&[(9001, 10_001)]));
    // One for one that is delivered, while it tells of losses (RFC 9937).
    assert_eq!(script.data(), [(7001, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 8001).sack(&[(9001, 10_001)]));
    assert_eq!(script.data(), [(8001, 1000)]);
    assert_eq!(script.tcp.counters().timeouts, 0);
    assert_eq!(script.tcp.counters().recoveries, 1);
}

#[test]
fn what_tells_nothing_new_does_not_put_the_probe_off_nor_does_part_of_a_segment() {
    let mut script = sent(config(), 10_000);
    script.pass(150);
    script.inject(seg(ACK, 1, 1));
    script.pass(20);
    script.inject(seg(ACK, 1, 1).sack(&[(9501, 10_001)]));
    assert_eq!(script.expire(), 30, "2 SRTT after the last segment");
    assert_eq!(script.data(), [(9001, 1000)]);
    assert_eq!(script.tcp.counters().loss_probes, 1);
}

#[test]
fn one_segment_in_flight_may_wait_for_a_delayed_acknowledgement_but_not_beyond_the_rto() {
    let mut script = sent(config(), 1000);
    assert_eq!(script.expire(), 400, "2 SRTT and 200 ms");
    assert_eq!(script.data(), [(1, 1000)]);
    // RTO = 100 + 4 * 50 ms.
    let mut script = sent(
        Config {
            min_rto: Duration::from_millis(1),
            ..config()
        },
        1000,
    );
    assert_eq!(script.expire(), 300, "no later than the RTO");
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.tcp.counters().timeouts, 0);
    assert_eq!(script.expire(), 300, "and the RTO after it");
    assert_eq!(script.tcp.counters().timeouts, 1);
}

/// Ten segments are out, the last is sent again by a probe.
fn probed() -> Script {
    let mut script = sent(config(), 10_000);
    script.pass(100);
    script.inject(seg(ACK, 1, 9001));
    script.expire();
    assert_eq!(script.data(), [(9001, 1000)]);
    script.pass(100);
    script
}

#[test]
fn a_probe_that_repaired_a_loss_costs_a_reduction() {
    let mut script = probed();
    script.inject(seg(ACK, 1, 10_001));
    let before = script.tcp.gauges();
    assert_eq!(before.ssthresh, None, "not known yet");
    script.tcp.write_virtual(1000);
    assert_eq!(script.data(), [(10_001, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 11_001));
    let after = script.tcp.gauges();
    assert_eq!(after.ssthresh, Some((before.cwnd / 2.0) as u32));
    assert!(after.cwnd < before.cwnd, "{after:?}");
}

#[test]
fn a_probe_for_nothing_costs_nothing() {
    // The D-SACK comes when nothing is in flight, or the acknowledgement is repeated by a peer that knows none.
    for told in [&[(9001, 10_001)][..], &[]] {
        let mut script = probed();
        script.inject(seg(ACK, 1, 10_001));
        script.inject(seg(ACK, 1, 10_001).sack(told));
        script.tcp.write_virtual(1000);
        script.data();
        script.pass(100);
        script.inject(seg(ACK, 1, 11_001));
        assert_eq!(script.tcp.gauges().ssthresh, None, "{told:?}");
        // The next silence is probed again.
        script.tcp.write_virtual(1000);
        script.data();
        script.expire();
        assert_eq!(script.data(), [(11_001, 1000)]);
        assert_eq!(script.tcp.counters().loss_probes, 2);
    }
}

#[test]
fn nothing_is_probed_while_something_is_held_nor_without_sack() {
    let mut script = sent(config(), 10_000);
    script.pass(100);
    script.inject(seg(ACK, 1, 1).sack(&[(1001, 2001)]));
    // RACK's own timer, then the recovery, then the RTO.
    script.expire();
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.expire(), 1000);
    assert_eq!(script.tcp.counters().loss_probes, 0);
    assert_eq!(script.tcp.counters().timeouts, 1);
    let mut script = Script::open(config());
    script.tcp.write_virtual(10_000);
    script.data();
    assert_eq!(script.expire(), 1000);
    assert_eq!(script.tcp.counters().loss_probes, 0);
}
