//! Finds out whether a worker stood still for so long that the kernel has let its connections pass meanwhile.

use bentpipe_base::Instant;
use bentpipe_os::nft::LIFE;
use bentpipe_sockets::timer;

/// Tells a thread that takes new connections whether it stood still (was stopped, frozen or starved) for longer
/// than the admission switch keeps its position. Clients that waited for it meanwhile have sent again and were let
/// pass, so that their first SYNs are not to be split.
#[derive(Debug)]
pub(crate) struct FreezeDetector {
    woke: Instant,
}

impl FreezeDetector {
    pub(crate) fn new() -> Self {
        Self { woke: timer::now() }
    }

    /// To be called when the thread wakes up; returns whether it was frozen since the last call. The watchdog wakes it ten times
    /// a second, so that a longer gap means a freeze.
    pub(crate) fn wakes(&mut self) -> bool {
        let now = timer::now();
        let before = std::mem::replace(&mut self.woke, now);
        now.since(before) >= LIFE
    }
}
