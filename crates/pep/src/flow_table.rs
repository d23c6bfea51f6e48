//! The flows that a proxy follows, by their two ends, and the deadline of each.
//!
//! Deadlines are lazy: each flow has one entry in the ordered set of deadlines, which is never later than its true
//! deadline. Most packets move a flow's deadline to a later time; then its entry stays, and is corrected when it comes up.
//! Only an earlier deadline moves the entry at once.

use bentpipe_base::Instant;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// A flow's place in the table, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// Flows of type `F` by their keys.
#[derive(Debug)]
pub(crate) struct FlowTable<K, F> {
    index: BTreeMap<K, FlowId>,
    places: Vec<Option<Place<K, F>>>,
    free: Vec<FlowId>,
    /// The flow found last: most packets follow one of their own flow.
    recent: Option<(K, FlowId)>,
    /// One entry a flow.
    deadlines: BTreeSet<(Instant, FlowId)>,
}

#[derive(Debug)]
struct Place<K, F> {
    key: K,
    flow: F,
    /// Where it stands in `deadlines`.
    entry: Instant,
}

impl<K: Copy + Ord, F> FlowTable<K, F> {
    /// A table without flows.
    pub(crate) const fn new() -> Self {
        Self {
            index: BTreeMap::new(),
            places: Vec::new(),
            free: Vec::new(),
            recent: None,
            deadlines: BTreeSet::new(),
        }
    }

    /// How many flows it holds.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The flow of `key`, for who only looks.
    pub(crate) fn peek(&self, key: K) -> Option<FlowId> {
        self.index.get(&key).copied()
    }

    /// The flow of `key`.
    #[inline]
    pub(crate) fn find(&mut self, key: K) -> Option<FlowId> {
        if let Some((recent, id)) = self.recent
            && recent == key
        {
            return Some(id);
        }
        let id = *self.index.get(&key)?;
        self.recent = Some((key, id));
        Some(id)
    }

    /// Adds a flow for `key`, which has none yet, due at `due`.
    pub(crate) fn insert(&mut self, key: K, flow: F, due: Instant) -> FlowId {
        let id = self.free.pop().unwrap_or(FlowId(self.places.len()));
        let place = Place {
            key,
            flow,
            entry: due,
        };
        match self.places.get_mut(id.0) {
            Some(free) => *free = Some(place),
            None => self.places.push(Some(place)),
        }
        self.index.insert(key, id);
        self.deadlines.insert((due, id));
        self.recent = Some((key, id));
        id
    }

    /// Takes a flow out.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<F> {
        let place = self.places.get_mut(id.0)?.take()?;
        self.index.remove(&place.key);
        self.deadlines.remove(&(place.entry, id));
        self.free.push(id);
        self.recent = None;
        Some(place.flow)
    }

    #[inline]
    pub(crate) fn get(&self, id: FlowId) -> Option<&F> {
        self.places.get(id.0)?.as_ref().map(|place| &place.flow)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut F> {
        let place = self.places.get_mut(id.0)?.as_mut();
        place.map(|place| &mut place.flow)
    }

    /// All flows.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &F)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(at, place)| Some((FlowId(at), &place.as_ref()?.flow)))
    }

    /// The flow's key.
    pub(crate) fn key(&self, id: FlowId) -> Option<K> {
        self.places.get(id.0)?.as_ref().map(|place| place.key)
    }

    /// Sets the flow's deadline to `due`; moves its entry where that is earlier.
    #[inline]
    pub(crate) fn schedule(&mut self, id: FlowId, due: Instant) {
        if let Some(Some(place)) = self.places.get_mut(id.0)
            && due < place.entry
        {
            self.deadlines.remove(&(place.entry, id));
            place.entry = due;
            self.deadlines.insert((due, id));
        }
    }

    /// Sets the deadline of a flow whose entry had come up at `now`: to `due`, but later than `now`, so that it does not come
    /// up at the same instant again.
    pub(crate) fn reschedule(&mut self, id: FlowId, due: Instant, now: Instant) {
        if let Some(Some(place)) = self.places.get_mut(id.0) {
            self.deadlines.remove(&(place.entry, id));
            place.entry = due.max(now + Duration::from_nanos(1));
            self.deadlines.insert((place.entry, id));
        }
    }

    /// A flow whose entry has come up by `now`. The caller reschedules or removes it before it asks for the next.
    pub(crate) fn due(&self, now: Instant) -> Option<FlowId> {
        let &(at, id) = self.deadlines.first()?;
        (at <= now).then_some(id)
    }

    /// The first entry, if there are flows.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of keys with their entries.
        #[test]
        fn holds_the_flows_that_were_inserted_and_names_the_first_that_is_due(
            steps in prop::collection::vec((0u8..6, 0u8..5, 0u64..50), 1..200),
        ) {
            let mut table = FlowTable::new();
            let mut model: BTreeMap<u8, (Instant, u64)> = BTreeMap::new();
            for (i, (step, key, at)) in steps.into_iter().enumerate() {
                let (at, flow) = (Instant::from_nanos(at), i as u64);
                let id = table.find(key);
                prop_assert_eq!(id.is_some(), model.contains_key(&key));
                match (step, id) {
                    (0 | 1, None) => {
                        table.insert(key, flow, at);
                        model.insert(key, (at, flow));
                    }
                    (2, Some(id)) => {
                        let removed = model.remove(&key).map(|(_, flow)| flow);
                        prop_assert_eq!(table.remove(id), removed);
                        prop_assert!(table.get(id).is_none());
                    }
                    (3, Some(id)) => {
                        table.schedule(id, at);
                        let entry = &mut model.get_mut(&key).unwrap().0;
                        *entry = at.min(*entry);
                    }
                    (4, _) => if let Some(id) = table.due(at) {
                        let later = at + Duration::from_nanos(flow % 7);
                        table.reschedule(id, later, at);
                        let key = table.key(id).unwrap();
                        let entry = &mut model.get_mut(&key).unwrap().0;
                        prop_assert!(*entry <= at);
                        *entry = later.max(at + Duration::from_nanos(1));
                    } else {
                        prop_assert!(model.values().all(|(entry, _)| *entry > at));
                    },
                    (_, Some(id)) => {
                        prop_assert_eq!(table.key(id), Some(key));
                        prop_assert_eq!(table.get(id), Some(&model[&key].1));
                        *table.get_mut(id).unwrap() = flow;
                        model.get_mut(&key).unwrap().1 = flow;
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                let first = model.values().map(|(entry, _)| *entry).min();
                prop_assert_eq!(table.deadline(), first);
            }
        }
    }
}
