//! Waiting for one socket until a certain instant.

use super::Lost;
use bentpipe_base::Instant;
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An epoll set for one socket at a time.
pub(super) struct Wait {
    epoll: Epoll,
    events: Events,
}

impl Wait {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: Epoll::new()?,
            events: Events::with_capacity(1),
        })
    }

    pub(super) fn readable(&self, socket: impl AsFd) -> io::Result<()> {
        self.epoll.add(socket, 0, Interest::READ)
    }

    pub(super) fn writable(&self, socket: impl AsFd) -> io::Result<()> {
        self.epoll.add(socket, 0, Interest::WRITE)
    }

    /// From now on waits for data or the end of the stream instead.
    pub(super) fn turn_readable(&self, socket: impl AsFd) -> io::Result<()> {
        self.epoll.modify(socket, 0, Interest::READ)
    }

    /// From now on waits for room to write instead.
    pub(super) fn turn_writable(&self, socket: impl AsFd) -> io::Result<()> {
        self.epoll.modify(socket, 0, Interest::WRITE)
    }

    pub(super) fn forget(&self, socket: impl AsFd) -> io::Result<()> {
        self.epoll.remove(socket)
    }

    /// Waits until the socket is as wished (or broken), at most until `at`; whether it is.
    pub(super) fn for_one(&mut self, at: Instant) -> io::Result<bool> {
        let timeout = at.since(timer::now());
        Ok(self.epoll.wait(&mut self.events, Some(timeout))? > 0)
    }

    /// Sleeps until `at`; gives up early when `stop` is raised.
    pub(super) fn sleep_until(&mut self, at: Instant, stop: &AtomicBool) -> Result<(), Lost> {
        loop {
            let rest = at.since(timer::now());
            if rest.is_zero() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Lost::TimeUp);
            }
            std::thread::sleep(rest.min(Duration::from_millis(50)));
        }
    }
}
