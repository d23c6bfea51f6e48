//! The running gateway as a service: signals, and what its manager is told.

use anyhow::Context;
use bentpipe_gateway::{ConfigSource, Handle};
use bentpipe_process::notify;
use signal_hook::consts::{SIGHUP, SIGUSR2};
use signal_hook::iterator::Signals;
use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a successor may take to start: another is not started meanwhile.
const START: Duration = Duration::from_secs(10);

const CANNOT_CATCH: &str = "cannot catch SIGHUP and SIGUSR2";

/// SIGHUP is kept from here on until a [`Service`] begins, and ends no gateway that starts.
pub(super) fn keep_signals() -> anyhow::Result<Signals> {
    Signals::new([SIGHUP]).context(CANNOT_CATCH)
}

/// The threads that handle signals and talk to the service manager; they wait until [`Service::begin`].
pub(super) struct Service {
    handle: Handle,
    /// Starts each waiting thread; a thread ends if its sender is dropped without a message.
    waiting: Vec<SyncSender<()>>,
}

impl Service {
    /// Prepares to handle `signals`: SIGHUP reloads, and SIGUSR2 starts a successor where one is possible, which makes
    /// this gateway retire by its control socket. Everything that can fail is done here, before a predecessor is told
    /// to retire.
    pub(super) fn prepare(
        mut signals: Signals,
        handle: &Handle,
        source: ConfigSource,
        successor: Option<Option<PathBuf>>,
    ) -> anyhow::Result<Self> {
        signals.add_signal(SIGUSR2).context(CANNOT_CATCH)?;
        let mut service = Self {
            handle: handle.clone(),
            waiting: Vec::new(),
        };
        let heeding = handle.clone();
        service.spawn("signals", move || {
            let mut last = None;
            for signal in signals.forever() {
                match (signal, &successor) {
                    (SIGHUP, _) => reload(&heeding, &source),
                    (_, Some(Some(control))) => succeed(control, &mut last),
                    (_, Some(None)) => {
                        tracing::error!("no successor: the gateway has no control socket")
                    }
                    (_, None) => {
                        tracing::error!("no successor: the gateway has no configuration file")
                    }
                }
            }
        })?;
        if let Some(interval) = notify::watchdog() {
            let handle = handle.clone();
            service.spawn("watchdog", move || watch(&handle, interval / 3))?;
        }
        Ok(service)
    }

    /// A thread that does `work` once the service begins.
    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        let (begin, begun) = sync_channel(1);
        let work = move || {
            if begun.recv().is_ok() {
                work();
            }
        };
        let builder = thread::Builder::new().name(name.to_owned());
        builder.spawn(work).context("cannot start a thread")?;
        self.waiting.push(begin);
        Ok(())
    }

    /// Tells the manager that new connections are split, and heeds signals from now on.
    pub(super) fn begin(self) {
        for thread in &self.waiting {
            // Each thread receives one message.
            let _ = thread.try_send(());
        }
        // MAINPID tells the service manager that a successor is now the main process.
        let ready = format!("MAINPID={}\nREADY=1", std::process::id());
        let handle = self.handle;
        notify::tell_in_the_end(ready, move || !handle.is_retired());
    }
}

fn reload(handle: &Handle, source: &ConfigSource) {
    notify::tell("RELOADING=1");
    // A refusal is in the log already.
    let _ = source.reload(handle);
    let handle = handle.clone();
    notify::tell_in_the_end("READY=1".to_owned(), move || !handle.is_retired());
}

/// Starts the program that is installed now, with the same arguments, in our place.
///
/// Not as a child of ours: systemd waits at a stop for no main process but its own child, and kills any
/// other at once. `setsid --fork` leaves it to systemd, or to whoever takes in orphans here.
fn succeed(control: &Path, last: &mut Option<Instant>) {
    if last.is_some_and(|at| at.elapsed() < START) {
        return tracing::warn!("a successor is starting already: no other within {START:?}");
    }
    *last = Some(Instant::now());
    let is_replace = |argument: &OsString| argument.as_bytes().starts_with(b"--replace");
    let mut replace = OsString::from("--replace=");
    replace.push(control);
    let mut command = Command::new("setsid");
    command.arg("--fork");
    command.args(env::args_os().filter(|argument| !is_replace(argument)));
    match command.arg(replace).status() {
        // A successor that fails logs that itself, and this gateway goes on.
        Ok(status) if status.success() => tracing::info!("a successor starts"),
        Ok(status) => tracing::error!("no successor: setsid ended with {status}"),
        Err(error) => {
            tracing::error!(%error, "no successor: cannot run setsid (package util-linux)")
        }
    }
}

/// Tells the manager that all is well, as long as it is: the supervisor and each worker answer.
fn watch(handle: &Handle, interval: Duration) {
    while !handle.is_retired() {
        thread::sleep(interval);
        if handle.is_alive(interval) {
            notify::tell("WATCHDOG=1");
        } else if handle.has_stopped() {
            return;
        } else {
            tracing::error!("a thread of the gateway does not answer");
        }
    }
}
