//! Another process, held by a descriptor (pidfd_open(2)), so that it is not confused with a later process of the same
//! pid.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// Another process.
#[derive(Debug)]
pub struct Process {
    descriptor: OwnedFd,
    pid: Pid,
}

impl Process {
    /// The process at the other end of a connected Unix socket: the one that listened there. `None`: it is this one.
    ///
    /// # Errors
    /// When it has ended, or is of another pid namespace.
    pub fn peer(stream: impl AsFd) -> io::Result<Option<Self>> {
        let pid: Pid = sockopt::socket_peercred(stream)?.pid;
        if pid == getpid() {
            return Ok(None);
        }
        Self::open(pid).map(Some)
    }

    fn open(pid: Pid) -> io::Result<Self> {
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { descriptor, pid })
    }

    /// Whether its first thread is in the network namespace of the calling one; `None`: that may not be seen.
    pub fn shares_network(&self) -> Option<bool> {
        let path = format!("/proc/{}/ns/net", self.pid.as_raw_nonzero());
        let its = fs::metadata(path).ok()?;
        let own = fs::metadata("/proc/thread-self/ns/net").ok()?;
        let same = (its.dev(), its.ino()) == (own.dev(), own.ino());
        (!self.has_ended()).then_some(same)
    }

    /// Sends it SIGTERM.
    ///
    /// # Errors
    /// When it has ended, or is another user's.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, Signal::TERM)?)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let mut one = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let at_once = Timespec::default();
        poll(&mut one, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn one_that_is_terminated_has_ended() {
        let own = UnixStream::pair().unwrap();
        assert!(Process::peer(&own.0).unwrap().is_none());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let other = Process::open(pid).unwrap();
        assert!(!other.has_ended());
        assert_eq!(other.shares_network(), Some(true));
        other.terminate().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !other.has_ended() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(other.terminate().is_err());
        assert_eq!(other.shares_network(), None);
    }

    #[test]
    fn who_listens_here_is_this_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        assert!(Process::peer(&stream).unwrap().is_none());
    }
}
