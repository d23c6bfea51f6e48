//! The commands at work: exit code 0, what they print, and what the lab relies on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_os::netns::Netns;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::{PROGRAM, WIRE};

#[test]
fn lab_run_prints_and_writes_its_flows() {
    bentpipe_os::need!(Root);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("wire.toml"), WIRE).unwrap();
    let output = Command::new(PROGRAM)
        .args(["lab", "run"])
        .arg(path("wire.toml"))
        .arg("--out")
        .arg(path("out"))
        .arg("--json")
        .arg(path("flows.json"))
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        table.contains("flow1") && table.contains("0.100 MB"),
        "{table}"
    );
    let flows = std::fs::read_to_string(path("flows.json")).unwrap();
    let flows: Value = serde_json::from_str(&flows).unwrap();
    assert_eq!(flows[0]["outcome"], "finished");
    assert_eq!(flows[0]["received_bytes"], 100_000);
    assert_eq!(flows[0]["cc"], "cubic");
    // Runs again from its own folder.
    let again = Command::new(PROGRAM)
        .args(["lab", "run"])
        .arg(path("out/scenario.toml"))
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(0), "{again:?}");
}

#[test]
fn a_run_that_cannot_be_written_is_the_callers_mistake() {
    bentpipe_os::need!(Root);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.toml");
    std::fs::write(&file, WIRE).unwrap();
    let output = Command::new(PROGRAM)
        .args(["lab", "run"])
        .arg(&file)
        .arg("--out")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: cannot write ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn gateway_run_says_ready_once_and_ends_with_0_on_sigterm() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let netns = Netns::create("cliready").unwrap();
    netns
        .run(|| {
            for arguments in [
                ["link", "set", "lo", "up"].as_slice(),
                &["link", "add", "v0", "type", "veth", "peer", "name", "v1"],
                &["link", "set", "v0", "up"],
                &["link", "set", "v1", "up"],
            ] {
                assert!(
                    Command::new("ip")
                        .args(arguments)
                        .status()
                        .unwrap()
                        .success()
                );
            }
        })
        .unwrap();
    let tables = || {
        let listed = netns
            .command("nft")
            .args(["list", "tables"])
            .output()
            .unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    let mut gateway = netns
        .command(PROGRAM)
        .args([
            "gateway", "run", "--lan", "v0", "--sat", "v1", "--rate", "10Mbit/s",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert!(tables().contains("bentpipe"), "ready means intercepting");
    let pid = gateway.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none(), "one line on stdout, and no more");
    assert_eq!(tables(), "");
}
