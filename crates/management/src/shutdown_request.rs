//! The request by which a running program is told to end: the first makes it drain, the second stops it at once.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// SIGTERM and SIGINT could not be caught.
#[derive(Debug, Error)]
#[error("cannot catch SIGTERM and SIGINT ({0}): raise the limit on open files (ulimit -n)")]
pub struct SignalError(#[from] io::Error);

/// A request to end that can be made from any thread, and by signals.
#[derive(Debug)]
pub struct Shutdown {
    receiver: UnixStream,
    sender: UnixStream,
}

impl Shutdown {
    /// No request yet, and no signals caught.
    pub fn new() -> Result<Self, SignalError> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        Ok(Self { receiver, sender })
    }

    /// Like [`Shutdown::new`]; from now on SIGTERM and SIGINT are requests.
    pub fn on_signals() -> Result<Self, SignalError> {
        let shutdown = Self::new()?;
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::low_level::pipe::register(signal, shutdown.sender.try_clone()?)?;
        }
        Ok(shutdown)
    }

    /// Requests the end: the first time drain, the second time at once.
    pub fn request(&self) {
        // A full pipe holds more requests than anybody can mean.
        let _ = (&self.sender).write(&[0]);
    }

    /// Takes one request, if there is one.
    pub fn take(&self) -> bool {
        loop {
            match (&self.receiver).read(&mut [0; 1]) {
                Ok(count) => return count > 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Shutdown {
    /// Readable while a request waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_taken_once() {
        let shutdown = Shutdown::on_signals().unwrap();
        assert!(!shutdown.take());
        shutdown.request();
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
        assert!(shutdown.take());
        assert!(shutdown.take());
        assert!(!shutdown.take());
    }
}
