//! Measures and time-sequence lines of a real run of the simulator, against closed forms.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_scenario::Scenario;
use bentpipe_study::{MEASURES, simulate, time_sequence};

const TEXT: &str = r#"name = "two"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "10Mbit/s"
delay = "10ms"
[[flows]]
name = "f"
count = 2
from = "a"
to = "b"
bytes = "1460kB"
"#;

#[test]
fn a_loss_free_pair_of_flows_is_measured() {
    let scenario = Scenario::parse("two.toml", TEXT).unwrap_or_else(|e| panic!("{e}"));
    let measures = simulate(&scenario).unwrap();
    let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
    assert!(measures.keys().all(|name| names.contains(&name.as_str())));
    // Two megabytes and a bit at 10 Mbit/s, headers and slow start included.
    let least = 2.0 * 1_460_000.0 * 8.0 / 10e6;
    let completion = measures["completion"];
    assert!((least..least * 1.2).contains(&completion), "{completion} s");
    assert!(
        measures["goodput"] < 10.0 && measures["goodput"] > 8.0,
        "{measures:?}"
    );
    assert!(
        measures["jain"] > 0.9 && measures["jain"] <= 1.0,
        "{measures:?}"
    );
    assert_eq!((measures["corrupted"], measures["timeouts"]), (0.0, 0.0));
}

#[test]
fn a_line_rises_to_what_was_sent() {
    let scenario = Scenario::parse("two.toml", TEXT).unwrap();
    let line = time_sequence(&scenario).unwrap();
    assert!(line.is_sorted_by(|(t, y), (u, z)| t <= u && y < z));
    let flows = simulate(&scenario).unwrap();
    let (end, segments) = line.last().unwrap();
    assert!(*end <= flows["completion"]);
    assert!(
        (segments.ceil() * 2.0 - flows["segments"]).abs() < 1e-9,
        "{segments}"
    );
}
