use std::collections::VecDeque;

/// A set of stream bytes: disjoint stretches `[from, to)` of offsets, in order, none touching the
/// next. What a peer holds by SACK, what a receiver holds beyond a gap, what a hole list names.
/// Work at either end, where nearly all of it is, takes constant time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    list: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// Whether it holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of stretches.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes in all stretches.
    pub fn total(&self) -> u64 {
        self.iter().map(|(from, to)| to - from).sum()
    }

    /// The lowest stretch.
    #[inline]
    pub fn first(&self) -> Option<(u64, u64)> {
        self.list.front().copied()
    }

    /// The highest stretch.
    #[inline]
    pub fn last(&self) -> Option<(u64, u64)> {
        self.list.back().copied()
    }

    /// All stretches, rising.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.list.iter().copied()
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The stretch that byte `at` lies in.
    pub fn covering(&self, at: u64) -> Option<(u64, u64)> {
        let i = self.list.partition_point(|&(_, to)| to <= at);
        self.list.get(i).copied().filter(|&(from, _)| from <= at)
    }

    /// The first bytes of `[from, to)` that are not in the set.
    pub fn uncovered(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let i = self.list.partition_point(|&(_, end)| end <= from);
        let (mut start, mut end) = (from, to);
        let mut next = i;
        if let Some(&(left, right)) = self.list.get(i)
            && left <= from
        {
            start = right;
            next = i + 1;
        }
        if let Some(&(left, _)) = self.list.get(next) {
            end = end.min(left);
        }
        (start < end).then_some((start, end))
    }

    /// Adds `[from, to)`.
    #[inline]
    pub fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        match self.list.back_mut() {
            None => self.list.push_back((from, to)),
            Some(last) if from > last.1 => self.list.push_back((from, to)),
            Some(last) if from >= last.0 => {
                last.1 = last.1.max(to);
            }
            Some(_) => self.merge(from, to),
        }
    }

    /// Adds `[from, to)` that begins before the last stretch.
    fn merge(&mut self, from: u64, to: u64) {
        let i = self.list.partition_point(|&(_, end)| end < from);
        let j = self.list.partition_point(|&(start, _)| start <= to);
        if i == j {
            self.list.insert(i, (from, to));
            return;
        }
        let merged = (from.min(self.list[i].0), to.max(self.list[j - 1].1));
        self.list[i] = merged;
        self.list.drain(i + 1..j);
    }

    /// Removes all bytes before `below`.
    #[inline]
    pub fn trim(&mut self, below: u64) {
        while let Some(first) = self.list.front_mut() {
            if first.1 <= below {
                self.list.pop_front();
            } else {
                first.0 = first.0.max(below);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_bytes(
            steps in prop::collection::vec((0u64..60, 0u64..20, any::<bool>()), 1..60),
        ) {
            let mut ranges = Ranges::default();
            let mut model = BTreeSet::new();
            for (at, len, trim) in steps {
                if trim && len < 4 {
                    ranges.trim(at);
                    model.retain(|&byte| byte >= at);
                } else {
                    ranges.insert(at, at + len);
                    model.extend(at..at + len);
                }
                let held: Vec<u64> = ranges.iter().flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(&held, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.total(), model.len() as u64);
                let touching = ranges.iter().zip(ranges.iter().skip(1)).any(|(a, b)| a.1 >= b.0);
                prop_assert!(!touching);
                for at in 0..80 {
                    prop_assert_eq!(ranges.covering(at).is_some(), model.contains(&at));
                }
                let missing = (at..at + len).find(|byte| !model.contains(byte));
                prop_assert_eq!(ranges.uncovered(at, at + len).map(|(from, _)| from), missing);
            }
        }
    }
}
