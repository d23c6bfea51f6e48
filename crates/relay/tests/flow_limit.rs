//! What threads share of the number of flows, in every order that the memory model allows (loom): the source itself,
//! with loom's atomics in the place of the standard library's.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "not all of the module is tried, and here it is no part of a library; a test fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering, fence};
}
#[path = "../src/flow_limit.rs"]
mod flow_limit;

use flow_limit::{FlowBounds, FlowCounter};
use loom::sync::Arc;
use loom::thread;

fn bounds(suspend: usize, resume: usize) -> FlowBounds {
    FlowBounds {
        suspend,
        resume,
        hard: suspend + 10,
    }
}

/// Two flows begin while the bound is lowered: somebody sees that it is met.
#[test]
fn a_bound_that_is_lowered_while_flows_begin_is_met() {
    loom::model(|| {
        let room = Arc::new(FlowCounter::new(bounds(10, 5)));
        let begin = |room: &Arc<FlowCounter>| {
            let room = Arc::clone(room);
            thread::spawn(move || room.began())
        };
        let workers = [begin(&room), begin(&room)];
        room.set(bounds(2, 1));
        let seen = room.is_met();
        let told = workers.map(|worker| worker.join().unwrap());
        assert!(seen || told.contains(&true), "nobody sees two of two flows");
    });
}

/// A flow ends while the bound is raised: somebody sees that there is room again.
#[test]
fn a_bound_that_is_raised_while_a_flow_ends_is_left() {
    loom::model(|| {
        let room = Arc::new(FlowCounter::new(bounds(2, 0)));
        room.began();
        room.began();
        let worker = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.ended().resumes)
        };
        room.set(bounds(2, 1));
        let seen = room.is_left();
        let told = worker.join().unwrap();
        assert!(seen || told, "nobody sees one of two flows");
    });
}

/// Of flows that begin and end at once none is counted twice or forgotten.
#[test]
fn every_flow_is_counted_once() {
    loom::model(|| {
        let room = Arc::new(FlowCounter::new(bounds(2, 1)));
        let worker = {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                let met = room.began();
                room.ended();
                met
            })
        };
        let met = room.began();
        let other = worker.join().unwrap();
        assert_eq!(room.flows(), 1);
        assert!(!(met && other), "one of both is the second");
    });
}
