//! Every sort of mistake in a scenario, and the one line it is answered with.

use bentpipe_scenario::{Known, Problems, Scenario};
use proptest::prelude::*;

const GEO: &str = r#"name = "geo"
seed = 1
time_limit = "60s"
[hosts.terminal]
receive_buffer = ["4096B", "16777216B", "67108864B"]
[hosts.server]
congestion_control = "cubic"
[gateways.hub]
sat = "space"
lan = "ground"
[links.space]
ends = ["terminal", "hub"]
rate = "10Mbit/s"
delay = "300ms"
queue = { kind = "drop-tail", bytes = "750kB" }
packet_error_rate = "1%"
[links.ground]
ends = ["hub", "server"]
[[flows]]
kind = "bulk"
from = "server"
to = "terminal"
opened_by = "terminal"
duration = "30s"
"#;

/// What is said when `right` in the scenario is replaced by `wrong`.
fn said(right: &str, wrong: &str) -> String {
    assert_eq!(GEO.matches(right).count(), 1, "{right:?} must occur once");
    let text = GEO.replace(right, wrong);
    match Scenario::parse("geo.toml", &text) {
        Ok(_) => "nothing".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn the_scenario_itself_is_right() {
    Scenario::parse("geo.toml", GEO).unwrap();
}

/// What stands in the scenario, what is put there instead, and parts of the answer.
const CASES: &[(&str, &str, &[&str])] = &[
    // Keys.
    (
        "rate = \"10M",
        "raet = \"10M",
        &[
            "geo.toml:13:1: unknown key `raet` in [links.space]: expected ",
            "; did you mean `rate`?",
        ],
    ),
    (
        "seed = 1",
        "sede = 1",
        &["geo.toml:2:1:", "did you mean `seed`?"],
    ),
    (
        "[hosts.server]",
        "[host.server]",
        &["6:2:", "did you mean `hosts`?"],
    ),
    (
        "kind = \"bulk\"",
        "bulk = 1",
        &["20:1: unknown key `bulk` in [flows]"],
    ),
    (
        "seed = 1",
        "sweep = 1",
        &["2:9: `sweep` makes a study", "`bentpipe study run`"],
    ),
    (
        "name = \"geo\"\n",
        "",
        &["1:1: the file lacks `name`: expected `name = \"geo\"`"],
    ),
    ("from = \"server\"\n", "", &["19:1: [flows] lacks `from`"]),
    (
        "seed = 1",
        "seed = 1\nseed = 2",
        &["3:1: not TOML: duplicate key"],
    ),
    // Units and values.
    (
        "\"10Mbit/s\"",
        "\"10MB/s\"",
        &[
            "geo.toml:13:8: `10MB/s` is not a rate: expected a positive number",
            "did you mean `10Mbit/s`?",
        ],
    ),
    ("\"10Mbit/s\"", "10", &["13:8: `10` is not a rate"]),
    (
        "\"10Mbit/s\"",
        "\"0bit/s\"",
        &["13:8: `0bit/s` is not a rate"],
    ),
    (
        "\"300ms\"",
        "\"300msec\"",
        &["14:9:", "did you mean `300ms`?"],
    ),
    (
        "\"300ms\"",
        "\"-300ms\"",
        &["14:9: `-300ms` is not a duration"],
    ),
    (
        "\"300ms\"",
        "\"300h\"",
        &["14:9: a delay of more than a day"],
    ),
    (
        "\"1%\"",
        "\"101%\"",
        &["16:21: `101%` is not a probability"],
    ),
    ("\"1%\"", "1.5", &["16:21: `1.5` is not a probability"]),
    ("\"1%\"", "-1", &["16:21: `-1` is not a probability"]),
    (
        "seed = 1",
        "seed = -1",
        &["2:8: `-1` is not a natural number"],
    ),
    (
        "seed = 1",
        "seed = \"one\"",
        &["2:8: `\"one\"` is not a natural number"],
    ),
    (
        "seed = 1",
        "ip = 5",
        &["2:6: there is no IPv5: expected `4` or `6`"],
    ),
    ("\"60s\"", "\"0s\"", &["3:14: a time limit of nothing"]),
    (
        "\"4096B\", \"16777216B\"",
        "\"16777216B\", \"4096B\"",
        &[
            "5:18:",
            "cannot be a buffer: expected smallest, initial and largest",
        ],
    ),
    (
        "\"4096B\", \"16777216B\"",
        "\"4096B\"",
        &["5:18: `receive_buffer` has 2 values"],
    ),
    ("\"67108864B\"", "\"2GiB\"", &["5:18:", "below 2 GiB"]),
    (
        "congestion_control = \"cubic\"",
        "congestion_control = \"cubic!\"",
        &[
            "7:22: `cubic!` cannot be a congestion control",
            "did you mean `cubic`?",
        ],
    ),
    (
        "\"drop-tail\"",
        "\"droptail\"",
        &["15:18:", "did you mean `drop-tail`?"],
    ),
    (
        "bytes = \"750kB\"",
        "bytes = \"750KB\"",
        &["15:39:", "did you mean `750kB`?"],
    ),
    (
        "bytes = \"750kB\"",
        "bytes = \"1B\", packets = 9",
        &["15:9: the queue's size"],
    ),
    (
        ", bytes = \"750kB\"",
        "",
        &["15:9: the queue's size is not clear"],
    ),
    (
        "rate = \"10Mbit/s\"\n",
        "",
        &["14:9: a queue without a rate"],
    ),
    (
        "delay = \"300ms\"",
        "mtu = \"100B\"",
        &["14:7: an MTU of 100B: expected 1280B"],
    ),
    // The simulator's keys.
    (
        "[hosts.server]",
        "[hosts.server]\npreset = \"ns-2\"",
        &["7:10: unknown preset `ns-2`: expected `rfc` or `ns2`; did you mean `ns2`?"],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { min_rot = \"1s\" }",
        &[
            "7:9: unknown key `min_rot` in [hosts.server.tcp]",
            "did you mean `min_rto`?",
        ],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { initial_window = 0 }",
        &["an initial window of 0 segments: expected 1 to 1000000"],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { min_rto = \"2s\", max_rto = \"1s\" }",
        &["a `min_rto` above `max_rto`"],
    ),
    (
        "\"drop-tail\", bytes",
        "\"red\", bytes",
        &["15:9: [links.space.queue] lacks `min_threshold`: expected `min_threshold = \"50kB\"`"],
    ),
    (
        "\"drop-tail\", bytes = \"750kB\"",
        "\"red\", packets = 9, min_threshold = 5, max_threshold = 5",
        &["15:73: thresholds of 5 and 5 in a queue of 9"],
    ),
    (
        "\"drop-tail\", bytes = \"750kB\"",
        "\"red\", packets = 9, min_threshold = 2, max_threshold = 5, weight = 0",
        &["a weight of 0: expected more than 0"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 0.5, error_rate = \"1%\" }",
        &["16:26: a mean burst of 0.5 packets: expected at least 1"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 2, error_rate = \"70%\" }",
        &["16:42: an error rate of 0.7 with bursts of 2 packets: expected at most 0.66"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 2, to_good = 0.5 }",
        &["16:11: the bursts of errors are not clear"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "outage = [{ start = \"1s\", length = \"2s\", every = \"2s\" }]",
        &["16:50: an outage that begins again before it ends"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "drops = [3, 3]",
        &["16:9: `drops` are not in order"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snop\"\n[[flows]]",
        &["20:8: unknown kind of PEP `snop`", "did you mean `snoop`?"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snoop\"\nnode = \"server\"\nlink = \"space\"\n[[flows]]",
        &["21:8: `server` is no router or gateway: expected `hub`"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"sapce\"\n[[flows]]",
        &["22:8: `sapce` is no link of `hub`", "did you mean `space`?"],
    ),
    (
        "kind = \"bulk\"",
        "kind = \"on-of\"",
        &[
            "20:8: unknown kind of flow `on-of`",
            "did you mean `on-off`?",
        ],
    ),
    (
        "kind = \"bulk\"",
        "kind = \"request-response\"",
        &["19:1: [flows] lacks `response`"],
    ),
    (
        "kind = \"bulk\"",
        "congestion_control = \"reno\"\nvariant = \"reno\"",
        &["21:11: a variant is a congestion control and a recovery"],
    ),
    (
        "kind = \"bulk\"",
        "count = 0",
        &["20:9: 0 flows in one: expected a `count` of 1 to 10000"],
    ),
    (
        "kind = \"bulk\"",
        "name = \"fourteenletter\"\ncount = 2",
        &["20:8: `fourteenletter-2` is not a name"],
    ),
    // Names.
    (
        "[\"terminal\", \"hub\"]",
        "[\"terminal\", \"hubb\"]",
        &[
            "12:8: link `space` leads to `hubb`, which is no node",
            "did you mean `hub`?",
        ],
    ),
    (
        "[\"terminal\", \"hub\"]",
        "[\"hub\", \"hub\"]",
        &["12:8: both ends of link `space`"],
    ),
    (
        "[\"terminal\", \"hub\"]",
        "[\"terminal\"]",
        &["12:8: `ends` has 1 values"],
    ),
    (
        "sat = \"space\"",
        "sat = \"spice\"",
        &[
            "9:7: `spice` is no link of gateway `hub`",
            "did you mean `space`?",
        ],
    ),
    (
        "sat = \"space\"",
        "sat = \"ground\"",
        &["10:7: both legs of gateway `hub`"],
    ),
    (
        "[hosts.server]",
        "[hosts.hub]",
        &["8:11: a second node named `hub`"],
    ),
    (
        "[hosts.server]",
        "[hosts.\"a b\"]",
        &["6:8: `a b` is not a name"],
    ),
    (
        "to = \"terminal\"",
        "to = \"terminl\"",
        &["22:6:", "did you mean `terminal`?"],
    ),
    (
        "to = \"terminal\"",
        "to = \"hub\"",
        &["22:6: `hub` is no host"],
    ),
    (
        "to = \"terminal\"",
        "to = \"server\"",
        &["22:6: flow `flow1` goes from `server`"],
    ),
    (
        "[\"hub\", \"server\"]",
        "[\"hub\", \"terminal\"]",
        &["22:6: no links lead from"],
    ),
    (
        "opened_by = \"terminal\"",
        "opened_by = \"hub\"",
        &["23:13: `hub` is no end of flow `flow1`"],
    ),
    // Flows.
    (
        "kind = \"bulk\"",
        "kind = \"bluk\"",
        &["20:8:", "did you mean `bulk`?"],
    ),
    (
        "duration = \"30s\"",
        "",
        &["19:1: [flows] does not say how much to send"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"1s\"\nbytes = \"1B\"",
        &["24:12: [flows]"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"30s\"\npath_rate = \"9Mbit/s\"",
        &["25:13: `cubic` does not ask for the rate of its path"],
    ),
    (
        "duration = \"30s\"",
        "bytes = \"0B\"",
        &["24:9: a flow of no bytes"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"61s\"",
        &["24:12: flow `flow1` lasts until 61s"],
    ),
    (
        "[[flows]]",
        "[flows]",
        &["19:1: `flows` is a table: expected tables under `[[flows]]`"],
    ),
];

#[test]
fn each_mistake_is_answered_with_place_expectation_and_suggestion() {
    let mut failures = String::new();
    for (right, wrong, parts) in CASES {
        let said = said(right, wrong);
        for part in parts.iter().filter(|part| !said.contains(**part)) {
            failures += &format!(
                "{wrong:?}: {part:?} is not in
{said}

"
            );
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn names_of_other_crates_are_known_where_they_are_given() {
    let known = Known {
        variants: &["tahoe", "reno"],
        controls: &["reno", "cubic"],
        measures: &[],
    };
    let said = |right: &str, wrong: &str| {
        let text = GEO.replace(right, wrong);
        Scenario::parse("geo.toml", &text).unwrap();
        Scenario::parse_knowing("geo.toml", &text, known).map_err(|problems| problems.to_string())
    };
    assert!(said("cubic", "reno").is_ok());
    assert_eq!(
        said("cubic", "cubik").unwrap_err(),
        "geo.toml:7:22: unknown congestion control `cubik`: expected `reno` or `cubic`; \
         did you mean `cubic`?"
    );
    assert_eq!(
        said("kind = \"bulk\"", "variant = \"taho\"").unwrap_err(),
        "geo.toml:20:11: unknown variant of TCP `taho`: expected `tahoe` or `reno`; \
         did you mean `tahoe`?"
    );
}

#[test]
fn a_count_makes_flows_of_their_own() {
    let text = GEO.replace("kind = \"bulk\"", "name = \"load\"\ncount = 3");
    let flows = Scenario::parse("geo.toml", &text).unwrap().flows;
    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["load-1", "load-2", "load-3"]);
}

#[test]
fn all_mistakes_are_told_at_once_and_in_order() {
    let text = GEO
        .replace("10Mbit/s", "fast")
        .replace("seed", "sead")
        .replace("\"hub\", \"server\"", "\"hub\", \"servre\"")
        .replace("30s", "30");
    let problems = Scenario::parse("geo.toml", &text).unwrap_err();
    let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
    // The link to nowhere is only looked for when every part could be read.
    assert_eq!(lines, [2, 13, 24], "{problems}");
    let text = text.replace("\"30\"", "\"30s\"");
    let problems = Scenario::parse("geo.toml", &text).unwrap_err();
    let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [2, 13, 18], "{problems}");
}

#[test]
fn columns_count_characters_and_lines_survive_carriage_returns() {
    let text = "name = \"geo\"\r\n\"ä\" = 1\r\nx = 1\r\n";
    let said = Scenario::parse("f", text).unwrap_err().to_string();
    assert!(said.contains("f:2:1: unknown key `ä`"), "{said}");
    assert!(said.contains("f:3:1: unknown key `x`"), "{said}");
}

/// A text cut, doubled and overwritten somewhere: near enough to right to get far into the reader.
fn damaged() -> impl Strategy<Value = String> {
    let damage = (any::<prop::sample::Index>(), 0usize..30, "[\\PC\n]{0,8}");
    prop::collection::vec(damage, 1..4).prop_map(|damages| {
        let mut chars: Vec<char> = GEO.chars().collect();
        for (at, len, new) in damages {
            let start = at.index(chars.len());
            let end = (start + len).min(chars.len());
            chars.splice(start..end, new.chars());
            if chars.is_empty() {
                chars.push('x');
            }
        }
        chars.into_iter().collect()
    })
}

fn sound(result: Result<Scenario, Problems>) -> Result<(), TestCaseError> {
    match result {
        Ok(scenario) => {
            let again = Scenario::parse("again", &scenario.to_toml());
            prop_assert_eq!(
                again.map_err(|e| TestCaseError::fail(e.to_string()))?,
                scenario
            );
        }
        Err(problems) => {
            prop_assert!(problems.iter().count() > 0);
            for line in problems.to_string().lines() {
                prop_assert!(
                    line.starts_with("file:") && line.contains("expected"),
                    "{}",
                    line
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        sound(Scenario::parse("file", &text))?;
    }

    #[test]
    fn a_damaged_scenario_is_read_or_refused(text in damaged()) {
        sound(Scenario::parse("file", &text))?;
    }
}
