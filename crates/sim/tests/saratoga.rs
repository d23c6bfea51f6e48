//! Files by Saratoga in the simulator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::Bytes;
use bentpipe_outcome::{End, Flow, Run};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Options, SimError, run};

/// A file over 8 Mbit/s and 600 ms; `link` and `flow` are put in.
fn scenario(link: &str, flow: &str) -> Scenario {
    parse(&text(link, flow))
}

fn parse(text: &str) -> Scenario {
    Scenario::parse("file.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn text(link: &str, flow: &str) -> String {
    format!(
        r#"
name = "file"
time_limit = "180s"
[hosts.server]
[hosts.terminal]
[routers.hub]
[links.ground]
ends = ["server", "hub"]
[links.space]
ends = ["hub", "terminal"]
rate = "8Mbit/s"
delay = "300ms"
queue = {{ bytes = "600kB" }}
{link}
[[flows]]
name = "file"
from = "server"
to = "terminal"
app = "saratoga"
{flow}
"#
    )
}

fn outcome(link: &str, flow: &str, wire: bool) -> Run {
    let options = Options {
        wire,
        ..Options::default()
    };
    run(&scenario(link, flow), &options).unwrap()
}

/// 1.02 times the bytes over the limit, and four round trips.
fn target(flow: &Flow) -> f64 {
    let limit = flow.limit.unwrap().mbps();
    1.02 * flow.size.unwrap().bits() as f64 / 1e6 / limit + 4.0 * flow.round_trip.as_secs_f64()
}

#[test]
fn a_file_takes_what_its_bytes_and_losses_take_both_ways() {
    for opener in ["terminal", "server"] {
        for errors in ["0", "1e-7", "1e-5"] {
            let link = format!("bit_error_rate = \"{errors}\"");
            let flow = format!("bytes = \"20MB\"\nopened_by = \"{opener}\"");
            let outcome = outcome(&link, &flow, false);
            let flow = &outcome.flows[0];
            assert_eq!(flow.end, End::Finished);
            let mss = flow.mss.map(|mss| mss.0);
            assert_eq!((flow.received.0, mss), (20_000_000, Some(1444)));
            assert_eq!((flow.control.as_str(), flow.cwnd), ("none", None));
            let (took, most) = (flow.completion.unwrap().as_secs_f64(), target(flow));
            // 1444 of 1500 bytes are content.
            let least = 160.0 / 8.0 * 1500.0 / 1444.0;
            assert!(
                (least..most).contains(&took),
                "{opener} {errors}: {took}, {most}"
            );
            assert!(flow.acknowledged.unwrap() > flow.completion.unwrap());
            let lossless = errors == "0";
            assert_eq!(flow.sent_again == Some(Bytes(0)), lossless);
        }
    }
}

/// What only a TCP has is `None`, not zero.
#[test]
fn of_what_tcp_alone_counts_there_is_nothing() {
    let outcome = outcome("packet_error_rate = \"1%\"", "bytes = \"1MB\"", false);
    let flow = &outcome.flows[0];
    assert!(
        flow.sent_again.unwrap().0 > 0 && flow.sent > flow.sent_again,
        "{flow:?}"
    );
    assert_eq!(
        (flow.segments_again, flow.timeouts, flow.recoveries),
        (None, None, None)
    );
    assert_eq!((flow.cwnd, flow.ssthresh, flow.srtt), (None, None, None));
    let measured = |name| bentpipe_outcome::find(name).unwrap().of(&outcome);
    assert_eq!((measured("timeouts"), measured("recoveries")), (None, None));
    assert!(measured("retransmitted").is_some_and(|share| share > 0.1));
}

/// Every packet written as bytes and read again at every hop.
#[test]
fn on_the_wire_nothing_differs() {
    let [link, flow] = [
        "bit_error_rate = \"1e-5\"",
        "bytes = \"500kB\"\nopened_by = \"terminal\"",
    ];
    assert_eq!(outcome(link, flow, true), outcome(link, flow, false));
}

/// A proxy that splits TCP lets it pass.
#[test]
fn a_split_on_the_way_changes_nothing() {
    let flow = "bytes = \"500kB\"\nopened_by = \"terminal\"\n";
    let plain = outcome("", flow, false);
    let gateway = "[gateways.hub]\nsat = \"space\"\nlan = \"ground\"\nsplit = {}\n";
    let text = text("", flow).replace("[routers.hub]\n", gateway);
    let split = run(&parse(&text), &Options::default()).unwrap();
    assert_eq!(split.proxies.len(), 1);
    assert_eq!(split.flows, plain.flows);
}

#[test]
fn tfrc_yields_to_loss_and_the_time_limit_cuts() {
    let flow = "bytes = \"20MB\"\nopened_by = \"terminal\"\ncongestion_control = \"tfrc\"";
    let outcome = outcome("bit_error_rate = \"1e-6\"", flow, false);
    let flow = &outcome.flows[0];
    assert_eq!((&flow.end, flow.control.as_str()), (&End::CutOff, "tfrc"));
    // RFC 5348's equation with p = 1.2%, R = 0.6 s, s = 1500: 0.2 Mbit/s.
    assert!(
        (0.1..1.0).contains(&flow.goodput().mbps()),
        "{}",
        flow.goodput()
    );
    assert!(flow.completion.is_none());
}

#[test]
fn a_link_that_carries_nothing_ends_in_silence() {
    let flow = "bytes = \"1MB\"\nopened_by = \"terminal\"";
    let outcome = outcome("packet_error_rate = \"100%\"", flow, false);
    let flow = &outcome.flows[0];
    assert!(matches!(flow.end, End::Failed(_)), "{:?}", flow.end);
    assert_eq!(flow.received.0, 0);
    // No byte came, so there is no time to reckon with.
    assert_eq!(
        (flow.elapsed, flow.goodput()),
        (Default::default(), Default::default())
    );
}

#[test]
fn what_the_simulator_cannot_move_is_said() {
    let flow = "bytes = \"1MB\"";
    let text = scenario("", flow).to_toml();
    let run = |text: &str| {
        let scenario = Scenario::parse("a.toml", text).unwrap();
        run(&scenario, &Options::default()).unwrap_err()
    };
    let scp = run(&text.replace("\"saratoga\"", "\"scp\""));
    assert!(matches!(&scp, SimError::App { .. }), "{scp}");
    assert!(scp.to_string().contains("bentpipe lab run"), "{scp}");
    let queue = "rate = \"8Mbit/s\"\nqueue = { kind = \"drop-tail\", bytes = \"600kB\" }";
    assert!(text.contains(queue), "{text}");
    let unrated = run(&text.replace(queue, "rate = \"unlimited\""));
    assert!(matches!(&unrated, SimError::Unrated { .. }), "{unrated}");
}

/// A file may name what Saratoga's machines have, and nothing else.
#[test]
fn the_controls_of_scenarios_are_those_of_the_protocol() {
    let names = bentpipe_saratoga::sender::Congestion::ALL.map(|control| control.name());
    assert_eq!(bentpipe_scenario::Flow::SARATOGA_CONTROLS, names);
}
