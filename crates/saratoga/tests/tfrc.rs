//! TFRC over a whole path: what RFC 5348 says of a sender that loses nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/path.rs"]
mod path;
mod support;

use bentpipe_base::{Instant, Rate};
use bentpipe_saratoga::sender::{self, Congestion};
use path::{Path, Run};
use std::time::Duration;
use support::sending;

fn transfer(round_trip: Duration) -> Run {
    let rate = Rate::from_bits_per_sec(40_000_000);
    let path = Path {
        rate,
        round_trip,
        bit_errors: 0.0,
        seed: 1,
        longest: None,
        seldom: None,
        longest_back: None,
    };
    path.transfer(sender::Config {
        rate,
        congestion: Congestion::Tfrc,
        ..sending(20_000_000)
    })
}

/// Section 4.3: at most twice in a round trip, and no more than twice what was received. The first doubling waits for
/// the report of what left at the rate that the first report allowed.
#[test]
fn without_loss_the_rate_doubles_each_round_trip() {
    for (ms, most) in [(20, 4.5), (100, 5.2), (300, 7.2), (600, 11.3)] {
        let round_trip = Duration::from_millis(ms);
        let run = transfer(round_trip);
        // From the first report on.
        let begun = run.rates[1];
        let full = |(_, rate): &&(Instant, Rate)| *rate == Rate::from_bits_per_sec(40_000_000);
        let line = run.rates.iter().find(full).unwrap();
        let doublings = (line.1.bits_per_sec() as f64 / begun.1.bits_per_sec() as f64).log2();
        let round_trips = line.0.since(begun.0).as_secs_f64() / round_trip.as_secs_f64();
        assert!(
            round_trips < doublings + 1.8,
            "{ms} ms: {doublings} doublings in {round_trips} round trips"
        );
        // Never more than that: all reports within one round trip double it once.
        for (i, (at, rate)) in run.rates.iter().enumerate().skip(1) {
            let before = run.rates[1..=i].iter().rev();
            let then = before.take_while(|(then, _)| at.since(*then) <= round_trip);
            let least = then.map(|(_, rate)| rate.bits_per_sec()).min().unwrap();
            assert!(
                rate.bits_per_sec() as f64 <= 2.01 * least as f64,
                "{ms} ms at {at:?}"
            );
        }
        // 20 MB are 4.16 s of this line.
        let took = run.known.since(Instant::ZERO).as_secs_f64();
        assert!(took < most, "{ms} ms: {took} s");
    }
}
