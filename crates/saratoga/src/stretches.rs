//! A set of octets in stretches, of which a peer chooses number and order.
//!
//! As [`Ranges`](bentpipe_base::Ranges), which is faster where work is at the ends; here each step costs the logarithm of the number of
//! stretches, wherever it is.

use std::collections::BTreeMap;

/// Disjoint stretches `[from, to)`, none touching the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches {
    /// `to` by `from`.
    list: BTreeMap<u64, u64>,
    total: u64,
}

impl Stretches {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of stretches.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Octets in all of them.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// All, rising.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.list.iter().map(|(&from, &to)| (from, to))
    }

    /// The lowest stretch.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.list.first_key_value().map(|(&from, &to)| (from, to))
    }

    /// The first octets of `[from, to)` that are not in the set.
    pub(crate) fn uncovered(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let before = self.list.range(..=from).next_back();
        let start = before.map_or(from, |(_, &end)| end.max(from));
        let next = self.list.range(start..).next();
        let end = next.map_or(to, |(&next, _)| next.min(to));
        (start < end).then_some((start, end))
    }

    /// Adds `[from, to)`.
    pub(crate) fn insert(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        // From the highest that touches it down.
        while let Some((&start, &end)) = self.list.range(..=to).next_back()
            && end >= from
        {
            self.list.remove(&start);
            self.total -= end - start;
            (from, to) = (from.min(start), to.max(end));
        }
        self.list.insert(from, to);
        self.total += to - from;
    }

    /// Removes `[from, to)`.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        while let Some((&start, &end)) = self.list.range(..to).next_back()
            && end > from
        {
            self.list.remove(&start);
            self.total -= end - start;
            for (left, right) in [(start, end.min(from)), (start.max(to), end)] {
                if left < right {
                    self.list.insert(left, right);
                    self.total += right - left;
                }
            }
            if start <= from {
                break;
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
        fn behaves_as_a_set_of_octets(
            steps in prop::collection::vec((0u64..60, 0u64..20, any::<bool>()), 1..60),
        ) {
            let mut stretches = Stretches::default();
            let mut model = BTreeSet::new();
            for (at, len, remove) in steps {
                if remove {
                        stretches.remove(at, at + len);
                        model.retain(|octet| !(at..at + len).contains(octet));
                    } else {
                        stretches.insert(at, at + len);
                        model.extend(at..at + len);
                    }
                let list: Vec<(u64, u64)> = stretches.iter().collect();
                let held: Vec<u64> = list.iter().flat_map(|&(from, to)| from..to).collect();
                prop_assert_eq!(&held, &model.iter().copied().collect::<Vec<_>>());
                prop_assert!(list.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert_eq!(stretches.total(), model.len() as u64);
                prop_assert_eq!(stretches.first(), list.first().copied());
                let missing = (at..at + len).find(|octet| !model.contains(octet));
                let stretch = missing.map(|from| {
                    let to = (from..at + len).find(|octet| model.contains(octet));
                    (from, to.unwrap_or(at + len))
                });
                prop_assert_eq!(stretches.uncovered(at, at + len), stretch);
            }
        }
    }
}
