//! One file over a geostationary link: how long the repair of its last packets takes, and that the
//! line is full before.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/path.rs"]
mod path;
mod support;

use bentpipe_base::{Bytes, Instant, Probability, Rate};
use bentpipe_link::channel::BitError;
use bentpipe_saratoga::sender;
use bentpipe_saratoga::sender::Congestion;
use path::{Path, Run};
use std::time::Duration;
use support::{at, sending};

const ROUND_TRIP: Duration = Duration::from_millis(600);

fn transfer(size: u64, seed: u64, bit_errors: f64, congestion: Congestion) -> Run {
    let path = Path {
        rate: Rate::from_bits_per_sec(8_000_000),
        round_trip: ROUND_TRIP,
        bit_errors,
        seed,
        longest: None,
        seldom: None,
        longest_back: None,
        jitter: Duration::ZERO,
        outage: None,
    };
    path.transfer(sender::Config {
        congestion,
        ..sending(size)
    })
}

/// The figure of the issue: from the last first transmission to completion, known to the sender, at
/// most 3 round trips in the median over 30 seeds at 600 ms and a bit error rate of 1e-5.
#[test]
fn the_last_repairs_take_three_round_trips_in_the_median() {
    let mut tails: Vec<f64> = (0..30)
        .map(|seed| {
            let run = transfer(2_000_000, seed, 1e-5, Congestion::None);
            run.known.since(run.sent).as_secs_f64() / ROUND_TRIP.as_secs_f64()
        })
        .collect();
    tails.sort_by(f64::total_cmp);
    let median = f64::midpoint(tails[14], tails[15]);
    assert!(median <= 3.0, "{tails:?}");
}

/// A clean line carries the file once, and is never idle.
#[test]
fn a_clean_line_is_full() {
    let run = transfer(4_000_000, 1, 0.0, Congestion::None);
    assert_eq!(run.transmitted, 4_000_000);
    // 1444 of 1500 octets are content.
    let bound = Rate::from_bits_per_sec(8_000_000).serialisation(Bytes(4_000_000 * 1500 / 1444));
    let took = run.complete.since(Instant::ZERO);
    assert!(
        took < bound + ROUND_TRIP / 2 + Duration::from_millis(20),
        "{took:?} for {bound:?}"
    );
}

/// 11% of the packets are lost at 1e-5; each loss costs its repair and little more.
#[test]
fn errors_cost_their_repairs() {
    let run = transfer(8_000_000, 2, 1e-5, Congestion::None);
    let lost = BitError::corruption(Probability::new(1e-5).unwrap(), 12_000);
    let least = 8_000_000.0 / (1.0 - lost);
    assert!(
        (run.transmitted as f64) < 1.03 * least,
        "{} for {least}",
        run.transmitted
    );
    let rate = Rate::from_bits_per_sec(8_000_000);
    let bound = rate.serialisation(Bytes((least * 1500.0 / 1444.0) as u64));
    let limit = bound.mul_f64(1.02) + 4 * ROUND_TRIP;
    let took = run.known.since(Instant::ZERO);
    assert!(took < limit, "{took:?}, at most {limit:?}");
}

/// Under TFRC the clean line is used too, after a slow start, and loss makes it slow.
#[test]
fn tfrc_fills_a_clean_line_and_yields_to_loss() {
    let clean = transfer(8_000_000, 3, 0.0, Congestion::Tfrc)
        .known
        .as_secs_f64();
    let lossy = transfer(1_000_000, 3, 1e-6, Congestion::Tfrc)
        .known
        .as_secs_f64();
    assert!(clean < 20.0, "{clean}");
    // The equation of RFC 5348 with p = 1.2%, R = 0.6 s, s = 1500: 25.4 kB/s. Before the first loss it is faster.
    assert!((23.0..60.0).contains(&lossy), "{lossy}, expected about 39");
}

/// Where long packets vanish without a word, from the start or from some time on, shorter ones take over, and the
/// line is not filled in vain meanwhile.
#[test]
fn packets_get_short_enough_for_the_path() {
    let near = Duration::from_millis(20);
    for (longest, seed, round_trip, size, from) in [
        (1499, 3, ROUND_TRIP, 1_000_000, 0),
        (1280, 4, ROUND_TRIP, 1_000_000, 0),
        (576, 5, ROUND_TRIP, 1_000_000, 0),
        (1280, 6, ROUND_TRIP, 20_000_000, 0),
        (1280, 7, near, 4_000_000, 0),
        (1280, 8, near, 20_000_000, 0),
        (1280, 9, ROUND_TRIP, 4_000_000, 1500),
        (1280, 10, near, 4_000_000, 1500),
        (576, 11, near, 20_000_000, 7000),
    ] {
        let path = Path {
            rate: Rate::from_bits_per_sec(8_000_000),
            round_trip,
            bit_errors: 1e-6,
            seed,
            longest: Some((Bytes(longest), at(from))),
            seldom: None,
            longest_back: None,
            jitter: Duration::ZERO,
            outage: None,
        };
        let run = path.transfer(sending(size));
        // What goes before it is found out, and each repair as often as an idle line sends one.
        let transmitted = run.transmitted;
        assert!(
            transmitted < size * 5 / 4 + 7_000_000,
            "{seed}: {transmitted}"
        );
        let took = run.known.since(Instant::ZERO);
        let line = Duration::from_secs(size / 1_000_000);
        assert!(
            took < line * 5 / 4 + Duration::from_secs(10),
            "{seed}: {took:?}"
        );
    }
}

/// One long packet in 10, 100 or 1000 passes, from the start or from some time on, and of all others one in a hundred is
/// lost: that costs no more than 10 s.
#[test]
fn long_packets_that_pass_now_and_then_are_no_good() {
    for (seldom, longest, seed, round_trip, from) in [
        (10, 1280, 20, ROUND_TRIP, 0),
        (100, 1280, 21, ROUND_TRIP, 2500),
        (10, 1400, 22, Duration::from_millis(20), 1500),
        (1000, 1400, 23, Duration::from_millis(20), 0),
        (100, 700, 24, ROUND_TRIP, 0),
        (1000, 700, 25, Duration::from_millis(20), 1500),
    ] {
        let path = Path {
            rate: Rate::from_bits_per_sec(8_000_000),
            round_trip,
            // 1% of 1250 octets.
            bit_errors: 1e-6,
            seed,
            longest: Some((Bytes(longest), at(from))),
            seldom: Some(seldom),
            longest_back: None,
            jitter: Duration::ZERO,
            outage: None,
        };
        let run = path.transfer(sending(8_000_000));
        let took = run.known.since(Instant::ZERO);
        let most = Duration::from_secs(8 * 11 / 10 + 10);
        assert!(took < most, "{seed}: {took:?}");
    }
}

/// Where nothing but questions passes, the session ends and says so, after the silence.
#[test]
fn a_transfer_in_vain_ends() {
    let path = Path {
        rate: Rate::from_bits_per_sec(8_000_000),
        round_trip: ROUND_TRIP,
        bit_errors: 0.0,
        seed: 6,
        longest: Some((Bytes(200), Instant::ZERO)),
        seldom: None,
        longest_back: None,
        jitter: Duration::ZERO,
        outage: None,
    };
    // No packet of any length that is tried leaves a short one over.
    let failed = path.attempt(sending(1_144_500)).err().unwrap();
    assert_eq!(failed.why, sender::Failure::Vain);
    let silence = sending(1).silence;
    let took = failed.at.since(Instant::ZERO);
    assert!(took < silence + Duration::from_secs(3), "{took:?}");
    assert!(failed.transmitted < 4_000_000, "{}", failed.transmitted);
}

/// A fade takes all packets for seconds, and then the length is what it was: what vanished in it says
/// nothing of lengths.
#[test]
fn losses_do_not_make_packets_shorter() {
    let run = transfer(2_000_000, 9, 3e-5, Congestion::None);
    // 30% of the packets are lost, and none is cut: a shorter one would be lost less often.
    let lost = BitError::corruption(Probability::new(3e-5).unwrap(), 12_000);
    let least = 2_000_000.0 / (1.0 - lost);
    assert!(
        (run.transmitted as f64) > 0.93 * least,
        "{} for {least}",
        run.transmitted
    );
}

/// At the border of descriptors of 32 and 64 bits, with holes there too: all arrives.
#[test]
fn files_of_about_4_gib_arrive() {
    for (i, size) in [(1 << 32) - 1, 1 << 32, (1 << 32) + 1]
        .into_iter()
        .enumerate()
    {
        let rate = Rate::from_bits_per_sec(10_000_000_000);
        let path = Path {
            rate,
            round_trip: Duration::from_millis(20),
            // One packet of 60 kB in 50.
            bit_errors: 4e-8,
            seed: i as u64,
            longest: None,
            seldom: None,
            longest_back: None,
            jitter: Duration::ZERO,
            outage: None,
        };
        let run = path.transfer(sender::Config {
            rate,
            payload: 60_000,
            ..sending(size)
        });
        assert!(
            run.transmitted > size + size / 100,
            "{size}: some were lost"
        );
        let took = run.known.since(Instant::ZERO);
        assert!(took < Duration::from_secs(5), "{size}: {took:?}");
    }
}

/// The way back carries packets of 1,000 octets, and loses others too. Lists of holes that do not fit it, and vanish each time,
/// do not end the transfer.
#[test]
fn lists_get_short_enough_for_the_way_back() {
    for seed in 0..10 {
        let rate = Rate::from_bits_per_sec(60_000_000);
        let path = Path {
            rate,
            round_trip: Duration::from_millis(300),
            bit_errors: 1e-5,
            seed,
            longest: None,
            seldom: None,
            longest_back: Some(Bytes(1000)),
            jitter: Duration::ZERO,
            outage: None,
        };
        let run = path.transfer(sender::Config {
            rate,
            ..sending(6_000_000)
        });
        let took = run.known.since(Instant::ZERO);
        assert!(took < Duration::from_secs(4), "seed {seed}: {took:?}");
    }
}
