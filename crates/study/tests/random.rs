//! Whatever a scenario holds that the simulator runs, each measure of it is a number or there is none.

use bentpipe_outcome::{MEASURES, Subject};
use bentpipe_scenario::Scenario;
use proptest::prelude::*;

/// A link: rate, delay, queue and errors, each of them perhaps none.
fn link() -> impl Strategy<Value = String> {
    let rate = prop::sample::select(vec![
        "",
        "rate = \"1kbit/s\"",
        "rate = \"2Mbit/s\"",
        "rate = \"10Gbit/s\"",
    ]);
    let delay = prop::sample::select(vec![
        "delay = \"1us\"",
        "delay = \"3ms\"",
        "delay = \"300ms\"",
    ]);
    let queue = prop::sample::select(vec![
        "",
        "queue = { packets = 1 }",
        "queue = { bytes = \"1500B\" }",
        "queue = { kind = \"red\", packets = 20, min_threshold = 5, max_threshold = 15 }",
        "queue = { kind = \"blue\", packets = 9 }",
    ]);
    let errors = prop::sample::select(vec![
        "",
        "packet_error_rate = \"100%\"",
        "packet_error_rate = \"10%\"",
        "bit_error_rate = \"1e-5\"",
        "outage = [{ start = \"0s\", length = \"1s\" }]",
    ]);
    (rate, delay, queue, errors).prop_map(|(rate, delay, queue, errors)| {
        // A queue stands before a rate alone.
        let queue = if rate.is_empty() { "" } else { queue };
        [rate, delay, queue, errors].join("\n")
    })
}

/// A flow, one way or the other.
fn flow() -> impl Strategy<Value = String> {
    let amount = prop::sample::select(vec![
        "segments = 0",
        "segments = 1",
        "bytes = \"1B\"",
        "bytes = \"100kB\"",
        "duration = \"1ms\"",
        "duration = \"2s\"\nkind = \"on-off\"\non = \"100ms\"\noff = \"1s\"\nrate = \"1Mbit/s\"",
        "bytes = \"50kB\"\nkind = \"request-response\"\nresponse = \"10kB\"\nthink = \"10ms\"",
    ]);
    let start = prop::sample::select(vec!["0s", "1s", "2900ms"]);
    let variant = prop::sample::select(vec!["tahoe", "sack", "vegas", "hybla", "cubic"]);
    (amount, start, variant, any::<bool>()).prop_map(|(amount, start, variant, forth)| {
        let (from, to) = if forth { ("a", "b") } else { ("b", "a") };
        format!("[[flows]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"{start}\"\nvariant = \"{variant}\"\n{amount}\n")
    })
}

fn scenario() -> impl Strategy<Value = String> {
    let pep = prop::sample::select(vec!["", "snoop", "split", "ack-filter"]);
    let flows = prop::collection::vec(flow(), 1..4);
    let preset = prop::sample::select(vec!["rfc", "ns2"]);
    (link(), link(), flows, pep, preset).prop_map(|(ground, space, flows, pep, preset)| {
        // A split is a gateway, the others stand at a router.
        let middle = match pep {
            "" => "[routers.r]\n".to_owned(),
            "split" => "[gateways.r]\nlan = \"ground\"\nsat = \"space\"\n".to_owned(),
            kind => format!("[routers.r]\n[peps.p]\nkind = \"{kind}\"\nnode = \"r\"\nlink = \"space\"\n"),
        };
        format!(
            "name = \"random\"\ntime_limit = \"5s\"\n[hosts.a]\npreset = \"{preset}\"\n[hosts.b]\npreset = \"{preset}\"\n\
             {middle}[links.ground]\nends = [\"a\", \"r\"]\n{ground}\n[links.space]\nends = [\"r\", \"b\"]\n{space}\n{}",
            flows.concat()
        )
    })
}

/// What may be asked for of single flows, links and proxies; some of them are not there.
fn single() -> Vec<String> {
    let of = |subject: Option<Subject>| -> &[&str] {
        match subject {
            Some(Subject::Flow) => &["flow1", "flow2", "none"],
            Some(Subject::Link) => &["ground", "space", "none"],
            Some(Subject::Proxy) => &["p", "none"],
            None => &[],
        }
    };
    let all = MEASURES.iter();
    all.flat_map(|one| {
        of(one.subject())
            .iter()
            .map(move |name| format!("{}({name})", one.name))
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_measure_of_a_random_scenario_is_no_number(text in scenario()) {
        let scenario = Scenario::parse("random.toml", &text).map_err(|all| TestCaseError::fail(format!("{all}\n{text}")))?;
        let single = single();
        // What the simulator refuses it refuses with words.
        match bentpipe_study::simulate(&scenario, &single) {
            Ok(measures) => {
                for (name, value) in &measures {
                    prop_assert!(value.is_none_or(f64::is_finite), "{name}: {value:?}\n{text}");
                }
                prop_assert!(single.iter().all(|name| measures.contains_key(name)));
                prop_assert!(measures.contains_key("goodput") && measures.contains_key("delivered"));
            }
            Err(why) => prop_assert!(why.len() > 20, "{why}\n{text}"),
        }
    }
}
