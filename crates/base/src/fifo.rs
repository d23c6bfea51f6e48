use std::collections::VecDeque;

/// Items of a block.
const BLOCK: usize = 32;

/// A queue, first in, first out, in blocks of fixed size that are used again.
///
/// What a `VecDeque` does not: it takes no more memory than it holds items (but for a block or
/// two), never moves an item, and does not walk through memory that it once had to have. A long
/// queue costs half the page faults so, and those are a quarter of what a packet costs.
#[derive(Clone, Debug)]
pub struct Fifo<T> {
    /// All full but the last.
    blocks: VecDeque<Vec<T>>,
    /// Items of the first block that are gone.
    gone: usize,
    len: usize,
    /// The block emptied last.
    spare: Option<Vec<T>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Fifo<T> {
    /// An empty queue; takes no memory.
    pub const fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            gone: 0,
            len: 0,
            spare: None,
        }
    }

    /// Items held.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The item that has waited longest.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?.get(self.gone)
    }

    /// The item that has waited longest, to be changed.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.blocks.front_mut()?.get_mut(self.gone)
    }

    /// The item that came last.
    #[inline]
    pub fn back(&self) -> Option<&T> {
        // The last block is never empty but in an empty queue.
        self.blocks.back()?.last()
    }

    /// Item `index`, the front being 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let at = self.gone + index;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    /// Item `index`, the front being 0, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let at = self.gone + index;
        self.blocks.get_mut(at / BLOCK)?.get_mut(at % BLOCK)
    }

    /// Appends `item`.
    #[inline]
    pub fn push_back(&mut self, item: T) {
        self.len += 1;
        match self.blocks.back_mut() {
            // With room in sight, the item is put where it belongs without a copy in between.
            Some(block) if block.len() < BLOCK.min(block.capacity()) => block.push(item),
            _ => self.begin(item),
        }
    }

    /// The last block is full or must grow, or there is none.
    #[cold]
    fn begin(&mut self, item: T) {
        if let Some(block) = self.blocks.back_mut().filter(|block| block.len() < BLOCK) {
            return block.push(item);
        }
        let mut block = match self.spare.take() {
            Some(block) => block,
            // A queue that stays short needs no whole block.
            None if self.blocks.is_empty() => Vec::new(),
            None => Vec::with_capacity(BLOCK),
        };
        block.push(item);
        self.blocks.push_back(block);
    }

    /// Removes the front item, which is dropped now or with its block: take out first what it must
    /// not keep.
    #[inline]
    pub fn drop_front(&mut self) {
        if self.len == 0 {
            return;
        }
        self.len -= 1;
        self.gone += 1;
        if self.gone == BLOCK || self.len == 0 {
            self.recycle();
        }
    }

    /// The first block is done with.
    #[cold]
    fn recycle(&mut self) {
        self.gone = 0;
        if self.len == 0 {
            // It is the only one.
            if let Some(block) = self.blocks.front_mut() {
                block.clear();
            }
        } else if let Some(mut block) = self.blocks.pop_front() {
            block.clear();
            self.spare = Some(block);
        }
    }

    /// The items from number `first` on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = &T> {
        let at = self.gone + first.min(self.len);
        let (block, skip) = (at / BLOCK, at % BLOCK);
        let blocks = self.blocks.iter().enumerate().skip(block);
        blocks.flat_map(move |(i, items)| items.iter().skip(if i == block { skip } else { 0 }))
    }

    /// The items from number `first` on, to be changed.
    pub fn iter_mut_from(&mut self, first: usize) -> impl Iterator<Item = &mut T> {
        let at = self.gone + first.min(self.len);
        let (block, skip) = (at / BLOCK, at % BLOCK);
        let blocks = self.blocks.iter_mut().enumerate().skip(block);
        blocks.flat_map(move |(i, items)| items.iter_mut().skip(if i == block { skip } else { 0 }))
    }

    /// How many items from the front on satisfy `before`, which none does behind one that does not.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a `VecDeque`, over many blocks.
        #[test]
        fn it_is_a_queue(
            turns in prop::collection::vec((0usize..90, 0usize..90), 1..12),
            probe in 0usize..200,
        ) {
            let mut fifo = Fifo::new();
            let mut model = VecDeque::new();
            let mut next = 0_u32;
            for (pushes, pops) in turns {
                for _ in 0..pushes {
                    fifo.push_back(next);
                    model.push_back(next);
                    next += 1;
                }
                for _ in 0..pops {
                    fifo.drop_front();
                    model.pop_front();
                }
                prop_assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!((fifo.front(), fifo.back()), (model.front(), model.back()));
                prop_assert_eq!(fifo.get(probe), model.get(probe));
                let rest: Vec<_> = fifo.iter_from(probe).collect();
                prop_assert_eq!(&rest, &model.iter().skip(probe).collect::<Vec<_>>());
                let bound = next.saturating_sub(40);
                prop_assert_eq!(
                    fifo.partition_point(|item| *item < bound),
                    model.partition_point(|item| *item < bound)
                );
                fifo.iter_mut_from(probe).for_each(|item| *item += 0);
                prop_assert_eq!(fifo.iter_mut_from(probe).count(), model.len().saturating_sub(probe));
            }
        }
    }

    #[test]
    fn a_queue_that_moves_on_uses_its_blocks_again() {
        let mut fifo = Fifo::new();
        for item in 0..100 * BLOCK {
            fifo.push_back(item);
            if item >= BLOCK {
                fifo.drop_front();
            }
        }
        assert_eq!(fifo.len(), BLOCK);
        assert!(fifo.blocks.len() <= 2, "{} blocks", fifo.blocks.len());
    }
}
