//! The memory of a list that comes. A peer that says a list is long, or sends its end first, has it as the kernel has a sparse
//! file: of what lies before that the process needs room all the same, so that all lists together have a bound.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

/// A directory list longer than this is not believed.
pub(crate) const MOST_LIST: u64 = 64 << 20;
/// What those that are on their way take together at most: far more than all lists of as many files as a client walks by default.
const MOST_IN_ALL: u64 = 4 * MOST_LIST;

/// What lists of this process take.
static IN_ALL: AtomicU64 = AtomicU64::new(0);

/// See the file's head.
#[derive(Debug, Default)]
pub struct ListMemory {
    octets: Vec<u8>,
    /// What of all is this one's: its vector's capacity.
    counted: u64,
}

impl ListMemory {
    pub(crate) fn write(&mut self, offset: u64, octets: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(octets.len() as u64);
        self.reach(end)?;
        self.octets[offset as usize..end as usize].copy_from_slice(octets);
        Ok(())
    }

    /// Makes it at least `len` octets long.
    fn reach(&mut self, len: u64) -> io::Result<()> {
        if len > MOST_LIST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if len > self.counted {
            // Twice as long each time, so that little is copied, where that is to be had.
            let ample = len.max(2 * self.counted).min(MOST_LIST);
            self.count(ample).or_else(|_| self.count(len))?;
            let more = self.counted as usize - self.octets.len();
            (self.octets.try_reserve_exact(more)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        if self.octets.len() < len as usize {
            self.octets.resize(len as usize, 0);
        }
        Ok(())
    }

    /// Counts `len` in all.
    fn count(&mut self, len: u64) -> io::Result<()> {
        let more = len - self.counted;
        let take = |all: u64| Some(all + more).filter(|all| *all <= MOST_IN_ALL);
        let order = Ordering::Relaxed;
        if IN_ALL.fetch_update(order, order, take).is_err() {
            let most = MOST_IN_ALL >> 20;
            let why = format!(
                "the lists that are on their way have {most} MiB together, and no more are taken at once: name directories in them instead"
            );
            return Err(io::Error::other(why));
        }
        self.counted = len;
        Ok(())
    }

    /// The list, of `size` octets.
    pub(crate) fn finish(mut self, size: u64) -> io::Result<Vec<u8>> {
        self.reach(size)?;
        let mut octets = core::mem::take(&mut self.octets);
        octets.truncate(size as usize);
        Ok(octets)
    }
}

impl Drop for ListMemory {
    fn drop(&mut self) {
        IN_ALL.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_together_have_a_bound() {
        let far = MOST_LIST - 1;
        let mut lists: Vec<ListMemory> = (0..4).map(|_| ListMemory::default()).collect();
        for list in &mut lists {
            list.write(far, b"x").unwrap();
            assert!(list.write(MOST_LIST, b"x").is_err());
        }
        let mut one_more = ListMemory::default();
        let error = one_more.write(0, b"x").unwrap_err().to_string();
        assert!(error.contains("256 MiB together"), "{error}");
        let long = lists.pop().unwrap().finish(MOST_LIST).unwrap();
        assert_eq!(
            (long.len() as u64, long[0], long[far as usize]),
            (MOST_LIST, 0, b'x')
        );
        for at in (0..1_000_000).rev() {
            one_more.write(at, &[at as u8]).unwrap();
        }
        one_more.write(1_000_000, b"more").unwrap();
        drop(lists);
        assert_eq!(one_more.finish(1_000_004).unwrap()[999_999], 63);
        assert_eq!(IN_ALL.load(Ordering::Relaxed), 0);
    }
}
