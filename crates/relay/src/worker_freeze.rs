//! Detects that a worker thread was frozen for so long that the kernel has let its new connections pass meanwhile.

use bentpipe_base::Instant;
use bentpipe_os::nft::LIFE;
use bentpipe_sockets::timer;

/// Tells a worker whether it did not run (stopped, frozen or starved) for longer than the admission switch keeps its
/// position. Clients that waited meanwhile have sent their SYNs again, and these passed unsplit, so that their first
/// SYNs must not be split any more.
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

    /// Whether the thread was frozen since it last woke up.
    pub(crate) fn was_frozen(&self) -> bool {
        timer::now().since(self.woke) >= LIFE
    }
}
