//! A scenario's pair of gateways with QUIC between them, in the lab: as processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_lab::{Measured, RunOptions, run};
use bentpipe_os::need;
use bentpipe_os::sweep::sweep;
use bentpipe_outcome::End;
use bentpipe_scenario::Scenario;
use std::time::Duration;

/// The example over 100 ms, 1% lost, with forward error correction, after some more replacements in its text; none may miss.
fn lab(replacements: &[(&str, &str)]) -> Measured {
    let text = include_str!("../../../scenarios/quic-pair.toml");
    let mut text = text.split("[[sweep]]").next().unwrap().to_owned();
    let usual = [
        ("\"off\"", "\"10%\""),
        ("300ms", "50ms"),
        ("\"0%\"", "\"1%\""),
        ("30s", "5s"),
    ];
    for (what, with) in usual.iter().chain(replacements) {
        assert!(text.contains(what), "{what} is not in the scenario");
        text = text.replace(what, with);
    }
    let scenario = Scenario::parse_knowing(
        "test",
        &text,
        bentpipe_scenario::Known {
            apps: &bentpipe_lab::app_names(),
            ..bentpipe_scenario::Known::default()
        },
    );
    let scenario = scenario.unwrap_or_else(|problems| panic!("{problems}"));
    let options = RunOptions {
        program: Some(env!("CARGO_BIN_EXE_bentpipe").into()),
        lateness_limit: Some(Duration::from_millis(50)),
        ..RunOptions::default()
    };
    let result = run(&scenario, &options).unwrap_or_else(|error| panic!("{error}"));
    let measured = result.measured();
    let measured = measured.unwrap_or_else(|reasons| panic!("no result: {reasons:?}"));
    for flow in &measured.flows {
        assert_eq!(flow.end, End::Finished, "{}", flow.name);
    }
    measured.clone()
}

/// With keys made for the run: a download has what the link carries of payload, both ends tell of its tunnels, and nothing is left.
#[test]
fn a_pair_carries_fetches_and_a_download() {
    need!(Root, Tun);
    let measured = lab(&[]);
    for fetch in &measured.flows[..3] {
        let took = fetch.completion.unwrap();
        assert!(
            took < Duration::from_millis(500),
            "{}: {took:?}",
            fetch.name
        );
    }
    let download = measured.flows[3].goodput().mbps();
    assert!((6.5..8.9).contains(&download), "{download}");
    let [near, far] = ["near", "far"].map(|end| &measured.counters[end]);
    assert_eq!((near["tunnels_opened"], far["opened"]), (4, 4));
    assert!(far["fec_repairs"] > 200, "{far:?}");
    let left = sweep().to_string();
    assert!(!left.contains("keys"), "{left}");
}

/// A real client program, over IPv6.
#[test]
fn programs_go_through_a_pair() {
    need!(Root, Tun, Program("nginx"), Program("curl"));
    let measured = lab(&[
        ("seed = 1", "seed = 1\nip = 6"),
        (
            "opened_by = \"client\"\nbytes = \"100kB\"",
            "opened_by = \"client\"\nbytes = \"100kB\"\napp = \"http\"",
        ),
    ]);
    assert_eq!(measured.counters["near"]["tunnels_opened"], 4);
}
