//! Measures and time-sequence lines of a real run of the simulator, against closed forms.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_outcome::MEASURES;
use bentpipe_scenario::Scenario;
use bentpipe_study::time_sequence;
use std::collections::BTreeMap;

/// The measures of the whole run and those of `single` that have a value.
fn simulate_with(scenario: &Scenario, single: &[&str]) -> BTreeMap<String, f64> {
    let single: Vec<String> = single.iter().map(|name| (*name).to_owned()).collect();
    let all = bentpipe_study::simulate(scenario, &single).unwrap();
    let valued = all
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    valued.collect()
}

fn simulate(scenario: &Scenario) -> BTreeMap<String, f64> {
    simulate_with(
        scenario,
        &["drops(internet)", "drops(satellite)", "drop_rate(internet)"],
    )
}

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
    let measures = simulate(&scenario);
    let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
    assert!(
        measures.keys().all(|name| names.contains(&name.as_str())),
        "{measures:?}"
    );
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
    let flows = simulate(&scenario);
    let (end, segments) = line.last().unwrap();
    assert!(*end <= flows["completion"]);
    assert!(
        (segments.ceil() * 2.0 - flows["segments"]).abs() < 1e-9,
        "{segments}"
    );
}

/// One flow over a fast link `internet` and a slow one, `satellite`; `more` follows.
fn chain(amount: &str, queue: u32, more: &str) -> Scenario {
    chain_with("satellite", amount, queue, more)
}

fn chain_with(slow: &str, amount: &str, queue: u32, more: &str) -> Scenario {
    let fast = if slow == "internet" {
        "ground"
    } else {
        "internet"
    };
    let router = if more.contains("[gateways.r]") {
        ""
    } else {
        "[routers.r]"
    };
    let text = format!(
        r#"name = "chain"
time_limit = "600s"
[hosts.a]
preset = "ns2"
tcp = {{ mss = "1460B", data_header = "40B", ack_header = "40B" }}
[hosts.b]
preset = "ns2"
tcp = {{ mss = "1460B", data_header = "40B", ack_header = "40B" }}
{router}
[links.{fast}]
ends = ["a", "r"]
rate = "12Mbit/s"
delay = "10ms"
queue = {{ packets = 1000 }}
[links.{slow}]
ends = ["r", "b"]
rate = "1200kbit/s"
delay = "100ms"
queue = {{ packets = {queue} }}
[[flows]]
name = "f"
from = "a"
to = "b"
{amount}
{more}
"#
    );
    Scenario::parse("chain.toml", &text).unwrap_or_else(|e| panic!("{e}"))
}

/// A gateway in place of the router, with the paper's buffers.
const SPLIT: &str = r#"[gateways.r]
sat = "satellite"
lan = "internet"
preset = "ns2"
tcp = { mss = "1460B", data_header = "40B", ack_header = "40B" }
[gateways.r.split]
lan = { variant = "sack", send_buffer = "infinite", receive_buffer = "infinite" }
sat = { variant = "sack", send_buffer = "infinite", receive_buffer = "infinite" }
"#;

#[test]
fn both_sides_throughput_of_two_segments_in_closed_form() {
    let measures = simulate(&chain("segments = 2", 1000, ""));
    // Two segments of 12 000 bits, both in the first window: 1 ms for the first on the fast link,
    // 2 times 10 ms on the slow one, 110 ms of delay; then 320 bits back over both links.
    let receiver = 0.001 + 0.020 + 0.110;
    let sender = receiver + 0.110 + 320.0 / 1.2e6 + 320.0 / 12e6;
    for (name, seconds) in [("kbps_receiver", receiver), ("kbps_sender", sender)] {
        let expected = 2.0 * 1460.0 * 8.0 / seconds / 1e3;
        let measured = measures[name];
        assert!(
            (measured / expected - 1.0).abs() < 1e-6,
            "{name}: {measured} {expected}"
        );
    }
    assert_eq!(
        (measures["drops(internet)"], measures["drops(satellite)"]),
        (0.0, 0.0)
    );
    assert_eq!(measures["drop_rate(internet)"], 0.0);
    assert!(!measures.contains_key("held_max_kB"), "there is no split");
}

#[test]
fn what_is_dropped_is_counted_where_it_is() {
    // Nothing is corrupted; slow start overfills a queue of 1 at the slow link, and no other.
    let measures = simulate(&chain("segments = 100", 1, ""));
    assert_eq!(measures["drops(internet)"], 0.0);
    assert!(measures["drops(satellite)"] > 0.0, "{measures:?}");
    assert_eq!(measures["drops(satellite)"], measures["dropped"]);
    // A plain link has neither name.
    let plain = simulate(&Scenario::parse("two.toml", TEXT).unwrap());
    for name in ["drops(internet)", "drops(satellite)", "drop_rate(internet)"] {
        assert!(!plain.contains_key(name), "{name}");
    }
}

#[test]
fn the_drop_rate_counts_both_directions() {
    let mut scenario = chain_with("internet", "segments = 3", 1, "");
    for host in scenario.hosts.values_mut() {
        host.endpoint.initial_window = Some(3);
    }
    let measures = simulate(&scenario);
    // Of three segments at once the third is dropped; it goes again alone, and each of the two
    // arrivals is acknowledged: one of six packets.
    assert_eq!(measures["drops(internet)"], 1.0, "{measures:?}");
    assert!(
        (measures["drop_rate(internet)"] - 100.0 / 6.0).abs() < 1e-9,
        "{measures:?}"
    );
    assert!(!measures.contains_key("drops(satellite)"));
}

#[test]
fn nothing_sent_has_no_throughput() {
    let measures = simulate(&chain("segments = 0", 1000, ""));
    assert!(!measures.contains_key("kbps_sender") && !measures.contains_key("kbps_receiver"));
}

#[test]
fn a_split_holds_what_it_has_acknowledged() {
    let measures = simulate(&chain("segments = 2", 1000, SPLIT));
    // Both segments arrive before the first is acknowledged from beyond 200 ms of satellite.
    assert_eq!(measures["held_max_kB"], 2.0 * 1460.0 / 1000.0);
    assert!(
        measures["kbps_sender"] > 4.0 * measures["kbps_receiver"],
        "{measures:?}"
    );
}

#[test]
fn single_flows_links_and_proxies_are_measured_by_name() {
    let second =
        "[[flows]]\nname = \"g\"\nfrom = \"b\"\nto = \"a\"\nsegments = 50\nstart = \"1s\"\n";
    let scenario = chain("segments = 100", 5, &(second.to_owned() + SPLIT));
    let names = [
        "segments(f)",
        "segments(g)",
        "completion(f)",
        "completion(g)",
        "dropped(internet)",
        "dropped(satellite)",
        "delivered(internet)",
        "delivered(satellite)",
        "mean_queue(satellite)",
        "held_max_kB(r)",
        "segments(h)",
        "drops(space)",
        "local(q)",
    ];
    let run = simulate_with(&scenario, &names);
    let value = |name: &str| run[name];
    assert_eq!(
        (
            value("segments(f)"),
            value("segments(g)"),
            value("segments")
        ),
        (100.0, 50.0, 150.0)
    );
    assert_eq!(
        value("completion(f)").max(value("completion(g)")),
        value("completion")
    );
    assert_eq!(
        value("dropped(internet)") + value("dropped(satellite)"),
        value("dropped")
    );
    assert_eq!(
        value("delivered(internet)") + value("delivered(satellite)"),
        value("delivered")
    );
    assert!(
        value("mean_queue(satellite)") > 0.0
            && value("mean_queue(satellite)") <= value("mean_queue")
    );
    assert_eq!(value("held_max_kB(r)"), value("held_max_kB"));
    // There is no such flow, link or proxy.
    for name in ["segments(h)", "drops(space)", "local(q)"] {
        assert!(!run.contains_key(name), "{name}");
    }
}

/// A link that is always full: 60 s of 1.2 Mbit/s are 6000 packets of 1500 bytes, and half as many acknowledgements come
/// back. Of a window of 30 segments 22 are on their way, at one each 10 ms of the 220 ms there and back, and one is being
/// sent: seven wait.
#[test]
fn packets_delivered_and_the_mean_queue_are_those_of_a_full_link() {
    let mut scenario = chain("duration = \"60s\"", 1000, "");
    for host in scenario.hosts.values_mut() {
        host.endpoint.receive_window = Some(bentpipe_base::Bytes(30 * 1460));
    }
    let run = simulate_with(
        &scenario,
        &[
            "delivered(satellite)",
            "mean_queue(satellite)",
            "dropped(satellite)",
        ],
    );
    assert_eq!(run["dropped(satellite)"], 0.0);
    let delivered = run["delivered(satellite)"];
    assert!((delivered / 9000.0 - 1.0).abs() < 0.02, "{delivered}");
    let queue = run["mean_queue(satellite)"];
    assert!((5.5..8.0).contains(&queue), "{queue}");
}
