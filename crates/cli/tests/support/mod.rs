//! What the tests of the program share.

#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "not every test binary needs all of it")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe");

/// The address that `saratoga serve`, whose output is piped, prints when it listens.
pub fn address_of(server: &mut Child) -> String {
    let mut line = String::new();
    let said = server.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("serving ");
    address
        .unwrap_or_else(|| panic!("it says {line:?}"))
        .to_owned()
}

/// For commands that run in the lab: what is judged is wide enough for a machine with other work.
pub const PATIENT: [&str; 2] = ["--lateness-limit", "50ms"];

/// The shortest scenario.
pub const WIRE: &str = r#"
name = "wire"
[hosts.a]
[hosts.b]
[links.wire]
ends = ["a", "b"]
[[flows]]
from = "a"
to = "b"
bytes = "100kB"
"#;

/// Sends `pid` the signal of this name, such as `TERM`.
pub fn send_signal(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}
