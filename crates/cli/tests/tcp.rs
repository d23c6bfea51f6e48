//! `bentpipe tcp`: our TCP and the kernel's, in a namespace of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::PROGRAM;

const LENGTH: usize = 2_000_000;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn ours() -> SocketAddr {
    "100.64.0.2:5000".parse().unwrap()
}

/// `bentpipe tcp` with `words`, in `netns`.
fn program(netns: &Netns, words: &[&str]) -> Command {
    let mut command = netns.command(PROGRAM);
    command.arg("tcp").args(words);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn connected(at: SocketAddr) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => return stream,
            Err(e) => assert!(began.elapsed() < Duration::from_secs(20), "{e}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn done(child: Child) -> Output {
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_goes_to_the_kernel_with_its_figures() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-send").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [file, figures, trace, pcap] =
        ["file", "figures.json", "trace.csv", "all.pcapng"].map(|name| folder.path().join(name));
    fs::write(&file, content()).unwrap();
    // Before the interface is there: any address.
    let listener = netns
        .run(|| TcpListener::bind("0.0.0.0:5000").unwrap())
        .unwrap();
    let words = [
        "send",
        text(&file),
        "100.64.0.1:5000",
        "--json",
        text(&figures),
        "--trace",
        text(&trace),
        "--pcap",
        text(&pcap),
        "--control",
        "hybla",
    ];
    let child = program(&netns, &words).spawn().unwrap();
    let mut got = Vec::new();
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), ours().ip());
    stream.read_to_end(&mut got).unwrap();
    drop(stream);
    done(child);
    assert!(got == content());
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    assert_eq!(figures["acknowledged_bytes"], LENGTH);
    assert_eq!(figures["packets"]["unreadable"], 0);
    // A timer that has run out was a little late.
    let lateness = figures["packets"]["latest_ms"].as_f64().unwrap();
    let deadlines = figures["packets"]["deadlines"].as_u64().unwrap();
    assert!((deadlines > 0) == (lateness > 0.0) && lateness < 10_000.0);
    let trace = fs::read_to_string(&trace).unwrap();
    assert!(trace.starts_with("time_s,cwnd_segments,"), "{trace}");
    assert!(fs::metadata(&pcap).unwrap().len() > LENGTH as u64);
}

/// Once it said "0 bytes" and ended well: it closed the connection that was still being opened.
#[test]
fn a_short_file_waits_until_the_connection_stands() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-late").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"a few bytes").unwrap();
    let listener = netns
        .run(|| TcpListener::bind("0.0.0.0:5000").unwrap())
        .unwrap();
    // Nobody has that address yet, so that the first SYN is lost without a word.
    let mut child = program(&netns, &["send", text(&file), "192.0.2.7:5000"])
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(700));
    let ended = child.try_wait().unwrap();
    assert_eq!(ended, None, "nobody has answered");
    let netlink = netns.netlink().unwrap();
    netlink
        .add_address("lo", "192.0.2.7/32".parse().unwrap())
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    drop(stream);
    assert_eq!(got, b"a few bytes");
    let out = done(child);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("11 bytes in"), "{said}");
}

#[test]
fn a_stream_comes_from_the_kernel_to_standard_output() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-get").unwrap();
    let listener = netns
        .run(|| TcpListener::bind("0.0.0.0:5000").unwrap())
        .unwrap();
    let child = program(&netns, &["get", "100.64.0.1:5000"])
        .spawn()
        .unwrap();
    let sends = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&content()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    });
    let out = done(child);
    sends.join().unwrap();
    assert!(out.stdout == content());
}

#[test]
fn a_server_sends_its_file_to_everyone_and_takes_one() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-serve").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [file, copy] = ["file", "copy"].map(|name| folder.path().join(name));
    fs::write(&file, content()).unwrap();
    let mut server = program(&netns, &["serve", "5000", "--send", text(&file)])
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let mut stream = netns.run(|| connected(ours())).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == content());
    }
    // Ctrl-C: the interface goes, and the exit code says why.
    let interrupted = Command::new("kill")
        .args(["-INT", &server.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(130));
    let server = program(&netns, &["serve", "5000", "--to", text(&copy), "--once"])
        .spawn()
        .unwrap();
    let mut stream = netns.run(|| connected(ours())).unwrap();
    stream.write_all(&content()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    done(server);
    assert!(fs::read(&copy).unwrap() == content());
}

#[test]
fn mistakes_are_told_with_the_next_step() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-bad").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = text(folder.path());
    for (words, code, said) in [
        (
            &["send", "/no/such/file", "100.64.0.1:5000"][..],
            2,
            "cannot read `/no/such/file`",
        ),
        (&["send", folder, "100.64.0.1:5000"], 2, "is a directory"),
        (
            &["get", "100.64.0.1:5000", "--control", "nope"],
            2,
            "no congestion control `nope`",
        ),
        (
            &["get", "100.64.0.1:5000", "--address", "100.64.0.1/30"],
            2,
            "give --kernel another",
        ),
        (&["get", "100.64.0.1:5000"], 1, "does anybody listen there?"),
        (
            &["send", "/etc/hostname", "100.64.0.1:5000"],
            1,
            "does anybody listen there?",
        ),
        (&["get", "[fd00::1]:5000"], 2, "give it one of that family"),
        (&["serve", "0"], 2, "0 is not in 1..=65535"),
    ] {
        let out = program(&netns, words).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}

/// Two of ours with the kernel as router between them, which drops every fiftieth packet.
#[test]
fn a_pair_speaks_scps_over_a_router_that_loses() {
    need!(Root, Tun, Nft);
    let netns = Netns::create("tcp-scps").unwrap();
    let run = |words: &[&str]| {
        let status = netns.command(words[0]).args(&words[1..]).status().unwrap();
        assert!(status.success(), "{words:?}");
    };
    run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    run(&[
        "nft",
        "add table ip loss; add chain ip loss forward { type filter hook forward priority 0; }; \
         add rule ip loss forward numgen inc mod 50 == 7 drop",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let [file, copy, figures] =
        ["file", "copy", "figures.json"].map(|name| folder.path().join(name));
    fs::write(&file, content()).unwrap();
    let served = ["serve", "5000", "--to", text(&copy), "--once"];
    let scps = ["--scps", "--rate", "50Mbit/s"];
    let server = program(&netns, &[&served[..], &scps].concat())
        .spawn()
        .unwrap();
    // Without its interface there is no way to it.
    let began = Instant::now();
    let mut way = netns.command("ip");
    way.args(["route", "get", "100.64.0.2"])
        .stderr(Stdio::null());
    while !way.output().unwrap().status.success() {
        assert!(began.elapsed() < Duration::from_secs(20), "no interface");
        thread::sleep(Duration::from_millis(20));
    }
    let sent = [
        "send",
        text(&file),
        "100.64.0.2:5000",
        "--tun",
        "bentpipe1",
        "--address",
        "100.64.1.2/30",
        "--json",
        text(&figures),
    ];
    done(
        program(&netns, &[&sent[..], &scps].concat())
            .spawn()
            .unwrap(),
    );
    let out = done(server);
    assert!(fs::read(&copy).unwrap() == content());
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    let scps = &figures["scps"];
    assert_eq!(
        (&scps["connections"], &scps["outages"]),
        (&1.into(), &0.into())
    );
    assert!(scps["snacks"].as_u64().unwrap() > 10, "{figures}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("SCPS-TP on 1 of 1 connections"), "{said}");
}

#[test]
fn a_kernel_that_knows_no_scps_gets_tcp() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-scps-tcp").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, content()).unwrap();
    let listener = netns
        .run(|| TcpListener::bind("0.0.0.0:5000").unwrap())
        .unwrap();
    let words = [
        "send",
        text(&file),
        "100.64.0.1:5000",
        "--scps",
        "--rate",
        "50Mbit/s",
    ];
    let child = program(&netns, &words).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    drop(stream);
    assert!(got == content());
    let said = done(child).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("SCPS-TP on 0 of 1 connections"), "{said}");
}

/// What a program sends with `--fast-open`, and what its figures say of that.
fn sent_fast(netns: &Netns, listener: &TcpListener, folder: &Path) -> Value {
    let [file, figures, cookies] =
        ["file", "figures.json", "cookies"].map(|name| folder.join(name));
    fs::write(&file, b"a few bytes").unwrap();
    let words = [
        "send",
        text(&file),
        "100.64.0.1:5000",
        "--fast-open",
        "--cookies",
        text(&cookies),
        "--json",
        text(&figures),
    ];
    let child = program(netns, &words).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"a few bytes");
    drop(stream);
    done(child);
    let figures: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    figures["fast_open"].clone()
}

#[test]
fn the_second_run_sends_its_data_with_the_syn() {
    need!(Root, Tun);
    let netns = Netns::create("tcp-fast").unwrap();
    // Clients, servers, and all listeners without being asked.
    netns.set_sysctl("net.ipv4.tcp_fastopen", "1027").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listener = netns
        .run(|| TcpListener::bind("0.0.0.0:5000").unwrap())
        .unwrap();
    let first = sent_fast(&netns, &listener, folder.path());
    assert_eq!(
        (&first["answered"], &first["failed"]),
        (&0.into(), &0.into())
    );
    let second = sent_fast(&netns, &listener, folder.path());
    assert_eq!(
        (&second["answered"], &second["failed"]),
        (&1.into(), &0.into())
    );
    let cookies = folder.path().join("cookies");
    fs::write(
        &cookies,
        "100.64.0.2 100.64.0.1 1460 0102030405060708\nnonsense\n",
    )
    .unwrap();
    let file = folder.path().join("file");
    let words = [
        "send",
        text(&file),
        "100.64.0.1:5000",
        "--fast-open",
        "--cookies",
        text(&cookies),
    ];
    let out = program(&netns, &words).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("line 2: no cookie"), "{said}");
}
