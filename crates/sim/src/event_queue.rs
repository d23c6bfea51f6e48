//! The event queue: tells which of a fixed set of event sources is due first, by a winner tree (a tournament).
//!
//! Each source has one entry, which moves with its deadline: that costs a comparison a level, where a heap would keep the
//! stale entries that a moved deadline leaves behind. Of sources that are due at one instant the one with the lowest number
//! comes first, so that results never depend on the order in which entries were made.
//!
//! Source: D. E. Knuth, The Art of Computer Programming, volume 3, section 5.4.1 (replacement
//! selection by a tree of losers; this one keeps winners, for any source may move, not only the
//! last winner).

use bentpipe_base::Instant;

/// Sources 0, 1, 2, ... with the time at which each is due; [`Instant::MAX`] means never. A time and the source's number
/// share 64 bits, so that with 500 sources a time more than a year ahead means never too.
///
/// The first sources, links and proxies, move all the time: they have a tree of their own, which has few levels.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    busy: Tree,
    /// The number of the first source of `others`.
    bound: usize,
    others: Tree,
    /// Bits of a source's number.
    bits: u32,
}

impl EventQueue {
    /// `busy` sources and behind them `others`, all never due.
    pub(crate) fn new(busy: usize, others: usize) -> Self {
        let sources = busy + others;
        let mut event_queue = Self {
            busy: Tree::new(busy),
            bound: busy,
            others: Tree::new(others),
            bits: sources.next_power_of_two().trailing_zeros().max(1),
        };
        (0..sources).for_each(|source| event_queue.set(source, Instant::MAX));
        event_queue
    }

    /// The time due in the high bits, the number of the source in the low ones: the least key comes first, and two keys are
    /// compared without a branch.
    #[inline]
    fn key(&self, source: usize, due: Instant) -> u64 {
        due.as_nanos().min(u64::MAX >> self.bits) << self.bits | source as u64
    }

    /// `source` is due at `due`.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, due: Instant) {
        let key = self.key(source, due);
        match source.checked_sub(self.bound) {
            None => self.busy.set(source, key),
            Some(other) => self.others.set(other, key),
        }
    }

    /// `source` is due at `due`, unless it is due earlier.
    #[inline(always)]
    pub(crate) fn schedule_earlier(&mut self, source: usize, due: Instant) {
        if self.key(source, due) < self.at(source) {
            self.set(source, due);
        }
    }

    /// Whether `source`, which is none of the busy ones, is due by `now`.
    #[inline]
    pub(crate) fn is_due(&self, source: usize, now: Instant) -> bool {
        let by_now = |key| key >> self.bits <= now.as_nanos();
        // Nearly always none of them is.
        by_now(self.others.first) && by_now(self.at(source))
    }

    /// The key of `source`.
    #[inline]
    fn at(&self, source: usize) -> u64 {
        match source.checked_sub(self.bound) {
            None => self.busy.at(source),
            Some(other) => self.others.at(other),
        }
    }

    /// The time of the source due first, and its number.
    #[inline]
    pub(crate) fn first(&self) -> (Instant, usize) {
        let key = self.busy.first.min(self.others.first);
        let due = key >> self.bits;
        let source = key & !(u64::MAX << self.bits);
        let due = if due == u64::MAX >> self.bits {
            Instant::MAX
        } else {
            Instant::from_nanos(due)
        };
        (due, source as usize)
    }
}

/// A tree of keys. The greatest key stands for no source.
#[derive(Clone, Debug)]
struct Tree {
    /// Nodes of a binary tree, root at 1, the children of i at 2i and 2i + 1; the second half are the
    /// sources, some of them a round further up unless their number is a power of two. Node n is the
    /// (n mod 2)th of pair n / 2.
    tree: Vec<[u64; 2]>,
    /// The node that the first source is.
    leaves: usize,
    /// The least key.
    first: u64,
}

impl Tree {
    /// A tree for `sources`, none of which has a key.
    fn new(sources: usize) -> Self {
        let leaves = sources.max(2);
        Self {
            tree: vec![[u64::MAX; 2]; leaves],
            leaves,
            first: u64::MAX,
        }
    }

    /// The key of `source`.
    #[inline]
    fn at(&self, source: usize) -> u64 {
        let leaf = self.leaves + source;
        self.tree[leaf / 2][leaf % 2]
    }

    /// Replays the matches on the way to the root, as far up as anything changes.
    #[inline]
    fn set(&mut self, source: usize, key: u64) {
        let (mut node, mut first) = (self.leaves + source, key);
        while node > 1 {
            let pair = &mut self.tree[node / 2];
            if pair[node % 2] == first {
                return;
            }
            pair[node % 2] = first;
            first = first.min(pair[(node % 2) ^ 1]);
            node /= 2;
        }
        self.first = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: the least (time, number) of all.
        #[test]
        fn the_first_is_the_earliest_and_of_equals_the_lowest(
            sources in 1usize..40,
            busy in 0usize..40,
            moves in prop::collection::vec((0usize..40, 0u64..20, any::<bool>()), 1..200),
        ) {
            let busy = busy.min(sources);
            let mut event_queue = EventQueue::new(busy, sources - busy);
            let mut due = vec![Instant::MAX; sources];
            for (source, at, sooner) in moves {
                let source = source % sources;
                // 19 stands for "never".
                let at = if at == 19 { Instant::MAX } else { Instant::from_nanos(at) };
                if sooner {
                    event_queue.schedule_earlier(source, at);
                    due[source] = at.min(due[source]);
                } else {
                    event_queue.set(source, at);
                    due[source] = at;
                }
                let first = due.iter().zip(0..).min().map(|(due, source)| (*due, source));
                prop_assert_eq!(Some(event_queue.first()), first);
            }
        }
    }
}
