//! Counts what happened on one direction of a link.

use bentpipe_base::{DropCause, Fact, Instant, Observer};
use bentpipe_outcome::SimplexLink;
use core::time::Duration;

/// What happened on one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that began their way over the link.
    pub packets: u64,
    /// Packets for which the queue had no room.
    pub refused: u64,
    /// Packets that the queue marked in place of dropping them.
    pub marked: u64,
    /// Packets of which bits were hit.
    pub corrupted: u64,
    /// Packets that vanished.
    pub lost: u64,
    /// Packets that a channel struck before they reached the queue.
    pub struck_before_queue: u64,
    /// Most packets that waited in the queue at once, the one being sent not counted.
    pub longest_queue: usize,
    /// What all packets together waited in the queue, in nanoseconds.
    waited: u64,
}

impl LinkCounters {
    /// What all packets together waited in the queue.
    pub const fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// As the outcome of a run has it for that direction of `link`, with what is known of refused data besides.
    pub fn outcome(&self, [link, from, to]: [&str; 3], refused_data: Option<u64>) -> SimplexLink {
        SimplexLink {
            link: link.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            packets: self.packets,
            corrupted: self.corrupted,
            lost: self.lost,
            struck_before_queue: self.struck_before_queue,
            refused: self.refused,
            marked: self.marked,
            refused_data,
            waited: self.waited(),
            longest_queue: Some(self.longest_queue as u64),
        }
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
