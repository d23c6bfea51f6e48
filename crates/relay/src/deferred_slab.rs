//! Values in numbered slots; a freed slot is used again, but only after [`DeferredSlab::settle`].
//!
//! The delay is the point: the events of one epoll wait may name a flow that an earlier event of
//! the same wait has ended, and must not meet a new flow in its place.

/// Numbered slots.
#[derive(Debug)]
pub(crate) struct DeferredSlab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    freed: Vec<u32>,
}

impl<T> DeferredSlab<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
        }
    }

    /// Stores `value`; its number stays until it is removed.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(value);
            return index;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take();
        if value.is_some() {
            self.freed.push(index);
        }
        value
    }

    /// All values, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(number, slot)| Some((number as u32, slot.as_mut()?)))
    }

    /// The numbers in use.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.is_some())
            .map(|(number, _)| number as u32)
            .collect()
    }

    /// Makes the slots removed so far free for [`DeferredSlab::insert`].
    pub(crate) fn settle(&mut self) {
        self.free.append(&mut self.freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_only_once_settled() {
        let mut slab = DeferredSlab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        assert_eq!(slab.remove(first), None);
        let second = slab.insert("b");
        assert_ne!(first, second);
        assert_eq!(slab.get_mut(first), None);
        slab.settle();
        assert_eq!(slab.insert("c"), first);
        assert_eq!(slab.numbers(), [first, second]);
    }
}
