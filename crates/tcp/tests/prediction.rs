//! Header prediction: what it takes, and that it changes nothing.

use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection, Counters};
use bentpipe_wire::{Flags, Segment};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// An end twice: the second one predicts nothing, for each of its segments bears a flag that it ignores.
struct Twins([Connection; 2]);

impl Twins {
    fn input(&mut self, segment: &Segment, now: Instant) {
        let [first, second] = &mut self.0;
        first.receive(segment, now);
        let mut marked = segment.clone();
        marked.flags = marked.flags | Flags::ECE;
        second.receive(&marked, now);
    }

    /// Calls both.
    fn each(&mut self, mut call: impl FnMut(&mut Connection)) {
        self.0.iter_mut().for_each(&mut call);
    }

    /// What both send, which is the same, as is all else that they show.
    fn drain(&mut self, now: Instant) -> Vec<Segment> {
        let [first, second] = self.0.each_mut().map(|end| {
            let events: Vec<_> = std::iter::from_fn(|| end.event()).collect();
            let sent: Vec<_> = std::iter::from_fn(|| end.transmit(now)).collect();
            let counters = Counters {
                predicted: 0,
                ..*end.counters()
            };
            let state = (end.state(), end.readable(), end.unacknowledged());
            (events, sent, counters, end.gauges(), end.deadline(), state)
        });
        assert_eq!(first, second);
        assert_eq!(self.0[1].counters().predicted, 0);
        first.1
    }
}

/// Two ends with a path between them that takes 50 ms and does with each segment what `fates` say.
struct World {
    ends: [Twins; 2],
    under_way: Vec<(Instant, usize, Segment)>,
    fates: Vec<u8>,
    sent: usize,
    now: Instant,
}

impl World {
    fn new(config: Config, fates: Vec<u8>) -> Self {
        let config = Arc::new(config);
        let end = |listens: bool| {
            let config = Arc::clone(&config);
            if listens {
                Connection::listen(config, Seq(4_294_960_000), Instant::ZERO)
            } else {
                Connection::connect(config, Seq(7), Instant::ZERO)
            }
        };
        let twins = |listens| Twins([end(listens), end(listens)]);
        Self {
            ends: [twins(false), twins(true)],
            under_way: Vec::new(),
            fates,
            sent: 0,
            now: Instant::ZERO,
        }
    }

    fn send(&mut self) {
        for (from, end) in self.ends.iter_mut().enumerate() {
            for segment in end.drain(self.now) {
                let fate = self.fates.get(self.sent % self.fates.len().max(1)).copied();
                self.sent += 1;
                let late = match fate.unwrap_or(u8::MAX) {
                    // Lost; overtaken by others; in order.
                    0..8 => continue,
                    8..20 => 60,
                    _ => 50,
                };
                let at = self.now + Duration::from_millis(late);
                self.under_way.push((at, 1 - from, segment));
            }
        }
    }

    /// The next arrival or timer; `false` where there is none.
    fn step(&mut self) -> bool {
        self.send();
        let timers = self.ends.iter().filter_map(|end| end.0[0].deadline());
        let timer = timers.min().unwrap_or(Instant::MAX);
        let first = (0..self.under_way.len()).min_by_key(|&i| (self.under_way[i].0, i));
        let arrival = first.map_or(Instant::MAX, |i| self.under_way[i].0);
        self.now = self.now.max(timer.min(arrival));
        if let Some(i) = first.filter(|_| arrival <= timer) {
            let (_, to, segment) = self.under_way.remove(i);
            self.ends[to].input(&segment, self.now);
        } else if timer == Instant::MAX {
            return false;
        } else {
            let now = self.now;
            let due = |end: &&mut Twins| end.0[0].deadline().is_some_and(|at| at <= now);
            let ends = self.ends.iter_mut().filter(due);
            ends.for_each(|end| end.each(|end| end.timeout(now)));
        }
        true
    }
}

proptest! {
    /// Whatever is lost or overtaken, in both directions, with bytes that are real or but counted.
    #[test]
    fn nothing_but_the_count_of_them_tells_predicted_segments(
        fates in prop::collection::vec(any::<u8>(), 1..60),
        ns2 in any::<bool>(),
        rack in any::<bool>(),
        real in any::<bool>(),
        pieces in prop::collection::vec((any::<bool>(), 1usize..40_000), 1..12),
    ) {
        let mut config = if ns2 { Config::ns2() } else { Config::rfc() };
        if rack {
            config.recovery = bentpipe_tcp::recovery::find("prr-rack").expect("it is in the registry");
        }
        config.receive_buffer = bentpipe_base::Bytes(60_000);
        let mut world = World::new(config, fates);
        let mut pieces = pieces.into_iter();
        for step in 0..3000 {
            if step % 40 == 0 && let Some((side, len)) = pieces.next() {
                world.ends[usize::from(side)].each(|end| {
                    if real {
                            end.write(&vec![side.into(); len]);
                        } else {
                            end.write_virtual(len as u64);
                        }
                });
            }
            if step % 7 == 0 {
                world.ends.iter_mut().for_each(|end| end.each(|end| {
                    end.consume(9000);
                }));
            }
            if !world.step() {
                break;
            }
        }
    }
}

#[test]
fn of_a_transfer_by_the_rfcs_nearly_all_segments_are_predicted_on_both_sides() {
    let bytes: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut world = World::new(Config::rfc(), Vec::new());
    world.ends[0].each(|end| assert_eq!(end.write(&bytes), bytes.len()));
    let mut arrived = Vec::new();
    while world.step() {
        let before = arrived.len();
        world.ends[1].each(|end| {
            arrived.truncate(before);
            while let Some(bytes) = end.read_bytes(usize::MAX) {
                arrived.extend_from_slice(&bytes);
            }
            assert_eq!(end.readable(), 0);
        });
    }
    assert!(arrived == bytes);
    for end in &world.ends {
        let counters = end.0[0].counters();
        let share = counters.predicted as f64 / counters.segments_received as f64;
        assert!(share > 0.98, "{share}");
    }
}
