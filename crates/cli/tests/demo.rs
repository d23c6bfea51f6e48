//! The demo for real: a short one to its end, one stopped by Ctrl-C, one killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn demo(report: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command
        .args(["demo", "--quick", "--report"])
        .arg(report)
        .args(support::PATIENT)
        .args(more);
    command
}

/// Names of namespaces and nft tables that process `pid` made.
fn left_by(pid: u32) -> Vec<String> {
    let owned = |name: &str| {
        bentpipe_os::owner::Owner::parse(name).is_some_and(|(owner, _)| owner.pid == pid)
    };
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    namespaces
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| owned(name))
        .collect()
}

/// Processes whose parent is `pid`.
fn children_of(pid: u32) -> Vec<u32> {
    let parent = |stat: &str| {
        stat.rsplit_once(") ")?
            .1
            .split(' ')
            .nth(1)?
            .parse::<u32>()
            .ok()
    };
    let listed = std::fs::read_dir("/proc").unwrap();
    listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| parent(&stat) == Some(pid))
        })
        .collect()
}

#[test]
fn a_short_demo_measures_writes_and_leaves_nothing() {
    bentpipe_os::need!(Root, Nft, Tproxy, Tun, Btf, StructOps);
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let json = folder.path().join("rows.json");
    let child = demo(&report, &["--only", "e2e-cubic,split-cubic", "--json"])
        .arg(&json)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("0% loss, limit 9.65 Mb/s"), "{table}");

    let rows: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4, "two rows, two loss rates");
    for row in rows {
        let goodput = row["goodput_mbps"].as_f64().unwrap();
        let limit = row["limit_mbps"].as_f64().unwrap();
        // Eight seconds of slow start; no TCP is faster than the link.
        assert!(goodput > 0.01 && goodput < limit, "{row}");
        // A round trip to connect and one for the first bytes: light is not faster.
        assert!(row["t_100kB_s"].as_f64().unwrap() > 1.2, "{row}");
    }
    let clean = rows[0]["goodput_mbps"].as_f64().unwrap();
    let lossy = rows[2]["goodput_mbps"].as_f64().unwrap();
    assert!(
        clean > 2.0 * lossy,
        "loss must hurt cubic: {clean} against {lossy}"
    );

    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("e2e-cubic") && page.contains("split-cubic"));
    let run = report.join("runs/split-cubic-loss5-bulk-seed1");
    assert!(run.join("scenario.toml").exists() && run.join("manifest.json").exists());
    assert_eq!(left_by(pid), Vec::<String>::new());
}

#[test]
fn ctrl_c_ends_it_with_130_and_nothing_left() {
    bentpipe_os::need!(Root, Nft, Tproxy, Tun, Btf, StructOps);
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(&folder.path().join("report"), &["--only", "split-cubic"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let running = || !left_by(pid).is_empty() && !children_of(pid).is_empty();
    wait_for("namespaces and gateways", running);
    let gateways = children_of(pid);
    interrupt(&child);
    let asked = Instant::now();
    wait_for("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(left_by(pid), Vec::<String>::new());
    for gateway in gateways {
        assert!(
            !Path::new(&format!("/proc/{gateway}")).exists(),
            "gateway {gateway} still runs"
        );
    }
}

#[test]
fn what_a_killed_one_leaves_is_swept() {
    bentpipe_os::need!(Root, Nft, Tproxy, Tun, Btf, StructOps);
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(&folder.path().join("report"), &["--only", "split-cubic"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    wait_for("namespaces and gateways", || {
        !left_by(pid).is_empty() && !children_of(pid).is_empty()
    });
    let gateways = children_of(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    for gateway in gateways {
        let proc = format!("/proc/{gateway}");
        wait_for("the end of the gateways", || !Path::new(&proc).exists());
    }
    let clean = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["lab", "clean"])
        .output()
        .unwrap();
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    // Another test's run may have swept before us; then there was nothing to say.
    let said = String::from_utf8(clean.stdout).unwrap();
    assert!(
        said.contains("removed namespace") || said.contains("Nothing"),
        "{said}"
    );
    assert_eq!(left_by(pid), Vec::<String>::new());
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{what} did not come"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
