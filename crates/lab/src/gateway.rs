//! The real gateway, or the proxy that is the far end of a leg over QUIC, as a process of the product's own program inside the
//! gateway's namespace.
//!
//! Its configuration goes in by standard input, so that no file is left behind; it says `ready` on
//! standard output when it intercepts, or serves. The kernel kills it when this process ends, however that
//! ends.

use crate::LabError;
use bentpipe_os::folder::Folder;
use bentpipe_os::netns::{Netns, spawn_bound};
use bentpipe_scenario::Gateway;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a gateway may take to be ready: it loads BPF programs and nft tables, for which 20 s were too few on a host
/// that compiles on all of its processors.
const START: Duration = Duration::from_secs(60);
/// How long a near end may take to reach the far one, as in virtual time.
const REACH: Duration = Duration::from_secs(20);
/// How long a gateway may take to end by itself.
const STOP: Duration = Duration::from_secs(2);
/// Lines of its standard error that are kept for messages.
const LINES: usize = 20;
const TICK: Duration = Duration::from_millis(50);

/// How often a near end is asked whether its far end is reached.
const POLL: Duration = Duration::from_millis(200);

/// What is started in a gateway's place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program<'a> {
    /// A gateway with these links.
    Gateway(&'a Gateway),
    /// The far end of gateways with `carrier = "quic"`.
    Proxy,
}

/// A gateway that intercepts, or a proxy that serves.
pub(crate) struct GatewayProcess {
    name: String,
    child: Child,
    stderr_tail: StderrTail,
    /// Asks it for its status.
    status: Command,
    /// Holds its control socket.
    _folder: Folder,
}

/// What a gateway says at its end.
#[derive(Debug, Default)]
pub(crate) struct StoppedGateway {
    /// The last lines on its standard error.
    pub(crate) stderr_tail: String,
    /// What it counted; `None`: it did not say.
    pub(crate) status: Option<Status>,
}

/// The part of a gateway's status that is read, by name.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    #[serde(deserialize_with = "numbers")]
    pub(crate) counters: BTreeMap<String, u64>,
    /// The kernel's count of what passed unsplit, which a proxy has not.
    #[serde(default)]
    passed: BTreeMap<String, u64>,
    /// A gateway's, where QUIC carries its leg.
    tunnels: Option<Tunnels>,
}

/// How the tunnels of a gateway stand.
#[derive(Debug, Deserialize)]
struct Tunnels {
    /// The far end is reached.
    up: bool,
    /// Why it was lost last, or not reached.
    last_loss: String,
    #[serde(deserialize_with = "numbers")]
    counters: BTreeMap<String, u64>,
}

/// Counters by name; those of a group have its name before theirs.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let mut numbers = BTreeMap::new();
    for (name, value) in BTreeMap::<String, Value>::deserialize(from)? {
        if let Some(group) = value.as_object() {
            let each = group.iter();
            let each =
                each.filter_map(|(own, value)| Some((format!("{name}_{own}"), value.as_u64()?)));
            numbers.extend(each);
        }
        numbers.extend(value.as_u64().map(|value| (name, value)));
    }
    Ok(numbers)
}

impl Status {
    /// SYNs that passed unsplit because the gateway, or one of its workers, had no processor.
    pub(crate) fn unattended(&self) -> u64 {
        let counted = [&self.counters, &self.passed];
        counted.iter().filter_map(|all| all.get("unattended")).sum()
    }

    /// All counters, those of tunnels by the name `tunnels_...`.
    pub(crate) fn into_counters(self) -> BTreeMap<String, u64> {
        let mut counters = self.counters;
        let tunnels = self.tunnels.into_iter().flat_map(|it| it.counters);
        counters.extend(tunnels.map(|(name, count)| (format!("tunnels_{name}"), count)));
        counters
    }
}

/// The last lines on a process's standard error.
type StderrTail = Arc<Mutex<VecDeque<String>>>;

impl GatewayProcess {
    /// Starts `what` by `program` in the place of gateway `name`, with the keys `config`, and waits until it is ready.
    pub(crate) fn start(
        name: &str,
        what: Program<'_>,
        config: &toml::Table,
        netns: &Netns,
        program: &Path,
        cancel: &AtomicBool,
    ) -> Result<Self, LabError> {
        let mut command = netns.command(program);
        let verb = match what {
            Program::Gateway(gateway) => {
                command.args(["gateway", "run", "--config", "/dev/stdin"]);
                command.args(["--lan", &gateway.lan, "--sat", &gateway.sat]);
                "gateway"
            }
            Program::Proxy => {
                command.args(["proxy", "run", "/dev/stdin"]);
                "proxy"
            }
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |what: String| LabError::Gateway {
            gateway: name.to_owned(),
            what,
            stderr: String::new(),
        };
        // Many gateways of a lab have one file system.
        let folder = Folder::create(name).map_err(|e| failed(format!("has no folder ({e})")))?;
        let mut config = config.clone();
        let control = match config.get("control") {
            Some(toml::Value::String(path)) => PathBuf::from(path),
            Some(_) => return Err(failed("needs a path in quotes for `control`".to_owned())),
            None => folder.path().join("control"),
        };
        config.insert("control".to_owned(), control.display().to_string().into());
        let mut child = spawn_bound(command)
            .map_err(|e| failed(format!("cannot be started as {} ({e})", program.display())))?;
        let stderr_tail = StderrTail::default();
        let lines = listen(&mut child, &stderr_tail);
        let mut status = netns.command(program);
        status
            .args([verb, "status", "--json", "--control"])
            .arg(&control);
        let config = config.to_string();
        // It may have ended already; then its words say more than the broken pipe.
        let _ = child
            .stdin
            .take()
            .map(|mut pipe| pipe.write_all(config.as_bytes()));
        let mut process = Self {
            name: name.to_owned(),
            child,
            stderr_tail,
            status,
            _folder: folder,
        };
        process.await_ready(&lines, cancel)?;
        Ok(process)
    }

    fn await_ready(
        &mut self,
        lines: &Receiver<String>,
        cancel: &AtomicBool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + START;
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) if line.trim() == "ready" => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    // Its standard output closes a moment before it can be collected.
                    thread::sleep(TICK);
                    self.check()?;
                }
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(LabError::Cancelled);
            }
            if Instant::now() > deadline {
                return Err(self.failed(format!("was not ready within {START:?}")));
            }
        }
    }

    /// Waits until the tunnels of this near end stand.
    pub(crate) fn await_far_end(&mut self, cancel: &AtomicBool) -> Result<(), LabError> {
        let deadline = Instant::now() + REACH;
        loop {
            self.check()?;
            let tunnels = self.status().and_then(|status| status.tunnels);
            if tunnels.as_ref().is_some_and(|tunnels| tunnels.up) {
                return Ok(());
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(LabError::Cancelled);
            }
            if Instant::now() > deadline {
                let why = tunnels.map(|tunnels| tunnels.last_loss);
                let why = why.filter(|why| !why.is_empty());
                let why = why.map_or(String::new(), |why| format!(" ({why})"));
                return Err(self.failed(format!("did not reach its far end within {REACH:?}{why}")));
            }
            thread::sleep(POLL);
        }
    }

    /// Fails if the gateway has ended.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                // Its last words may still be on their way to us.
                thread::sleep(TICK);
                Err(self.failed(format!("ended by itself ({status})")))
            }
            Err(e) => Err(self.failed(format!("cannot be watched ({e})"))),
        }
    }

    /// What it stderr_tail last on standard error.
    fn stderr(&self) -> String {
        let lines = self
            .stderr_tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// What it counted so far; `None`: it does not say.
    pub(crate) fn status(&mut self) -> Option<Status> {
        let said = self.status.stderr(Stdio::null()).output().ok()?;
        serde_json::from_slice(&said.stdout).ok()
    }

    /// Asks it to end, and sees to it that it does; what it said last, and `status`, which it has told.
    pub(crate) fn stop(mut self, status: Option<Status>) -> StoppedGateway {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        StoppedGateway {
            stderr_tail: self.stderr(),
            status,
        }
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Gateway {
            gateway: self.name.clone(),
            what,
            stderr: self.stderr(),
        }
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what `child` says: the lines of its standard output come through the channel, the last
/// ones of its standard error are kept.
fn listen(child: &mut Child, stderr_tail: &StderrTail) -> Receiver<String> {
    let (sender, receiver) = sync_channel(64);
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let stderr_tail = Arc::clone(stderr_tail);
    // Threads, because both pipes must be drained for as long as it lives; they end with it.
    let _ = thread::Builder::new()
        .name("gateway-out".to_owned())
        .spawn(move || {
            each_line(stdout, |line| {
                let _ = sender.try_send(line);
            });
        });
    let _ = thread::Builder::new()
        .name("gateway-err".to_owned())
        .spawn(move || {
            each_line(stderr, |line| {
                let mut lines = stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() == LINES {
                    lines.pop_front();
                }
                lines.push_back(line);
            });
        });
    receiver
}

fn each_line(pipe: Option<impl Read>, mut heard: impl FnMut(String)) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0) {
        heard(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}
