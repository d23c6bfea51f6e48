//! A server of files as a program, begun by the shell, and commands beside it.

#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "not every test binary needs all of it")]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A server; killed when dropped.
pub struct Server {
    pub child: Child,
    pub address: String,
    pub said: Option<ChildStderr>,
}

impl Server {
    /// Of `folder`, begun by the shell after `before`.
    pub fn start(before: &str, folder: &Path, arguments: &[&str]) -> Self {
        Self::begin(shell(before), folder, arguments)
    }

    /// Of `folder`, by `program`.
    pub fn begin(mut program: Command, folder: &Path, arguments: &[&str]) -> Self {
        let mut child = program
            .args(["saratoga", "serve"])
            .arg(folder)
            .args(
                { arguments.iter() }
                    .all(|one| !one.starts_with("--rate"))
                    .then_some("--rate=100Mbit/s"),
            )
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = child.stderr.take();
        let address = crate::support::address_of(&mut child);
        Self {
            child,
            address,
            said,
        }
    }

    /// What it has said, after its end: by SIGTERM, for its log is written by a thread of its own.
    pub fn end(mut self) -> String {
        crate::support::send_signal(self.child.id(), "TERM");
        let mut said = String::new();
        let mut from = self.said.take().unwrap();
        from.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program with what follows, begun by the shell after `before`.
pub fn shell(before: &str) -> Command {
    under(&format!("{before} exec"))
}

/// The program with what follows, begun by what `before` ends with.
pub fn under(before: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before} \"$@\""));
    shell.args(["sh", crate::support::PROGRAM]);
    shell
}

pub fn assert_code(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}
