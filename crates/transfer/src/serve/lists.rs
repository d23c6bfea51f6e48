//! Lists of directories that are being sent: those that are the same are in memory once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// See the file's head. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists(Arc<Mutex<BTreeMap<String, Weak<[u8]>>>>);

impl Lists {
    /// The list `content` of `path`, or the same that is being sent to somebody else.
    pub(super) fn shared(&self, path: &str, content: Vec<u8>) -> Arc<[u8]> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = lists.get(path).and_then(Weak::upgrade)
            && *same == *content
        {
            return same;
        }
        lists.retain(|_, list| list.strong_count() > 0);
        let content = Arc::from(content);
        lists.insert(path.to_owned(), Arc::downgrade(&content));
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_there_once_and_not_for_ever() {
        let lists = Lists::default();
        let first = lists.shared("a", vec![1, 2]);
        assert!(Arc::ptr_eq(&first, &lists.shared("a", vec![1, 2])));
        let changed = lists.shared("a", vec![1, 2, 3]);
        assert_eq!((first.len(), changed.len()), (2, 3));
        drop((first, changed));
        lists.shared("b", Vec::new());
        assert_eq!(lists.0.lock().unwrap().len(), 1);
    }
}
