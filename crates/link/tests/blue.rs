//! BLUE against the events of Feng, Kandlur, Saha and Shin (1999).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bentpipe_base::{Bytes, DropCause, Instant, Rate, Stream};
use bentpipe_link::queue::{Blue, BlueSettings, Discipline};
use bentpipe_link::{Limit, Queue, Settings};
use common::{arrivals, assert_binomial, at, direction, probability};
use core::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// One packet at most, 100 ms between changes; drops at random are as good as never drawn.
fn settings() -> BlueSettings {
    BlueSettings {
        increment: probability(1e-9),
        decrement: probability(1e-10),
        ..BlueSettings::recommended(Limit::Packets(1))
    }
}

fn assert_near(seen: f64, expected: f64) {
    assert!((seen - expected).abs() < 1e-14, "{seen}, not {expected}");
}

/// A queue that is full from the start and refuses a packet every 10 ms, to 1050 ms.
fn overflowed() -> (Blue<u32>, Stream) {
    let (mut blue, mut draw) = (Blue::new(settings()), Stream::new(1, "overflow"));
    blue.push(0, Bytes(1000), at(0), &mut draw).unwrap();
    for tick in 1..=105 {
        let now = Instant::ZERO + tick * 10 * MS;
        assert_eq!(blue.push(tick, Bytes(1000), now, &mut draw), Err(tick));
    }
    (blue, draw)
}

#[test]
fn overflow_raises_the_probability_at_most_once_a_freeze_time() {
    // More than 100 ms apart, in steps of 10: at 110, 220 ... 990 ms.
    assert_near(overflowed().0.probability(), 9e-9);
}

#[test]
fn an_idle_link_lowers_it_once_a_freeze_time() {
    let (mut blue, mut draw) = overflowed();
    let emptied = Instant::ZERO + 1050 * MS;
    assert!(blue.pop(emptied).is_some());
    assert_near(blue.probability(), 9e-9);
    // 1050 ms of silence: ten freeze times.
    blue.push(0, Bytes(1000), emptied + 1050 * MS, &mut draw)
        .unwrap();
    assert_near(blue.probability(), 8e-9);
    assert!(blue.pop(emptied + 1050 * MS).is_some());
    // Packets that find the link free, every 30 ms: one change in each 120 ms, at 120 ... 960.
    for tick in 1..=33 {
        let now = emptied + 1050 * MS + tick * 30 * MS;
        blue.push(tick, Bytes(1000), now, &mut draw).unwrap();
        assert!(blue.pop(now).is_some());
    }
    assert_near(blue.probability(), 8e-9 - 8e-10);
    // It never falls below nothing, and a packet that waited does not tell of an idle link.
    let later = emptied + 3600 * 1000 * MS;
    blue.push(0, Bytes(1000), later, &mut draw).unwrap();
    assert_near(blue.probability(), 0.0);
}

#[test]
fn a_queue_that_waits_is_no_idle_link() {
    let (mut blue, mut draw) = overflowed();
    for tick in 106..=200 {
        let now = Instant::ZERO + tick * 10 * MS;
        assert!(blue.pop(now).is_some());
        blue.push(tick, Bytes(1000), now, &mut draw).unwrap();
    }
    assert_near(blue.probability(), 9e-9);
}

#[test]
fn certainty_ends_when_the_load_does() {
    let harsh = BlueSettings {
        increment: probability(1.0),
        decrement: probability(0.5),
        ..BlueSettings::recommended(Limit::Packets(1))
    };
    let (mut blue, mut draw) = (Blue::new(harsh), Stream::new(1, "certain"));
    blue.push(0, Bytes(1), at(0), &mut draw).unwrap();
    assert!(blue.push(1, Bytes(1), at(200_000_000), &mut draw).is_err());
    assert_near(blue.probability(), 1.0);
    assert!(blue.pop(at(200_000_000)).is_some());
    assert!(blue.push(2, Bytes(1), at(250_000_000), &mut draw).is_err());
    blue.push(3, Bytes(1), at(500_000_000), &mut draw).unwrap();
}

#[test]
fn it_drops_with_its_probability() {
    let fixed = BlueSettings {
        increment: probability(0.3),
        decrement: probability(0.0),
        freeze: MS,
        ..BlueSettings::recommended(Limit::Packets(1))
    };
    let (mut blue, mut draw) = (Blue::new(fixed), Stream::new(3, "fixed"));
    let start = Instant::ZERO + 10 * MS;
    blue.push(0, Bytes(1), at(0), &mut draw).unwrap();
    assert!(blue.push(1, Bytes(1), start, &mut draw).is_err());
    blue.pop(start);
    assert_near(blue.probability(), 0.3);
    let dropped = (0..20_000).filter(|number| {
        let dropped = blue.push(*number, Bytes(1), start, &mut draw).is_err();
        blue.pop(start);
        dropped
    });
    assert_binomial(dropped.count(), 20_000, 0.3, "drops");
}

#[test]
fn it_learns_the_load_that_is_too_much() {
    // A load of twice the rate that answers to nothing: half of it must go, and once p is learnt the
    // queue seldom overflows.
    let learning = BlueSettings {
        increment: probability(0.02),
        decrement: probability(0.002),
        ..BlueSettings::recommended(Limit::Packets(40))
    };
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(8_000_000)),
        queue: Discipline::Other(Box::new(Blue::new(learning))),
        ..Settings::default()
    });
    let (mut number, mut late) = (0, 0);
    let mut halves = [0, 0];
    for step in 0..60_000_u64 {
        // 1000 bytes take 1 ms; one comes each half millisecond, for 30 s.
        let now = at(step * 500_000);
        number += 1;
        link.push(number, Bytes(1000), now);
        halves[usize::from(step >= 30_000)] += arrivals(&mut link, now).len();
        late = late.max(link.waiting());
    }
    let [_, second] = halves;
    assert!(
        second > 14_000,
        "{second} of 15000 that the link could carry"
    );
    assert!(late <= 40);
    let drops = link.observer().drops(DropCause::Queue);
    assert!((28_000..32_000).contains(&drops), "{drops}");
}
