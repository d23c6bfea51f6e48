//! Bad input ends in one clear line with the next step, and the right exit code.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use support::{PROGRAM, WIRE};

fn bentpipe(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .env_remove("BENTPIPE_LOG")
        .output()
        .unwrap()
}

/// What a command said, after checking that it ended with `code` and with lines of errors alone.
fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(
        !said.is_empty() && said.lines().all(|line| line.starts_with("error: ")),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "nothing on stdout: {output:?}");
    said
}

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("input.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A device has no end, and a scenario or key has.
#[test]
fn a_file_without_an_end_is_refused() {
    for arguments in [
        &["sim", "run", "/dev/zero"][..],
        &["lab", "run", "/dev/zero"],
        &["compare", "/dev/zero"],
        &["study", "run", "/dev/zero"],
        &["gateway", "check", "/dev/zero"],
        &["saratoga", "ls", "127.0.0.1", "--key-file", "/dev/zero"],
    ] {
        let said = refused(&bentpipe(arguments), 2);
        assert!(
            said.contains("/dev/zero") && said.contains("it has more than 16 MiB"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_missing_file_is_named() {
    for arguments in [
        &["lab", "run", "/no/such/file.toml"][..],
        &["gateway", "check", "/no/such/file.toml"],
        &[
            "gateway",
            "run",
            "--lan",
            "a",
            "--sat",
            "b",
            "--config",
            "/no/such/file.toml",
        ],
    ] {
        let said = refused(&bentpipe(arguments), 2);
        assert!(
            said.contains("/no/such/file.toml") && said.contains("No such file"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn nonsense_is_placed_with_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "[sat]\nrate = \"10MB\"\nraet = 1\n");
    let said = refused(&bentpipe(&["gateway", "check", &path]), 2);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "a line for each mistake: {said}");
    assert!(
        lines[0].contains("input.toml:2:") && lines[0].contains("10Mbit/s"),
        "{said}"
    );
    assert!(
        lines[1].contains("input.toml:3:") && lines[1].contains("did you mean `rate`"),
        "{said}"
    );

    let path = file(
        folder.path(),
        "name = \"x\"\n[hosts.a]\nrecieve_buffer = 1\n",
    );
    let said = refused(&bentpipe(&["lab", "run", &path]), 2);
    assert!(said.contains("did you mean `receive_buffer`"), "{said}");

    let path = folder.path().join("binary.toml");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    let path = path.to_str().unwrap();
    refused(&bentpipe(&["lab", "run", path]), 2);
    refused(&bentpipe(&["gateway", "check", path]), 2);
}

/// The command line may name them, so that it is no mistake.
#[test]
fn a_leg_without_an_interface_is_told_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let said = |text| {
        let output = bentpipe(&["gateway", "check", &file(folder.path(), text)]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let empty = said("");
    for remedy in ["needs --lan", "needs --sat"] {
        assert!(empty.contains(remedy), "{empty}");
    }
    let whole = said("[lan]\ninterface = \"eth0\"\n[sat]\ninterface = \"eth1\"\n");
    assert!(!whole.contains("warning"), "{whole}");
}

/// The gateway's own keys inside a scenario, whose lines are those of the file.
#[test]
fn a_mistake_in_a_gateways_own_keys_is_placed_in_the_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let text = split("[gateways.g.split.sat]\nraet = \"1Mbit/s\"");
    let said = refused(&bentpipe(&["lab", "run", &file(folder.path(), &text)]), 2);
    assert!(said.contains("input.toml:9:"), "{said}");
    assert!(said.contains("did you mean `rate`"), "{said}");

    let text = split("split = { sat = { rate = \"10MB\" } }");
    let said = refused(&bentpipe(&["lab", "run", &file(folder.path(), &text)]), 2);
    assert!(said.contains("input.toml:8:26:"), "{said}");
    assert!(said.contains("10Mbit/s"), "{said}");
}

/// [`WIRE`] with a gateway in the middle, `keys` among its own.
fn split(keys: &str) -> String {
    let links = "[links.l1]\nends = [\"a\", \"g\"]\n[links.l2]\nends = [\"g\", \"b\"]\n";
    let gateway = format!("[gateways.g]\nlan = \"l1\"\nsat = \"l2\"\n{keys}\n{links}");
    WIRE.replace("[links.wire]\nends = [\"a\", \"b\"]\n", &gateway)
}

#[test]
fn wrong_use_says_what_is_right() {
    for (arguments, expected) in [
        (
            &[
                "gateway", "run", "--lan", "a", "--sat", "b", "--rate", "fast",
            ][..],
            "10Mbit/s",
        ),
        (&["gateway", "run", "--lam", "a"], "--lan"),
        (&["demo", "--only", "split-rat"], "split-rate"),
        (&["demo", "--jobs", "0"], "1..=64"),
        (&["bench", "gateway", "--pairs", "0"], "--pairs"),
        (&["bench", "saratoga", "--loss", "11"], "probability"),
        (&["labs"], "lab"),
    ] {
        let output = bentpipe(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.starts_with("error: ") && said.contains(expected),
            "{arguments:?}: {said}"
        );
    }
    let said = refused(
        &bentpipe(&["gateway", "run", "--lan", "a", "--sat", "a"]),
        2,
    );
    assert!(said.contains("two interfaces"), "{said}");
}

#[test]
fn a_bad_log_filter_is_refused() {
    let output = Command::new(PROGRAM)
        .args(["gateway", "check", "/no/such"])
        .env("BENTPIPE_LOG", "=,=")
        .output()
        .unwrap();
    assert!(refused(&output, 2).contains("BENTPIPE_LOG"));
}

#[test]
fn an_unwritable_place_is_known_at_once() {
    bentpipe_os::need!(Root, Nft, Tproxy, Tun, Btf, StructOps);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "");
    // A file where a folder should be stops root as well.
    let inside = format!("{path}/report");
    let said = refused(&bentpipe(&["demo", "--quick", "--report", &inside]), 2);
    assert!(said.contains("input.toml/report"), "{said}");
}

#[test]
fn without_root_the_next_step_is_named() {
    bentpipe_os::need!(Root, Program("setpriv"));
    let folder = tempfile::tempdir().unwrap();
    // The program may lie where nobody else can read. It is copied by a process of its own: a file that this one wrote
    // may still be open for writing in a child that another test has just forked, and cannot be run until then.
    let program = folder.path().join("bentpipe");
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    open(folder.path());
    let scenario = folder.path().join("geo.toml");
    std::fs::write(&scenario, WIRE).unwrap();
    let scenario = scenario.to_str().unwrap();
    let report = folder.path().join("report");
    let report = report.to_str().unwrap();
    for arguments in [
        &["gateway", "run", "--lan", "lo", "--sat", "eth0"][..],
        &["lab", "run", scenario],
        &["lab", "clean"],
        &["demo", "--report", report],
        &["bench", "gateway"],
        &["bench", "saratoga"],
    ] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(arguments)
            .output()
            .unwrap();
        let said = refused(&output, 2);
        assert!(
            said.contains("root") && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    assert!(!Path::new(report).exists(), "nothing is left behind");
}

/// Lets anybody into `folder`.
fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn an_unknown_interface_is_named_with_those_there_are() {
    bentpipe_os::need!(NetAdmin);
    let said = refused(
        &bentpipe(&["gateway", "run", "--lan", "nope0", "--sat", "nope1"]),
        2,
    );
    assert!(
        said.contains("nope0") && said.contains("there are"),
        "{said}"
    );
    let said = refused(&bentpipe(&["gateway", "run", "--lan", "nope0"]), 2);
    assert!(said.contains("--sat") || said.contains("nope0"), "{said}");
}

#[test]
fn a_port_in_use_is_named() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let netns = bentpipe_os::netns::Netns::create("clitest").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        "port = 4711\n[sat]\ncongestion_control = \"cubic\"\n",
    );
    let made = netns.run(|| {
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
        TcpListener::bind("127.0.0.1:4711").unwrap()
    });
    let _held = made.unwrap();
    let output = netns
        .command(PROGRAM)
        .args([
            "gateway", "run", "--lan", "v0", "--sat", "v1", "--config", &path,
        ])
        .output()
        .unwrap();
    let said = refused(&output, 2);
    assert!(said.contains("4711") && said.contains("in use"), "{said}");
    let left = netns
        .command("nft")
        .args(["list", "tables"])
        .output()
        .unwrap();
    assert!(left.stdout.is_empty(), "nothing is left behind: {left:?}");
}

#[test]
fn a_control_that_is_not_to_be_had_is_the_callers_mistake() {
    bentpipe_os::need!(Root);
    let folder = tempfile::tempdir().unwrap();
    let text = WIRE.replace("[hosts.a]", "[hosts.a]\ncongestion_control = \"nosuch\"");
    let path = file(folder.path(), &text);
    let said = refused(&bentpipe(&["lab", "run", &path]), 2);
    assert!(said.contains("nosuch") && said.contains("cubic"), "{said}");
}
