//! However a driver polls, what happens is the same; nothing is reordered; the two directions know
//! nothing of each other.

mod common;

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_link::channel::{BitError, PacketError};
use bentpipe_link::queue::{self, Queue};
use bentpipe_link::{Burst, Direction, End, Limit, Link, Mark, Settings};
use common::{Log, at, probability};
use core::time::Duration;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Shape {
    rate: Option<u64>,
    delay: u64,
    limit: Limit,
    loss: f64,
    ber: f64,
    before: bool,
    queue: usize,
}

fn shape() -> impl Strategy<Value = Shape> {
    let limit = prop_oneof![
        (0usize..8).prop_map(Limit::Packets),
        (0u64..9000).prop_map(|bytes| Limit::Bytes(Bytes(bytes))),
        Just(Limit::Infinite),
    ];
    let rate = prop::option::of(1_000_000u64..1_000_000_000);
    let errors = (0.0..0.5, 0.0..1e-4, any::<bool>());
    let queue = 0..queue::registry::<u32>().len();
    (rate, 0u64..3_000_000, limit, errors, queue).prop_map(
        |(rate, delay, limit, (loss, ber, before), queue)| Shape {
            rate,
            delay,
            limit,
            loss,
            ber,
            before,
            queue,
        },
    )
}

/// A queue of the kind `entry`, with its keys as they are where nobody says otherwise, or as in an example.
fn built<P: Send + 'static>(entry: &queue::Entry<P>, limit: Limit) -> queue::Discipline<P> {
    let line = queue::LinkInfo {
        rate: None,
        mtu: Bytes(1500),
    };
    (entry.build)(limit, &entry.spec.examples(), &line).expect("the examples are right")
}

impl Shape {
    fn settings<P: Mark + Send + 'static>(&self) -> Settings<P> {
        Settings {
            rate: self.rate.map(Rate::from_bits_per_sec),
            burst: self.delay.is_multiple_of(3).then_some(Burst {
                bytes: Bytes(self.delay % 20_000),
                ceiling: Rate::from_bits_per_sec(100_000_000),
            }),
            delay: Duration::from_nanos(self.delay),
            jitter: Duration::from_nanos(self.delay / 5),
            overhead: Bytes(4),
            queue: built(&queue::registry()[self.queue], self.limit),
            channels: vec![
                Box::new(PacketError::new(probability(self.loss))),
                Box::new(BitError::new(probability(self.ber))),
            ],
            errors_before_queue: self.before,
            changes: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    /// A new rate (0 stops the link).
    Rate(u64),
    Delay(u64),
}

/// Steps with the nanoseconds between them, bursts included.
fn script() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let gap = prop_oneof![Just(0u64), 0u64..2000, 0u64..2_000_000];
    let step = prop_oneof![
        20 => (0u64..2000).prop_map(Step::Push),
        1 => prop_oneof![Just(0), 1_000_000u64..1_000_000_000].prop_map(Step::Rate),
        1 => (0u64..3_000_000).prop_map(Step::Delay),
    ];
    prop::collection::vec((gap, step), 1..80)
}

/// Runs the script; before each step and at the end, `poll` may look at the link.
fn play(
    shape: &Shape,
    script: &[(u64, Step)],
    mut poll: impl FnMut(&mut Direction<u32, Log>, Instant, &mut Vec<(u64, u32)>),
) -> (Vec<(u64, u32)>, Log) {
    let mut link = Direction::new(shape.settings(), 5, "polled", Log::default());
    let (mut now, mut seen) = (Instant::ZERO, Vec::new());
    for (number, (gap, step)) in (0u32..).zip(script) {
        now += Duration::from_nanos(*gap);
        poll(&mut link, now, &mut seen);
        match *step {
            Step::Push(len) => {
                link.push(number, Bytes(len), now);
            }
            Step::Rate(rate) => link.set_rate(Some(Rate::from_bits_per_sec(rate)), now),
            Step::Delay(delay) => link.set_delay(Duration::from_nanos(delay), now),
        }
    }
    // Whatever the script did, let all that waits go in the end.
    link.set_rate(Some(Rate::from_bits_per_sec(1_000_000_000)), now);
    seen.extend(drain(&mut link, Instant::MAX));
    (seen, std::mem::take(link.observer_mut()))
}

fn drain(link: &mut Direction<u32, Log>, now: Instant) -> Vec<(u64, u32)> {
    common::arrivals(link, now)
}

proptest! {
    #[test]
    fn polling_changes_nothing(
        shape in shape(),
        script in script(),
        whims in prop::collection::vec(any::<bool>(), 80),
    ) {
        let (never, facts) = play(&shape, &script, |_, _, _| {});
        // At every deadline, as the contract asks.
        let (always, all_facts) = play(&shape, &script, |link, now, seen| {
            while let Some(deadline) = link.deadline().filter(|deadline| *deadline <= now) {
                link.advance(deadline);
                seen.extend(drain(link, deadline));
            }
        });
        // Late, and only sometimes.
        let mut whim = whims.iter();
        let (sometimes, some_facts) = play(&shape, &script, |link, now, seen| {
            if *whim.next().unwrap() {
                seen.extend(drain(link, now));
            }
        });
        prop_assert_eq!(&never, &always);
        prop_assert_eq!(&never, &sometimes);
        prop_assert_eq!(&facts.0, &all_facts.0);
        prop_assert_eq!(&facts.0, &some_facts.0);
    }

    #[test]
    fn nothing_is_reordered_invented_or_early(shape in shape(), script in script()) {
        let (seen, facts) = play(&shape, &script, |link, now, seen| seen.extend(drain(link, now)));
        prop_assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
        prop_assert!(facts.0.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let pushed = script.iter().filter(|(_, step)| matches!(step, Step::Push(_))).count();
        let dropped = facts.0.iter()
            .filter(|(_, fact)| matches!(fact, bentpipe_base::Fact::Dropped { .. }))
            .count();
        prop_assert_eq!(seen.len() + dropped, pushed);
        let mut sent = Instant::ZERO;
        let times: Vec<Instant> = script.iter().map(|(gap, _)| { sent += Duration::from_nanos(*gap); sent }).collect();
        for (arrival, number) in seen {
            prop_assert!(at(arrival) >= times[number as usize]);
        }
    }

    #[test]
    fn a_deadline_lies_ahead_once_all_is_drained(shape in shape(), script in script()) {
        play(&shape, &script, |link, now, seen| {
            seen.extend(drain(link, now));
            if let Some(deadline) = link.deadline() {
                assert!(deadline > now, "{deadline} at {now}");
            }
        });
    }

    #[test]
    fn traffic_one_way_leaves_the_other_way_alone(
        shape in shape(),
        forward in prop::collection::vec((0u64..100_000, 0usize..1500), 1..60),
        reverse in prop::collection::vec((0u64..100_000, 0usize..1500), 1..60),
    ) {
        let run = |with_reverse: bool| {
            let end = |who| (shape.settings(), who);
            let mut link = Link::<Vec<u8>, Log>::new(end(Log::default()), end(Log::default()), 3, "l");
            let sends = |script: &[(u64, usize)], port| {
                let mut now = Instant::ZERO;
                script.iter().map(|(gap, len)| {
                    now += Duration::from_nanos(*gap);
                    (now, port, *len)
                }).collect::<Vec<_>>()
            };
            let mut all = sends(&forward, End::A);
            if with_reverse {
                all.extend(sends(&reverse, End::B));
                all.sort_by_key(|(now, _, _)| *now);
            }
            let mut seen = Vec::new();
            for (now, port, len) in all {
                link.input(port, vec![0; len], now);
                seen.extend(std::iter::from_fn(|| link.deliver(now)));
            }
            seen.extend(std::iter::from_fn(|| link.deliver(Instant::MAX)));
            seen.retain(|(end, _, _)| *end == End::B);
            (seen, std::mem::take(&mut link.from_mut(End::A).observer_mut().0))
        };
        prop_assert_eq!(run(false), run(true));
    }
}

#[test]
fn every_queue_keeps_count_of_what_it_holds() {
    for entry in queue::registry::<u32>() {
        let mut queue = built(entry, Limit::Packets(10));
        let mut draw = bentpipe_base::Stream::new(1, "count");
        let mut held = 0;
        for number in 0..20 {
            held += usize::from(queue.push(number, Bytes(100), at(0), &mut draw).is_ok());
        }
        assert!((1..=10).contains(&held), "{}: {held}", entry.spec.name);
        assert_eq!(
            (queue.len(), queue.bytes()),
            (held, Bytes(100 * held as u64))
        );
        let popped = std::iter::from_fn(|| queue.pop(at(1))).count();
        assert_eq!((popped, queue.len(), queue.bytes()), (held, 0, Bytes(0)));
    }
}
