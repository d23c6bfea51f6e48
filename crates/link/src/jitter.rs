//! A delay that differs from packet to packet: as that of slots, of other traffic, and of the machines on the way.
//!
//! ```text
//! arrival = max(the arrival before, last bit sent + delay + U)        U uniform in [0, jitter)
//! ```
//!
//! Without it packets of one size come to a full queue at the same instants of each of its rounds, so that no chance decides which of
//! two is dropped, but fractions of a millisecond on their way: S. Floyd, V. Jacobson, "On Traffic Phase Effects in Packet-Switched
//! Gateways", Internetworking: Research and Experience 3(3), 1992. A jitter as long as the bottleneck takes for one packet mends that.

use bentpipe_base::Stream;

/// The jitter of one direction.
pub(crate) struct Jitter {
    /// In nanoseconds.
    most: u64,
    draw: Stream,
}

impl Jitter {
    /// Of at most `most` nanoseconds, drawn for the direction called `name`; `None` where it is nothing.
    pub(crate) fn new(most: u64, seed: u64, name: &str) -> Option<Box<Self>> {
        let draw = || Stream::new(seed, &format!("{name}.jitter"));
        (most > 0).then(|| Box::new(Self { most, draw: draw() }))
    }

    /// What the next packet takes longer, in nanoseconds.
    pub(crate) fn next(&mut self) -> u64 {
        self.draw.below(self.most)
    }
}
