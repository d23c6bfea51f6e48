//! Serialisation, delay and waiting against closed forms, to the nanosecond.

mod common;

use bentpipe_base::{Bytes, DropCause, Instant, Machine, Rate, Stream};
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::{Discipline, DropTail, Waiting};
use bentpipe_link::{Backlog, Change, End, Limit, Link, Queue, Settings};
use common::{Log, arrivals, at, direction, probability};
use core::time::Duration;

const TEN: Rate = Rate::from_bits_per_sec(10_000_000);
const MS: u64 = 1_000_000;

fn geo() -> Settings<u32> {
    Settings {
        rate: Some(TEN),
        delay: Duration::from_millis(300),
        ..Settings::default()
    }
}

fn bounded(limit: Limit) -> Settings<u32> {
    Settings {
        queue: Discipline::DropTail(DropTail::new(limit)),
        ..geo()
    }
}

#[test]
fn one_packet_takes_its_serialisation_and_the_delay() {
    let mut link = direction(geo());
    link.push(1, Bytes(1500), at(7));
    let due = 7 + 1_200_000 + 300 * MS;
    assert_eq!(link.deadline(), Some(at(due)));
    assert_eq!(arrivals(&mut link, at(due - 1)), []);
    assert_eq!(arrivals(&mut link, at(due)), [(due, 1)]);
    assert_eq!(link.deadline(), None);
}

#[test]
fn a_burst_leaves_back_to_back() {
    let mut link = direction(geo());
    for number in 0..5 {
        link.push(number, Bytes(1500), at(0));
    }
    let expected: Vec<(u64, u32)> = (0..5)
        .map(|n| (u64::from(n + 1) * 1_200_000 + 300 * MS, n))
        .collect();
    assert_eq!(arrivals(&mut link, Instant::MAX), expected);
    let waits: Vec<Duration> = (0..5).map(|n| Duration::from_micros(1200 * n)).collect();
    assert_eq!(link.observer().waits(), waits);
}

#[test]
fn a_fast_link_is_as_fast_as_it_says() {
    // 516 bytes at 100 Gbit/s take 41.28 ns, which rounded up is 42: 1.7% more.
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(100_000_000_000)),
        ..Settings::<u32>::default()
    });
    for number in 0..1000 {
        link.push(number, Bytes(516), at(0));
    }
    let all = arrivals(&mut link, Instant::MAX);
    assert_eq!(all.first(), Some(&(42, 0)), "whole nanoseconds, rounded up");
    // Exact to the nanosecond above.
    assert_eq!(all.last(), Some(&(41_281, 999)));
    let gaps = all.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.into_iter().all(|gap| gap == 41 || gap == 42));
    // Of two sizes in turn, and of a link that falls idle between: never early by more than a nanosecond.
    for number in 0..1000u32 {
        let now = 100_000 + 90 * u64::from(number);
        link.push(
            number,
            Bytes(if number % 2 == 0 { 516 } else { 40 }),
            at(now),
        );
        let (arrival, _) = arrivals(&mut link, Instant::MAX)[0];
        let exact = if number % 2 == 0 { 41.28 } else { 3.2 };
        assert!(
            (arrival as f64 - now as f64 - exact).abs() <= 1.0,
            "{number}"
        );
    }
}

#[test]
fn an_idle_serialiser_keeps_no_credit() {
    let mut link = direction(geo());
    link.push(0, Bytes(1500), at(0));
    link.push(1, Bytes(1500), at(50 * MS));
    let first = 1_200_000 + 300 * MS;
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [(first, 0), (first + 50 * MS, 1)]
    );
}

#[test]
fn times_that_do_not_divide_round_up() {
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(3_000_000)),
        ..Settings::default()
    });
    link.push(0, Bytes(1), at(0));
    assert_eq!(arrivals(&mut link, Instant::MAX), [(2667, 0)]);
}

#[test]
fn overhead_takes_time_but_no_room_in_the_queue() {
    let mut link = direction(Settings {
        overhead: Bytes(18),
        ..bounded(Limit::Bytes(Bytes(1500)))
    });
    link.push(0, Bytes(1500), at(0));
    link.push(1, Bytes(1500), at(0));
    let tx = 1518 * 800;
    assert_eq!(
        link.backlog(at(0)),
        Backlog {
            packets: 1,
            bytes: Bytes(1500)
        }
    );
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [(tx + 300 * MS, 0), (2 * tx + 300 * MS, 1)]
    );
}

#[test]
fn an_unlimited_link_only_delays() {
    let mut link = direction(Settings {
        delay: Duration::from_millis(10),
        ..Settings::default()
    });
    for number in 0..100 {
        link.push(number, Bytes(1500), at(5));
    }
    let expected: Vec<(u64, u32)> = (0..100).map(|n| (5 + 10 * MS, n)).collect();
    assert_eq!(arrivals(&mut link, at(5 + 10 * MS)), expected);
}

#[test]
fn the_bound_in_packets_is_exact() {
    let mut link = direction(bounded(Limit::Packets(3)));
    // One in the serialiser, three waiting, two refused.
    for number in 0..6 {
        link.push(number, Bytes(1500), at(0));
    }
    assert_eq!(link.backlog(at(0)).packets, 3);
    // Just before the first has left there is no room; as it leaves there is room for one.
    link.push(6, Bytes(1500), at(1_199_999));
    link.push(7, Bytes(1500), at(1_200_000));
    link.push(8, Bytes(1500), at(1_200_000));
    let passed: Vec<u32> = arrivals(&mut link, Instant::MAX)
        .into_iter()
        .map(|(_, n)| n)
        .collect();
    assert_eq!(passed, [0, 1, 2, 3, 7]);
    assert_eq!(link.observer().drops(DropCause::Queue), 4);
}

#[test]
fn the_bound_in_bytes_is_exact() {
    let mut link = direction(bounded(Limit::Bytes(Bytes(3000))));
    link.push(0, Bytes(1500), at(0));
    link.push(1, Bytes(1500), at(0));
    link.push(2, Bytes(1000), at(0));
    link.push(3, Bytes(501), at(0));
    link.push(4, Bytes(500), at(0));
    link.push(5, Bytes(1), at(0));
    assert_eq!(link.backlog(at(0)).bytes, Bytes(3000));
    let passed: Vec<u32> = arrivals(&mut link, Instant::MAX)
        .into_iter()
        .map(|(_, n)| n)
        .collect();
    assert_eq!(passed, [0, 1, 2, 4]);
    assert_eq!(link.observer().drops(DropCause::Queue), 2);
}

#[test]
fn a_queue_of_nothing_passes_nothing() {
    let mut link = direction(bounded(Limit::Packets(0)));
    link.push(0, Bytes(40), at(0));
    assert_eq!(arrivals(&mut link, Instant::MAX), []);
    assert_eq!(link.observer().drops(DropCause::Queue), 1);
}

#[test]
fn a_new_rate_spares_the_packet_that_has_begun() {
    let mut link = direction(geo());
    for number in 0..3 {
        link.push(number, Bytes(1500), at(0));
    }
    // The first is half sent: it keeps its time, the others take ten times as long.
    link.set_rate(Some(Rate::from_bits_per_sec(1_000_000)), at(600_000));
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [
            (1_200_000 + 300 * MS, 0),
            (13_200_000 + 300 * MS, 1),
            (25_200_000 + 300 * MS, 2)
        ]
    );
}

#[test]
fn a_late_change_of_rate_does_not_reach_back() {
    let mut link = direction(geo());
    for number in 0..2 {
        link.push(number, Bytes(1500), at(0));
    }
    // Nobody polled meanwhile; the second began at 1.2 ms, long before the change.
    link.set_rate(Some(Rate::from_bits_per_sec(1000)), at(100 * MS));
    assert_eq!(
        arrivals(&mut link, at(400 * MS)),
        [(1_200_000 + 300 * MS, 0), (2_400_000 + 300 * MS, 1)]
    );
}

#[test]
fn a_stopped_link_goes_on_where_it_stopped() {
    let mut link = direction(geo());
    link.set_rate(Some(Rate::from_bits_per_sec(0)), at(0));
    link.push(0, Bytes(1500), at(5));
    assert_eq!(link.deadline(), None);
    assert_eq!(arrivals(&mut link, at(50 * MS)), []);
    link.set_rate(Some(TEN), at(50 * MS));
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [(350 * MS + 1_200_000, 0)]
    );
}

#[test]
fn a_shorter_delay_lets_nobody_overtake() {
    let mut link = direction(geo());
    link.push(0, Bytes(1500), at(0));
    link.set_delay(Duration::ZERO, at(10 * MS));
    link.push(1, Bytes(1500), at(10 * MS));
    link.push(2, Bytes(1500), at(400 * MS));
    let first = 1_200_000 + 300 * MS;
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [(first, 0), (first, 1), (401_200_000, 2)]
    );
}

#[test]
fn the_ends_of_time_do_not_overflow() {
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(1)),
        delay: Duration::MAX,
        ..Settings::default()
    });
    link.push(0, Bytes(u64::MAX), at(1));
    link.push(1, Bytes(1500), at(2));
    assert_eq!(link.deadline(), Some(Instant::MAX));
}

#[test]
fn what_enters_at_one_end_leaves_at_the_other() {
    let mut link = Link::<Vec<u8>, Log>::new(
        (
            Settings {
                delay: Duration::from_millis(20),
                ..Settings::default()
            },
            Log::default(),
        ),
        (
            Settings {
                delay: Duration::from_millis(10),
                ..Settings::default()
            },
            Log::default(),
        ),
        1,
        "pair",
    );
    link.input(End::A, vec![1; 100], at(0));
    link.input(End::B, vec![2; 50], at(0));
    assert_eq!(link.deadline(), Some(at(10 * MS)));
    assert_eq!(link.transmit(at(9 * MS)), None);
    // Polled late, the earlier arrival still comes first.
    assert_eq!(link.transmit(at(30 * MS)), Some((End::A, vec![2; 50])));
    assert_eq!(link.transmit(at(30 * MS)), Some((End::B, vec![1; 100])));
    assert_eq!(link.transmit(at(30 * MS)), None);
    assert_eq!(link.deadline(), None);
}

#[test]
fn a_lost_packet_ahead_does_not_disturb_the_order_of_the_two_ways() {
    let end = |delay| {
        let settings = Settings {
            rate: Some(TEN),
            delay: Duration::from_millis(delay),
            ..Settings::default()
        };
        (settings, Log::default())
    };
    let mut link = Link::<u32, Log>::new(end(20), end(10), 1, "pair");
    let from_a = link.from_mut(End::A);
    from_a.set_channels(vec![Box::new(PacketError::new(probability(1.0)))], at(0));
    from_a.push(0, Bytes(1500), at(0));
    from_a.push(1, Bytes(1500), at(0));
    from_a.set_channels(Vec::new(), at(0));
    // The first is lost, the second waits: nothing is under way yet.
    assert_eq!(from_a.deadline(), Some(at(1_200_000)));
    link.from_mut(End::B).push(2, Bytes(1500), at(0));
    let seen: Vec<_> = std::iter::from_fn(|| link.deliver(at(30 * MS))).collect();
    let expected = [
        (End::A, at(1_200_000 + 10 * MS), 2),
        (End::B, at(2_400_000 + 20 * MS), 1),
    ];
    assert_eq!(seen, expected);
}

/// A queue of the sort that decides by time (as RED and CoDel do): it checks the time it is told.
struct Clocked {
    waiting: Vec<Waiting<u32>>,
    pops: Vec<Instant>,
}

impl Queue<u32> for Clocked {
    fn push(&mut self, packet: u32, len: Bytes, now: Instant, _: &mut Stream) -> Result<(), u32> {
        let since = now;
        self.waiting.push(Waiting { packet, len, since });
        Ok(())
    }

    fn pop(&mut self, now: Instant) -> Option<Waiting<u32>> {
        self.pops.push(now);
        assert_eq!(now, at(self.pops.len() as u64 * 1_200_000 - 1_200_000));
        Some(self.waiting.remove(0))
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn bytes(&self) -> Bytes {
        self.waiting.iter().map(|waiting| waiting.len).sum()
    }
}

#[test]
fn a_queue_is_told_the_exact_time_of_each_departure() {
    let clocked = Clocked {
        waiting: Vec::new(),
        pops: Vec::new(),
    };
    let mut link = direction(Settings {
        queue: Discipline::Other(Box::new(clocked)),
        ..geo()
    });
    for number in 0..5 {
        link.push(number, Bytes(1500), at(0));
    }
    assert_eq!(arrivals(&mut link, at(1000 * MS)).len(), 5);
}

#[test]
fn a_change_begins_with_the_first_packet_to_leave_at_its_time() {
    let mut link = direction(Settings {
        changes: vec![
            Change {
                at: Duration::from_nanos(2_400_000),
                rate: Some(Rate::from_bits_per_sec(5_000_000)),
                delay: Some(Duration::from_millis(400)),
            },
            Change {
                at: Duration::from_nanos(6_000_000),
                rate: None,
                delay: Some(Duration::from_millis(100)),
            },
        ],
        ..geo()
    });
    for number in 0..5 {
        link.push(number, Bytes(1500), at(0));
    }
    // The third leaves at 2.4 ms, the fifth at 7.2 ms; it does not overtake the fourth.
    let due = [
        301_200_000,
        302_400_000,
        404_800_000,
        407_200_000,
        407_200_000,
    ];
    let expected: Vec<(u64, u32)> = due.into_iter().zip(0..).collect();
    assert_eq!(arrivals(&mut link, Instant::MAX), expected);
}
