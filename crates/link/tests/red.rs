//! RED against the formulas of Floyd and Jacobson (1993), and against those of ns-2 and Linux.

mod common;

use bentpipe_base::{Bytes, DropCause, Instant, Rate, Stream};
use bentpipe_link::queue::{Discipline, Red, RedError, RedLinux, RedNs2, RedSettings, Thresholds};
use bentpipe_link::{Limit, Queue, Settings};
use common::{arrivals, assert_binomial, at, direction, probability};
use core::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Thresholds of 5 and 15 packets, max_p 0.1, no hard limit, a slot of 1 ms.
fn settings(weight: f64, gentle: bool) -> RedSettings {
    RedSettings {
        weight: probability(weight),
        gentle,
        slot: Some(MS),
        ..RedSettings::recommended(Limit::Infinite)
    }
}

fn red(settings: RedSettings) -> Red<u32> {
    Red::new(settings).expect("in order")
}

fn assert_near(seen: f64, expected: f64) {
    assert!(
        (seen - expected).abs() < 1e-9,
        "{seen}, expected {expected}"
    );
}

/// Offers packets of `len` to a queue held at `held` packets that follows its length at once
/// (w = 1), and tells which were dropped.
fn steady(settings: RedSettings, held: usize, len: u64, offers: usize) -> Vec<bool> {
    steady_of(&mut red(settings), held, len, offers)
}

/// As [`steady`], of any queue.
fn steady_of(red: &mut dyn Queue<u32>, held: usize, len: u64, offers: usize) -> Vec<bool> {
    let mut draw = Stream::new(11, "steady");
    // Below the thresholds while it fills, whatever they are: nothing can be dropped at random
    // when all of it comes back.
    while red.len() < held {
        let _ = red.push(0, Bytes(1000), at(0), &mut draw);
    }
    (0..offers)
        .map(|_| {
            let dropped = red.push(0, Bytes(len), at(0), &mut draw).is_err();
            if !dropped {
                // Out goes the head; the newcomer must not change the length in bytes either.
                red.pop(at(0));
            }
            dropped
        })
        .collect()
}

fn drops(dropped: &[bool]) -> usize {
    dropped.iter().filter(|dropped| **dropped).count()
}

#[test]
fn the_average_after_a_burst_is_that_of_the_paper() {
    // Section 5: after L samples 1, 2, ... L from an empty queue,
    // avg = L + 1 + ((1-w)^(L+1) - 1) / w.
    let (weight, burst) = (0.002, 50);
    let mut red = red(settings(weight, true));
    let mut draw = Stream::new(1, "burst");
    for number in 0..=burst {
        red.push(number, Bytes(1000), at(0), &mut draw).unwrap();
    }
    let l = f64::from(burst);
    assert_near(
        red.average(),
        l + 1.0 + ((1.0 - weight).powf(l + 1.0) - 1.0) / weight,
    );
}

#[test]
fn idle_time_decays_the_average_slot_by_slot() {
    let mut red = red(settings(0.002, true));
    let mut draw = Stream::new(1, "idle");
    (0..50).for_each(|number| red.push(number, Bytes(1000), at(0), &mut draw).unwrap());
    let before = red.average();
    assert!(before > 1.0, "{before}");
    let begun = at(7_000_000);
    while red.pop(begun).is_some() {}
    red.push(0, Bytes(1000), begun + 250 * MS, &mut draw)
        .unwrap();
    assert_near(red.average(), before * 0.998f64.powi(250));
}

#[test]
fn a_slot_that_is_not_given_is_measured() {
    let mut measured = RedSettings::recommended(Limit::Infinite);
    measured.weight = probability(0.002);
    let mut red = red(measured);
    let mut draw = Stream::new(1, "measured");
    (0..50).for_each(|number| red.push(number, Bytes(1000), at(0), &mut draw).unwrap());
    let before = red.average();
    let mut now = Instant::ZERO;
    while red.pop(now).is_some() {
        now += 2 * MS;
    }
    // The last packet left 2 ms ago; 248 ms more are 125 slots of 2 ms in all.
    red.push(0, Bytes(1000), now + 248 * MS, &mut draw).unwrap();
    assert_near(red.average(), before * 0.998f64.powi(125));
}

#[test]
fn gaps_between_drops_are_uniform() {
    // Half-way p_b = 0.05. Figure 2 raises count before it is used, so the packet n after a drop is
    // dropped with p_b / (1 - n p_b): each gap from 1 to 19 has the probability 1/19.
    let dropped = steady(settings(1.0, false), 10, 1000, 200_000);
    assert_uniform_gaps(&dropped, 1, 19);
}

/// Each gap between drops from `least` to `most` packets is as frequent as any other.
fn assert_uniform_gaps(dropped: &[bool], least: usize, most: usize) {
    let at: Vec<usize> = (0..dropped.len()).filter(|n| dropped[*n]).collect();
    let gaps: Vec<usize> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.iter().min(), Some(&least));
    assert_eq!(gaps.iter().max(), Some(&most));
    let chance = 1.0 / (most - least + 1) as f64;
    for gap in least..=most {
        let seen = gaps.iter().filter(|seen| **seen == gap).count();
        assert_binomial(seen, gaps.len(), chance, &format!("gaps of {gap}"));
    }
}

#[test]
fn ns2_waits_between_drops_and_linux_does_not() {
    // p_b = 0.05 as above. ns-2: no drop before count p_b = 1, and a certain one before it is 2.
    let mut ns2 = RedNs2::new(settings(1.0, false)).expect("in order");
    assert_uniform_gaps(&steady_of(&mut ns2, 10, 1000, 400_000), 20, 39);
    // Linux: count p_b reaches a number drawn once, which is uniform.
    let mut linux = RedLinux::new(settings(1.0, false)).expect("in order");
    assert_uniform_gaps(&steady_of(&mut linux, 10, 1000, 200_000), 1, 20);
}

#[test]
fn ns2_passes_the_first_packet_above_and_all_while_at_most_one_waits() {
    let mut draw = Stream::new(3, "ns2");
    let sure = RedSettings {
        thresholds: Thresholds::Packets { min: 0.5, max: 1.5 },
        ..settings(0.5, false)
    };
    let mut ns2 = RedNs2::new(sure).expect("in order");
    (0..4).for_each(|number| {
        ns2.push(number, Bytes(1000), at(0), &mut draw)
            .unwrap_or(())
    });
    // Averages 0, 0.5, 1.25 with 0, 1, 2 waiting: the third is the first above. The fourth, at 2.125, finds
    // certainty.
    assert_near(ns2.average(), 2.125);
    assert_eq!(ns2.len(), 3);
    while ns2.len() > 1 {
        ns2.pop(at(0));
    }
    // The average is high, but one packet waits.
    for number in 0..100 {
        assert!(ns2.push(number, Bytes(1000), at(0), &mut draw).is_ok());
        ns2.pop(at(0));
    }
    // A queue that wants certainty from its first packet on would drop here: the published one does.
    let mut published = red(sure);
    (0..4).for_each(|number| {
        published
            .push(number, Bytes(1000), at(0), &mut draw)
            .unwrap_or(())
    });
    assert_eq!(published.len(), 3);
    published.pop(at(0));
    published.pop(at(0));
    assert!(published.push(9, Bytes(1000), at(0), &mut draw).is_err());
}

#[test]
fn ns2_counts_idle_time_in_whole_packets_and_one_more() {
    let offer = |ns2: &mut dyn Queue<u32>, now| {
        let mut draw = Stream::new(1, "idle");
        ns2.push(0, Bytes(1000), now, &mut draw).unwrap_or(());
    };
    let mut ns2 = RedNs2::new(settings(0.002, true)).expect("in order");
    let mut linux = RedLinux::new(settings(0.002, true)).expect("in order");
    (0..50).for_each(|_| offer(&mut ns2, at(0)));
    (0..50).for_each(|_| offer(&mut linux, at(0)));
    let before = ns2.average();
    assert_near(linux.average(), before);
    for red in [&mut ns2 as &mut dyn Queue<u32>, &mut linux] {
        while red.pop(at(0)).is_some() {}
        red.idle_since(at(1_000_000));
        offer(red, at(1_000_000) + 250 * MS + MS / 2);
    }
    assert_near(ns2.average(), before * 0.998f64.powi(251));
    assert_near(linux.average(), before * 0.998f64.powf(250.5));
}

#[test]
fn a_link_tells_its_queue_since_when_it_was_idle() {
    // A packet of 1000 bytes takes 1 ms; the third comes 2 ms after the link fell idle.
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(8_000_000)),
        queue: Discipline::Other(Box::new(Told::default())),
        ..Settings::default()
    });
    for millis in [0, 0, 4] {
        link.push(0u32, Bytes(1000), at(millis * 1_000_000));
    }
    link.push(0, Bytes(1000), at(4_500_000));
    assert_eq!(arrivals(&mut link, Instant::MAX).len(), 4);
}

/// Asserts what it is told.
#[derive(Default)]
struct Told {
    fifo: Option<bentpipe_link::queue::DropTail<u32>>,
    times: usize,
}

impl Queue<u32> for Told {
    fn push(
        &mut self,
        packet: u32,
        len: Bytes,
        now: Instant,
        draw: &mut Stream,
    ) -> Result<(), u32> {
        let idle = usize::from(now >= at(4_000_000));
        assert_eq!(self.times, idle, "told once, before the packet at 4 ms");
        let fifo = self
            .fifo
            .get_or_insert(bentpipe_link::queue::DropTail::new(Limit::Infinite));
        fifo.push(packet, len, now, draw)
    }

    fn pop(&mut self, now: Instant) -> Option<bentpipe_link::queue::Waiting<u32>> {
        self.fifo.as_mut()?.pop(now)
    }

    fn idle_since(&mut self, since: Instant) {
        assert_eq!(since, at(2_000_000));
        self.times += 1;
    }

    fn len(&self) -> usize {
        self.fifo.as_ref().map_or(0, Queue::len)
    }

    fn bytes(&self) -> Bytes {
        self.fifo.as_ref().map_or(Bytes(0), Queue::bytes)
    }
}

#[test]
fn below_the_lower_threshold_nothing_is_dropped() {
    assert_eq!(drops(&steady(settings(1.0, true), 4, 1000, 10_000)), 0);
}

#[test]
fn above_the_upper_threshold_all_is_dropped_unless_gentle() {
    let mut steep = red(settings(1.0, false));
    let mut gentle = red(settings(1.0, true));
    let mut draw = Stream::new(2, "upper");
    for number in 0..10_000 {
        // An error is a drop.
        let _ = steep.push(number, Bytes(1000), at(0), &mut draw);
        let _ = gentle.push(number, Bytes(1000), at(0), &mut draw);
    }
    // Gentle, the packet after a drop is dropped with p_b / (1 - p_b), surely from p_b = 1/2 on:
    // 0.1 + 0.9 (avg - 15) / 15 reaches that at 21.7.
    assert_eq!((steep.len(), gentle.len()), (15, 22));
}

#[test]
fn gentle_drops_grow_from_max_p_to_one() {
    // At 21 of 15: p_b = 0.1 + 0.9 * 6/15 = 0.46. Gaps of 1 with probability 0.46/0.54, else of 2.
    let dropped = steady(settings(1.0, true), 21, 1000, 100_000);
    let mean_gap = 2.0 - 0.46 / 0.54;
    let seen = dropped.len() as f64 / drops(&dropped) as f64;
    assert!(
        (seen - mean_gap).abs() < 0.01,
        "{seen}, expected {mean_gap}"
    );
}

#[test]
fn in_bytes_a_packet_is_dropped_in_proportion_to_its_length() {
    let bytes = |weight| RedSettings {
        thresholds: Thresholds::Bytes {
            min: Bytes(5000),
            max: Bytes(15_000),
            typical: Bytes(1000),
        },
        ..settings(weight, false)
    };
    // The average counts bytes: two packets of 400 and 600 bytes were there.
    let mut red = red(bytes(1.0));
    let mut draw = Stream::new(4, "bytes");
    for len in [400, 600, 100] {
        red.push(0, Bytes(len), at(0), &mut draw).unwrap();
    }
    assert_near(red.average(), 1000.0);
    // Just above the threshold of 5000 bytes, p_b = 0.1 * 1/10 for 1000 bytes: the gap's mean is
    // half of 1 / p_b. A packet of no length is never dropped.
    let lone = |len| {
        let mut drops = 0;
        let mut draw = Stream::new(4, "lone");
        for _ in 0..20_000 {
            let mut red = Red::new(bytes(1.0)).unwrap();
            (0..6).for_each(|_| red.push(0, Bytes(1000), at(0), &mut draw).unwrap_or(()));
            // All six came in, or five of them: look only at the former.
            drops +=
                usize::from(red.len() == 6 && red.push(0, Bytes(len), at(0), &mut draw).is_err());
        }
        drops
    };
    // The sixth met 5000 bytes (p_b = 0) and set count to 0, so the seventh, at 6000 bytes, has
    // p_b = 0.01 len/1000 and count 1.
    let chance = |p_b: f64| p_b / (1.0 - p_b);
    assert_binomial(lone(1000), 20_000, chance(0.01), "1000 bytes");
    assert_binomial(lone(4000), 20_000, chance(0.04), "4000 bytes");
    assert_eq!(lone(0), 0);
}

#[test]
fn the_hard_limit_holds() {
    let mut red = red(RedSettings::recommended(Limit::Packets(10)));
    let mut draw = Stream::new(1, "limit");
    let taken = (0..20).filter(|n| red.push(*n, Bytes(1000), at(0), &mut draw).is_ok());
    assert_eq!(taken.count(), 10);
}

#[test]
fn settings_out_of_order_are_refused() {
    let with = |min, max| RedSettings {
        thresholds: Thresholds::Packets { min, max },
        ..settings(0.002, true)
    };
    for (min, max) in [
        (5.0, 5.0),
        (6.0, 5.0),
        (-1.0, 5.0),
        (f64::NAN, 5.0),
        (1.0, f64::INFINITY),
    ] {
        let refused = Red::<u32>::new(with(min, max));
        assert!(
            matches!(refused, Err(RedError::Thresholds { .. })),
            "{min} {max}"
        );
    }
    let no_length = RedSettings {
        thresholds: Thresholds::Bytes {
            min: Bytes(1),
            max: Bytes(2),
            typical: Bytes(0),
        },
        ..settings(0.002, true)
    };
    assert!(matches!(Red::<u32>::new(no_length), Err(RedError::Typical)));
}

#[test]
fn on_a_link_red_keeps_the_queue_shorter_than_drop_tail() {
    // 1000-byte packets at 1.1 times the rate of the link, for ten seconds.
    let kept = |queue| {
        let mut link = direction(Settings {
            rate: Some(Rate::from_bits_per_sec(8_000_000)),
            queue,
            ..Settings::default()
        });
        let mut deepest = 0;
        for number in 0..11_000u32 {
            let now = at(u64::from(number) * 909_091);
            link.push(number, Bytes(1000), now);
            deepest = deepest.max(link.backlog(now).packets);
        }
        let passed = arrivals(&mut link, Instant::MAX).len();
        let dropped = link.observer().drops(DropCause::Queue);
        assert_eq!(passed + dropped, 11_000);
        (deepest, passed)
    };
    let limit = Limit::Packets(500);
    let tail = kept(bentpipe_link::queue::DropTail::new(limit).into());
    let early = kept(Discipline::Other(Box::new(red(settings(0.002, true)))));
    assert_eq!(tail.0, 500);
    // The link stays busy all the same.
    assert!(early.0 < 250 && early.1 > 9900, "{early:?}");
}
