//! Ctrl-C: the first asks every run to stop and clean up, the second does not wait for it. A service manager that stops the
//! program, and a terminal that is closed, ask likewise.

use anyhow::Context;
use bentpipe_process::signals::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once someone asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on, and for SIGHUP unless nohup(1) keeps it away.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            // The order matters: the first signal finds the flag unset and only sets it, the second ends the process.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .context("cannot listen for Ctrl-C")?;
        }
        Ok(Self(asked))
    }

    /// Whether someone asked.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for those who poll it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
