//! Shares the lists of directories that are being sent, so that equal ones are in memory once, and all have a bound.

use bentpipe_base::Instant;
use bentpipe_saratoga_files::{List, ListRoom, ListShare, network};
use bentpipe_wire::saratoga::Width;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// See the file's head. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    lists: Arc<Mutex<BTreeMap<(String, Width), Shared>>>,
    room: ListRoom,
}

#[derive(Debug)]
struct Shared {
    /// When it was begun: it shows at least what was there then.
    begun: Instant,
    content: Weak<List>,
}

impl Lists {
    /// For lists that take `most` octets of memory together.
    pub(super) fn new(most: usize) -> Self {
        Self {
            lists: Arc::default(),
            room: ListRoom::new(most),
        }
    }

    /// The memory of a list that `peer` asks for.
    ///
    /// # Errors
    /// Where there is none for it now.
    pub(super) fn begin(&self, peer: SocketAddr) -> io::Result<ListShare> {
        self.room.begin(network(peer))
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<(String, Width), Shared>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of `path` with sizes up to `width` that was begun since `asked` and is being sent to somebody else.
    pub(super) fn since(&self, asked: Instant, path: &str, width: Width) -> Option<Arc<List>> {
        let lists = self.lists();
        let list = lists.get(&(path.to_owned(), width))?;
        (list.begun >= asked)
            .then(|| list.content.upgrade())
            .flatten()
    }

    /// The list `content` of `path`, begun at `begun`, or the same that is being sent to somebody else.
    pub(super) fn shared(
        &self,
        path: &str,
        width: Width,
        begun: Instant,
        content: List,
    ) -> Arc<List> {
        let key = (path.to_owned(), width);
        let mut lists = self.lists();
        if let Some(list) = lists.get_mut(&key)
            && let Some(same) = list.content.upgrade()
            && same[..] == content[..]
        {
            list.begun = list.begun.max(begun);
            return same;
        }
        lists.retain(|_, list| list.content.strong_count() > 0);
        let content = Arc::from(content);
        let list = Shared {
            begun,
            content: Arc::downgrade(&content),
        };
        lists.insert(key, list);
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_saratoga_files::Tree;

    #[test]
    fn what_is_the_same_is_there_once_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let lists = Lists::new(1 << 20);
        let at = |nanos| Instant::from_nanos(nanos);
        let list = || {
            let share = lists.begin("10.0.0.1:1".parse().unwrap()).unwrap();
            tree.list("", Width::Bits32, share).unwrap()
        };
        let shared = |begun| lists.shared("a", Width::Bits32, at(begun), list());
        let since = |asked| lists.since(at(asked), "a", Width::Bits32);
        let first = shared(5);
        assert!(Arc::ptr_eq(&first, &shared(7)));
        // Who asked before it was begun may have it.
        assert!(since(7).is_some_and(|list| Arc::ptr_eq(&list, &first)));
        assert!(since(8).is_none());
        assert!(lists.since(at(1), "a", Width::Bits16).is_none());
        std::fs::write(folder.path().join("new"), "").unwrap();
        let changed = shared(9);
        assert!(first.len() < changed.len());
        drop((first, changed));
        assert!(since(1).is_none());
        lists.shared("b", Width::Bits32, at(10), list());
        assert_eq!(lists.lists().len(), 1);
    }
}
