//! Finds losses by the order in which segments were sent (RFC 8985, section 6.2, step 5), without a walk of the window.
//!
//! A segment may be lost once another one was delivered that was sent after it. Segments that were sent once lie in the
//! board in the order in which they were sent, so that those found lost are always the next ones above
//! [`Scoreboard::judged`]. Segments that were sent again are kept beside the board in the order in which they were sent
//! last, as Linux keeps all of them (`tsorted_sent_queue`).

use crate::{Scoreboard, SentRun, SentState};
use bentpipe_base::Instant;
use std::collections::{BTreeSet, VecDeque};

/// The place of a transmission in the order of sending: first its time, then, among segments sent at once, their end.
pub type Order = (Instant, u64);

/// The segments in flight that were sent more than once, in the order of their last transmission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resent(BTreeSet<Order>);

impl Resent {
    /// The retransmitted segments of `ring`.
    pub(crate) fn of(ring: &VecDeque<SentRun>) -> Self {
        let theirs = ring.iter().filter(|sent| Self::has(sent));
        Self(theirs.map(|sent| (sent.at, sent.to())).collect())
    }

    /// Whether `sent` was retransmitted and is in flight.
    fn has(sent: &SentRun) -> bool {
        sent.transmits > 1 && sent.is_out()
    }

    pub(crate) fn insert(&mut self, sent: &SentRun) {
        if Self::has(sent) {
            self.0.insert((sent.at, sent.to()));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Order> + '_ {
        self.0.iter().copied()
    }

    #[inline]
    pub(crate) fn remove(&mut self, sent: &SentRun) {
        if Self::has(sent) {
            self.0.remove(&(sent.at, sent.to()));
        }
    }
}

impl Scoreboard {
    /// Marks segments as lost that were sent before `latest` and no later than `due`; returns how many are newly lost.
    pub fn judge_by_time(&mut self, latest: Order, due: Instant) -> u32 {
        // A recovery that judges by time does so at every acknowledgement, so the order is kept from now on.
        self.resent.get_or_insert_with(|| Resent::of(&self.ring));
        self.judge_resent(latest, due) + self.judge_sent_once(latest, due)
    }

    fn judge_resent(&mut self, latest: Order, due: Instant) -> u32 {
        let mut lost = 0;
        while let Some(resent) = &mut self.resent
            && let Some(&order) = resent.0.first()
            && order < latest
            && order.0 <= due
        {
            resent.0.pop_first();
            // The segment ends at `order.1`, and so holds the byte before.
            let index = self.index(order.1 - 1);
            let Some(sent) = self.ring.get_mut(index) else {
                continue;
            };
            self.losses.note(sent);
            if sent.state == SentState::Resent {
                self.again_out -= 1;
            } else {
                self.lost_out += 1;
            }
            sent.state = SentState::Lost;
            self.cursor = self.cursor.min(sent.from);
            lost += 1;
        }
        lost
    }

    fn judge_sent_once(&mut self, latest: Order, due: Instant) -> u32 {
        let mut lost = 0;
        let mut index = self.index(self.judged);
        while let Some(sent) = self.ring.get_mut(index) {
            if sent.transmits == 1 && sent.is_out() {
                let first = sent.from + u64::from(sent.len);
                if sent.at > due || (sent.at, first) >= latest {
                    break;
                }
                if sent.count > 1 {
                    self.split();
                    index = self.index(self.judged);
                    continue;
                }
                self.losses.note(sent);
                sent.state = SentState::Lost;
                self.cursor = self.cursor.min(sent.from);
                lost += 1;
            }
            self.judged = sent.to();
            index += 1;
        }
        self.lost_out += lost;
        lost
    }

    /// After a retransmission timeout marks as lost the first segment, and of the others those that were sent no later than
    /// `due` (RFC 8985, section 6.3); all of them where the peer has discarded what it held ([`Self::lose_all`]).
    pub fn lose_sent_until(&mut self, due: Instant) {
        let Some(first) = self.get(0).copied() else {
            return;
        };
        if first.is_sacked() {
            return self.lose_all();
        }
        self.judge_by_time((Instant::MAX, u64::MAX), due);
        self.lose(first.from, first.from + 1, None, due);
    }

    /// Among the segments in flight that were sent before `latest`, the time when the last one was sent.
    pub fn last_out_before(&self, latest: Order) -> Option<Instant> {
        let resent = self.resent.as_ref();
        let last_resent = resent.and_then(|resent| resent.0.range(..latest).next_back());
        let at = last_resent.map(|&(at, _)| at);
        at.max(self.last_sent_once_before(latest))
    }

    fn last_sent_once_before(&self, latest: Order) -> Option<Instant> {
        let start = self.index(self.judged);
        let before = |sent: &SentRun| (sent.at, sent.from + u64::from(sent.len)) < latest;
        // Nothing above `judged` was sent again.
        let (mut low, mut end) = (start, self.ring.len());
        while low < end {
            let middle = low + (end - low) / 2;
            if before(&self.ring[middle]) {
                low = middle + 1
            } else {
                end = middle
            }
        }
        while end > start {
            let sent = &self.ring[end - 1];
            if sent.transmits == 1 && sent.is_out() {
                return Some(sent.at);
            }
            // A stretch that the peer holds is skipped at once; it may begin within a segment, which may have been
            // acknowledged up to there since, and is in flight.
            end = match self.sacked.covering(sent.from) {
                Some((left, _)) if sent.is_sacked() => {
                    let first = self.ring.partition_point(|sent| sent.from < left);
                    first + usize::from(!self.ring[first].is_sacked())
                }
                _ => end - 1,
            };
        }
        None
    }
}
