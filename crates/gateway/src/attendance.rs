//! What a thread that reads a queue of packets does again and again, so that others know that it attends.
//!
//! While such a thread hangs its packets wait. So it answers heartbeats, as the workers do: where it does not, the watchdog
//! lets new connections pass, and the gateway says that it is impaired. And it holds its position of the gateway's switch,
//! where it has one: as soon as that lapses ([`LIFE`](bentpipe_os::nft::LIFE)), packets go on without it.

use bentpipe_base::Instant;
use bentpipe_interception::{AdmissionSwitch, QueueReader};
use bentpipe_relay::Shared;
use bentpipe_sockets::timer;
use std::sync::Arc;
use std::time::Duration;

/// How often the switch is held again.
const PERIOD: Duration = Duration::from_millis(100);

/// The attendance of one thread.
pub(crate) struct Attendance {
    reader: QueueReader,
    switch: Arc<AdmissionSwitch>,
    shared: Arc<Shared>,
    hold_again: Instant,
}

impl Attendance {
    /// That of `reader`, from its first [`Attendance::renew`] on.
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

    /// It attends now. To be called whenever the thread wakes up, and at [`Attendance::due`] at the latest.
    pub(crate) fn renew(&mut self) {
        self.shared.reader_beats(self.reader);
        let now = timer::now();
        if self.hold_again <= now {
            self.switch.hold_queue(self.reader);
            self.hold_again = now + PERIOD;
        }
    }

    /// When it is to be renewed again.
    pub(crate) fn due(&self) -> Instant {
        self.hold_again
    }
}
