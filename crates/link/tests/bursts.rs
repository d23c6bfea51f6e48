//! Gilbert–Elliott against the closed forms of a two-state Markov chain.

mod common;

use bentpipe_base::Stream;
use bentpipe_link::Channel;
use bentpipe_link::channel::{Chain, Fate, Gilbert};
use common::{SIGMAS, assert_binomial, at, probability};

const PACKETS: usize = 400_000;

/// Which of [`PACKETS`] packets are hit.
fn hits(chain: Chain) -> Vec<bool> {
    let mut channel = Gilbert::new(chain);
    let mut draw = Stream::new(3, "bursts");
    (0..PACKETS)
        .map(|_| channel.strike(12_000, at(0), &mut draw) == Fate::Corrupt)
        .collect()
}

/// Lengths of the runs of hits, the one cut off at the end left out.
fn bursts(hits: &[bool]) -> Vec<usize> {
    let mut runs: Vec<usize> = hits.split(|hit| !hit).map(<[bool]>::len).collect();
    runs.pop();
    runs.retain(|run| *run > 0);
    runs
}

fn chain(worsen: f64, recover: f64, good: f64, bad: f64) -> Chain {
    Chain {
        worsen: probability(worsen),
        recover: probability(recover),
        good: probability(good),
        bad: probability(bad),
    }
}

/// Packets of a chain depend on each other: at distance k their covariance is
/// π(1-π)(e_b-e_g)² λ^k with λ = 1-p-r, which widens the interval of the mean.
fn assert_mean(hits: &[bool], p: f64, r: f64, good: f64, bad: f64) {
    let (share, lambda) = (p / (p + r), 1.0 - p - r);
    let mean = (1.0 - share) * good + share * bad;
    let common = share * (1.0 - share) * (bad - good).powi(2);
    let variance = mean * (1.0 - mean) + 2.0 * common * lambda / (1.0 - lambda);
    let spread = SIGMAS * (variance / hits.len() as f64).sqrt();
    let seen = hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64;
    assert!(
        (seen - mean).abs() <= spread,
        "p {p} r {r} e {good} {bad}: {seen}, expected {mean} ± {spread}"
    );
}

#[test]
fn the_long_run_hits_as_the_stationary_shares_ask() {
    for (p, r, good, bad) in [
        (0.01, 0.2, 0.0, 1.0),
        (0.001, 0.05, 0.0, 1.0),
        (0.05, 0.1, 0.01, 0.5),
        // The states alternate more often than chance would.
        (0.9, 0.8, 0.2, 0.6),
    ] {
        assert_mean(&hits(chain(p, r, good, bad)), p, r, good, bad);
        let expected = (r * good + p * bad) / (p + r);
        let mean = chain(p, r, good, bad).mean_error_rate();
        assert!((mean - expected).abs() < 1e-12, "{mean} {expected}");
    }
}

#[test]
fn bursts_are_as_long_as_asked_and_geometric() {
    for (burst, rate) in [(1.0, 0.1), (5.0, 0.02), (20.0, 0.2), (3.0, 0.6)] {
        let chain = Chain::bursts(burst, probability(rate)).unwrap();
        let hits = hits(chain);
        let r = 1.0 / burst;
        assert_mean(&hits, r * rate / (1.0 - rate), r, 0.0, 1.0);
        let runs = bursts(&hits);
        let mean = runs.iter().sum::<usize>() as f64 / runs.len() as f64;
        // A geometric length of mean 1/r has the variance (1-r)/r².
        let spread = SIGMAS * ((1.0 - r) / (r * r) / runs.len() as f64).sqrt();
        assert!(
            (mean - burst).abs() <= spread + 1e-12,
            "{burst} at {rate}: {mean} ± {spread}"
        );
        for length in [1, 2, 5] {
            let as_long = runs.iter().filter(|run| **run == length).count();
            let share = r * (1.0 - r).powi(length as i32 - 1);
            assert_binomial(as_long, runs.len(), share, &format!("bursts of {length}"));
        }
    }
}

#[test]
fn gaps_are_geometric_too() {
    let hits = hits(chain(0.02, 0.5, 0.0, 1.0));
    let clear: Vec<bool> = hits.iter().map(|hit| !hit).collect();
    let gaps = bursts(&clear);
    let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
    let spread = SIGMAS * (0.98 / (0.02f64 * 0.02) / gaps.len() as f64).sqrt();
    assert!((mean - 50.0).abs() <= spread, "{mean} ± {spread}");
}

#[test]
fn the_first_packet_meets_the_shares_of_the_long_run() {
    let (p, r) = (0.001, 0.009);
    let first = |seed| {
        let mut draw = Stream::new(seed, "first");
        Gilbert::new(chain(p, r, 0.0, 1.0)).strike(1, at(0), &mut draw)
    };
    let struck = (0..20_000).filter(|seed| first(*seed) == Fate::Corrupt);
    assert_binomial(struck.count(), 20_000, 0.1, "first packets");
}

#[test]
fn independent_errors_are_a_special_case() {
    // With r = 1 - p the next state does not depend on the present one.
    let rate = 0.3;
    let chain = Chain::bursts(1.0 / (1.0 - rate), probability(rate)).unwrap();
    let hits = hits(chain);
    let after_a_hit: Vec<bool> = hits.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
    let struck = after_a_hit.iter().filter(|hit| **hit).count();
    assert_binomial(struck, after_a_hit.len(), rate, "after a hit");
}

#[test]
fn impossible_bursts_are_refused_with_what_would_do() {
    for burst in [0.5, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Chain::bursts(burst, probability(0.1)).unwrap_err();
        assert!(error.to_string().contains("at least 1 packets"), "{error}");
    }
    // 90% in bursts of 5 would need gaps of half a packet; bursts of 9 have gaps of one.
    let error = Chain::bursts(5.0, probability(0.9)).unwrap_err();
    assert!((error.least - 9.0).abs() < 1e-9, "{error}");
    assert!(Chain::bursts(9.1, probability(0.9)).is_ok());
    assert!(Chain::bursts(5.0, probability(1.0)).is_err());
}
