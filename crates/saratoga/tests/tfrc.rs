//! TFRC over a whole path: what RFC 5348 says of a sender that loses nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/path.rs"]
mod path;
mod support;

use bentpipe_base::{Instant, Rate};
use bentpipe_saratoga::sender::{self, Congestion};
use bentpipe_wire::saratoga::Frame;
use path::{Path, Run};
use std::time::Duration;
use support::sending;

fn path(megabits: u64, round_trip: Duration) -> Path {
    Path {
        rate: Rate::from_bits_per_sec(1_000_000 * megabits),
        round_trip,
        bit_errors: 0.0,
        seed: 1,
        longest: None,
        seldom: None,
        longest_back: None,
        jitter: Duration::ZERO,
        outage: None,
    }
}

fn transfer(path: Path, size: u64) -> Run {
    path.transfer(sender::Config {
        rate: path.rate,
        congestion: Congestion::Tfrc,
        ..sending(size)
    })
}

/// Section 4.3: at most twice in a round trip, and no more than twice what was received. The first doubling waits for
/// the report of what left at the rate that the first report allowed.
#[test]
fn without_loss_the_rate_doubles_each_round_trip() {
    for (ms, most) in [(20, 4.5), (100, 5.2), (300, 7.2), (600, 11.3)] {
        let round_trip = Duration::from_millis(ms);
        let run = transfer(path(40, round_trip), 20_000_000);
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

/// Section 5.1: what is overtaken is not lost. It came to 70, 9, 38 and 19 s, though nothing was.
#[test]
fn what_is_overtaken_is_no_loss() {
    for (ms, jitter, most) in [(20, 20, 5.2), (40, 2, 3.8), (40, 10, 4.5), (600, 5, 10.0)] {
        for seed in 1..=8 {
            let run = transfer(
                Path {
                    seed,
                    jitter: Duration::from_millis(jitter),
                    ..path(20, Duration::from_millis(ms))
                },
                8_000_000,
            );
            let falls = run.rates.windows(2).any(|pair| pair[1].1 < pair[0].1);
            let took = run.known.since(Instant::ZERO).as_secs_f64();
            // 8 MB are 3.3 s of this line.
            assert!(
                !falls && took < most,
                "{ms} ms and up to {jitter}, seed {seed}: {took} s"
            );
        }
    }
}

/// A peer has no use for what comes before it knows the session, such as where something overtakes METADATA, or what a server with a
/// key has to hear first. It came to a loss in two packets, and to minutes.
#[test]
fn what_comes_before_the_session_is_known_is_no_loss() {
    for (ms, most) in [(20, 9.0), (200, 10.0), (600, 14.0)] {
        let path = path(4, Duration::from_millis(ms));
        let config = sender::Config {
            rate: path.rate,
            congestion: Congestion::Tfrc,
            ..sending(3_000_000)
        };
        let mut first = None;
        let keeps = |frame: &Frame| match frame {
            Frame::Data(data) => first.replace(data.offset).is_some(),
            _ => true,
        };
        let run = path.attempt_through(config, keeps).unwrap();
        let took = run.known.since(Instant::ZERO).as_secs_f64();
        // 3 MB are 6.2 s of this line.
        assert!(took < most, "{ms} ms: {took} s");
    }
}

/// What is lost counts where packets overtake each other too.
#[test]
fn loss_counts_beside_what_is_overtaken() {
    let mean = |jitter| {
        let took = (1..=8).map(|seed| {
            let path = Path {
                seed,
                bit_errors: 1e-6,
                jitter: Duration::from_millis(jitter),
                ..path(20, Duration::from_millis(300))
            };
            transfer(path, 8_000_000).known.since(Instant::ZERO)
        });
        took.sum::<Duration>().as_secs_f64() / 8.0
    };
    let (steady, late) = (mean(0), mean(20));
    // The equation with p = 1.2%, R = 0.3 s, s = 1500 gives 51 kB/s: 157 s, but for what comes before the first loss.
    assert!((110.0..165.0).contains(&steady), "{steady} s");
    assert!(
        (0.85..1.25).contains(&(late / steady)),
        "{steady} s, {late} s"
    );
}

/// What is lost in it is no sign of congestion, and slow start goes on. It came to 146 s with 5 s of outage, and to 240 with 25.
#[test]
fn an_outage_costs_little_more_than_its_time() {
    for from in [3, 15] {
        for (outage, most) in [(1, 41.0), (2, 48.0), (5, 52.0), (25, 77.0)] {
            let path = Path {
                outage: Some((Duration::from_secs(from), Duration::from_secs(outage))),
                ..path(8, Duration::from_millis(600))
            };
            let run = transfer(path, 30_000_000);
            // 36.5 s without one.
            let took = run.known.since(Instant::ZERO).as_secs_f64();
            assert!(took < most, "{outage} s after {from}: {took} s");
        }
    }
}
