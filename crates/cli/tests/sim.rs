//! `bentpipe sim run`: what it prints, its files, and what other programs read in its captures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use support::{PROGRAM, WIRE};

/// Two links, losses on the second: 200 kB are 139 segments of 1448 bytes, the last one short.
const LOSSY: &str = r#"
name = "lossy"
[hosts.a]
[hosts.c]
[routers.b]
[links.near]
ends = ["a", "b"]
rate = "10Mbit/s"
delay = "5ms"
[links.far]
ends = ["b", "c"]
rate = "2Mbit/s"
delay = "20ms"
packet_error_rate = "3%"
queue = { packets = 8 }
[[flows]]
name = "f"
from = "a"
to = "c"
bytes = "200kB"
"#;

fn sim_run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["sim", "run"])
        .args(arguments)
        .current_dir(folder)
        .env_remove("BENTPIPE_LOG")
        .output()
        .unwrap()
}

/// The figures of a run of [`LOSSY`] whose captures and traces are in `folder/out`.
fn lossy(folder: &Path) -> Value {
    fs::write(folder.join("lossy.toml"), LOSSY).unwrap();
    let arguments = "lossy.toml --json out.json --pcap out --trace out";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = sim_run(folder, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("0.200 MB"), "{table}");
    serde_json::from_str(&fs::read_to_string(folder.join("out.json")).unwrap()).unwrap()
}

/// The IPv4 source of each packet of a capture: of its enhanced packet blocks.
fn sources(capture: &Path) -> Vec<[u8; 4]> {
    let bytes = fs::read(capture).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut sources) = (0, Vec::new());
    while at < bytes.len() {
        if word(at) == 6 {
            sources.push(bytes[at + 40..at + 44].try_into().unwrap());
        }
        at += word(at + 4) as usize;
    }
    sources
}

#[test]
fn figures_and_traces_tell_of_the_whole_flow() {
    let folder = tempfile::tempdir().unwrap();
    let figures = lossy(folder.path());
    let flow = &figures["flows"][0];
    assert_eq!(
        (&flow["name"], &flow["outcome"], &flow["received_bytes"]),
        (&"f".into(), &"finished".into(), &200_000.into())
    );
    assert_ne!(flow["segments_again"], 0, "the seed loses something");
    let trace = fs::read_to_string(folder.path().join("out/f.csv")).unwrap();
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("time_s,event,segment"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let times: Vec<f64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(times.is_sorted());
    let of = |event: &str| -> Vec<u64> {
        let rows = rows.iter().filter(|row| row[1] == event);
        rows.map(|row| row[2].parse().unwrap()).collect()
    };
    assert_eq!(of("received").iter().max(), Some(&139));
    assert_eq!(of("sent"), (1..=139).collect::<Vec<_>>());
    assert_eq!(flow["segments_again"], of("sent again").len());
}

#[test]
fn json_goes_to_stdout_in_place_of_the_tables_and_a_seed_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("lossy.toml"), LOSSY).unwrap();
    let run = |more: &[&str]| {
        let output = sim_run(folder, &[&["lossy.toml", "--json", "-"], more].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let seven = run(&["--seed", "7"]);
    assert_eq!(seven["seed"], 7);
    assert_eq!(seven, run(&["--seed", "7", "--wire"]));
    assert_ne!(seven["flows"], run(&["--seed", "8"])["flows"]);
}

#[test]
fn captures_hold_what_the_links_count() {
    let folder = tempfile::tempdir().unwrap();
    let figures = lossy(folder.path());
    let links = figures["links"].as_array().unwrap();
    assert_eq!(links.len(), 4, "two links, two directions");
    let sources =
        |link: &str, node: &str| sources(&folder.path().join(format!("out/{link}-{node}.pcapng")));
    // The first packet is the SYN of a.
    let a = sources("near", "a")[0];
    let mut lost = 0;
    for (link, from, to, of_a) in [
        ("near", "a", "b", true),
        ("far", "b", "c", true),
        ("far", "c", "b", false),
        ("near", "b", "a", false),
    ] {
        let of = |node| {
            let all = sources(link, node).into_iter();
            all.filter(|source| (*source == a) == of_a).count() as u64
        };
        let count = |what: &str| {
            let mut all = links.iter();
            let line = all.find(|line| line["link"] == link && line["from"] == from);
            line.unwrap()[what].as_u64().unwrap()
        };
        assert_eq!(
            of(from),
            count("packets") + count("refused"),
            "{link} at {from}"
        );
        let delivered = count("packets") - count("corrupted") - count("lost");
        // The run ends with the flow: its last packets are still on the way.
        assert!(
            (delivered - 2..=delivered).contains(&of(to)),
            "{link} at {to}: {} of {delivered}",
            of(to)
        );
        lost += count("lost");
    }
    assert_ne!(lost, 0, "the seed loses something");
}

/// What tshark says of a packet that is not as it should be; losses are no fault of a capture.
const COMPLAINTS: &str = "_ws.malformed || tcp.checksum.status == \"Bad\" || \
     ip.checksum.status == \"Bad\" || _ws.expert.severity == \"Error\"";

#[test]
fn tshark_reads_the_captures_without_complaint() {
    bentpipe_os::need!(Program("tshark"));
    let folder = tempfile::tempdir().unwrap();
    lossy(folder.path());
    for name in ["near-a", "near-b", "far-b", "far-c"] {
        let file = folder.path().join(format!("out/{name}.pcapng"));
        let lines = |filter: &str| {
            let mut tshark = Command::new("tshark");
            tshark.arg("-r").arg(&file).args(["-Y", filter]);
            tshark.args(["-o", "tcp.check_checksum:TRUE"]);
            tshark.args(["-o", "ip.check_checksum:TRUE"]);
            let output = tshark.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {said}");
            assert!(!said.contains("cut short"), "{name}: {said}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(lines("tcp").lines().count(), sources(&file).len(), "{name}");
        assert_eq!(lines(COMPLAINTS), "", "{name}");
    }
}

#[test]
fn tcptrace_sees_one_whole_connection() {
    bentpipe_os::need!(Program("tcptrace"));
    let folder = tempfile::tempdir().unwrap();
    lossy(folder.path());
    for name in ["near-a", "near-b", "far-b", "far-c"] {
        let file = folder.path().join(format!("out/{name}.pcapng"));
        let output = Command::new("tcptrace").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
        let text = String::from_utf8(output.stdout).unwrap();
        let count = sources(&file).len();
        let seen = format!("{count} packets seen, {count} TCP packets traced");
        assert!(
            text.contains(&seen) && text.contains("(complete)"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_run_or_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |arguments: &[&str]| {
        let output = sim_run(folder, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty(), "{said}");
        assert!(
            said.lines().all(|line| line.starts_with("error: ")),
            "{said}"
        );
        said
    };
    let said = refused(&["none.toml"]);
    assert!(
        said.contains("cannot read the scenario `none.toml`"),
        "{said}"
    );
    fs::write(folder.join("typo.toml"), WIRE.replace("bytes =", "byte =")).unwrap();
    let said = refused(&["typo.toml"]);
    assert!(
        said.contains("typo.toml:10:1") && said.contains("`bytes`"),
        "{said}"
    );
    fs::write(folder.join("lossy.toml"), LOSSY).unwrap();
    for option in ["--pcap", "--trace"] {
        let said = refused(&["lossy.toml", option, "lossy.toml/below"]);
        assert!(said.contains("lossy.toml/below"), "{said}");
    }
}
