//! Shares the lists of directories that are being sent, so that equal ones are in memory once.

use bentpipe_base::Instant;
use bentpipe_wire::saratoga::Width;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// See the file's head. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists(Arc<Mutex<BTreeMap<(String, Width), List>>>);

#[derive(Debug)]
struct List {
    /// When it was begun: it shows at least what was there then.
    begun: Instant,
    content: Weak<[u8]>,
}

impl Lists {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<(String, Width), List>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of `path` with sizes up to `width` that was begun since `asked` and is being sent to somebody else.
    pub(super) fn since(&self, asked: Instant, path: &str, width: Width) -> Option<Arc<[u8]>> {
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
        content: Vec<u8>,
    ) -> Arc<[u8]> {
        let key = (path.to_owned(), width);
        let mut lists = self.lists();
        if let Some(list) = lists.get_mut(&key)
            && let Some(same) = list.content.upgrade()
            && *same == *content
        {
            list.begun = list.begun.max(begun);
            return same;
        }
        lists.retain(|_, list| list.content.strong_count() > 0);
        let content = Arc::from(content);
        let list = List {
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

    #[test]
    fn what_is_the_same_is_there_once_and_not_for_ever() {
        let lists = Lists::default();
        let at = |nanos| Instant::from_nanos(nanos);
        let shared = |begun, content| lists.shared("a", Width::Bits32, at(begun), content);
        let since = |asked| lists.since(at(asked), "a", Width::Bits32);
        let first = shared(5, vec![1, 2]);
        assert!(Arc::ptr_eq(&first, &shared(7, vec![1, 2])));
        // Who asked before it was begun may have it.
        assert!(since(7).is_some_and(|list| Arc::ptr_eq(&list, &first)));
        assert!(since(8).is_none());
        assert!(lists.since(at(1), "a", Width::Bits16).is_none());
        let changed = shared(9, vec![1, 2, 3]);
        assert_eq!((first.len(), changed.len()), (2, 3));
        drop((first, changed));
        assert!(since(1).is_none());
        lists.shared("b", Width::Bits32, at(10), Vec::new());
        assert_eq!(lists.lists().len(), 1);
    }
}
