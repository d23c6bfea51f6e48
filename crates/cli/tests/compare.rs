//! `bentpipe compare` from end to end: a short scenario on the kernel and in the simulator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use std::process::{Command, Output};
use support::{PATIENT, PROGRAM};

/// Two packets are lost on the way of the data, and the queue is never full.
const SHORT: &str = r#"
name = "short"
time_limit = "10s"
[hosts.a]
[hosts.a.tcp]
recovery = "prr-rack"
rto_variance = "200ms"
[hosts.b]
[hosts.b.tcp]
recovery = "prr-rack"
[links.link]
ends = ["a", "b"]
rate = "2Mbit/s"
delay = "50ms"
queue = { packets = 100 }
drops = [7, 42]
[links.link.reverse]
drops = []
[[flows]]
name = "data"
from = "a"
to = "b"
duration = "4s"
[[sweep]]
name = "control"
key = "flows.data.congestion_control"
values = ["reno", "cubic"]
"#;

fn compare(scenario: &str, options: &[&str]) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("short.toml");
    std::fs::write(&file, scenario).unwrap();
    let output = Command::new(PROGRAM)
        .arg("compare")
        .arg(&file)
        .args(PATIENT)
        .args(options)
        .current_dir(folder.path())
        .output()
        .unwrap();
    (output, folder)
}

#[test]
fn the_same_losses_meet_both_sides() {
    bentpipe_os::need!(Root, Tun);
    let options = ["--runs", "1", "--report", "report", "--json", "rows.json"];
    let (output, folder) = compare(SHORT, &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("reno") && table.contains("cubic"), "{table}");
    let rows = std::fs::read_to_string(folder.path().join("rows.json")).unwrap();
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    for row in rows.as_array().unwrap() {
        for side in ["lab", "simulator"] {
            // Nothing else is lost: what is sent again is what the list says.
            assert_eq!(row[side]["n"], 1, "{row}");
            assert_eq!(row[side]["sent_again"], 2.0, "{side}: {row}");
            let goodput = row[side]["mean_mbps"].as_f64().unwrap();
            assert!(goodput > 1.0 && goodput < 2.0 * 1448.0 / 1500.0, "{row}");
        }
    }
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("\"case\":\"cubic\"") && !page.contains("{{"));
}

#[test]
fn what_only_the_lab_knows_is_refused_before_it_runs() {
    bentpipe_os::need!(Root, Tun);
    let unknown = SHORT.replace("\"cubic\"]", "\"dctcp\"]");
    assert_ne!(unknown, SHORT);
    let (output, _) = compare(&unknown, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.lines().count() == 1 && said.contains("congestion control `dctcp`"),
        "{said}"
    );
}

/// A gateway that snoops, and one that splits: one of 50 segments is lost behind it, and both sides tell what it sent again.
#[test]
fn a_gateways_local_repairs_are_counted_on_both_sides() {
    bentpipe_os::need!(Root, Tun, Nft, Tproxy);
    for action in ["snoop", "split"] {
        repaired(action);
    }
}

fn repaired(action: &str) {
    let path = format!(
        "[gateways.hub]\nlan = \"ground\"\nsat = \"link\"\n\
         [gateways.hub.split]\npolicy = [{{ action = \"{action}\" }}]\n\
         [links.ground]\nends = [\"a\", \"hub\"]\n[links.link]"
    );
    let text = SHORT
        .replace("[links.link]", &path)
        .replace("[\"a\", \"b\"]", "[\"hub\", \"b\"]")
        .replace("drops = [7, 42]", "packet_error_rate = \"2%\"")
        .replace("drops = []", "packet_error_rate = \"0\"")
        .replace("[\"reno\", \"cubic\"]", "[\"reno\"]");
    let (output, _) = compare(&text, &["--runs", "1", "--json", "-"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for side in ["lab", "simulator"] {
        let local = rows[0][side]["local"].as_f64().unwrap();
        let again = rows[0][side]["sent_again"].as_f64().unwrap();
        // Some 600 segments in 4 s, of which 2% are lost.
        assert!(
            local >= 4.0 && again <= local,
            "{action}, {side}: {}",
            rows[0]
        );
    }
}
