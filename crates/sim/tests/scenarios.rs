//! The scenarios that come with the program, and what the simulator says where it has to refuse.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Options, Status, run};

fn refusal(text: &str) -> String {
    run(&common::parse(text), &Options::default())
        .unwrap_err()
        .to_string()
}

/// One file runs in the lab and here.
#[test]
fn the_geostationary_download_runs() {
    let text = include_str!("../../../scenarios/geo.toml");
    let scenario = Scenario::parse("geo.toml", text).unwrap();
    let outcome = run(&scenario, &Options::default()).unwrap();
    let flow = &outcome.flows[0];
    assert_eq!(flow.status, Status::Finished);
    assert_eq!(flow.elapsed.as_secs(), 30);
    // 1% loss at 600 ms: the formula of Mathis et al., mss/RTT * 1.22/sqrt(p), gives 0.24 Mb/s for
    // Reno; the kernel's CUBIC reached 0.44. The limit of the link is 9.5.
    let mbps = flow.goodput.mbps();
    assert!((0.15..1.2).contains(&mbps), "{mbps}");
    assert!((flow.limit.unwrap().mbps() - 9.557).abs() < 0.01);
}

#[test]
fn a_split_is_refused_with_the_way_out() {
    let said = refusal(include_str!("../../../scenarios/split.toml"));
    assert!(
        said.contains("`hub`") && said.contains("bentpipe lab run"),
        "{said}"
    );
}

#[test]
fn a_control_of_the_kernel_alone_is_refused_with_those_there_are() {
    let said = refusal(include_str!("../../../scenarios/asymmetric6.toml"));
    assert!(
        said.contains("`bbr`") && said.contains("`second`"),
        "{said}"
    );
    assert!(said.contains("hybla") && said.contains("reno"), "{said}");
}

#[test]
fn segments_longer_than_the_path_takes_are_refused() {
    let mut scenario = common::paper("sack", 10, "0", "");
    for host in scenario.hosts.values_mut() {
        host.endpoint.mss = Some(bentpipe_base::Bytes(1490));
    }
    let said = run(&scenario, &Options::default()).unwrap_err().to_string();
    assert!(said.contains("1506B") && said.contains("1500B"), "{said}");
}

#[test]
fn ends_that_cannot_talk_are_refused() {
    let mut scenario = common::paper("sack", 10, "0", "");
    scenario.hosts.get_mut("a").unwrap().endpoint = Default::default();
    let said = run(&scenario, &Options::default()).unwrap_err().to_string();
    assert!(said.contains("preset"), "{said}");
}
