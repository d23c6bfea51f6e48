//! A scenario's pair of gateways with QUIC between them, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::Bytes;
use bentpipe_outcome::{End, Run};
use bentpipe_pair::{run, run_traced, simulate};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Options;
use std::time::Duration;

const PAIR: &str = include_str!("../../../scenarios/quic-pair.toml");

/// The example with other values, of which each must occur.
fn example(changes: &[(&str, &str)]) -> Scenario {
    let mut text = PAIR.split("[[sweep]]").next().unwrap().to_owned();
    for (right, other) in changes {
        assert!(text.contains(right), "{right:?} must occur");
        text = text.replace(right, other);
    }
    Scenario::parse("quic-pair.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn simulated(scenario: &Scenario) -> Run {
    let run = run(scenario, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    run.expect("it has a pair")
}

/// From the SYN on a fetch takes a round trip and its passage; a download has what a link of 10 Mbit/s carries of payload, from the
/// second round trip on.
#[test]
fn a_pair_carries_at_the_links_rate_from_the_first_round_trip() {
    let run = simulated(&example(&[]));
    for flow in &run.flows {
        assert_eq!(flow.end, End::Finished, "{}", flow.name);
        assert_eq!(
            flow.connect,
            Some(Duration::ZERO),
            "SYNs are answered early"
        );
    }
    for fetch in &run.flows[..3] {
        let took = fetch.completion.unwrap().as_secs_f64();
        assert!((0.68..0.72).contains(&took), "{}: {took}", fetch.name);
        assert_eq!(fetch.received, Bytes(100_000));
    }
    let download = run.flows[3].goodput().mbps();
    assert!((9.2..9.66).contains(&download), "{download}");
    let [down, up] = [0, 1].map(|way| &run.links[way]);
    assert_eq!((down.from.as_str(), up.from.as_str()), ("far", "near"));
    assert!(
        down.packets > 23_000 && up.packets > 5_000,
        "{down:?} {up:?}"
    );
    assert_eq!((down.lost, down.refused), (0, 0));
}

/// With 10% of repairs and 1% lost fetches take as long as without losses.
#[test]
fn forward_error_correction_of_a_scenario_spares_round_trips() {
    let lossy = ("packet_error_rate = \"0%\"", "packet_error_rate = \"1%\"");
    let fec = ("fec = \"off\"", "fec = \"10%\"");
    let run = simulated(&example(&[lossy, fec]));
    for fetch in &run.flows[..3] {
        let took = fetch.completion.unwrap().as_secs_f64();
        assert!((0.68..0.78).contains(&took), "{}: {took}", fetch.name);
    }
    let far = run
        .proxies
        .iter()
        .find(|proxy| proxy.name == "far")
        .unwrap();
    let repairs = far.counters.iter().find(|(name, _)| *name == "fec_repairs");
    assert!(repairs.unwrap().1 > 2_000, "{far:?}");
    let download = run.flows[3].goodput().mbps();
    assert!((8.0..8.8).contains(&download), "{download}");
}

/// Uploads, and the wait for the far end's dial.
#[test]
fn an_upload_waits_for_the_dial_where_the_handshake_is_end_to_end() {
    let upload = (
        "from = \"server\"\nto = \"client\"",
        "from = \"client\"\nto = \"server\"",
    );
    let late = (
        "proxy = \"far\"",
        "handshake = \"end-to-end\"\nproxy = \"far\"",
    );
    for (changes, connect, least) in [(&[upload][..], 0.0, 0.38), (&[upload, late], 0.6, 0.98)] {
        let run = simulated(&example(changes));
        let fetch = &run.flows[0];
        let took = fetch.completion.unwrap().as_secs_f64();
        let connected = fetch.connect.unwrap().as_secs_f64();
        assert!((connected - connect).abs() < 0.01, "{connected}");
        assert!((least..least + 0.04).contains(&took), "{took}");
    }
}

/// Times and lengths of all packets; their bytes differ, for the keys do.
#[test]
fn one_seed_has_one_trace() {
    let lossy = ("packet_error_rate = \"0%\"", "packet_error_rate = \"2%\"");
    let fec = ("fec = \"off\"", "fec = \"10%\"");
    let short = ("duration = \"30s\"", "duration = \"5s\"");
    for changes in [&[lossy, short][..], &[lossy, fec, short]] {
        let scenario = example(changes);
        let traced = |seed| {
            let options = Options {
                seed: Some(seed),
                ..Options::default()
            };
            run_traced(&scenario, &options).unwrap().unwrap()
        };
        let (once, again, other) = (traced(7), traced(7), traced(8));
        assert!(once.1.len() > 4_000);
        assert!(once == again, "the same seed");
        assert!(once.1 != other.1, "another seed");
    }
}

#[test]
fn what_is_not_simulated_is_told_by_name() {
    let cases = [
        (
            "[links.left]",
            "[links.left]\ndelay = \"1ms\"",
            "link `left`",
        ),
        (
            "opened_by = \"client\"",
            "opened_by = \"server\"",
            "flow `fetch1`",
        ),
        ("duration = \"30s\"", "segments = 30", "flow `download`"),
        ("fec = \"off\"", "fec = \"off\"\nmss = \"1000B\"", "mss"),
    ];
    for (right, other, what) in cases {
        let error = run(&example(&[(right, other)]), &Options::default());
        let error = error.expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
    let gone = example(&[("packet_error_rate = \"0%\"", "packet_error_rate = \"100%\"")]);
    let error = run(&gone, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("within 20 s (no answer came)"), "{error}");
}

/// A study measures it as it does others; who has no such leg is the simulator's.
#[test]
fn studies_measure_it_as_others() {
    let short = ("duration = \"30s\"", "duration = \"5s\"");
    let single = ["goodput(download)".to_owned()];
    let measures = simulate(&example(&[short]), &single).unwrap();
    let goodput = measures.get(&single[0]).copied().flatten();
    assert!(goodput > Some(7.0), "{measures:?}");
    let plain = example(&[
        ("carrier = \"quic\"", ""),
        ("proxy = \"far\"", ""),
        ("fec = \"off\"", ""),
        short,
    ]);
    assert_eq!(run(&plain, &Options::default()).unwrap(), None);
}
