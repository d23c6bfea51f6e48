//! What the tests of the program share.

#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "not every test binary needs all of it")]

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe");

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
