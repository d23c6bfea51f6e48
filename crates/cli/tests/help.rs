//! The help texts: every command has one, with examples, within 100 columns.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

const COMMANDS: [&[&str]; 22] = [
    &[],
    &["gateway"],
    &["gateway", "run"],
    &["gateway", "check"],
    &["lab"],
    &["lab", "run"],
    &["lab", "clean"],
    &["sim"],
    &["sim", "run"],
    &["bench"],
    &["bench", "gateway"],
    &["bench", "saratoga"],
    &["demo"],
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
        let runs = command.len() == 2 && command[1] != "clean" || command == ["demo"];
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
