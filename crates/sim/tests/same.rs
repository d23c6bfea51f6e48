//! Equal scenarios and seeds give equal results, however they are run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_outcome::{Look, Run};
use bentpipe_scenario::{Known, Scenario};
use bentpipe_sim::{Live, Options, observe, run};
use common::{mixture, paper};
use std::ops::ControlFlow;
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

/// Who looks at the links meanwhile changes nothing, whatever the queues; each look is 100 ms after the one before.
#[test]
fn a_run_that_is_watched_has_the_same_result() {
    let text = include_str!("../../../scenarios/links.toml");
    let (base, _) = text.split_once("[[sweep]]").unwrap();
    let queues = [
        "{ kind = \"red\", packets = 200, min_threshold = 5, max_threshold = 30, weight = 0.002 }",
        "{ kind = \"red-ns2\", packets = 200, min_threshold = 5, max_threshold = 30, weight = 0.002 }",
        "{ kind = \"red-linux\", bytes = \"250kB\", min_threshold = \"8kB\", max_threshold = \"45kB\", weight = 0.002 }",
        "{ kind = \"blue\", packets = 83, increment = \"0.25%\", decrement = \"0.025%\" }",
    ];
    let queues = queues.map(|queue| {
        let settings = [("links.space.queue", queue)];
        Scenario::parse_setting("links.toml", base, &settings, Known::default()).unwrap()
    });
    let others = [mixture(4), mixture(6), paper("reno", 60, "1e-6", "")];
    for scenario in others.into_iter().chain(queues) {
        let mut looks: Vec<Look> = Vec::new();
        let live = Live::new(&scenario, |look: &Look| {
            looks.push(look.clone());
            ControlFlow::Continue(())
        });
        let (watched, _) = observe(&scenario, &seeded(1), live).unwrap();
        assert_eq!(watched, run(&scenario, &seeded(1)).unwrap());
        let times: Vec<u128> = looks.iter().map(|look| look.at.as_millis()).collect();
        let all: Vec<u128> = (0..=watched.elapsed.as_millis() / 100)
            .map(|look| 100 * look)
            .collect();
        assert_eq!(times, all);
        let last = looks.last().unwrap();
        for (flow, look) in watched.flows.iter().zip(&last.flows) {
            assert!(
                look.received <= flow.received && look.received.0 * 10 > flow.received.0 * 9,
                "{}",
                flow.name
            );
        }
        for (link, look) in watched.links.iter().zip(&last.links) {
            assert!(
                look.dropped_packets
                    <= link.refused + link.corrupted + link.lost + link.struck_before_queue
            );
        }
        let waited = looks
            .iter()
            .flat_map(|look| &look.links)
            .map(|link| link.waiting_packets);
        let longest = watched
            .links
            .iter()
            .filter_map(|link| link.longest_queue)
            .max();
        assert!((1..=longest.unwrap_or(0)).contains(&waited.max().unwrap()));
    }
}

/// Behind a split the source's window says little; the gateway's own TCP is looked at, too.
#[test]
fn a_gateway_that_splits_is_seen_by_its_own_tcp() {
    let text = include_str!("../../../scenarios/split.toml");
    let scenario = Scenario::parse("split.toml", text).unwrap();
    let outline = bentpipe_sim::outline(&scenario, 1);
    let mut looks: Vec<Look> = Vec::new();
    let live = Live::new(&scenario, |look: &Look| {
        looks.push(look.clone());
        ControlFlow::Continue(())
    });
    let (run, _) = observe(&scenario, &seeded(1), live).unwrap();
    let last = looks.last().unwrap();
    let split: Vec<_> = run
        .flows
        .iter()
        .flat_map(|flow| flow.gateways.iter().map(|leg| (&flow.name, leg)))
        .collect();
    assert!(!split.is_empty());
    for (flow, counted) in split {
        let names = outline.legs.iter();
        let mut names = names.zip(&last.legs);
        let (_, leg) = names
            .find(|(name, _)| (&name.flow, &name.gateway) == (flow, &counted.gateway))
            .unwrap();
        let again = leg.segments_again.unwrap();
        assert!(again <= counted.segments_again, "{flow}");
        assert!(
            leg.cwnd.unwrap() > 1.0 && leg.srtt.unwrap().as_millis() > 400,
            "{flow}: {leg:?}"
        );
    }
}

#[test]
fn a_run_whose_watcher_goes_is_over() {
    let scenario = mixture(4);
    let mut looks = 0;
    let live = Live::new(&scenario, |_: &Look| {
        looks += 1;
        if looks < 3 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let (cut, _) = observe(&scenario, &seeded(1), live).unwrap();
    assert_eq!((looks, cut.elapsed.as_millis() < 300), (3, true));
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
