//! Counts what happened on one direction of a link.

use bentpipe_base::{DropCause, Fact, Instant, Observer};
use core::time::Duration;

/// What happened on one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    /// Packets that began their way over the link.
    pub(crate) packets: u64,
    /// Packets for which the queue had no room.
    pub(crate) refused: u64,
    /// Packets that the queue marked in place of dropping them.
    pub(crate) marked: u64,
    /// Packets of which bits were hit.
    pub(crate) corrupted: u64,
    /// Packets that vanished.
    pub(crate) lost: u64,
    /// Packets that a channel struck before they reached the queue.
    pub(crate) struck_before_queue: u64,
    /// Most packets that waited in the queue at once, the one being sent not counted.
    pub(crate) longest_queue: usize,
    /// What all packets together waited in the queue, in nanoseconds.
    waited: u64,
}

impl LinkCounters {
    /// What all packets together waited in the queue.
    pub(crate) const fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }
}

impl Observer for LinkCounters {
    #[inline]
    fn observe(&mut self, now: Instant, fact: &Fact) {
        match *fact {
            Fact::Departed { since, .. } => {
                self.packets += 1;
                // A run lasts at most 584 years.
                self.waited = self.waited.saturating_add(now.nanos_since(since));
            }
            Fact::Marked { .. } => self.marked += 1,
            Fact::Dropped { cause, .. } => match cause {
                DropCause::Queue => self.refused += 1,
                DropCause::Corrupted => self.corrupted += 1,
                DropCause::Lost => self.lost += 1,
                DropCause::BeforeQueue => self.struck_before_queue += 1,
            },
        }
    }
}
