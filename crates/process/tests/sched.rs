//! Processors and priorities of threads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_process::sched::{allowed_cpus, ordinary, pin, realtime};
use std::io;

#[test]
fn a_pinned_thread_sees_one_processor() {
    std::thread::spawn(|| {
        let last = *allowed_cpus().unwrap().last().unwrap();
        pin(last).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [last]);
        assert_eq!(rustix::thread::sched_getcpu(), last);
        assert!(pin(usize::MAX).is_err());
    })
    .join()
    .unwrap();
}

#[test]
fn real_time_is_granted_or_refused_by_permission_alone() {
    std::thread::spawn(|| match realtime(1) {
        Ok(()) => {
            // SAFETY: reads the policy of the calling thread.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO);
            ordinary().unwrap();
        }
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
    })
    .join()
    .unwrap();
}
