//! Gathers neighbouring octets, so that one system call writes or reads them all.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most octets that one writer gathers; for a write, up to the next multiple of it: whole pages, however
/// large, need not be cleared first.
const MOST: usize = 256 << 10;
/// The least octets that each may gather, however many writers there are.
const LEAST: usize = 16 << 10;
/// Octets that all of this process gather together, about: hosts with little memory have many sessions too.
const BUDGET: usize = 8 << 20;

/// How many there are in this process.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A stretch of a file.
#[derive(Debug)]
pub struct Gather {
    pub(crate) from: u64,
    pub(crate) octets: Vec<u8>,
}

impl Default for Gather {
    fn default() -> Self {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            from: 0,
            octets: Vec::new(),
        }
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Octets that one of `count` gathers at most: a power of two.
fn share(count: usize) -> usize {
    let share = (BUDGET / count.max(1)).clamp(LEAST, MOST);
    1 << share.ilog2()
}

impl Gather {
    /// Octets that it is to gather at most. What it has taken of memory beyond that goes back, when it is empty.
    pub(crate) fn most(&mut self) -> usize {
        let most = share(COUNT.load(Ordering::Relaxed));
        if self.octets.is_empty() && self.octets.capacity() > most {
            self.octets = Vec::new();
        }
        most
    }

    /// Adds of `octets` from `offset` on what follows what is there and is not too much: how many.
    pub(crate) fn push(&mut self, offset: u64, octets: &[u8]) -> usize {
        let most = self.most();
        if self.octets.is_empty() {
            self.from = offset;
        } else if offset != self.end() {
            return 0;
        }
        let room = most - (self.from % most as u64) as usize;
        let room = room.saturating_sub(self.octets.len());
        let taken = octets.len().min(room);
        self.octets.extend_from_slice(&octets[..taken]);
        taken
    }

    /// The `len` octets from `offset` on, if all are there.
    pub(crate) fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.from)?).ok()?;
        self.octets.get(at..at.checked_add(len)?)
    }

    /// The offset behind the last octet.
    pub(crate) const fn end(&self) -> u64 {
        self.from + self.octets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_are_gathered() {
        let mut gather = Gather::default();
        assert_eq!((gather.push(7, b"abc"), gather.push(10, b"de")), (3, 2));
        assert_eq!((gather.push(13, b"x"), gather.push(7, b"abc")), (0, 0));
        assert_eq!((gather.from, gather.end()), (7, 12));
        assert_eq!(gather.get(8, 3), Some(&b"bcd"[..]));
        assert_eq!((gather.get(6, 2), gather.get(11, 2)), (None, None));
        let most = gather.most();
        assert_eq!(gather.push(12, &vec![0; most]), most - 12);
        assert_eq!(gather.push(most as u64, b"x"), 0);
        gather.octets.clear();
        assert_eq!(gather.push(most as u64, &vec![0; most + 1]), most);
    }

    #[test]
    fn many_take_no_more_memory_than_some() {
        let mut all: Vec<Gather> = (0..2000).map(|_| Gather::default()).collect();
        let octets = vec![0; MOST];
        let fill = |gather: &mut Gather| gather.push(0, &octets);
        assert!(all.iter_mut().map(fill).sum::<usize>() <= 2000 * LEAST);
        all.truncate(10);
        all.iter_mut().for_each(|gather| gather.octets.clear());
        assert!(share(all.len()) == MOST && share(64) == MOST / 2);
    }
}
