//! Losses against their binomial intervals, and what seeds promise.

mod common;

use bentpipe_base::{Bytes, DropCause, Instant, Rate, Silent, Stream};
use bentpipe_link::channel::{self, BitError, ChannelSpec, Fate, Form, PacketError};
use bentpipe_link::keys::{Value, Values};
use bentpipe_link::{Channel, Direction, Settings};
use common::{Log, SIGMAS, arrivals, assert_binomial, at, direction, probability};
use core::time::Duration;

fn strike(channels: Vec<Box<dyn Channel>>, packets: u32, len: u64) -> Direction<u32, Log> {
    let mut link = direction(Settings {
        channels,
        ..Settings::default()
    });
    for number in 0..packets {
        link.push(number, Bytes(len), at(u64::from(number)));
        link.deliver(at(u64::from(number)));
    }
    link
}

#[test]
fn packet_errors_stay_in_their_binomial_interval() {
    for rate in [0.001, 0.01, 0.05, 0.5] {
        let link = strike(
            vec![Box::new(PacketError::new(probability(rate)))],
            200_000,
            40,
        );
        let lost = link.observer().drops(DropCause::Lost);
        assert_binomial(lost, 200_000, rate, &format!("loss at {rate}"));
    }
}

#[test]
fn who_wants_lost_packets_back_gets_each_once() {
    const PACKETS: usize = 3000;
    let half = || -> Vec<Box<dyn Channel>> { vec![Box::new(PacketError::new(probability(0.5)))] };
    // Struck as they leave at once, as they leave after a wait, and before the queue.
    for (spacing, errors_before_queue) in [(1_000_000, false), (10, false), (10, true)] {
        for keeps in [true, false] {
            let mut link = direction(Settings {
                rate: Some(Rate::from_bits_per_sec(1_000_000_000)),
                channels: half(),
                errors_before_queue,
                ..Settings::default()
            });
            if keeps {
                link.keep_lost();
            }
            let mut seen = Vec::new();
            let mut returned = 0;
            for number in 0..PACKETS as u32 {
                let now = at(u64::from(number) * spacing);
                assert_eq!(link.push(number, Bytes(40), now), None);
                while link.has_lost() {
                    seen.extend(link.take_lost());
                    returned += 1;
                }
            }
            while let Some(due) = link.deadline() {
                seen.extend(link.deliver(due).map(|(_, packet)| packet));
            }
            while let Some(lost) = link.take_lost() {
                seen.push(lost);
                returned += 1;
            }
            let struck = link.observer().drops(DropCause::Lost)
                + link.observer().drops(DropCause::BeforeQueue);
            assert_binomial(struck, PACKETS, 0.5, "struck");
            assert_eq!(returned, if keeps { struck } else { 0 });
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), PACKETS - struck + returned);
        }
    }
}

#[test]
fn bit_errors_corrupt_as_many_packets_as_their_lengths_ask() {
    for (rate, len) in [
        (1e-6, 1500),
        (1e-5, 1500),
        (1e-5, 40),
        (1e-4, 576),
        (1e-3, 40),
    ] {
        let link = strike(
            vec![Box::new(BitError::new(probability(rate)))],
            200_000,
            len,
        );
        let corrupted = link.observer().drops(DropCause::Corrupted);
        let expected = 1.0 - (1.0f64 - rate).powf(len as f64 * 8.0);
        assert_binomial(
            corrupted,
            200_000,
            expected,
            &format!("{rate} over {len} bytes"),
        );
    }
}

#[test]
fn tiny_bit_error_rates_keep_their_digits() {
    let corruption = BitError::corruption(probability(1e-13), 12_000);
    assert!((corruption / 1.2e-9 - 1.0).abs() < 1e-8, "{corruption}");
    assert_eq!(BitError::corruption(probability(1.0), 1), 1.0);
    assert_eq!(BitError::corruption(probability(1.0), 0), 0.0);
    assert_eq!(BitError::corruption(probability(0.0), 12_000), 0.0);
}

#[test]
fn framing_is_hit_too() {
    let mut link = direction(Settings {
        overhead: Bytes(100),
        channels: vec![Box::new(BitError::new(probability(1e-3)))],
        ..Settings::default()
    });
    for number in 0..100_000 {
        link.push(number, Bytes(0), at(0));
        link.deliver(at(0));
    }
    let expected = 1.0 - (1.0f64 - 1e-3).powi(800);
    let corrupted = link.observer().drops(DropCause::Corrupted);
    assert_binomial(corrupted, 100_000, expected, "framing");
}

#[test]
fn stacked_channels_each_take_their_part() {
    let both: Vec<Box<dyn Channel>> = vec![
        Box::new(BitError::new(probability(1e-5))),
        Box::new(PacketError::new(probability(0.1))),
    ];
    let link = strike(both, 200_000, 1500);
    // A packet that both strike counts as lost: it never reached the CRC.
    let lost = link.observer().drops(DropCause::Lost);
    assert_binomial(lost, 200_000, 0.1, "lost");
    let corrupted = link.observer().drops(DropCause::Corrupted);
    let expected = 0.9 * (1.0 - (1.0f64 - 1e-5).powi(12_000));
    assert_binomial(corrupted, 200_000, expected, "corrupted");
}

/// The numbers that pass a direction of some name and seed.
fn survivors(channels: Vec<Box<dyn Channel>>, seed: u64, name: &str) -> Vec<u32> {
    let settings = Settings {
        channels,
        ..Settings::default()
    };
    let mut link = Direction::new(settings, seed, name, Silent);
    (0..1000).for_each(|number| assert!(link.push(number, Bytes(1500), at(0)).is_none()));
    std::iter::from_fn(|| link.deliver(at(0)))
        .map(|(_, number)| number)
        .collect()
}

/// Every kind of channel, in each way to describe it, with all its probabilities at `rate`.
fn described(rate: f64) -> impl Iterator<Item = (&'static ChannelSpec, Values)> {
    let ways = |spec: &'static ChannelSpec| spec.ways.iter().map(move |keys| (spec, *keys));
    let ways = channel::REGISTRY.iter().flat_map(ways);
    ways.map(move |(spec, keys)| {
        let mut values = Values::default();
        for (key, value) in Values::examples(keys).iter() {
            let chance = matches!(value, Value::Chance(_));
            let all = Value::Chance(probability(rate));
            values.set(key, if chance { all } else { value.clone() });
        }
        (spec, values)
    })
}

/// Whether the channel draws chance at all.
fn draws(channel: &mut dyn Channel) -> bool {
    let (mut used, mut fresh) = (Stream::new(1, "draws"), Stream::new(1, "draws"));
    channel.strike(12_000, at(0), &mut used);
    used.uniform() != fresh.uniform()
}

#[test]
fn fates_follow_from_seed_and_name_for_every_channel() {
    let mut seen = 0;
    // As a bit-error rate 1e-4 hits 70% of packets, as a packet-error rate 0.3 hits 30%.
    for (spec, values) in described(1e-4).chain(described(0.3)) {
        let passes = (spec.passes)(&values, Bytes(1500));
        let build = || (spec.build)(&values).unwrap();
        let fates = |seed, name| survivors(vec![build()], seed, name);
        assert_eq!(build().name(), spec.name);
        assert_eq!(fates(1, "a"), fates(1, "a"), "{}", spec.name);
        if (0.1..0.9).contains(&passes) && draws(&mut *build()) {
            assert_ne!(fates(1, "a"), fates(2, "a"), "{}", spec.name);
            assert_ne!(fates(1, "a"), fates(1, "b"), "{}", spec.name);
            seen += 1;
        }
    }
    // Bit errors, packet errors, and both ways of bursts.
    assert!(seen >= 4, "{seen}");
    for (spec, values) in described(0.0) {
        let passed = survivors(vec![(spec.build)(&values).unwrap()], 1, "a").len();
        assert_eq!(passed, 1000, "{}", spec.name);
    }
}

/// By it paths know what they can carry.
#[test]
fn the_share_that_passes_is_the_one_that_the_kind_declares() {
    for rate in [0.0, 1e-9, 1e-4, 0.01, 0.3, 0.5, 0.9] {
        for (spec, values) in described(rate) {
            let mut channel = (spec.build)(&values).unwrap();
            let mut draw = Stream::new(5, "share");
            let packets = 100_000;
            let passed = (0..packets)
                .filter(|_| channel.strike(12_000, at(0), &mut draw) == Fate::Deliver)
                .count() as f64;
            let share = (spec.passes)(&values, Bytes(1500));
            let mean = f64::from(packets) * share;
            // Bursts of ten packets on average widen the binomial interval less than fivefold.
            let spread = 5.0 * SIGMAS * (mean * (1.0 - share)).sqrt() + 0.5;
            assert!(
                (passed - mean).abs() <= spread,
                "{} {rate}: {passed}, expected {mean} ± {spread}",
                spec.name
            );
        }
    }
}

#[test]
fn a_kind_that_stands_as_a_bare_value_has_one_key_with_a_default() {
    for spec in channel::REGISTRY {
        let keys = spec.ways.concat();
        assert!(!keys.is_empty(), "{}", spec.name);
        assert_eq!(channel::find(spec.key), Some(spec));
        if spec.form == Form::Bare {
            assert_eq!(keys.len(), 1, "{}", spec.name);
            assert_eq!(keys[0].name, spec.key);
            assert!(spec.is_none(&Values::examples(&keys)), "{}", spec.name);
        }
    }
}

#[test]
fn a_second_channel_does_not_move_the_draws_of_the_first() {
    let first = || -> Box<dyn Channel> { Box::new(PacketError::new(probability(0.1))) };
    let second = || -> Box<dyn Channel> { Box::new(BitError::new(probability(1e-5))) };
    let alone = survivors(vec![first()], 1, "a");
    let other = survivors(vec![second()], 1, "a");
    let common: Vec<u32> = alone
        .iter()
        .copied()
        .filter(|n| other.contains(n))
        .collect();
    assert_eq!(survivors(vec![second(), first()], 1, "a"), common);
    assert_eq!(survivors(vec![first(), second()], 1, "a"), common);
}

#[test]
fn twice_the_same_channel_draws_twice() {
    let half = || -> Box<dyn Channel> { Box::new(PacketError::new(probability(0.5))) };
    let passed = survivors(vec![half(), half()], 1, "a").len();
    assert_binomial(passed, 1000, 0.25, "passed both");
}

#[test]
fn a_channel_that_comes_back_draws_on() {
    let channel =
        || -> Vec<Box<dyn Channel>> { vec![Box::new(PacketError::new(probability(0.5)))] };
    let straight = survivors(channel(), 1, "a");
    let settings = Settings {
        channels: channel(),
        ..Settings::default()
    };
    let mut link = Direction::new(settings, 1, "a", Silent);
    for number in 0..1000u32 {
        match number {
            300 => link.set_channels(Vec::new(), at(0)),
            // Two hundred packets that no channel saw.
            500 => link.set_channels(channel(), at(0)),
            _ => {}
        }
        link.push(number, Bytes(1500), at(0));
    }
    let passed: Vec<u32> = std::iter::from_fn(|| link.deliver(Instant::MAX))
        .map(|(_, number)| number)
        .filter(|number| !(300..500).contains(number))
        .map(|number| if number < 300 { number } else { number - 200 })
        .collect();
    let expected: Vec<u32> = straight
        .into_iter()
        .filter(|number| *number < 800)
        .collect();
    assert_eq!(passed, expected);
}

#[test]
fn the_rate_does_not_change_who_is_lost() {
    let fates = |rate| {
        let settings = Settings {
            rate,
            channels: vec![Box::new(PacketError::new(probability(0.2))) as Box<dyn Channel>],
            ..Settings::default()
        };
        let mut link = Direction::new(settings, 9, "a", Silent);
        (0..1000u32).for_each(|number| assert!(link.push(number, Bytes(1500), at(0)).is_none()));
        std::iter::from_fn(|| link.deliver(Instant::MAX))
            .map(|(_, number)| number)
            .collect::<Vec<_>>()
    };
    assert_eq!(fates(None), fates(Some(Rate::from_bits_per_sec(1_000_000))));
}

/// What is struck before the queue takes neither room nor time: what gets through leaves as if the rest had never come.
/// The fates are those of the same channel behind the queue.
#[test]
fn errors_before_the_queue_take_no_room_and_no_time() {
    let settings = |errors_before_queue| Settings {
        rate: Some(Rate::from_bits_per_sec(8_000_000)),
        queue: bentpipe_link::queue::DropTail::new(bentpipe_link::Limit::Packets(300)).into(),
        channels: vec![Box::new(PacketError::new(probability(0.25)))],
        errors_before_queue,
        ..Settings::default()
    };
    let count = 200;
    let [mut before, mut behind] = [true, false].map(|place| direction(settings(place)));
    let arrived = |link: &mut Direction<u32, Log>| {
        for number in 0..count {
            assert_eq!(link.push(number, Bytes(1000), at(0)), None);
        }
        common::arrivals(link, at(u64::MAX / 2))
    };
    let (early, late) = (arrived(&mut before), arrived(&mut behind));
    let numbers = |all: &[(u64, u32)]| all.iter().map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(numbers(&early), numbers(&late));
    // A millisecond each: of those that got through, and of all.
    let gapless: Vec<u64> = (1..=early.len() as u64).map(|n| n * 1_000_000).collect();
    assert_eq!(early.iter().map(|one| one.0).collect::<Vec<_>>(), gapless);
    let with_gaps = late
        .iter()
        .map(|(_, number)| (u64::from(*number) + 1) * 1_000_000);
    assert!(with_gaps.eq(late.iter().map(|one| one.0)));
    let struck = count as usize - early.len();
    let [before, behind] = [&before, &behind].map(|link| {
        let log = link.observer();
        let drops = [DropCause::BeforeQueue, DropCause::Lost].map(|cause| log.drops(cause));
        (drops, log.waits().len())
    });
    assert!(struck > 20, "{struck}");
    assert_eq!(before, ([struck, 0], early.len()));
    assert_eq!(behind, ([0, struck], count as usize));
}

/// Lateness is uniform, nothing overtakes another, and whom errors strike does not move it.
#[test]
fn jitter_is_uniform_and_keeps_the_order() {
    const PACKETS: u32 = 20_000;
    let lateness = |spacing: u64, loss: f64| -> Vec<(u64, u32)> {
        let mut link = direction(Settings {
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(3),
            channels: vec![Box::new(PacketError::new(probability(loss)))],
            ..Settings::default()
        });
        for number in 0..PACKETS {
            link.push(number, Bytes(40), at(u64::from(number) * spacing));
        }
        let late =
            |(came, number): (u64, u32)| (came - 5_000_000 - u64::from(number) * spacing, number);
        arrivals(&mut link, Instant::MAX)
            .into_iter()
            .map(late)
            .collect()
    };
    let apart = lateness(3_000_000, 0.0);
    assert!(apart.iter().all(|(late, _)| *late < 3_000_000));
    for tenth in 1..10 {
        let below = apart
            .iter()
            .filter(|(late, _)| *late < tenth * 300_000)
            .count();
        assert_binomial(below, PACKETS as usize, tenth as f64 / 10.0, "uniform");
    }
    let struck = lateness(3_000_000, 0.5);
    assert!(struck.iter().all(|one| apart[one.1 as usize] == *one));
    let close = lateness(100, 0.0);
    assert!(
        close.iter().map(|one| one.1).eq(0..PACKETS),
        "none overtakes"
    );
    let latest = close.iter().map(|one| one.0).max();
    assert!(
        latest.is_some_and(|late| (2_900_000..3_000_000).contains(&late)),
        "{latest:?}"
    );
}
