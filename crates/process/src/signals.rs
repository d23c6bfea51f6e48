//! What a process inherits about signals.

/// Takes back what whoever started this process had set for itself and a process keeps across execve(2): signals that are
/// blocked, so that none asks this one to end, and children that the kernel does not keep for those who wait for
/// them (an ignored SIGCHLD), so that nobody knows how one ended. To be called before any thread is started.
pub fn forget_inherited() {
    // SAFETY: a sigset_t is plain bits, made the empty set before it is read, and outlives the calls; what SIGCHLD does by
    // default runs no code of ours.
    unsafe {
        let mut none: libc::sigset_t = core::mem::zeroed();
        // The only failures are wrong numbers.
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, core::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}
