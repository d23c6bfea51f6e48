//! Equal scenarios and seeds give equal results, however they are run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_outcome::Run;
use bentpipe_sim::{Options, run};
use common::{mixture, paper};
use std::thread;

fn seeded(seed: u64) -> Options {
    Options {
        seed: Some(seed),
        ..Options::default()
    }
}

#[test]
fn one_seed_gives_one_result_and_another_seed_another() {
    let scenario = mixture(4);
    let first = run(&scenario, &seeded(1)).unwrap();
    assert_eq!(first, run(&scenario, &seeded(1)).unwrap());
    assert_ne!(first.links, run(&scenario, &seeded(2)).unwrap().links);
}

#[test]
fn any_number_of_threads_gives_the_same_results() {
    let scenario = mixture(4);
    let on = |threads: u64| -> Vec<Run> {
        let mut all: Vec<Run> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|worker| {
                    let scenario = &scenario;
                    scope.spawn(move || {
                        let seeds = (0..8).filter(|seed| seed % threads == worker);
                        seeds
                            .map(|seed| run(scenario, &seeded(seed)).unwrap())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            let results = workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap());
            results.collect()
        });
        all.sort_by_key(|outcome| outcome.seed);
        all
    };
    let one = on(1);
    assert_eq!(one.len(), 8);
    assert_eq!(one, on(2));
    assert_eq!(one, on(4));
}

/// Every packet becomes bytes and is read again at every hop, and the receivers compare the bytes
/// with what was sent.
#[test]
fn packets_as_bytes_give_the_same_results() {
    for scenario in [mixture(4), mixture(6), paper("reno", 60, "1e-6", "")] {
        for seed in 1..4 {
            let wire = Options {
                wire: true,
                ..seeded(seed)
            };
            let (bytes, counted) = common::counted(&scenario, &wire);
            let (plain, plainly_counted) = common::counted(&scenario, &seeded(seed));
            assert_eq!((&bytes, &counted), (&plain, &plainly_counted));
            let moved: u64 = bytes.flows.iter().map(|flow| flow.received.0).sum();
            assert!(moved > 500_000, "{moved}");
        }
    }
}

/// A flow between two more hosts over a link of their own moves no draw of the others.
#[test]
fn what_does_not_meet_does_not_matter() {
    let alone = mixture(4);
    let mut more = alone.clone();
    let extra = common::parse(
        r#"
        name = "extra"
        [hosts.x]
        [hosts.y]
        [links.aside]
        ends = ["x", "y"]
        rate = "1Mbit/s"
        packet_error_rate = "1%"
        [[flows]]
        name = "aside"
        from = "x"
        to = "y"
        bytes = "100kB"
        variant = "sack"
        "#,
    );
    more.hosts.extend(extra.hosts);
    more.links.extend(extra.links);
    more.flows.splice(0..0, extra.flows);
    let alone = run(&alone, &seeded(1)).unwrap();
    let more = run(&more, &seeded(1)).unwrap();
    assert_eq!(more.flows[1..], alone.flows);
    assert!(more.flows[0].received.0 == 100_000);
}
