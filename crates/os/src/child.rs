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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn shell(script: &str) -> (ExitStatus, Usage) {
        wait(Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap()
    }

    #[test]
    fn memory_and_time_are_those_of_the_child() {
        let (_, little) = shell("true");
        // A string of 64 MiB in the shell itself, doubled up from one byte.
        let (status, much) = shell("x=a; i=0; while [ $i -lt 26 ]; do x=$x$x; i=$((i+1)); done");
        assert!(status.success());
        assert!(
            much.peak_memory > little.peak_memory + (64 << 20),
            "{much:?}"
        );
        assert!(much.cpu > little.cpu, "{much:?}");
    }

    #[test]
    fn the_way_it_ended_is_told() {
        assert_eq!(shell("exit 3").0.code(), Some(3));
        assert_eq!(shell("kill -9 $$").0.signal(), Some(9));
    }
}
