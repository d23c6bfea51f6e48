//! `bentpipe trace`: its counts are tcptrace's, on captures of the simulator and of real programs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;

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

/// What tcptrace gets wrong, or has no figure for (docs/trace.md), by the beginning of its labels.
const NOT_COMPARED: [&str; 3] = ["RTT full_sz", "sacks sent", "avg segm size"];

/// The figures of each connection in the layout of `tcptrace -l`: by label and direction.
fn figures(text: &str) -> Vec<BTreeMap<(String, usize), String>> {
    let mut connections = Vec::new();
    for line in text.lines() {
        if line.starts_with("TCP connection ") && line.ends_with(':') && !line.contains("info") {
            connections.push(BTreeMap::new());
        }
        let (Some(cells), Some(last)) = (line.strip_prefix("     "), connections.last_mut()) else {
            continue;
        };
        // Two labels of 18 columns, each with a figure and perhaps a unit; `initial window` is there twice.
        for (side, cell) in [cells.get(..38), cells.get(38..)]
            .into_iter()
            .flatten()
            .enumerate()
        {
            let Some((label, value)) = cell.trim().split_once(':') else {
                continue;
            };
            let mut words = value.split_whitespace();
            let value = words.next().unwrap_or("").to_owned();
            let label = match label {
                "initial window" => format!("{label} {}", words.next().unwrap_or("")),
                label => label.to_owned(),
            };
            last.insert((label, side), value);
        }
    }
    connections
}

/// Whether two figures are one: counts exactly, times by the last decimal that is printed, and a throughput as far as it
/// follows from a time in microseconds.
fn equal(label: &str, a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        _ if a == b => true,
        // tcptrace takes some answers to a SYN or FIN that was sent again for duplicates too.
        (Ok(own), Ok(other)) if label == "duplicate acks" => (0.0..=2.0).contains(&(other - own)),
        // Its minimum knows no round trip of no time.
        (Ok(own), Ok(_)) if label == "RTT min" && own == 0.0 => true,
        (Ok(own), Ok(other)) if label == "throughput" => (own - other).abs() <= 1.0 + other / 1e3,
        (Ok(own), Ok(other)) if a.contains('.') => (own - other).abs() <= 0.11,
        _ => false,
    }
}

/// Compares all figures that tcptrace has of `capture`; returns how many connections it has.
fn compare(capture: &Path) -> usize {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .arg(capture)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let theirs = figures(&run("tcptrace", &["-n", "-l", "-r"]));
    let ours = figures(&run(PROGRAM, &["trace", "-l"]));
    assert_eq!(ours.len(), theirs.len(), "{}", capture.display());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(theirs.len() > 80, "tcptrace prints {theirs:?}");
        for (key, expected) in theirs {
            if NOT_COMPARED.iter().any(|label| key.0.starts_with(label)) {
                continue;
            }
            let own = ours
                .get(key)
                .unwrap_or_else(|| panic!("{key:?} is not printed"));
            let place = format!(
                "{} of connection {}: {key:?}",
                capture.display(),
                number + 1
            );
            assert!(
                equal(&key.0, own, expected),
                "{place}: {own}, tcptrace has {expected}"
            );
        }
    }
    theirs.len()
}

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
