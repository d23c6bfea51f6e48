//! One proxy as a child process in the gateway's namespace.
//!
//! Its configuration goes in, and what it says comes out, by files that exist in memory only: a
//! killed run leaves none behind.

use super::BenchError;
use super::subject::Subject;
use bentpipe_os::netns::spawn_bound;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a proxy has to come up, and to leave, beside whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a proxy finds its configuration.
pub(super) const CONFIGURATION: &str = "/dev/stdin";

/// A running proxy. Dropping it ends the process; it dies with ours, too.
#[derive(Debug)]
pub(super) struct Proxy {
    subject: Subject,
    child: Child,
    log: File,
}

impl Proxy {
    /// Starts `command`, with `configuration` to be read from [`CONFIGURATION`], and waits until it
    /// listens.
    pub(super) fn start(
        subject: Subject,
        mut command: Command,
        configuration: &str,
    ) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Start {
            subject: subject.name(),
            source,
        };
        let input = memory_file(configuration).map_err(failed)?;
        let log = memory_file("").map_err(failed)?;
        let output = log.try_clone().map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        command.stdin(input).stdout(output).stderr(errors);
        let child = spawn_bound(command).map_err(failed)?;
        let mut proxy = Self {
            subject,
            child,
            log,
        };
        proxy.wait_until_listening()?;
        Ok(proxy)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines it wrote.
    pub(super) fn last_words(&self) -> String {
        let text = contents(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Fails when the process has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        if self.child.try_wait().ok().flatten().is_some() {
            return Err(BenchError::Ended {
                subject: self.subject.name(),
                said: self.last_words(),
            });
        }
        Ok(())
    }

    fn wait_until_listening(&mut self) -> Result<(), BenchError> {
        let end = Instant::now() + PATIENCE;
        while !listens(self.pid()) {
            self.check()?;
            if Instant::now() > end {
                return Err(BenchError::NotListening {
                    subject: self.subject.name(),
                    said: self.last_words(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && self.child.try_wait()?.is_none()
        {
            kill_process(pid, Signal::TERM)?;
        }
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
                self.child.wait()?;
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(subject = self.subject.name(), %error, "cannot end the proxy");
        }
    }
}

fn memory_file(text: &str) -> io::Result<File> {
    let memory = memfd_create("bentpipe-bench", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// All that was written to `file`, through a view of its own: the position of ours is the writer's.
fn contents(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut position = 0;
    let mut buffer = [0; 4096];
    loop {
        match file.read_at(&mut buffer, position)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => {
                text.extend_from_slice(&buffer[..length]);
                position += length as u64;
            }
        }
    }
}

/// Whether anything listens on IPv4 in the namespace of process `pid`: state 0A in proc(5)'s table.
fn listens(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/net/tcp")).is_ok_and(|table| {
        table
            .lines()
            .skip(1)
            .any(|line| line.split_whitespace().nth(3) == Some("0A"))
    })
}
