//! The heartbeat of a thread that reads a queue of packets, by which the watchdog and the kernel's rules see that it lives.
//!
//! While such a thread hangs, its packets wait. So it answers heartbeats, as the workers do: where it does not, the watchdog
//! lets new connections pass, and the gateway says that it is impaired. The thread also holds its position of the gateway's
//! switch, where it has one: as soon as that lapses ([`LIFE`](bentpipe_os::nft::LIFE)), packets go on without it.

use bentpipe_base::Instant;
use bentpipe_interception::{AdmissionSwitch, QueueReader};
use bentpipe_relay::Shared;
use bentpipe_sockets::timer;
use std::sync::Arc;
use std::time::Duration;

/// How often the switch is held again, and so how far apart beats may be.
const PERIOD: Duration = Duration::from_millis(100);

/// The heartbeat of one thread.
pub(crate) struct ReaderHeartbeat {
    reader: QueueReader,
    switch: Arc<AdmissionSwitch>,
    shared: Arc<Shared>,
    hold_again: Instant,
}

impl ReaderHeartbeat {
    /// That of `reader`; it begins with the first [`ReaderHeartbeat::beat`].
    pub(crate) fn new(
        reader: QueueReader,
        switch: Arc<AdmissionSwitch>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            reader,
            switch,
            shared,
            hold_again: Instant::ZERO,
        }
    }

    /// Says that the thread lives. To be called whenever it wakes up, and at [`ReaderHeartbeat::due`] at the latest.
    pub(crate) fn beat(&mut self) {
        self.shared.reader_beats(self.reader);
        let now = timer::now();
        if self.hold_again <= now {
            self.switch.hold_queue(self.reader);
            self.hold_again = now + PERIOD;
        }
    }

    /// When the next beat is due.
    pub(crate) fn due(&self) -> Instant {
        self.hold_again
    }
}
