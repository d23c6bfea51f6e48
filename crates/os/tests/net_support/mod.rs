//! A second process for tests of what a kill leaves behind: the test binary itself, running one of
//! its ignored tests as a role.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its own part of the shared support, and what fails here fails the test"
)]

use bentpipe_os::netns::Netns;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "BENTPIPE_TEST_ROLE";

/// A process that plays `role` until it is killed or dropped.
pub(crate) struct Actor {
    child: Child,
    /// What it said when it was ready.
    pub(crate) words: Vec<String>,
}

impl Actor {
    /// Starts the ignored test `role` of this binary inside `netns` and waits until it calls
    /// [`ready`].
    pub(crate) fn start(netns: &Netns, role: &str) -> Self {
        let mut command = netns.command(std::env::current_exe().unwrap());
        act(&mut command, role);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let words = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("READY ").map(|(_, words)| words.to_owned()))
            .unwrap_or_else(|| panic!("{role} ended before it was ready"));
        Self {
            child,
            words: words.split(' ').map(str::to_owned).collect(),
        }
    }

    /// kill -9. Its corpse is left lying until `self` is dropped, as a busy parent would leave it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes `command` run the ignored test `role`.
pub(crate) fn act<'a>(command: &'a mut Command, role: &str) -> &'a mut Command {
    command
        .args([
            "--exact",
            role,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
}

/// Whether this process plays `role`; the ignored test returns at once otherwise.
pub(crate) fn playing(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|playing| playing == role)
}

/// Tells the other process `words` and sleeps until killed.
pub(crate) fn ready(words: &[&str]) {
    let mut out = std::io::stdout();
    writeln!(out, "READY {}", words.join(" ")).unwrap();
    out.flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// Waits at most `patience` for `done`; returns the time it took.
pub(crate) fn within(patience: Duration, mut done: impl FnMut() -> bool) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if done() {
            return Some(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}
