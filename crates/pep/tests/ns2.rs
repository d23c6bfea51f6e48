//! The rules of ns-2.35, packet by packet: what `tcp/snoop.cc` and its defaults say.

mod support;

use bentpipe_base::Bytes;
use bentpipe_pep::snoop::Config;
use bentpipe_pep::{Pep, Side};
use support::{Script, ack, data};

/// Segments 0 to 19 are under way, 0 is acknowledged after 500 ms.
fn twenty() -> Script {
    let mut script = Script::new(Config::ns2());
    script.send(0..20);
    assert_eq!(script.wait(500), []);
    script.passes(ack(1));
    script
}

#[test]
fn the_second_duplicate_is_answered_and_the_expected_ones_suppressed() {
    let mut script = twenty();
    script.passes(ack(1));
    script.repairs(ack(1), &[1]);
    // 19 copies from segment 1 on, less 2.
    for _ in 0..17 {
        script.suppresses(ack(1));
    }
    // The 20th passes, and so does the one that starts the next round: from segment 2 to the end
    // there are 18, less 2.
    script.passes(ack(1));
    script.passes(ack(1));
    for _ in 0..16 {
        script.suppresses(ack(1));
    }
    assert_eq!(script.tally().retransmitted, 1);
}

#[test]
fn the_warning_outlives_an_advance() {
    let mut script = twenty();
    script.passes(ack(1));
    script.passes(ack(2));
    script.repairs(ack(2), &[2]);
}

#[test]
fn a_full_cache_suppresses_nothing() {
    let mut script = Script::new(Config::ns2());
    script.send(0..150);
    assert_eq!(script.agent.buffered(), Bytes(100 * 540));
    assert_eq!(script.tally().uncached, 50);
    script.wait(500);
    script.passes(ack(1));
    script.send([150]);
    // 100 copies again: the ring's distance is 0.
    script.passes(ack(1));
    script.repairs(ack(1), &[1]);
    for _ in 0..50 {
        script.passes(ack(1));
    }
}

#[test]
fn the_timer_starts_at_1_1_seconds_and_restarts_with_each_advance() {
    let mut script = Script::new(Config::ns2());
    script.send(0..3);
    assert_eq!(script.wait(1000), []);
    // The estimate before this sample counts: 1.1 s from here. The sample makes it
    // 0.1/8 + 7/8 = 0.8875 and 7/8 0.25 + 1/8 0.1125 = 0.2328, together 1.81875 s.
    script.passes(ack(1));
    assert_eq!(script.wait(1099), []);
    assert_eq!(script.wait(1), [(Side::Space, data(1))]);
    assert_eq!(script.wait(1818), []);
    assert_eq!(script.wait(1), [(Side::Space, data(1))]);
}

#[test]
fn there_are_ten_retransmissions_at_most() {
    let mut script = twenty();
    assert_eq!(script.wait(400_000).len(), 10);
    assert_eq!(script.tally().timeouts, 10);
}

#[test]
fn a_retransmission_of_the_sender_lets_duplicates_pass() {
    let mut script = twenty();
    script.send([1]);
    for _ in 0..6 {
        script.passes(ack(1));
    }
    assert_eq!(script.tally().retransmitted, 0);
}

#[test]
fn the_timer_waits_for_the_right_hole() {
    let mut script = Script::new(Config::ns2());
    script.send([0, 2, 3]);
    script.passes(ack(1));
    assert_eq!(script.wait(100_000), []);
}
