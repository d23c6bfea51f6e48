//! The figures of a connection over a geostationary link, in virtual time: each is exact, and the same each time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Instant;
use std::time::Duration;
use support::{Pair, geo};

const MINUTE: Duration = Duration::from_secs(60);

/// Megabits a second of a download that lasts a minute from its request on, and the longest wait in a queue.
fn download(mbps: u64, loss: f64, seed: u64) -> (f64, Duration) {
    let mut pair = Pair::over(&geo(mbps, loss), "rate", seed);
    pair.stand();
    let began = pair.now;
    let stream = pair.ask(u64::MAX / 2);
    pair.run_until(began + MINUTE, |_| false);
    let goodput = pair.got[&stream].bytes as f64 * 8.0 / MINUTE.as_secs_f64() / 1e6;
    (goodput, pair.longest_wait())
}

/// A download of 60 s, request and slow beginning included, at the link's rate whatever is lost. No more than 10 Mbit/s times
/// 1,437 of 1,500 bytes times what is not lost is possible: 9.58, 9.48 and 9.10.
#[test]
fn a_download_has_the_rate_of_the_link_and_makes_no_queue() {
    for (loss, least, most) in [(0.0, 9.25, 9.58), (0.01, 9.05, 9.48), (0.05, 8.5, 9.10)] {
        let (goodput, wait) = download(10, loss, 1);
        assert!((least..most).contains(&goodput), "{loss}: {goodput} Mbit/s");
        assert!(wait <= Duration::from_millis(20), "{loss}: {wait:?}");
    }
}

/// Milliseconds of so many fetches of 100 kB one after the other, sorted.
fn fetches(loss: f64, count: usize, bulk: bool) -> Vec<u128> {
    let mut pair = Pair::over(&geo(10, loss), "rate", 7);
    pair.stand();
    if bulk {
        pair.ask(u64::MAX / 2);
        let later = pair.now + Duration::from_secs(3);
        pair.run_until(later, |_| false);
    }
    let mut took = Vec::new();
    for _ in 0..count {
        took.push(pair.fetch(100_000).as_millis());
        let later = pair.now + Duration::from_secs(1);
        pair.run_until(later, |_| false);
    }
    took.sort_unstable();
    took
}

#[test]
fn a_small_answer_takes_one_round_trip_and_its_time_on_the_line() {
    // 600 ms there and back, 83.6 ms on the line.
    let clean = fetches(0.0, 20, false);
    assert!((683..=700).contains(clean.last().unwrap()), "{clean:?}");
    let beside = fetches(0.0, 20, true);
    assert!((683..=800).contains(&beside[10]), "{beside:?}");
}

#[test]
fn a_small_answer_waits_for_repairs_where_packets_are_lost() {
    for (loss, p50, p99) in [(0.01, 1300, 2000), (0.05, 1400, 3900)] {
        let took = fetches(loss, 100, false);
        assert!(
            took[0] >= 683 && took[50] <= p50 && took[98] <= p99,
            "{loss}: {took:?}"
        );
    }
}

/// Three round trips for the first connection of all: handshake, request, and what the answer takes.
#[test]
fn the_first_answer_of_all_takes_two_round_trips() {
    let mut pair = Pair::over(&geo(10, 0.0), "rate", 3);
    pair.stand();
    assert!(
        pair.now <= Instant::ZERO + Duration::from_millis(610),
        "{}",
        pair.now
    );
    pair.fetch(100_000);
    let took = pair.now.since(Instant::ZERO);
    assert!(took <= Duration::from_millis(1310), "{took:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    support::traces_follow_the_seed(|seed| {
        let mut pair = Pair::over(&geo(10, 0.02), "rate", seed);
        pair.stand();
        pair
    });
}

/// The controls that find their own way work too; a window alone cannot hold such a link under loss.
#[test]
fn hybla_and_cubic_carry_a_download() {
    for (control, least) in [("hybla", 8.0), ("cubic", 6.0)] {
        let mut pair = Pair::over(&geo(10, 0.0), control, 2);
        pair.stand();
        let began = pair.now;
        let stream = pair.ask(u64::MAX / 2);
        pair.run_until(began + MINUTE, |_| false);
        let goodput = pair.got[&stream].bytes as f64 * 8.0 / MINUTE.as_secs_f64() / 1e6;
        assert!(goodput > least, "{control}: {goodput}");
    }
}

/// A client that does not read holds its own window, and nobody else's; the connection stands.
#[test]
fn who_does_not_read_disturbs_nobody() {
    let mut pair = Pair::over(&geo(10, 0.01), "rate", 4);
    pair.stand();
    let idle = pair.ask(60_000_000);
    pair.got.get_mut(&idle).unwrap().ignored = true;
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    let took = pair.fetch(100_000);
    assert!(took < Duration::from_secs(3), "{took:?}");
    // It reads again, and gets all.
    pair.got.get_mut(&idle).unwrap().ignored = false;
    pair.take(idle);
    let later = pair.now + Duration::from_secs(120);
    pair.run_until(later, |pair| pair.got[&idle].finished.is_some());
    assert_eq!(pair.got[&idle].bytes, 60_000_000);
    assert!(
        pair.told
            .iter()
            .all(|(_, event)| !matches!(event, bentpipe_quic::Event::Lost { .. }))
    );
}

/// A quarter of a gigabit with 1% lost, on one stream: the stack stands the gaps.
#[test]
#[ignore = "ten minutes of a fast link take minutes: run with --release -- --ignored"]
fn ten_minutes_of_a_fast_link_with_loss() {
    for (mbps, least) in [(100, 0.93 * 95.6), (250, 0.93 * 239.0)] {
        let mut pair = Pair::over(&geo(mbps, 0.01), "rate", 1);
        pair.stand();
        let began = pair.now;
        let stream = pair.ask(u64::MAX / 2);
        pair.run_until(began + 10 * MINUTE, |_| false);
        let goodput = pair.got[&stream].bytes as f64 * 8.0 / 600.0 / 1e6;
        assert!(goodput > least, "{mbps}: {goodput}");
    }
}
