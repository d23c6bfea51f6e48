//! The table of measures: closed forms, and that nothing a run may hold makes a figure that is none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::{Bytes, Rate};
use bentpipe_outcome::{
    End, Engine, Flow, Leg, MEASURES, Proxy, RENAMED, Run, SimplexLink, Subject, Unknown, find,
};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

fn flow(name: &str, megabits: u64, seconds: u64) -> Flow {
    Flow {
        name: name.into(),
        received: Bytes(megabits * 125_000),
        completion: Some(Duration::from_secs(seconds)),
        ..Flow::default()
    }
}

fn simplex_link(link: &str, packets: u64, refused: u64, waited: u64) -> SimplexLink {
    SimplexLink {
        link: link.into(),
        packets,
        refused,
        corrupted: 2,
        lost: 1,
        struck_before_queue: 4,
        refused_data: Some(refused / 2),
        marked: 6,
        waited: Duration::from_secs(waited),
        ..SimplexLink::default()
    }
}

fn two() -> Run {
    Run {
        elapsed: Duration::from_secs(10),
        flows: vec![flow("f", 8, 4), flow("g", 12, 2)],
        links: vec![
            simplex_link("x", 90, 10, 5),
            simplex_link("x", 50, 0, 0),
            simplex_link("y", 40, 40, 20),
        ],
        proxies: vec![Proxy {
            name: "p".into(),
            counters: vec![("most_held", 2500), ("suppressed", 7)],
        }],
        lateness: Duration::from_micros(1500),
        ..Run::default()
    }
}

#[test]
fn measures_of_all_and_of_one_in_closed_form() {
    let run = two();
    let of = |text: &str| find(text).unwrap().of(&run);
    for (text, value) in [
        ("goodput", 8.0),
        ("goodput(f)", 2.0),
        ("goodput(g)", 6.0),
        ("jain", 64.0 / 80.0),
        ("completion", 4.0),
        ("completion(g)", 2.0),
        ("dropped", 50.0),
        ("dropped(x)", 10.0),
        ("drops(y)", 20.0),
        ("drop_rate(y)", 50.0),
        // Both directions: 10 of 150.
        ("drop_rate(x)", 100.0 * 10.0 / 150.0),
        ("corrupted(x)", 6.0),
        ("errors_before_queue(y)", 4.0),
        ("marks(y)", 6.0),
        ("marks", 18.0),
        ("errors_before_queue", 12.0),
        ("delivered(x)", 134.0),
        ("delivered", 171.0),
        // Little's law: 5 s of waiting in 10 s.
        ("mean_queue(x)", 0.5),
        ("mean_queue", 2.5),
        ("held_max_kB(p)", 2.5),
        ("suppressed", 7.0),
        ("lateness", 1.5),
    ] {
        assert_eq!(of(text), Some(value), "{text}");
    }
    for text in [
        "goodput(h)",
        "dropped(z)",
        "local",
        "local(p)",
        "kbps_sender",
        "segments",
        "timeouts",
        "retransmitted",
    ] {
        assert_eq!(of(text), None, "{text}");
    }
}

/// A byte is sent again by a split, by its carrier, by Snoop upon an acknowledgement, or by its timer: all of them are local repairs.
#[test]
fn local_counts_what_splits_and_agents_sent_again() {
    let mut run = two();
    let leg = |gateway: &str, segments_again| Leg {
        gateway: gateway.into(),
        segments_again,
        ..Leg::default()
    };
    run.flows[0].gateways = vec![leg("hub", 5), leg("far", 40)];
    run.flows[1].gateways = vec![leg("hub", 2)];
    let counters = [
        ("retransmitted", 100),
        ("timeouts", 1000),
        ("carrier_sent_again", 10_000),
        ("unread", 9),
    ];
    run.proxies[0].counters = counters.into();
    let of = |text: &str| find(text).unwrap().of(&run);
    assert_eq!(of("local"), Some(11_147.0));
    assert_eq!(
        (of("local(hub)"), of("local(far)")),
        (Some(7.0), Some(40.0))
    );
    assert_eq!((of("local(p)"), of("local(x)")), (Some(11_100.0), None));
}

/// Whatever ran it, a flow's goodput ends with the last byte at its receiver; without a last one, with the flow.
#[test]
fn goodput_is_over_the_time_until_the_last_byte() {
    let mut flow = flow("f", 8, 4);
    flow.elapsed = Duration::from_secs(8);
    assert_eq!(flow.goodput(), Rate::from_bits_per_sec(2_000_000));
    flow.completion = None;
    assert_eq!(flow.goodput(), Rate::from_bits_per_sec(1_000_000));
    flow.elapsed = Duration::ZERO;
    assert_eq!(flow.goodput(), Rate::default());
}

#[test]
fn queueing_at_the_end_and_on_average() {
    let mut run = two();
    let ms = Duration::from_millis;
    for (flow, srtt, samples) in [(0, 650, [20.0, 40.0]), (1, 590, [10.0, 30.0])] {
        run.flows[flow].round_trip = ms(600);
        run.flows[flow].srtt = Some(ms(srtt));
        run.flows[flow].queueing = samples.into_iter().collect();
    }
    let of = |text: &str| find(text).unwrap().of(&run).unwrap();
    // 50 ms, and one that propagation alone explains.
    assert!((of("queueing") - 25.0).abs() < 1e-9);
    assert!((of("queueing(f)") - 50.0).abs() < 1e-9);
    assert!((of("mean_queueing") - 25.0).abs() < 1e-9);
    assert!((of("mean_queueing(g)") - 20.0).abs() < 1e-9);
    let json = serde_json::to_value(run.document()).unwrap();
    assert_eq!(json["flows"][0]["mean_queueing_ms"], 30.0);
    assert_eq!(json["flows"][0]["srtt_ms"], 650.0);
}

#[test]
fn what_is_no_measure_is_told_apart() {
    let wrong = |text: &str| find(text).unwrap_err();
    assert_eq!(wrong("goodputs"), Unknown::Name);
    assert_eq!(wrong("goodput(f"), Unknown::Name);
    assert_eq!(wrong("jain(f)"), Unknown::Whole("jain"));
    for (old, now) in RENAMED {
        assert_eq!(wrong(old), Unknown::Renamed(now));
        assert!(find(now).is_ok(), "{now}");
    }
}

#[test]
fn a_document_names_units_and_tells_who_sent_again() {
    let mut run = two();
    run.engine = Engine::Kernel;
    run.flows[0].end = End::Failed("reset".into());
    run.flows[0].sent = Some(Bytes(100));
    run.flows[0].sent_again = Some(Bytes(5));
    run.flows[0].gateways = vec![Leg {
        gateway: "gw".into(),
        sent: Bytes(200),
        sent_again: Bytes(50),
        segments_again: 1,
    }];
    let shares: Vec<_> = run.flows[0].retransmitted().collect();
    assert_eq!(shares, [(None, 0.05), (Some("gw"), 0.25)]);

    let json = serde_json::to_value(run.document()).unwrap();
    assert_eq!(
        (&json["schema"], &json["engine"]),
        (&3.into(), &"kernel".into())
    );
    let [first, second] = [&json["flows"][0], &json["flows"][1]];
    assert_eq!(
        (&first["outcome"], &first["why"]),
        (&"failed".into(), &"reset".into())
    );
    assert_eq!(
        (&second["outcome"], &second["why"]),
        (&"finished".into(), &Value::Null)
    );
    assert_eq!(first["goodput_mbps"], 2.0);
    assert_eq!(first["completion_s"], 4.0);
    assert_eq!(first["gateways"][0]["sent_again_bytes"], 50);
    // Of the other flow nobody saw a TCP.
    assert_eq!(first["sent_bytes"], 100);
    for key in [
        "sent_bytes",
        "sent_again_bytes",
        "segments_again",
        "timeouts",
    ] {
        assert_eq!(second[key], Value::Null, "{key}");
    }
    assert_eq!(json["measures"]["retransmitted"]["value"], 5.0);
    assert!(json["measures"].get("timeouts").is_none());
    assert_eq!(json["links"][0]["waited_s"], 5.0);
    assert_eq!(json["proxies"][0]["counters"]["most_held"], 2500);
    assert_eq!(json["measures"]["goodput"]["value"], 8.0);
    assert_eq!(json["measures"]["goodput"]["unit"], "Mbit/s");
    // What has no meaning is not there, rather than null.
    assert!(json["measures"].get("srtt").is_none());
}

#[test]
fn names_differ_and_everything_is_defined() {
    let names: BTreeSet<&str> = MEASURES.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), MEASURES.len());
    for measure in MEASURES {
        assert!(
            !measure.summary.is_empty() && !measure.summary.contains('|'),
            "{}",
            measure.name
        );
    }
}

fn times() -> impl Strategy<Value = Option<Duration>> {
    let nanos = prop_oneof![Just(0), Just(1), 0..u64::MAX];
    prop::option::of(nanos.prop_map(Duration::from_nanos))
}

fn counts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0..100_000u64, Just(u64::MAX)]
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let times = (times(), times(), times(), times(), times());
    let counts = (counts(), counts(), counts(), counts(), counts(), counts());
    (times, counts, any::<bool>()).prop_map(|(times, counts, known)| Flow {
        name: "f".into(),
        size: known.then_some(Bytes(counts.0)),
        round_trip: times.4.unwrap_or_default(),
        limit: known.then(|| Rate::from_bits_per_sec(counts.1)),
        received: Bytes(counts.2),
        segments: known.then_some(counts.2),
        completion: times.0,
        acknowledged: times.1,
        final_ack: times.2,
        sent: known.then_some(Bytes(counts.4)),
        sent_again: known.then_some(Bytes(counts.5)),
        timeouts: known.then_some(counts.3),
        recoveries: known.then_some(counts.4),
        srtt: times.3,
        queueing: times.3.into_iter().map(|it| it.as_secs_f64()).collect(),
        ..Flow::default()
    })
}

fn any_simplex_link() -> impl Strategy<Value = SimplexLink> {
    let counts = (counts(), counts(), counts(), counts());
    (counts, times(), any::<bool>()).prop_map(|(counts, waited, known)| SimplexLink {
        link: "l".into(),
        from: "a".into(),
        packets: counts.0,
        corrupted: counts.1,
        lost: counts.2,
        struck_before_queue: counts.0,
        refused: counts.3,
        refused_data: known.then_some(counts.3),
        marked: counts.1,
        waited: waited.unwrap_or_default(),
        ..SimplexLink::default()
    })
}

proptest! {
    /// Counts that no run reaches, times and rates of nothing: a measure is a number or there is none.
    #[test]
    fn a_measure_is_a_number_or_there_is_none(
        flows in prop::collection::vec(any_flow(), 0..4),
        links in prop::collection::vec(any_simplex_link(), 0..4),
        counts in prop::collection::vec(counts(), 0..4),
        (elapsed, lateness) in (times(), times()),
    ) {
        let counters = ["retransmitted", "timeouts", "suppressed", "most_held"].into_iter().zip(counts).collect();
        let run = Run {
            elapsed: elapsed.unwrap_or_default(),
            flows,
            links,
            proxies: vec![Proxy { name: "p".into(), counters }],
            lateness: lateness.unwrap_or_default(),
            ..Run::default()
        };
        let text = serde_json::to_string(&run.document()).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        for measure in MEASURES {
            let one = match measure.subject() {
                Some(Subject::Flow) => "f",
                Some(Subject::Link) => "l",
                _ => "p",
            };
            for value in [measure.of(&run), measure.of_one(&run, one), measure.of_one(&run, "x")] {
                prop_assert!(value.is_none_or(f64::is_finite), "{}: {value:?}", measure.name);
            }
        }
    }
}
