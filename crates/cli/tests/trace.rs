//! `bentpipe trace`: its counts are tcptrace's, on captures of the simulator and of real programs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;
mod tcptrace;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;
use tcptrace::compare;

/// Losses in both directions, two flows, and a receiver of 20 kB.
const LOSSY: &str = r#"
name = "lossy"
[hosts.a]
[hosts.b]
[hosts.b.tcp]
receive_window = "20kB"
[links.wire]
ends = ["a", "b"]
rate = "2Mbit/s"
delay = "30ms"
packet_error_rate = "3%"
queue = { packets = 8 }
[[flows]]
from = "a"
to = "b"
bytes = "200kB"
[[flows]]
from = "b"
to = "a"
bytes = "200kB"
"#;

/// The same on the kernel's TCP, one flow.
const LOSSY_LAB: &str = r#"
name = "lossy"
[hosts.a]
[hosts.b]
[links.wire]
ends = ["a", "b"]
rate = "4Mbit/s"
delay = "20ms"
packet_error_rate = "3%"
queue = { packets = 20 }
[[flows]]
from = "a"
to = "b"
bytes = "400kB"
"#;

#[test]
fn counts_are_those_of_tcptrace_on_simulated_connections() {
    bentpipe_os::need!(Program("tcptrace"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // A flow begins behind time 0, which tcptrace takes for no time.
    fs::write(
        folder.join("lossy.toml"),
        LOSSY.replace("bytes =", "start = \"1s\"\nbytes ="),
    )
    .unwrap();
    let mut connections = 0;
    for seed in ["1", "2", "3"] {
        let sim = ["sim", "run", "lossy.toml", "--pcap", seed, "--seed", seed];
        let output = Command::new(PROGRAM)
            .args(sim)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        for end in ["a", "b"] {
            connections += compare(&folder.join(format!("{seed}/wire-{end}.pcapng")));
        }
    }
    assert_eq!(connections, 12);
}

/// A namespace of its own with its loopback up, programs in it, and what dumpcap saw of them.
#[test]
fn counts_are_those_of_tcptrace_on_real_programs() {
    bentpipe_os::need!(
        Root,
        Program("tcptrace"),
        Program("dumpcap"),
        Program("iperf3"),
        Program("curl"),
        Program("python3")
    );
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let netns = bentpipe_os::netns::Netns::create("trace").unwrap();
    let quiet = |program: &str, arguments: &[&str]| {
        let mut command = netns.command(program);
        command.args(arguments).current_dir(folder);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        command
    };
    assert!(
        quiet("ip", &["link", "set", "lo", "mtu", "1500", "up"])
            .status()
            .unwrap()
            .success()
    );
    fs::write(folder.join("file"), vec![7; 3_000_000]).unwrap();
    let mut dumpcap = quiet(
        "dumpcap",
        &[
            "-q",
            "-i",
            "lo",
            "-f",
            "tcp",
            "-s",
            "100",
            "-w",
            "real.pcapng",
        ],
    )
    .spawn()
    .unwrap();
    let web = ["-m", "http.server", "8000", "--bind", "127.0.0.1"];
    let mut web = quiet("python3", &web).spawn().unwrap();
    let mut iperf = quiet("iperf3", &["-s", "-1"]).spawn().unwrap();
    let fetched = "curl --silent --fail --retry 40 --retry-delay 1 --retry-connrefused --max-time 60 -o out http://127.0.0.1:8000/file";
    let fetched: Vec<&str> = fetched.split(' ').collect();
    for _ in 0..4 {
        assert!(quiet(fetched[0], &fetched[1..]).status().unwrap().success());
    }
    // Nobody listens there.
    assert!(
        !quiet("curl", &["--silent", "http://127.0.0.1:1/"])
            .status()
            .unwrap()
            .success()
    );
    let measured = ["-c", "127.0.0.1", "-n", "4M", "-P", "3", "-R"];
    assert!(quiet("iperf3", &measured).status().unwrap().success());
    iperf.wait().unwrap();
    web.kill().unwrap();
    web.wait().unwrap();
    // dumpcap writes what it has seen when it is asked to end; the last packets may still be on their way to it.
    let began = Instant::now();
    let capture = folder.join("real.pcapng");
    let mut size = 0;
    while began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(700));
        let now = fs::metadata(&capture).map_or(0, |file| file.len());
        if now > 0 && now == size {
            break;
        }
        size = now;
    }
    support::send_signal(dumpcap.id(), "INT");
    dumpcap.wait().unwrap();
    let connections = compare(&capture);
    assert!(connections >= 9, "{connections} connections");
}

#[test]
fn lab_run_captures_both_ends_of_every_link() {
    bentpipe_os::need!(Root, Tun, Program("dumpcap"), Program("tcptrace"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("lossy.toml"), LOSSY_LAB).unwrap();
    let output = Command::new(PROGRAM)
        .args(["lab", "run", "lossy.toml", "--pcap", "captures"])
        .args(support::PATIENT)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut retransmitted = 0;
    for node in ["a", "b"] {
        let file = folder.join(format!("captures/wire-{node}.pcapng"));
        assert_eq!(compare(&file), 1);
        let output = Command::new(PROGRAM)
            .args(["trace", "--json", "--expert"])
            .arg(&file)
            .output()
            .unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let one = &json["connections"][0];
        retransmitted += one["a2b"]["rexmt_data_pkts"].as_u64().unwrap();
        // From its SYN to its FIN nothing is missing at the sender, which alone tells what held it back.
        let limits = &one["limits"]["a2b"];
        assert_eq!(limits.get("shares").is_some(), node == "a", "{limits}");
        if node == "a" {
            assert_eq!(one["complete"], true, "{one}");
            assert_eq!(one["a2b"]["missed_data"], 0, "{one}");
            assert_eq!(one["a2b"]["unique_bytes_sent"], 400_000, "{one}");
        }
    }
    assert!(retransmitted > 0);
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(
        folder.path().join("text"),
        "not a capture, but longer than its header",
    )
    .unwrap();
    for (file, words) in [
        ("empty", "is empty"),
        ("text", "neither pcap nor pcapng"),
        ("none", "cannot read `none`"),
    ] {
        let output = Command::new(PROGRAM)
            .args(["trace", file])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("error: ") && said.contains(words),
            "{said}"
        );
    }
}

#[test]
fn graphs_are_written_and_the_page_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("lossy.toml"), LOSSY).unwrap();
    let run = |arguments: &str| {
        let output = Command::new(PROGRAM)
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run("sim run lossy.toml --pcap out");
    run("trace out/wire-a.pcapng --only 2 --html page.html --svg graphs --xplot graphs");
    let mut names: Vec<String> = fs::read_dir(folder.join("graphs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // The second connection has the letters c and d; it has data in one direction.
    assert_eq!(names.len(), 9, "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("c2d") || name.starts_with("d2c"))
    );
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(!page.contains("{{") && !page.contains("src=\"http"));
}

#[test]
fn the_page_is_drawn_in_a_browser() {
    bentpipe_os::need!(Program("chromium"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("lossy.toml"), LOSSY).unwrap();
    for arguments in [
        "sim run lossy.toml --pcap out",
        "trace out/wire-a.pcapng --html page.html",
    ] {
        let mut command = Command::new(PROGRAM);
        let output = command
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    let output = browser
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(folder.join("page.html"))
        .output()
        .unwrap();
    let drawn = String::from_utf8(output.stdout).unwrap();
    // Four graphs, and the script came to its end.
    assert!(
        drawn.contains("data-ready=\"yes\"") && drawn.matches("class=\"u-over\"").count() == 4,
        "{drawn:.3000}"
    );
}
