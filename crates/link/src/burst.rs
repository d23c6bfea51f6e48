//! A token bucket before the serialiser: after a pause a burst leaves faster than the rate.
//!
//! As a root class of Linux's hierarchical token bucket does (tc-htb(8): `rate`, `ceil`, `cburst`): tokens come at the rate, up
//! to a burst, and a packet leaves as long as there are any, though it may take more than there are. The same rule in
//! time is the virtual scheduling of ITU-T I.371.

use bentpipe_base::{Bytes, Instant, Rate};

/// How much leaves faster than the rate, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The depth of the bucket, link framing counted.
    pub bytes: Bytes,
    /// The rate of the serialiser while there are tokens, at least that of the link.
    pub ceiling: Rate,
}

/// A bucket, full at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) burst: Burst,
    /// When it would be full again, if nothing more left.
    full: Instant,
}

impl Bucket {
    pub(crate) fn new(burst: Burst) -> Self {
        Self {
            burst,
            full: Instant::ZERO,
        }
    }

    /// A packet of `size` leaves at `start`, with tokens that come at `rate`: returns when there are tokens for another.
    pub(crate) fn take(&mut self, size: Bytes, rate: Rate, start: Instant) -> Instant {
        self.full = self.full.max(start) + rate.serialisation(size);
        let depth = rate.serialisation(self.burst.bytes);
        Instant::ZERO + self.full.since(Instant::ZERO).saturating_sub(depth)
    }
}
