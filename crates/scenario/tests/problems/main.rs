//! Every sort of mistake in a scenario, and the one line it is answered with.

mod cases;

use bentpipe_config::Problems;
use bentpipe_scenario::{Known, Scenario};
use cases::CASES;
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
        apps: &["saratoga", "scp"],
        measures: &[],
        renamed: &[],
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
    let file = "bytes = \"2MB\"\napp = ";
    assert!(said("duration = \"30s\"", &format!("{file}\"scp\"")).is_ok());
    assert_eq!(
        said("duration = \"30s\"", &format!("{file}\"saratogo\"")).unwrap_err(),
        "geo.toml:25:7: unknown program `saratogo`: expected `saratoga` or `scp`; \
         did you mean `saratoga`?"
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
