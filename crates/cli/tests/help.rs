//! The help texts: every command has one, with examples, within 100 columns.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Command;

const COMMANDS: [&[&str]; 32] = [
    &[],
    &["gateway"],
    &["gateway", "run"],
    &["gateway", "check"],
    &["proxy"],
    &["proxy", "keys"],
    &["proxy", "run"],
    &["proxy", "status"],
    &["proxy", "reload"],
    &["proxy", "check"],
    &["lab"],
    &["lab", "run"],
    &["lab", "clean"],
    &["sim"],
    &["sim", "run"],
    &["study", "run"],
    &["study", "merge"],
    &["bench"],
    &["bench", "gateway"],
    &["bench", "saratoga"],
    &["demo"],
    &["trace"],
    &["web"],
    &["tcp"],
    &["tcp", "send"],
    &["tcp", "get"],
    &["tcp", "serve"],
    &["saratoga"],
    &["saratoga", "serve"],
    &["saratoga", "get"],
    &["saratoga", "put"],
    &["saratoga", "peers"],
];

#[test]
fn every_command_explains_itself() {
    for command in COMMANDS {
        let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args(command)
            .arg("--help")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(text.contains("Usage:"), "{command:?}: {text}");
        assert!(
            !text.contains("Box<") && !text.contains("[`"),
            "{command:?}: {text}"
        );
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{command:?}: {line}");
        }
        let runs = command.len() == 2 && command[1] != "clean"
            || command == ["demo"]
            || command == ["trace"]
            || command == ["web"];
        assert!(!runs || text.contains("Examples:"), "{command:?}: {text}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.trim(),
        format!("bentpipe {}", env!("CARGO_PKG_VERSION"))
    );
}

/// The command of the unit's `ExecReload` asks the gateway at the `control` of its configuration, wherever that is.
#[test]
fn the_units_reload_finds_the_control_socket() {
    let unit = include_str!("../../../packaging/bentpipe-gateway.service");
    let mut lines = unit.lines();
    let reload = lines.find_map(|line| line.strip_prefix("ExecReload=/usr/bin/bentpipe "));
    let folder = tempfile::tempdir().unwrap();
    let (config, control) = (folder.path().join("gw.toml"), folder.path().join("gw.sock"));
    let run = |text: &str| {
        std::fs::write(&config, text).unwrap();
        let words = reload.unwrap().split(' ').map(|word| match word {
            "/etc/bentpipe/gateway.toml" => config.to_str().unwrap(),
            word => word,
        });
        let mut bentpipe = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
        let output = bentpipe.args(words).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let listener = UnixListener::bind(&control).unwrap();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        stream.write_all(b"{\"ok\":true}\n").unwrap();
        line
    });
    let done = run(&format!("control = \"{}\"\n", control.display()));
    assert_eq!(done, (Some(0), String::new()));
    assert_eq!(asked.join().unwrap().trim(), "{\"do\":\"reload\"}");
    let (code, words) = run("control = \"off\"\n");
    assert!(code == Some(1) && words.contains("SIGHUP"), "{words}");
    let (code, words) = run("controll = \"off\"\n");
    assert!(code == Some(1) && words.contains("gw.toml:1:1"), "{words}");
}
