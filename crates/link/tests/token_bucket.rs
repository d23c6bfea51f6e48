//! A burst above the rate, against the closed form of a token bucket.

mod common;

use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_link::{Burst, Change, Settings};
use common::{arrivals, at, direction};
use core::time::Duration;
use proptest::prelude::*;

const PACKET: Bytes = Bytes(1500);

/// 8 Mbit/s (a packet in 1.5 ms), 10 (1.2 ms) for 128 kB (128 ms of tokens).
fn shaped() -> Settings<u32> {
    Settings {
        rate: Some(Rate::from_bits_per_sec(8_000_000)),
        burst: Some(Burst {
            bytes: Bytes(128_000),
            ceiling: Rate::from_bits_per_sec(10_000_000),
        }),
        ..Settings::default()
    }
}

/// When packet `number` of a backlog that began at 0 has left, in nanoseconds.
fn left(number: u64) -> u64 {
    let tokens = (number * 1_500_000).saturating_sub(128_000_000);
    tokens.max(number * 1_200_000) + 1_200_000
}

#[test]
fn a_burst_leaves_at_the_ceiling_and_the_rest_at_the_rate() {
    let mut link = direction(shaped());
    for number in 0..1000 {
        link.push(number, PACKET, at(0));
    }
    let expected: Vec<(u64, u32)> = (0..1000).map(|n| (left(u64::from(n)), n)).collect();
    assert_eq!(arrivals(&mut link, Instant::MAX), expected);
    // After a pause as long as the bucket takes to fill there is another burst.
    let again = 1_498_500_000 + 200_000_000;
    for number in 0..10 {
        link.push(number, PACKET, at(again));
    }
    let expected: Vec<(u64, u32)> = (0..10).map(|n| (again + left(u64::from(n)), n)).collect();
    assert_eq!(arrivals(&mut link, Instant::MAX), expected);
}

#[test]
fn tokens_come_at_a_rate_that_changes() {
    let mut link = direction(Settings {
        changes: vec![Change {
            at: Duration::from_secs(1),
            rate: Some(Rate::from_bits_per_sec(4_000_000)),
            delay: None,
        }],
        ..shaped()
    });
    link.begin(at(0));
    for number in 0..2000 {
        link.push(number, PACKET, at(0));
    }
    let all = arrivals(&mut link, Instant::MAX);
    let gap = all[1999].0 - all[1998].0;
    assert_eq!(gap, 3_000_000, "1500 bytes at 4 Mbit/s");
}

proptest! {
    /// In no time t does more leave than the burst, a packet, and what the rate allows for t.
    #[test]
    fn no_more_leaves_than_the_tokens(gaps in prop::collection::vec((0u64..40_000_000, 40u64..1500), 1..400)) {
        let mut link = direction(shaped());
        let (mut now, mut sizes) = (0, Vec::new());
        for (number, (gap, size)) in gaps.iter().enumerate() {
            now += gap;
            link.push(number as u32, Bytes(*size), at(now));
            sizes.push(*size);
        }
        let all = arrivals(&mut link, Instant::MAX);
        for first in 0..all.len() {
            let mut bytes = 0;
            for (time, number) in &all[first..] {
                bytes += sizes[*number as usize];
                let passed = (time - all[first].0) as f64 / 1e9;
                prop_assert!(bytes as f64 <= 128_000.0 + 2.0 * 1500.0 + 1e6 * passed);
            }
        }
    }
}
