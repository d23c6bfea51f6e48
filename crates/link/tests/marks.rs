//! Queues that mark packets in place of dropping them (RFC 3168).

mod common;

use bentpipe_base::{Bytes, DropCause, Fact, Instant, Stream};
use bentpipe_link::keys::{Value, Values};
use bentpipe_link::queue::{self, Discipline, LinkInfo};
use bentpipe_link::{Direction, Limit, Mark, Queue, Settings};
use common::{Log, at};

/// A packet that may be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Markable {
    capable: bool,
    marked: bool,
}

impl Mark for Markable {
    fn is_capable(&self) -> bool {
        self.capable
    }

    fn mark(&mut self) {
        self.marked = true;
    }
}

const fn packet(capable: bool) -> Markable {
    Markable {
        capable,
        marked: false,
    }
}

const KINDS: [&str; 4] = ["red", "red-ns2", "red-linux", "blue"];

/// A queue of `kind` of at most 60 packets, of which one of RED follows its length at once; BLUE learns fast.
fn made(kind: &str, ecn: bool) -> Discipline<Markable> {
    let spec = queue::find(kind).expect("it is in the registry");
    let mut said = match kind {
        "blue" => vec![("freeze", Value::Time(core::time::Duration::from_nanos(1)))],
        _ => vec![
            ("min_threshold", Value::Length(5)),
            ("max_threshold", Value::Length(15)),
            ("weight", Value::Number(1.0)),
        ],
    };
    if kind == "blue" {
        let chance = common::probability(0.25);
        said.push(("increment", Value::Chance(chance)));
    }
    if ecn {
        said.push(("ecn", Value::Flag(true)));
    }
    let values = Values::complete(spec.keys, &said).expect("they are its keys");
    let link = LinkInfo {
        rate: None,
        mtu: Bytes(1500),
    };
    queue::build(&spec, Limit::Packets(60), &values, &link).expect("it can be")
}

/// What becomes of `offers` packets that come to a queue held at `held`, each with whether it was marked; `None`: dropped.
fn steady(
    queue: &mut Discipline<Markable>,
    held: usize,
    capable: bool,
    offers: usize,
) -> Vec<Option<bool>> {
    let mut draw = Stream::new(11, "steady");
    let mut tick = 0;
    while queue.len() < held {
        tick += 10;
        let _ = queue.push(packet(false), Bytes(1000), at(tick), &mut draw);
    }
    let mut fates = Vec::new();
    for _ in 0..offers {
        tick += 10;
        let marked = queue.marked();
        let taken = queue
            .push(packet(capable), Bytes(1000), at(tick), &mut draw)
            .is_ok();
        fates.push(taken.then_some(queue.marked() > marked));
        if taken {
            queue.pop(at(tick));
        }
    }
    fates
}

#[test]
fn what_would_be_dropped_at_random_is_marked_and_nothing_else() {
    for kind in KINDS {
        // BLUE learns by overflow.
        let held = if kind == "blue" { 60 } else { 10 };
        let dropped = steady(&mut made(kind, false), held, true, 2_000);
        let incapable = steady(&mut made(kind, true), held, false, 2_000);
        let marked = steady(&mut made(kind, true), held, true, 2_000);
        assert_eq!(dropped, incapable, "{kind}");
        assert!(dropped.contains(&None), "{kind}");
        if kind == "blue" {
            // It is full: what is not marked has no room either.
            continue;
        }
        let expected: Vec<_> = { dropped.iter() }
            .map(|fate| fate.map_or(Some(true), |_| Some(false)))
            .collect();
        assert_eq!(marked, expected, "{kind}");
    }
}

#[test]
fn blue_marks_as_often_as_it_would_drop() {
    let [mut drops, mut marks] = [false, true].map(|ecn| made("blue", ecn));
    for queue in [&mut drops, &mut marks] {
        // Two overflows: p = 1/2.
        let mut draw = Stream::new(1, "overflow");
        let mut tick = 0;
        while queue.len() < 60 {
            tick += 10;
            let _ = queue.push(packet(false), Bytes(1000), at(tick), &mut draw);
        }
        for tick in [2_000, 2_010] {
            let _ = queue.push(
                packet(false),
                Bytes(1000),
                at(tick),
                &mut Stream::new(3, "x"),
            );
        }
        // Room again; the link is never idle.
        for _ in 0..30 {
            queue.pop(at(2_020));
        }
    }
    let fate = |queue: &mut Discipline<Markable>| -> Vec<_> {
        let mut draw = Stream::new(7, "fates");
        (0..25)
            .map(|_| {
                let marked = queue.marked();
                let taken = queue
                    .push(packet(true), Bytes(1000), at(2_030), &mut draw)
                    .is_ok();
                (taken, queue.marked() > marked)
            })
            .collect()
    };
    let (dropped, marked) = (fate(&mut drops), fate(&mut marks));
    assert!(dropped.contains(&(false, false)) && dropped.contains(&(true, false)));
    let expected: Vec<_> = dropped.iter().map(|(taken, _)| (true, !taken)).collect();
    assert_eq!(marked, expected);
}

/// RFC 3168, section 7: beyond the upper threshold marks would say too little. Linux marks there, too.
#[test]
fn beyond_the_upper_threshold_packets_are_dropped() {
    for kind in KINDS.into_iter().filter(|kind| *kind != "blue") {
        let mut queue = made(kind, true);
        if kind == "red-linux" {
            // It is never gentle: what it does not mark does not come in.
            let mut draw = Stream::new(2, "linux");
            while queue.len() < 20 {
                let _ = queue.push(packet(true), Bytes(1000), at(0), &mut draw);
            }
        }
        let fates = steady(&mut queue, 20, true, 200);
        if kind == "red-linux" {
            assert!(fates.iter().all(|fate| *fate == Some(true)), "{fates:?}");
        } else {
            assert!(
                fates.contains(&None) && !fates.contains(&Some(true)),
                "{kind}: {fates:?}"
            );
        }
    }
}

#[test]
fn a_full_queue_drops_what_it_cannot_hold() {
    for kind in KINDS {
        let mut queue = made(kind, true);
        let mut draw = Stream::new(5, "full");
        let mut tick = 0;
        for _ in 0..2_000 {
            tick += 10;
            let _ = queue.push(packet(true), Bytes(1000), at(tick), &mut draw);
        }
        assert!(queue.len() <= 60, "{kind}");
        let mut marked = 0;
        while let Some(waiting) = queue.pop(at(tick)) {
            marked += u64::from(waiting.packet.marked);
        }
        assert_eq!(
            queue.marked(),
            marked,
            "{kind}: marks of what was dropped do not count"
        );
    }
}

#[test]
fn a_direction_tells_of_marks() {
    let settings = Settings {
        rate: Some(bentpipe_base::Rate::from_bits_per_sec(8_000_000)),
        queue: made("red", true),
        ..Settings::default()
    };
    let mut direction = Direction::new(settings, 1, "test", Log::default());
    direction.begin(Instant::ZERO);
    // Held between the thresholds: each departure makes room for one.
    let (mut sent, mut marked) = (0, 0);
    for millisecond in 0..2_000 {
        let now = at(millisecond * 1_000_000);
        let wanted = if millisecond == 0 { 10 } else { 1 };
        for _ in 0..wanted {
            sent += 1;
            direction.push(packet(true), Bytes(1000), now);
        }
        while let Some((_, packet)) = direction.deliver(now) {
            marked += usize::from(packet.marked);
        }
    }
    while let Some((_, packet)) = direction.deliver(at(10_000_000_000)) {
        marked += usize::from(packet.marked);
    }
    let told = { direction.observer().0.iter() }
        .filter(|(_, fact)| matches!(fact, Fact::Marked { size: Bytes(1000) }))
        .count();
    assert!(marked > 20, "{marked} of {sent}");
    assert_eq!(
        (marked, direction.observer().drops(DropCause::Queue)),
        (told, 0)
    );
}
