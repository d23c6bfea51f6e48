//! Waiting for a program, and what it used.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// What a program used, from its start to its end: getrusage(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Most memory resident at once, in bytes. The kernel counts the time between fork and exec too,
    /// so it is never less than what our own process has resident.
    pub peak_memory: u64,
    /// Processor time, in user and kernel mode.
    pub cpu: Duration,
}

/// Waits for `child` to end.
///
/// # Errors
/// When somebody else waited for it before.
pub fn wait(child: Child) -> io::Result<(ExitStatus, Usage)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the types that wait4(2) writes.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if waited == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let usage = Usage {
        // The kernel counts in KiB.
        peak_memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
    };
    Ok((ExitStatus::from_raw(status), usage))
}

fn time(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
