//! Cross traffic, and the topology of Ishac and Allman beside ns-2.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_scenario::{Amount, Scenario, TrafficSource};
use bentpipe_sim::{Options, Outcome, run};

fn paper(segments: u64, flows: usize, options: &Options) -> Outcome {
    let text = include_str!("../../../papers/ishac-allman-2001/scenario.toml");
    // What follows makes a study of it.
    let (text, _) = text.split_once("[[sweep]]").unwrap();
    let mut scenario = Scenario::parse("scenario.toml", text).unwrap();
    scenario.flows[0].amount = Amount::Segments(segments);
    let source = &mut scenario.traffic.as_mut().unwrap().source;
    if let TrafficSource::Model { flows: count, .. } = source {
        *count = flows;
    }
    run(&scenario, options).unwrap()
}

/// Times of the ns-2 reference runs without cross traffic, of the regular mode.
#[test]
fn an_empty_network_gives_the_times_of_ns2() {
    let reference = [
        (1, 1.398378, 1.078789, 0),
        (15, 3.507980, 3.188391, 0),
        (100, 6.304782, 5.985193, 0),
        (400, 10.584644, 10.265055, 13),
    ];
    for (segments, sender, receiver, drops) in reference {
        let run = paper(segments, 0, &Options::default());
        let flow = &run.flows[0];
        let (ack, last) = (flow.acknowledged.unwrap(), flow.final_ack.unwrap());
        assert!(
            (ack.as_secs_f64() - sender).abs() < 2e-6,
            "{segments}: {ack:?}"
        );
        assert!(
            (last.as_secs_f64() - receiver).abs() < 2e-6,
            "{segments}: {last:?}"
        );
        let refused: u64 = run.links.iter().map(|link| link.refused_data).sum();
        assert_eq!(refused, drops, "{segments}");
    }
}

#[test]
fn traffic_follows_from_the_seed_and_survives_the_wire() {
    let options = |seed, wire| Options {
        seed: Some(seed),
        wire,
    };
    let first = paper(40, 50, &options(3, false));
    assert_eq!(first, paper(40, 50, &options(3, false)));
    assert_ne!(first.links, paper(40, 50, &options(4, false)).links);
    assert_eq!(first.links, paper(40, 50, &options(3, true)).links);
    // Only the flow of interest is reported, and it is slowed down.
    assert_eq!(first.flows.len(), 1);
}

/// Nothing to send is a set-up and nothing more.
#[test]
fn no_segments_are_a_set_up() {
    let run = paper(0, 0, &Options::default());
    let flow = &run.flows[0];
    assert_eq!(flow.final_ack, None);
    assert_eq!(flow.acknowledged, flow.connect);
}
