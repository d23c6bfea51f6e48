//! Our scripts, judged: our TCP by them, they by the kernel, and the judge by what it must refuse.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_os::need;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.arg("run").args(arguments).arg(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A figure of the closing line, such as `81 passed`.
fn count(said: &str, what: &str) -> usize {
    let line = said.lines().last().unwrap();
    let figure = line.split(", ").find(|part| part.ends_with(what));
    let figure = figure.unwrap_or_else(|| panic!("no `{what}` in: {line}"));
    figure.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn our_tcp_does_what_the_scripts_say() {
    let begun = Instant::now();
    let output = run(&[], &scripts());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(count(&said, " passed") >= 80, "{said}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
}

#[test]
fn the_kernel_does_what_the_scripts_say() {
    need!(Root, Tun);
    // In real time, beside other tests: a script that needs it exact is for `make conformance`.
    let output = run(&["--kernel", "--tolerance", "20000"], &scripts());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(count(&said, " passed") >= 80, "{said}");
}

/// A folder with one script of ours, in which `from` stands as `to`.
fn changed(from: &str, to: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = fs::read_to_string(scripts().join("close-second.pkt")).unwrap();
    assert!(script.contains(from), "{script}");
    fs::write(folder.path().join("one.pkt"), script.replacen(from, to, 1)).unwrap();
    folder
}

#[test]
fn what_differs_from_a_script_fails() {
    for (from, to, why) in [
        (
            "> F. 1:1(0) ack 2",
            "> F. 1:1(0) ack 3",
            "acknowledgement: expected 3, got 2",
        ),
        (
            "> F. 1:1(0) ack 2",
            "> FP. 1:1(0) ack 2",
            "flags: expected FP., got F.",
        ),
        (
            "+0 > F. 1:1(0) ack 2",
            "+.1 > F. 1:1(0) ack 2",
            "was expected at",
        ),
        (
            "listen(3, 1) = 0",
            "listen(3, 1) = -1 EINVAL",
            "expected -1 EINVAL, got 0",
        ),
        ("SOCK_STREAM", "SOCK_STREM", "SOCK_STREM"),
        ("+0 > F.", "+0 ? F.", "after a time comes"),
    ] {
        let folder = changed(from, to);
        let output = run(&[], folder.path());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{to}: {said}");
        assert!(said.starts_with("FAILED"), "{said}");
        assert!(said.contains(why), "{to}: {said}");
    }
}

#[test]
fn a_packet_that_does_not_come_fails_the_script() {
    let folder = changed(
        "+0 > F. 1:1(0) ack 2\n",
        "+0 > F. 1:1(0) ack 2\n+0 > . 2:2(0) ack 2\n",
    );
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn what_is_expected_to_fail_is_held_against_what_does() {
    let folder = changed("ack 2\n", "ack 3\n");
    let list = folder.path().join("expected.txt");
    fs::write(&list, "one.pkt it says 3 where 2 is right\n").unwrap();
    let output = run(&[], folder.path());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(count(&said, "failed as expected"), 1);
    // What is not there, or passes, does not go unseen.
    fs::write(&list, "one.pkt it says 3\ntwo.pkt there is none\n").unwrap();
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout)
            .contains("two.pkt: it is expected to fail, and there is no such script")
    );
    let folder = changed("ack 2", "ack 2");
    fs::write(folder.path().join("expected.txt"), "one.pkt it passes\n").unwrap();
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(count(&text(&output.stdout), "passed unexpectedly"), 1);
    fs::write(folder.path().join("expected.txt"), "one.pkt\n").unwrap();
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("has no reason"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn scripts_of_what_only_linux_has_are_counted_with_the_reason() {
    for (line, why) in [
        ("+0 send(3, ..., 1, MSG_ZEROCOPY) = 1", "zero-copy"),
        (
            "+0 setsockopt(3, SOL_TCP, TCP_FASTOPEN_CONNECT, [1], 4) = 0",
            "by connect()",
        ),
        (
            "+0 < S 0:1(1) win 1000 <mss 1000,sackOK,FO TFO_COOKIE>",
            "before one was given",
        ),
    ] {
        let folder = changed("0 socket", &format!("{line}\n0 socket"));
        let output = run(&[], folder.path());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(why), "{said}");
        assert_eq!(count(&said, "not applicable"), 1);
    }
}

#[test]
fn a_cookie_of_the_stack_is_the_one_that_it_gave() {
    let script = fs::read_to_string(scripts().join("fast-open-data-with-a-syn.pkt")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The second SYN has another cookie, so that its data is not taken.
    let wrong = script.replacen("sackOK,FO TFO_COOKIE>", "sackOK,FO 0011223344556677>", 1);
    assert_ne!(wrong, script);
    fs::write(folder.path().join("one.pkt"), wrong).unwrap();
    let output = run(&[], folder.path());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("acknowledgement: expected 101, got 1"),
        "{said}"
    );
}

#[test]
fn a_folder_without_scripts_and_an_object_that_is_none_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no script"));
    let folder = changed("ack 2", "ack 2");
    let other = std::env::current_exe().unwrap();
    let output = run(&["--object", other.to_str().unwrap()], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("cannot load"),
        "{}",
        text(&output.stdout)
    );
}
