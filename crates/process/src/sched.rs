//! Where and when a thread runs: the processors it may use, and real-time scheduling for threads
//! that must not be late.

use rustix::thread::CpuSet;
use std::io;

/// The processors that the calling thread may run on, in rising order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Ties the calling thread to one processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Puts the calling thread under SCHED_FIFO at `priority` (1 lowest, 99 highest): it then runs
/// before every ordinary thread, and threads it starts are ordinary again.
///
/// Refused with `PermissionDenied` without CAP_SYS_NICE (or RLIMIT_RTPRIO); say so and go on: the
/// thread works, only later. It must sleep of itself: the kernel takes the processor away for 5% of
/// each second from real-time threads that never do.
pub fn realtime(priority: u8) -> io::Result<()> {
    // SAFETY: sched_param is plain integers; all zeros is valid.
    let mut param: libc::sched_param = unsafe { core::mem::zeroed() };
    param.sched_priority = libc::c_int::from(priority);
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `param` outlives the call, which only reads it; pid 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const param) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Gives the calling thread, and threads it starts, less of a busy processor than others (nice 10).
pub fn yield_to_others() {
    // The kernel refuses this only to callers that ask for more than their share.
    let _ = rustix::process::nice(10);
}

/// Blocks all signals in the calling thread, so that other threads handle them. A call that a signal interrupts may
/// fail with an error that otherwise means that there is nothing to do, for instance a read from a stream that stands
/// before an urgent byte (tcp(7)).
pub fn leave_signals_to_others() {
    // SAFETY: a sigset_t is plain bits, filled before it is read, and outlives both calls.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        // The only failure is a wrong first argument.
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut());
    }
}

/// Puts the calling thread back under the ordinary scheduler.
pub fn ordinary() -> io::Result<()> {
    // SAFETY: sched_param is plain integers; all zeros is valid and is what SCHED_OTHER demands.
    let param: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: `param` outlives the call, which only reads it; pid 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const param) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
