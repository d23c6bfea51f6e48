//! Another process of the same test program, in a namespace: it plays a test that is ignored otherwise.

use bentpipe_os::netns::Netns;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const ROLE: &str = "BENTPIPE_TEST_ROLE";

/// The other process. It is killed with this value, which waits until it is gone.
pub(crate) struct Actor(Child);

impl Actor {
    /// Plays the test `role` in `netns`, and waits until that has said `READY`.
    pub(crate) fn start(netns: &Netns, role: &str) -> Self {
        let mut command: Command = netns.command(std::env::current_exe().unwrap());
        command
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.any(|line| line.contains("READY")));
        Self(child)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this process is such a one, and plays `role`.
pub(crate) fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}
