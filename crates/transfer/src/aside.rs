//! Work in a thread of its own, beside the loop that drives the sessions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Whether what a thread works at is no longer wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// What reading gives where the work is no longer wanted.
    ///
    /// # Errors
    /// When that is so.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(io::Error::other("nobody waits for it any more")),
            false => Ok(()),
        }
    }
}

/// Work under way. Dropped, it is cancelled.
#[derive(Debug)]
pub(crate) struct Task<T> {
    told: Receiver<T>,
    cancel: Cancel,
}

impl<T> Task<T> {
    /// What it has come to.
    ///
    /// # Errors
    /// When it is not done, or its thread is gone.
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.told.try_recv()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.cancel.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` in a thread called `name`, until it is done or the task is dropped.
pub(crate) fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(&Cancel) -> T + Send + 'static,
) -> io::Result<Task<T>> {
    let (tell, told) = mpsc::channel();
    let cancel = Cancel::default();
    let seen = cancel.clone();
    let work = move || {
        // Nobody waits for it any more when the session is over.
        let _ = tell.send(work(&seen));
    };
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(|_| Task { told, cancel })
}
