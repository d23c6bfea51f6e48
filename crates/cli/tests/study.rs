//! `bentpipe study run` and `bentpipe list`, as their users see them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TEXT: &str = r#"name = "small"
time_limit = "20s"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "1Mbit/s"
delay = "10ms"
[[flows]]
name = "f"
from = "a"
to = "b"
segments = 50
[[sweep]]
name = "rate"
key = "links.l.rate"
values = ["1Mbit/s", "2Mbit/s"]
[[sweep]]
name = "per"
key = "links.l.packet_error_rate"
values = [0, "1%"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..3"
[[tables]]
name = "1"
title = "Segments"
measure = "segments"
rows = "rate"
columns = "per"
[[figures]]
name = "a"
title = "Progress </script>"
kind = "time-sequence"
series = "rate"
where = { per = "0" }
"#;

fn bentpipe(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("BENTPIPE_LOG")
        .output()
        .unwrap()
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.lines().all(|line| line.starts_with("error: ")),
        "{said}"
    );
    said
}

#[test]
fn a_study_prints_its_tables_and_writes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("scenario.toml"), TEXT).unwrap();
    let expected = "table,row,column,value\n1,1Mbit/s,0,50\n1,2Mbit/s,1%,49\n";
    fs::write(folder.join("expected.csv"), expected).unwrap();
    let arguments = [
        "study",
        "run",
        ".",
        "--out",
        "out",
        "--json",
        "cells.json",
        "--csv",
        "cells.csv",
        "--report",
        "page",
    ];
    let output = bentpipe(folder, &arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("Table 1. Segments (3 seeds)"), "{said}");
    // All 50 segments arrive in time, whatever is lost: so the paper's 49 lies outside.
    assert!(said.contains("[50]") && said.contains("[49*]"), "{said}");
    assert!(said.contains("12 points, 12 of them run now"), "{said}");
    let cells: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("cells.json")).unwrap()).unwrap();
    assert_eq!(cells.as_array().unwrap().len(), 4);
    assert_eq!(
        (&cells[0]["mean"], &cells[0]["n"]),
        (&50.0.into(), &3.into())
    );
    let csv = fs::read_to_string(folder.join("cells.csv")).unwrap();
    assert_eq!(
        csv.lines().nth(1),
        Some("1,1Mbit/s,0,50,0,50,50,3,3,50,,,,")
    );
    let page = fs::read_to_string(folder.join("page/index.html")).unwrap();
    assert!(!page.contains("{{"), "every mark is replaced");
    assert!(
        !page.contains("Progress </script>"),
        "data cannot end its element"
    );
    let again = bentpipe(
        folder,
        &["study", "run", ".", "--out", "out", "--seeds", "4"],
    );
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("16 points, 4 of them run now"), "{said}");
}

/// What makes of [`TEXT`] a study as that of spoofing: points, a figure of means and two statements.
const MORE: &str = r#"
[[points]]
where = { per = "0" }
[[points]]
where = { rate = "2Mbit/s" }
[[figures]]
name = "b 1"
title = "Throughput at the sender"
kind = "lines"
x = "rate"
series = "per"
measure = ["kbps_sender", "kbps_receiver"]
[[statements]]
id = "slower"
text = "No transfer is faster than its link (ours: the slow one)"
place = "section 1"
measure = "kbps_sender"
take = "greatest"
holds = "< 1000"
each = "per"
where = { rate = "1Mbit/s" }
[[statements]]
id = "wrong"
text = "Nothing arrives"
place = "section 2"
measure = "segments"
take = "greatest"
holds = "<= 0"
why = "All 50 do."
where = { per = "0" }
"#;

#[test]
fn a_quick_run_judges_statements_and_draws_figures() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = TEXT.replace("\"1..3\"", "\"1..3\"\nquick = [1, 2]") + MORE;
    fs::write(folder.join("scenario.toml"), text).unwrap();
    let line = "study run . --quick --out out --json all.json";
    let output = bentpipe(folder, &line.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // Three of the four places are admitted, two seeds each.
    assert!(said.contains("6 points, 6 of them run now"), "{said}");
    let all = fs::read_to_string(folder.join("all.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let statements = all.as_array().unwrap().iter();
    let statements: Vec<_> = statements
        .filter(|one| one.get("statement").is_some())
        .map(|one| {
            (
                one["statement"].as_str().unwrap(),
                &one["model"],
                &one["holds"],
            )
        })
        .collect();
    // At 1 Mbit/s nothing was run with losses.
    let (holds, fails, unknown) = (true.into(), false.into(), serde_json::Value::Null);
    let models = ["per 0".into(), "per 1%".into()];
    let expected = vec![
        ("slower", &models[0], &holds),
        ("slower", &models[1], &unknown),
        ("wrong", &unknown, &fails),
    ];
    assert_eq!(statements, expected);
    let drawn = fs::read_to_string(folder.join("out/report/figure-b-1.svg")).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"));
    assert!(drawn.contains("Throughput at the sender"), "{drawn}");
    let page = fs::read_to_string(folder.join("out/report/index.html")).unwrap();
    assert!(
        page.contains("All 50 do."),
        "the reason stands in the report"
    );
}

/// Every file below `folder`, by its path there.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(folder).unwrap().to_owned();
        if path.is_dir() {
            let inner = content(&path).into_iter();
            files.extend(inner.map(|(below, text)| (name.join(below), text)));
        } else {
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

/// What jobs of an array run apart is, once merged, the folder of one run, report and all.
#[test]
fn shards_are_merged_into_the_folder_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.toml"), TEXT).unwrap();
    let run = |line: &str| bentpipe(folder, &line.split(' ').collect::<Vec<_>>());
    let said = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let whole = said(&run("study run small.toml --out whole"));
    let nothing = refused(&run("study merge small.toml --out merged"));
    assert!(nothing.contains("no shards in merged-shards"), "{nothing}");
    let wrong = run("study run small.toml --out merged --shard 4/3");
    let words = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(words.contains("`K/N`, its number from 1 to N"), "{words}");
    for shard in ["1/3", "3/3"] {
        let output = run(&format!(
            "study run small.toml --out merged --shard {shard}"
        ));
        assert!(output.status.success(), "{output:?}");
        let said = said(&output);
        assert!(
            said.starts_with(&format!("shard {shard}: 4 points, 4 of them run now")),
            "{said}"
        );
    }
    let lost = run("study merge small.toml --out merged");
    assert_eq!(lost.status.code(), Some(1));
    let words = String::from_utf8(lost.stderr).unwrap();
    assert!(words.contains("4 of 12 points are missing"), "{words}");
    assert!(words.contains("shard 2/3 lacks 4"), "{words}");
    assert!(
        run("study run small.toml --out elsewhere --shard 2/3")
            .status
            .success()
    );
    let by_name = "study merge small.toml --out merged elsewhere-shards/2-of-3";
    let merged = said(&run(by_name));
    let tables = |text: &str| text.split("12 points").next().unwrap().to_owned();
    assert_eq!(tables(&merged), tables(&whole));
    assert!(merged.contains("Table 1. Segments (3 seeds)"), "{merged}");
    let [whole, merged] = ["whole", "merged"].map(|name| content(&folder.join(name)));
    assert_eq!(
        merged.keys().collect::<Vec<_>>(),
        whole.keys().collect::<Vec<_>>()
    );
    assert!(merged == whole, "the same bytes");
}

#[test]
fn a_disk_that_fills_up_keeps_the_finished_points() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("scenario.toml"), TEXT).unwrap();
    // No file may grow beyond 8 blocks (4 kB or 8 kB, by the shell); the signal that says so is ignored, as a
    // full disk sends none.
    let line = r#"trap '' XFSZ; ulimit -f 8; exec "$0" study run . --out out --seeds 20"#;
    let output = Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_bentpipe")])
        .current_dir(folder)
        .env_remove("BENTPIPE_LOG")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let points = fs::read_to_string(folder.join("out/points.jsonl")).unwrap();
    let kept = points.lines().count();
    assert!(kept > 0 && kept < 80, "{kept}");
    assert!(points.ends_with('\n'), "no torn line: {points}");
    assert!(
        said.contains(&format!("{kept} finished points are kept; make room")),
        "{said}"
    );
    // With room again, the same command does the rest.
    let again = bentpipe(
        folder,
        &["study", "run", ".", "--out", "out", "--seeds", "20"],
    );
    let said = String::from_utf8(again.stdout).unwrap();
    let rest = 80 - kept;
    assert!(
        said.contains(&format!("80 points, {rest} of them run now")),
        "{said}"
    );
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("scenario.toml"), TEXT).unwrap();
    let said = refused(&bentpipe(
        folder,
        &["study", "run", ".", "--seeds", "1000000"],
    ));
    assert!(
        said.contains("4000000 points (2 of rate × 2 of per × 1000000 of seed)"),
        "{said}"
    );
    assert!(said.contains("--yes"), "{said}");
    let said = refused(&bentpipe(folder, &["study", "run", "none"]));
    assert!(said.contains("cannot read none"), "{said}");
    fs::write(
        folder.join("typo.toml"),
        TEXT.replace("links.l.rate", "links.l.raet"),
    )
    .unwrap();
    let said = refused(&bentpipe(folder, &["study", "run", "typo.toml"]));
    assert!(
        said.contains("typo.toml:16:7: unknown key `raet`"),
        "{said}"
    );
    fs::write(
        folder.join("word.toml"),
        TEXT.replace("\"segments\"", "\"segment\""),
    )
    .unwrap();
    let said = refused(&bentpipe(folder, &["study", "run", "word.toml"]));
    assert!(said.contains("did you mean `segments`?"), "{said}");
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        3,
        "nothing was written"
    );
}

#[test]
fn the_list_names_what_scenarios_may_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = bentpipe(folder.path(), &["list"]).stdout;
    let text = String::from_utf8(text).unwrap();
    for name in [
        "tahoe",
        "westwood",
        "drop-tail",
        "red",
        "gilbert",
        "snoop",
        "jain",
    ] {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        assert!(
            line.is_some_and(|line| line.len() > name.len() + 10),
            "{name}: {text}"
        );
    }
    let json = bentpipe(folder.path(), &["list", "--json"]).stdout;
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let peps = value["peps"].as_array().unwrap();
    let names: Vec<&str> = peps.iter().filter_map(|pep| pep["name"].as_str()).collect();
    assert_eq!(names, ["ack-filter", "snoop", "split"]);
}

#[test]
fn the_same_study_runs_in_the_lab_and_resumes_there() {
    bentpipe_os::need!(Root, Tun);
    let folder = tempfile::tempdir().unwrap();
    let text = TEXT
        .replace("segments = 50", "bytes = \"72400B\"")
        .replace("values = [0, \"1%\"]", "values = [0]")
        .replace("values = \"1..3\"", "values = \"1..1\"")
        .replace("measure = \"segments\"", "measure = \"completion\"");
    fs::write(folder.path().join("small.toml"), text).unwrap();
    let run = |engine: &str| {
        let arguments = [
            "study",
            "run",
            "small.toml",
            "--json",
            "-",
            "--engine",
            engine,
            "--lateness-limit",
            "50ms",
        ];
        let output = bentpipe(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mean = |cell: &serde_json::Value| cell["mean"].as_f64().unwrap();
        let means: Vec<f64> = cells.as_array().unwrap().iter().map(mean).collect();
        means
    };
    let (simulated, real) = (run("simulator"), run("lab"));
    assert_eq!(real.len(), 2);
    for (simulated, real) in simulated.iter().zip(&real) {
        // 50 segments over 1 or 2 Mbit/s and 20 ms, one handshake.
        assert!((real - simulated).abs() < 0.08, "{real} s, {simulated} s");
    }
    // Measured in wall time, and never measured twice: to the last digit what it was.
    assert_eq!(run("lab"), real);
    let kept = folder
        .path()
        .join("results")
        .join(folder.path().file_name().unwrap());
    let kept = fs::read_to_string(kept.join("small-lab/points.jsonl"));
    assert_eq!(kept.unwrap().lines().count(), 2);
}

/// Every point is captured under the name of its line, by either engine.
#[test]
fn points_are_captured_where_a_study_says_so() {
    bentpipe_os::need!(Root, Tun, Program("dumpcap"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let few = TEXT
        .replace("time_limit", "capture = true\ntime_limit")
        .replace("segments = 50", "bytes = \"50kB\"")
        .replace("values = \"1..3\"", "values = [1]")
        .replace("[0, \"1%\"]", "[0]");
    let (sweeps, _) = few.split_once("[[tables]]").unwrap();
    let graph = "[[time_sequences]]\nname = \"1\"\ntitle = \"The start\"\nlink = \"l\"\nnode = \"a\"\nbegin = \"0s\"\nlength = \"1s\"\n\
                 where = { rate = \"1Mbit/s\" }\n";
    fs::write(folder.join("few.toml"), format!("{sweeps}{graph}")).unwrap();
    for engine in ["simulator", "lab"] {
        let arguments = [
            "study", "run", "few.toml", "--engine", engine, "--out", engine,
        ];
        let patient = ["--lateness-limit", "50ms"];
        let output = bentpipe(folder, &[&arguments[..], &patient].concat());
        assert!(output.status.success(), "{output:?}");
        let rows = fs::read_to_string(folder.join(engine).join("points.jsonl")).unwrap();
        assert_eq!(rows.lines().count(), 2);
        let report = folder.join(engine).join("report");
        let drawing = fs::read_to_string(report.join("figure-1.svg")).unwrap();
        assert!(drawing.contains("Time-sequence graph of"), "{drawing}");
        let page = fs::read_to_string(report.join("index.html")).unwrap();
        assert!(page.contains("The start"));
        for row in rows.lines() {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            let captures = folder.join(engine).join("captures");
            let captures = captures.join(row["point"].as_str().unwrap());
            for end in ["a", "b"] {
                let file = captures.join(format!("l-{end}.pcapng"));
                let output = bentpipe(folder, &["trace", "--json", file.to_str().unwrap()]);
                let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                let sent = &json["connections"][0]["a2b"]["unique_bytes_sent"];
                assert_eq!(sent, 50_000, "{engine}: {json}");
            }
        }
    }
}
