//! Figures that can be reckoned by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_outcome::{End, Point, find};
use bentpipe_sim::{Options, Sampler, Series};
use common::{TcpCounters, paper, run};

fn seconds(time: Option<std::time::Duration>) -> f64 {
    time.unwrap().as_secs_f64()
}

/// Two segments of 500 bytes, 516 on the link, in the initial window of ns-2: the second arrives
/// after two transmissions at 10 Mb/s... the slower link decides: it ends when 2 Mb/s have carried
/// both, one transmission at 10 Mb/s and both delays later. Their acknowledgement of 40 bytes
/// returns at the same rates.
#[test]
fn two_segments_take_the_time_of_the_links() {
    let mut scenario = paper("sack", 10, "0", "");
    scenario.flows[0].amount = bentpipe_scenario::Amount::Segments(2);
    let outcome = bentpipe_sim::run(&scenario, &Options::default()).unwrap();
    let flow = &outcome.flows[0];
    let there = 516.0 * 8.0 / 10e6 + 2.0 * 516.0 * 8.0 / 2e6 + 0.28;
    let back = 40.0 * 8.0 / 10e6 + 40.0 * 8.0 / 2e6 + 0.28;
    assert_eq!(flow.end, End::Finished);
    assert_eq!((flow.segments, flow.received.0), (Some(2), 1000));
    assert!((seconds(flow.completion) - there).abs() < 1e-8, "{flow:?}");
    // To the last byte at the receiver, as the lab counts it, not until the sender knows of it.
    let goodput = 8.0 * 1000.0 / there / 1e6;
    assert!((flow.goodput().mbps() - goodput).abs() < 2e-6, "{flow:?}");
    // The flow ends there too, though its sender has still to learn that all arrived.
    assert_eq!(flow.completion, Some(flow.elapsed));
    // Should the FIN go by itself, its acknowledgement comes later, but within the delay of ns-2.
    let known = seconds(flow.acknowledged) - there - back;
    assert!((-1e-8..0.11).contains(&known), "{known}");
}

/// SYN and SYN-ACK have 60 bytes: 20 of IPv4, 20 of TCP, 20 of options (MSS 4, SACK-permitted and
/// timestamps 12, window scale 4).
#[test]
fn the_handshake_takes_a_round_trip() {
    let outcome = run(r#"
        name = "handshake"
        [hosts.a]
        [hosts.b]
        [links.l]
        ends = ["a", "b"]
        rate = "1Mbit/s"
        delay = "100ms"
        [[flows]]
        from = "a"
        to = "b"
        bytes = "10kB"
        start = "1s"
        variant = "sack"
        "#);
    let flow = &outcome.flows[0];
    let round_trip = 2.0 * (0.1 + 60.0 * 8.0 / 1e6);
    assert!(
        (seconds(flow.connect) - round_trip).abs() < 1e-8,
        "{flow:?}"
    );
    // 10,000 bytes in one window of 10 segments: 6 of 1448 and one of 1312 with headers of 52.
    let data = (10_000.0 + 7.0 * 52.0) * 8.0 / 1e6 + 0.1;
    // The ACK of the handshake goes before them.
    let before = 52.0 * 8.0 / 1e6;
    let took = seconds(flow.completion) - round_trip - data;
    assert!((-1e-8..=before + 1e-8).contains(&took), "{took}");
}

/// ns-2 2.35 brings 142,242 segments over in 300 s, whatever the seed.
#[test]
fn loss_free_sack_brings_as_many_segments_as_ns2() {
    let scenario = paper("sack", 300, "0", "");
    let outcome = bentpipe_sim::run(&scenario, &Options::default()).unwrap();
    let segments = outcome.flows[0].segments.unwrap() as f64;
    assert!((segments / 142_242.0 - 1.0).abs() < 0.005, "{segments}");
}

/// A link that is full carries its rate: 500 of 516 bytes.
#[test]
fn goodput_approaches_the_limit_of_the_path() {
    let scenario = paper("sack", 300, "0", "");
    let outcome = bentpipe_sim::run(&scenario, &Options::default()).unwrap();
    let flow = &outcome.flows[0];
    let limit = flow.limit.unwrap().mbps();
    assert!((limit - 2.0 * 500.0 / 516.0).abs() < 1e-6, "{limit}");
    assert!((0.95..1.0).contains(&flow.share().unwrap()), "{flow:?}");
}

/// As in the lab, the rate control knows what IPv6 and the link's framing take: it fills the link and no queue.
#[test]
fn the_rate_control_counts_headers_and_framing() {
    for (ip, overhead) in [(4, 0), (6, 0), (4, 150), (6, 150)] {
        let outcome = common::run(&format!(
            r#"
            name = "told"
            ip = {ip}
            [hosts.a]
            [hosts.b]
            [links.space]
            ends = ["a", "b"]
            rate = "2Mbit/s"
            delay = "250ms"
            overhead = "{overhead}B"
            [[flows]]
            from = "a"
            to = "b"
            count = 2
            duration = "60s"
            congestion_control = "bentpipe_rate"
            "#
        ));
        let goodput: f64 = outcome.flows.iter().map(|flow| flow.goodput().mbps()).sum();
        let headers = if ip == 4 { 52.0 } else { 72.0 };
        let limit = 2.0 * (1500.0 - headers) / (1500.0 + f64::from(overhead));
        // 98.5% of it, less a round trip or two of the minute.
        let share = goodput / limit;
        assert!((0.95..0.985).contains(&share), "{ip} {overhead}: {share}");
        let there = &outcome.links[0];
        let wait = there.waited.as_secs_f64() / there.packets as f64;
        // Pairs leave together: the second waits for the first, or for a pair of the other flow: two of 6 ms at most.
        assert!(wait < 0.012, "{ip} {overhead}: {wait} s a packet");
    }
}

/// A receiver's window beyond the bandwidth-delay product stands in the queue: the round trip is then the window over the
/// rate, from the first sample (5 s after the start) to the last.
#[test]
fn a_standing_queue_is_the_window_less_what_the_link_holds() {
    let run = run(r#"
        name = "standing"
        [hosts.a]
        [hosts.b]
        tcp = { receive_window = "250kB" }
        [links.l]
        ends = ["a", "b"]
        rate = "4Mbit/s"
        delay = "100ms"
        queue = { packets = 1000 }
        [[flows]]
        from = "a"
        to = "b"
        duration = "20s"
        variant = "sack"
        "#);
    // Its packets are 1500 bytes long and hold 1448. Acknowledgements come late by up to two packets.
    let round_trip = 1e3 * 8.0 * 250_000.0 * 1500.0 / 1448.0 / 4e6;
    for name in ["queueing", "mean_queueing"] {
        let measured = find(name).unwrap().of(&run).unwrap();
        let apart = measured - (round_trip - 200.0);
        assert!(apart.abs() < 9.0, "{name}: {measured} ms, {apart} off");
    }
    // At 5 s, 5.1 s and so on: the last is taken just before the cut.
    assert_eq!(run.flows[0].queueing.count, 150);
}

/// Each answer fits a window, so each exchange takes a round trip, a transmission and the pause.
#[test]
fn requests_take_a_round_trip_each() {
    let outcome = run(r#"
        name = "requests"
        time_limit = "60s"
        [hosts.client]
        tcp = { nagle = false }
        [hosts.server]
        tcp = { nagle = false }
        [links.l]
        ends = ["client", "server"]
        delay = "100ms"
        [[flows]]
        kind = "request-response"
        response = "10kB"
        think = "300ms"
        from = "server"
        to = "client"
        opened_by = "client"
        bytes = "200kB"
        variant = "sack"
        "#);
    let flow = &outcome.flows[0];
    assert_eq!(flow.received.0, 200_000);
    // The handshake, 20 exchanges, 19 pauses.
    let expected = 0.2 + 20.0 * 0.2 + 19.0 * 0.3;
    let took = seconds(flow.completion);
    assert!((took - expected).abs() < 1e-6, "{took} and not {expected}");
    assert_eq!(flow.responses, [std::time::Duration::from_millis(200); 20]);
}

/// 1 Mb/s for half of the time.
#[test]
fn an_on_off_source_sends_at_its_mean_rate() {
    let text = |exponential: bool| {
        format!(
            r#"
            name = "on-off"
            time_limit = "500s"
            [hosts.a]
            [hosts.b]
            [links.l]
            ends = ["a", "b"]
            delay = "1ms"
            rate = "10Mbit/s"
            [[flows]]
            kind = "on-off"
            on = "1s"
            off = "1s"
            rate = "1Mbit/s"
            exponential = {exponential}
            from = "a"
            to = "b"
            duration = "500s"
            variant = "sack"
            "#
        )
    };
    let mbps = |exponential| run(&text(exponential)).flows[0].goodput().mbps();
    let even = mbps(false);
    assert!((even - 0.5).abs() < 0.01, "{even}");
    // 250 cycles: the mean share of "on" has a standard error of 0.5 / sqrt(2 * 250) = 0.022.
    let chance = mbps(true);
    assert!((chance - 0.5).abs() < 0.09, "{chance}");
    assert_ne!(chance, even);
}

/// Acknowledgements that the receiver sent of a segment each 100 ms, delayed by 100 ms, at the end of
/// `path`, whose last link is `last`.
fn acknowledgements(path: &str, last: &str) -> u64 {
    let outcome = run(&format!(
        r#"
        name = "ties"
        time_limit = "20s"
        [hosts.a]
        preset = "ns2"
        [hosts.c]
        preset = "ns2"
        {path}
        [[flows]]
        kind = "on-off"
        on = "1000s"
        off = "1s"
        rate = "40kbit/s"
        from = "a"
        to = "c"
        duration = "20s"
        variant = "sack"
        "#
    ));
    let mut links = outcome.links.iter();
    let back = links.find(|line| line.link == last && line.from == "c");
    back.unwrap().packets
}

/// At equal times comes first what was set in motion first. ns-2 puts the arrival into its list of
/// events when the packet begins to leave on its last link, and the delay of an acknowledgement when
/// the segment before has arrived: over 250 ms of satellite the packet came first, over an Ethernet
/// behind it the delay.
#[test]
fn an_older_arrival_is_acknowledged_with_the_segment_before() {
    let space = "[links.space]\nrate = \"2Mbit/s\"\ndelay = \"250ms\"\nends = ";
    let direct = format!("{space} [\"a\", \"c\"]");
    let behind = format!(
        "{space} [\"a\", \"r\"]\n[routers.r]\n[links.ethernet]\nends = [\"r\", \"c\"]\nrate = \"10Mbit/s\"\n\
         delay = \"10us\""
    );
    let (direct, behind) = (
        acknowledgements(&direct, "space"),
        acknowledgements(&behind, "ethernet"),
    );
    // Nearly 20 s of a segment each 100 ms: one for two, and one for each (but in slow start).
    assert!((95..=100).contains(&direct), "{direct}");
    assert!((180..=200).contains(&behind), "{behind}");
}

/// What the columns of points end with is what was counted.
#[test]
fn the_time_sequence_agrees_with_the_counters() {
    let scenario = paper("sack", 60, "1e-6", "");
    let series = (Series::new(&scenario), TcpCounters::default());
    let observed = bentpipe_sim::observe(&scenario, &Options::default(), series).unwrap();
    let (outcome, (series, counters)) = observed;
    let (flow, sent) = (&outcome.flows[0], &series.flows()[0]);
    assert_eq!(sent.len() as u64, counters.0[&(0, true)].data_sent);
    let again = sent.iter().filter(|sent| sent.again).count() as u64;
    assert_eq!(Some(again), flow.segments_again);
    assert!(again > 0);
    let times: Vec<_> = sent.iter().map(|sent| sent.at).collect();
    assert!(times.is_sorted());
}

/// The last samples of a flow are what its outcome tells, and asking for samples changes nothing else.
#[test]
fn the_course_of_a_flow_ends_with_its_outcome() {
    let scenario = paper("sack", 60, "1e-6", "");
    let plain = bentpipe_sim::run(&scenario, &Options::default()).unwrap();
    let mut sampled = bentpipe_sim::run_sampled(&scenario, &Options::default()).unwrap();
    let samples = std::mem::take(&mut sampled.samples);
    assert_eq!(sampled, plain);
    assert!(samples.is_sorted_by_key(|it| (it.flow, it.point.clone(), it.at)));
    assert!(samples.is_sorted_by_key(|it| (it.flow, it.point.clone(), it.bytes)));
    let [receiver, sender] = [Point::Receiver, Point::Sender].map(|point| {
        let mut own = samples.iter().rev();
        own.find(|sample| sample.point == point).unwrap()
    });
    let flow = &plain.flows[0];
    assert_eq!((receiver.bytes, receiver.tcp), (flow.received, None));
    let tcp = sender.tcp.unwrap();
    assert_eq!((Some(tcp.cwnd), tcp.ssthresh), (flow.cwnd, flow.ssthresh));
}

/// Three links in a row, of which none but the first is the slowest for long, with losses and a way out
/// that one link of two shares.
const CHAIN: &str = r#"
    name = "chain"
    time_limit = "40s"
    [hosts.a]
    [hosts.b]
    [hosts.c]
    [routers.r]
    [routers.s]
    [links.one]
    ends = ["a", "r"]
    rate = "3Mbit/s"
    delay = "5ms"
    queue = { packets = 30 }
    [links.two]
    ends = ["r", "s"]
    rate = "2Mbit/s"
    delay = "100ms"
    queue = { packets = 20 }
    packet_error_rate = "1%"
    changes = [{ at = "5s", rate = "5Mbit/s" }, { at = "9s", rate = "1Mbit/s" }]
    [links.three]
    ends = ["s", "b"]
    rate = "2500kbit/s"
    delay = "0s"
    queue = { packets = 10 }
    [links.four]
    ends = ["s", "c"]
    rate = "1Mbit/s"
    delay = "1ms"
    [[flows]]
    name = "there"
    from = "a"
    to = "b"
    bytes = "2MB"
    [[flows]]
    name = "back"
    from = "b"
    to = "a"
    start = "2s"
    bytes = "1MB"
"#;

/// Sees every packet at every hop.
struct Eyes(u64);

impl bentpipe_sim::Observer for Eyes {
    fn arrived(&mut self, _: bentpipe_base::Instant, _: usize, _: &bentpipe_sim::Packet) {
        self.0 += 1;
    }
}

/// Observers change nothing: neither those of flows, nor those of packets, which every hop has an event for.
#[test]
fn watching_changes_nothing() {
    let third = "[[flows]]\nname = \"third\"\nfrom = \"a\"\nto = \"c\"\nbytes = \"100kB\"\n";
    let scenarios = [
        paper("newreno", 30, "1e-6", ""),
        paper("sack", 20, "0", ""),
        common::mixture(4),
        common::parse(CHAIN),
        common::parse(&format!("{CHAIN}{third}")),
        common::parse(include_str!("../../../scenarios/geo.toml")),
    ];
    for (scenario, seed) in scenarios.iter().flat_map(|it| (1..6).map(move |n| (it, n))) {
        let options = Options {
            seed: Some(seed),
            ..Options::default()
        };
        let plain = bentpipe_sim::run(scenario, &options).unwrap();
        let series = (Series::new(scenario), Sampler::new(scenario));
        let (watched, _) = bentpipe_sim::observe(scenario, &options, series).unwrap();
        assert_eq!(plain, watched);
        let (seen, eyes) = bentpipe_sim::observe(scenario, &options, Eyes(0)).unwrap();
        assert_eq!(plain, seen);
        let sent: u64 = plain.links.iter().map(|link| link.packets).sum();
        assert!(eyes.0 > sent / 2, "{} of {sent}", eyes.0);
    }
}

/// Departures and drops are those of the channel: at 1e-6, a packet of 516 bytes is hit with
/// probability 1 - (1 - 1e-6)^4128 = 0.00412.
#[test]
fn the_share_of_corrupted_packets_is_that_of_the_bit_error_rate() {
    let scenario = paper("sack", 300, "1e-6", "");
    let outcome = bentpipe_sim::run(&scenario, &Options::default()).unwrap();
    let space = outcome
        .links
        .iter()
        .find(|link| link.from == "b" && link.to == "c")
        .unwrap();
    let (hit, all) = (space.corrupted as f64, space.packets as f64);
    let expected = 1.0 - (1.0 - 1e-6f64).powi(4128);
    let error = (expected * (1.0 - expected) / all).sqrt();
    assert!(all > 3000.0, "{all}");
    assert!((hit / all - expected).abs() < 4.0 * error, "{hit} of {all}");
    let back = outcome.links.iter().find(|link| link.from == "c").unwrap();
    assert_eq!((back.refused, back.corrupted, back.lost), (0, 0, 0));
}
