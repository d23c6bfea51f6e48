//! Remembers which file was put at which place, because two names may mean one place: on a file system that ignores
//! case, or where a directory is mounted twice. A second file must not replace the first one there.

use std::collections::{BTreeMap, VecDeque};

/// Files that are remembered at most.
const MOST: usize = 1 << 14;

/// File system and inode.
pub(crate) type Inode = (u64, u64);

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    paths: BTreeMap<Inode, String>,
    order: VecDeque<Inode>,
}

impl Placed {
    /// The path under which `inode` was put.
    pub(crate) fn path(&self, inode: Inode) -> Option<&str> {
        self.paths.get(&inode).map(String::as_str)
    }

    /// `inode` was put at `path`.
    pub(crate) fn put(&mut self, inode: Inode, path: String) {
        if self.paths.insert(inode, path).is_none() {
            self.order.push_back(inode);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let mut placed = Placed::default();
        for inode in 0..2 * MOST as u64 {
            placed.put((1, inode), format!("{inode}"));
            placed.put((1, inode), format!("{inode} again"));
        }
        assert_eq!((placed.paths.len(), placed.order.len()), (MOST, MOST));
        assert_eq!(placed.path((1, 0)), None);
        assert_eq!(placed.path((1, 20_000)), Some("20000 again"));
    }
}
