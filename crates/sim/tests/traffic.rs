//! Cross traffic, and the topology of Ishac and Allman beside ns-2.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_link::keys::Value;
use bentpipe_outcome::Run;
use bentpipe_scenario::{Amount, Channel, Scenario, TrafficSource};
use bentpipe_sim::{Options, run};

fn scenario(segments: u64, flows: usize) -> Scenario {
    let text = include_str!("../../../papers/ishac-allman-2001/scenario.toml");
    // What follows makes a study of it.
    let (text, _) = text.split_once("[[sweep]]").unwrap();
    let mut scenario = Scenario::parse("scenario.toml", text).unwrap();
    scenario.flows[0].amount = Amount::Segments(segments);
    let source = &mut scenario.traffic.as_mut().unwrap().source;
    if let TrafficSource::Model { flows: count, .. } = source {
        *count = flows;
    }
    scenario
}

fn paper(segments: u64, flows: usize, options: &Options) -> Run {
    run(&scenario(segments, flows), options).unwrap()
}

/// As the study sets its mode.
fn spoofed(segments: u64) -> Scenario {
    let mut scenario = scenario(segments, 0);
    for gateway in scenario.gateways.values_mut() {
        gateway.enabled = true;
    }
    for host in ["h1", "h5"] {
        let host = scenario.hosts.get_mut(host).unwrap();
        host.endpoint.first_is_syn = Some(true);
    }
    scenario
}

/// Times and drops (Internet, satellite) of the ns-2 reference runs without cross traffic.
#[test]
fn an_empty_network_gives_the_times_of_ns2() {
    let regular = [
        (1, 1.398378, 1.078789, [0, 0]),
        (15, 3.507980, 3.188391, [0, 0]),
        (100, 6.304782, 5.985193, [0, 0]),
        (400, 10.584644, 10.265055, [13, 0]),
        (1000, 19.246252, 18.926663, [13, 0]),
        (2000, 31.235863, 30.916274, [13, 0]),
    ];
    for (segments, sender, receiver, drops) in regular {
        let run = paper(segments, 0, &Options::default());
        near(&run, [sender, receiver], 2e-6, drops);
    }
    // ns-2 takes the data over the Ethernet to h2 and back.
    let spoofed = [
        (1, 0.790690, 0.980062, [0, 0]),
        (10, 1.325133, 2.232680, [0, 0]),
        (40, 1.742803, 3.725748, [0, 0]),
        (400, 4.917075, 9.327737, [19, 8]),
    ];
    for (segments, sender, receiver, drops) in spoofed {
        let run = run(&self::spoofed(segments), &Options::default()).unwrap();
        near(&run, [sender, receiver], 0.03, drops);
    }
}

/// In the reference the set-up is an exchange of another connection: where the data's first segment is lost,
/// nothing is known of the round trip, and the timeout is the initial one, 3 s.
#[test]
fn the_set_up_of_a_spoofed_transfer_tells_the_timeout_nothing() {
    let mut scenario = spoofed(1);
    let internet = scenario.links.get_mut("internet").unwrap();
    // Behind the SYN; it bears the acknowledgement of the answer.
    let drops = [("drops", Value::Numbers(vec![1]))];
    let drops = Channel::new("drops", &drops).unwrap();
    internet.forward.channels.add(drops);
    let run = run(&scenario, &Options::default()).unwrap();
    assert_eq!(run.flows[0].timeouts, Some(1));
    near(&run, [3.790690, 3.980062], 0.03, [0, 0]);
}

/// Its second transfer would never arrive.
#[test]
fn traffic_without_handshakes_does_not_cross_a_split() {
    let crossing = |handshake| {
        let mut scenario = spoofed(10);
        let traffic = scenario.traffic.as_mut().unwrap();
        traffic.between = ["h4".to_owned(), "h1".to_owned()];
        for host in scenario.hosts.values_mut() {
            host.endpoint.handshake = Some(handshake);
        }
        run(&scenario, &Options::default())
    };
    assert!(crossing(true).is_ok());
    let refused = crossing(false).unwrap_err().to_string();
    assert!(
        refused.contains("gateway `r2`") && refused.contains("`handshake = true`"),
        "{refused}"
    );
}

/// Both sides' times are those of `expected` but for `off` seconds, and so are the drops.
fn near(run: &Run, expected: [f64; 2], off: f64, drops: [u64; 2]) {
    let flow = &run.flows[0];
    let times = [flow.acknowledged.unwrap(), flow.final_ack.unwrap()];
    for (ours, theirs) in times.into_iter().zip(expected) {
        let ours = ours.as_secs_f64();
        assert!((ours - theirs).abs() < off, "{ours}, ns-2 {theirs}");
    }
    let dropped = ["internet", "satellite"].map(|name| {
        let on = run.links.iter().filter(|link| link.link == name);
        on.filter_map(|link| link.refused_data).sum::<u64>()
    });
    assert_eq!(dropped, drops, "{expected:?}");
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
