//! Whether a worker stood still for so long that others have decided about its connections meanwhile.

use bentpipe_base::Instant;
use bentpipe_os::nft::LIFE;
use bentpipe_sockets::timer;

/// Tells a thread that takes new connections whether it stood still (stopped, frozen, starved) for longer
/// than the switch stands: the connections that waited for it meanwhile have been let pass since, and
/// are not to be split.
#[derive(Debug)]
pub(crate) struct Standstill {
    woke: Instant,
}

impl Standstill {
    pub(crate) fn new() -> Self {
        Self { woke: timer::now() }
    }

    /// The thread works; the watchdog has woken it within a period of its own unless it stood still.
    pub(crate) fn wakes(&mut self) -> bool {
        let now = timer::now();
        let before = std::mem::replace(&mut self.woke, now);
        now.since(before) >= LIFE
    }
}
