//! File leases (fcntl(2), F_SETLEASE): whether somebody has a file open for writing, and a short time in which nobody
//! can open it so.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which signal tells of one who waits (fcntl.h); libc lacks it.
const F_SETSIG: i32 = 10;

/// While it lives nobody opens the file for writing: the kernel lets them wait, for its
/// `lease-break-time` (45 s) at most.
#[derive(Debug)]
pub struct ReadLease<'a>(BorrowedFd<'a>);

impl<'a> ReadLease<'a> {
    /// A lease on `file`, which is open for reading alone; `None` where the file system has none.
    ///
    /// # Errors
    /// `WouldBlock` when somebody has it open for writing; `PermissionDenied` to who is neither its owner nor has
    /// CAP_LEASE.
    pub fn take(file: BorrowedFd<'a>) -> io::Result<Option<Self>> {
        // The kernel sends a signal when somebody waits for the lease; this one is ignored by default.
        control(file, F_SETSIG, libc::SIGURG)?;
        match control(file, libc::F_SETLEASE, libc::F_RDLCK) {
            Ok(_) => Ok(Some(Self(file))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Whether nobody has asked to write since it was taken.
    pub fn is_whole(&self) -> bool {
        control(self.0, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK)
    }
}

impl Drop for ReadLease<'_> {
    fn drop(&mut self) {
        // It ends with the file at the latest.
        let _ = control(self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: BorrowedFd<'_>, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: all three commands take an integer, and the descriptor is borrowed for the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn who_writes_is_known_and_who_begins_to_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let writer = File::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        let refused = ReadLease::take(file.as_fd()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        let lease = ReadLease::take(file.as_fd()).unwrap();
        let lease = lease.expect("the file system has leases");
        assert!(lease.is_whole());
        let path = path.clone();
        let began = Instant::now();
        let waiting = std::thread::spawn(move || {
            OpenOptions::new().append(true).open(path).unwrap();
            began.elapsed()
        });
        while lease.is_whole() {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        let held = began.elapsed();
        drop(lease);
        assert!(waiting.join().unwrap() >= held);
    }
}
