//! A run of the lab on a host that leaves its gateway no processor is no result.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_os::need;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{PROGRAM, send_signal};

const SCENARIO: &str = r#"
name = "hung"
time_limit = "12s"
[hosts.server]
[hosts.client]
[gateways.hub]
sat = "space"
lan = "ground"
[gateways.hub.split]
[links.ground]
ends = ["server", "hub"]
[links.space]
ends = ["hub", "client"]
rate = "10Mbit/s"
delay = "10ms"
[[flows]]
from = "server"
to = "client"
start = "4s"
bytes = "5MB"
"#;

/// Its connection goes end to end while the gateway hangs, and what it measures is no split.
#[test]
fn a_gateway_that_hangs_as_connections_begin_makes_the_run_no_result() {
    need!(Root, Nft, Tproxy, Tun, Btf, StructOps, Program("pgrep"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("hung.toml"), SCENARIO).unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(["lab", "run"])
        .arg(path("hung.toml"))
        .args(["--lateness-limit", "1s", "--live"])
        .arg(path("live"))
        .arg("--out")
        .arg(path("out"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    // The first line tells what the run is, before the gateway is ready.
    while !fs::read_to_string(path("live")).is_ok_and(|text| text.lines().count() > 1) {
        assert!(Instant::now() < until, "the run does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = Command::new("pgrep")
        .args(["-P", &child.id().to_string(), "-f", "gateway run"])
        .output()
        .unwrap();
    let gateway: u32 = String::from_utf8_lossy(&found.stdout)
        .trim()
        .parse()
        .unwrap();
    send_signal(gateway, "STOP");
    std::thread::sleep(Duration::from_secs(6));
    send_signal(gateway, "CONT");
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(
        said.contains("gateway `hub` had no processor when connections began"),
        "{said}"
    );
}
