//! SCPS-TP between two hosts over the twelve paths of the Finch paper, and over outages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "docs/scps.md has the figures")]

mod common;

use bentpipe_outcome::End;
use common::run;

const BYTES: f64 = 20e6;
const RATE: f64 = 8e6;
/// A segment's payload, and its length on the link.
const PAYLOAD: f64 = 1448.0;
const PACKET: f64 = 1500.0;

fn scenario(rtt_ms: u64, ber: &str, preset: &str, rest: &str) -> String {
    let delay = format!("{}us", rtt_ms * 500);
    format!(
        r#"
        name = "scps"
        time_limit = "600s"
        [hosts.a]
        preset = "{preset}"
        [hosts.b]
        preset = "{preset}"
        [links.space]
        ends = ["a", "b"]
        rate = "8Mbit/s"
        delay = "{delay}"
        queue = {{ packets = 1000 }}
        bit_error_rate = "{ber}"
        {rest}
        [[flows]]
        from = "a"
        to = "b"
        bytes = "20MB"
        congestion_control = "rate"
        "#
    )
}

/// Whole transfers take at most 1.03 of the time at the link's limit, and five round trips: the goodput of the paper's
/// gateways, and more.
#[test]
fn a_transfer_takes_the_time_of_the_link() {
    for rtt in [0, 100, 300, 600] {
        for ber in ["0", "1e-7", "1e-5"] {
            let outcome = run(&scenario(rtt, ber, "scps", ""));
            let flow = &outcome.flows[0];
            assert_eq!(flow.end, End::Finished);
            let loss = 1.0 - (1.0 - ber.parse::<f64>().unwrap()).powf(8.0 * PACKET);
            let limit = RATE * PAYLOAD / PACKET * (1.0 - loss);
            let took = flow.completion.unwrap().as_secs_f64();
            let least = 8.0 * BYTES / limit;
            let round_trip = rtt as f64 / 1e3;
            println!(
                "rtt {rtt} ms, ber {ber}: {took:.2} s, at the limit {least:.2} s, {:.3} of it; goodput {:.3} Mbit/s",
                least / took,
                8.0 * BYTES / took / 1e6
            );
            assert!(
                took <= 1.03 * least + 5.0 * round_trip,
                "{rtt} {ber}: {took} for {least}"
            );
        }
    }
}

/// One round trip more than the ideal: the handshake, the bytes at the rate, and the way there.
#[test]
fn a_short_transfer_takes_a_round_trip_more_than_its_bytes() {
    let text = scenario(600, "0", "scps", "").replace("20MB", "100kB");
    let took = run(&text).flows[0].completion.unwrap().as_secs_f64();
    let ideal = 0.6 + 0.3 + 8.0 * 100e3 / (RATE * PAYLOAD / PACKET);
    println!("100 kB: {took:.3} s, ideal {ideal:.3} s");
    assert!(took <= ideal + 0.6, "{took}");
}

/// Nothing is sent again more than twice while the link is out, and the transfer goes on within two round trips.
#[test]
fn a_transfer_outlives_its_link() {
    let whole = run(&scenario(600, "0", "scps", "")).flows[0]
        .completion
        .unwrap();
    for out in [5, 30, 120] {
        let outage = format!("outage = [{{ start = \"5s\", length = \"{out}s\" }}]");
        let outcome = run(&scenario(600, "0", "scps", &outage));
        let flow = &outcome.flows[0];
        assert_eq!(flow.end, End::Finished, "{out}");
        let took = flow.completion.unwrap().as_secs_f64();
        let least = whole.as_secs_f64() + f64::from(out);
        println!(
            "{out} s out: {took:.2} s, {:.2} s more than the link was out",
            took - least
        );
        // What was on its way when the link went, a round trip of it, goes again.
        assert!(took <= least + 3.0 * 0.6, "{out}: {took} for {least}");
    }
}

/// Ten flows, each paced at its share of the link: they have it alike, and leave its queue short.
#[test]
fn ten_flows_share_the_link_alike_and_leave_no_queue() {
    for ber in ["0", "1e-7", "1e-5"] {
        let text = scenario(600, ber, "scps", "")
            .replace("bytes = \"20MB\"", "count = 10\nduration = \"120s\"");
        let outcome = run(&text);
        assert_eq!(outcome.flows.len(), 10);
        let goodput: Vec<f64> = { outcome.flows.iter() }
            .map(|flow| flow.received.0 as f64 * 8.0 / 120.0)
            .collect();
        let sum: f64 = goodput.iter().sum();
        let jain = bentpipe_outcome::jain(&goodput).unwrap();
        let loss = 1.0 - (1.0 - ber.parse::<f64>().unwrap()).powf(8.0 * PACKET);
        let limit = RATE * PAYLOAD / PACKET * (1.0 - loss);
        // In packets, of which none is longer than a full one.
        let queue = outcome.links[0].longest_queue.unwrap() as f64 * PACKET * 8.0 / RATE;
        println!(
            "ber {ber}: Jain {jain:.4}, {:.3} of the limit, the longest queue {:.0} ms",
            sum / limit,
            queue * 1e3
        );
        assert!(jain >= 0.99, "{ber}: {jain} {goodput:?}");
        assert!(sum >= 0.95 * limit, "{ber}: {sum} of {limit}");
        assert!(queue < 0.1, "{ber}: {queue} s");
    }
}

/// A pair of gateways with SCPS-TP between them, and ordinary hosts at both ends.
fn pair(rtt_ms: u64, ber: &str, far: &str) -> String {
    let delay = format!("{}us", rtt_ms * 500);
    format!(
        r#"
        name = "pair"
        time_limit = "600s"
        [hosts.server]
        [hosts.client]
        [gateways.near]
        sat = "space"
        lan = "left"
        [gateways.near.split.sat]
        carrier = "scps"
        rate = "8Mbit/s"
        [gateways.far]
        sat = "space"
        lan = "right"
        {far}
        [links.space]
        ends = ["near", "far"]
        rate = "8Mbit/s"
        delay = "{delay}"
        queue = {{ packets = 1000 }}
        bit_error_rate = "{ber}"
        [links.left]
        ends = ["server", "near"]
        rate = "100Mbit/s"
        [links.right]
        ends = ["far", "client"]
        rate = "100Mbit/s"
        [[flows]]
        from = "server"
        to = "client"
        opened_by = "client"
        bytes = "20MB"
        "#
    )
}

const FAR: &str = "[gateways.far.split.sat]\ncarrier = \"scps\"\nrate = \"8Mbit/s\"";

/// What the proxy of a gateway counted.
fn counted(outcome: &bentpipe_outcome::Run, gateway: &str, what: &str) -> u64 {
    let pep = outcome
        .proxies
        .iter()
        .find(|pep| pep.name == gateway)
        .unwrap();
    let count = pep.counters.iter().find(|(name, _)| *name == what);
    count
        .unwrap_or_else(|| panic!("{what} of {:?}", pep.counters))
        .1
}

/// As between two hosts, 1.03 of the time at the link's limit, and five round trips; after the first two round trips,
/// in which nothing arrives, 0.95 of the limit.
#[test]
fn a_pair_of_gateways_takes_the_time_of_the_link() {
    for rtt in [0, 100, 300, 600] {
        for ber in ["0", "1e-7", "1e-5"] {
            let outcome = run(&pair(rtt, ber, FAR));
            let flow = &outcome.flows[0];
            assert_eq!(flow.end, End::Finished);
            let loss = 1.0 - (1.0 - ber.parse::<f64>().unwrap()).powf(8.0 * PACKET);
            let limit = RATE * PAYLOAD / PACKET * (1.0 - loss);
            let took = flow.completion.unwrap().as_secs_f64();
            let least = 8.0 * BYTES / limit;
            let round_trip = rtt as f64 / 1e3;
            println!(
                "pair: rtt {rtt} ms, ber {ber}: {took:.2} s, {:.3} of the limit, after two round trips {:.3}",
                least / took,
                least / (took - 2.0 * round_trip)
            );
            assert!(took <= 1.03 * least + 5.0 * round_trip, "{took} s");
            assert!(least / (took - 2.0 * round_trip) >= 0.95, "{took} s");
            for gateway in ["near", "far"] {
                assert_eq!(counted(&outcome, gateway, "scps"), 1, "{gateway}");
            }
            assert!(ber != "1e-5" || counted(&outcome, "near", "snacks") > 100);
        }
    }
}

/// As between two hosts: one round trip more than the ideal, whichever end opens the connection.
#[test]
fn a_short_transfer_through_a_pair_takes_a_round_trip_more_than_its_bytes() {
    let text = pair(600, "0", FAR).replace("20MB", "100kB");
    for text in [text.clone(), text.replace("opened_by = \"client\"", "")] {
        let took = run(&text).flows[0].completion.unwrap().as_secs_f64();
        let ideal = 0.6 + 0.3 + 8.0 * 100e3 / (RATE * PAYLOAD / PACKET);
        println!("100 kB through a pair: {took:.3} s, ideal {ideal:.3} s");
        assert!(took <= ideal + 0.6, "{took}");
    }
}

/// 100 MB at 600 ms, as the reference implementation was measured: ahead of what that had, connection included.
#[test]
fn a_pair_is_ahead_of_the_reference_implementation() {
    for (ber, theirs) in [("0", 7.61), ("1e-7", 7.53), ("1e-5", 4.57)] {
        let text = pair(600, ber, FAR).replace("20MB", "100MB");
        let outcome = run(&text);
        let took = outcome.flows[0].completion.unwrap().as_secs_f64();
        let ours = 800.0 / took;
        println!("100 MB, BER {ber}: {took:.2} s, {ours:.3} Mbit/s for {theirs}");
        assert!(ours > theirs, "{ber}: {ours} for {theirs}");
    }
}

/// Data each way at once: acknowledgements take their part of the link from it, and no queue grows.
#[test]
fn data_both_ways_leaves_no_queue() {
    let one = pair(600, "0", FAR).replace("bytes = \"20MB\"", "duration = \"120s\"");
    let other = "[[flows]]\nfrom = \"client\"\nto = \"server\"\nduration = \"120s\"";
    let outcome = run(&format!("{one}{other}"));
    for flow in &outcome.flows {
        let goodput = flow.received.0 as f64 * 8.0 / 120.0;
        let part = goodput / (RATE * PAYLOAD / PACKET);
        println!("both ways: {part:.3} of the limit");
        assert!(part >= 0.95, "{part}");
    }
    let space = outcome.links.iter().filter(|link| link.link == "space");
    for link in space {
        let queue = link.longest_queue.unwrap() as f64 * PACKET * 8.0 / RATE;
        println!("the longest queue {:.0} ms", queue * 1e3);
        assert!(queue < 0.1, "{queue} s");
    }
}

/// Where the far gateway does not speak SCPS-TP, or there is none, the leg is TCP with SACK, and nearly as fast.
#[test]
fn a_far_gateway_without_scps_gets_tcp() {
    for far in ["", "[gateways.far.split.sat]\nrate = \"8Mbit/s\""] {
        let outcome = run(&pair(600, "1e-7", far));
        let flow = &outcome.flows[0];
        assert_eq!(flow.end, End::Finished);
        assert_eq!(counted(&outcome, "near", "plain"), 1);
        assert_eq!(counted(&outcome, "near", "scps"), 0);
        println!("far end with TCP: {:?}", flow.completion);
    }
}
