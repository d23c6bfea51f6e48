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

/// Whether whoever started this process has it ignore the signal of that number, as nohup(1) does with SIGHUP.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a sigaction is plain bits; without a new one the call only writes the old one, which outlives it.
    let (found, action) = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let found = libc::sigaction(signal, core::ptr::null(), &raw mut action);
        (found, action)
    };
    found == 0 && action.sa_sigaction == libc::SIG_IGN
}
