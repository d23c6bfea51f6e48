//! Remembers for a while what is over. Who took a file asks again when it has not heard that it is deleted here, and the
//! session need not stay for that. What asked for a deletion, or brought a file, may come a second time, from its sender or
//! out of the network, when there is another file of that name: it is not done again. (With a key, REQUESTs count once anyway.)

use crate::endpoint::Key;
use crate::seal::Seal;
use bentpipe_base::Instant;
use bentpipe_wire::saratoga::Code;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Longer than a peer asks again, and than the network keeps a datagram.
const KEEP: Duration = Duration::from_secs(120);
/// Beyond so many the oldest are forgotten.
const MOST: usize = 16_384;

/// What a session, or a REQUEST without one, ended with.
#[derive(Clone, Debug)]
pub(super) enum Over {
    /// The file is with the peer, and deleted here; the final STATUS has this seal.
    Taken(Option<Box<Seal>>),
    /// Its sender is one of ours, who draws another Id for each transfer: what still comes of this one begins none.
    Put,
    /// The deletion of what has this path's hash ended with this code.
    Deleted(u64, Code),
}

impl Over {
    /// The deletion of `path` ended with `code`.
    pub(super) fn deletion(path: &str, code: Code) -> Self {
        Self::Deleted(hash(path), code)
    }
}

fn hash(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Recent {
    sessions: BTreeMap<Key, (Instant, Over)>,
    /// In the order in which they were noted; some may be forgotten already.
    ages: VecDeque<(Instant, Key)>,
}

impl Recent {
    /// Remembers how `key` ended.
    pub(super) fn note(&mut self, key: Key, over: Over, now: Instant) {
        while self.ages.len() >= MOST || self.ages.front().is_some_and(|(at, _)| is_old(*at, now)) {
            let Some((at, key)) = self.ages.pop_front() else {
                break;
            };
            if self
                .sessions
                .get(&key)
                .is_some_and(|(noted, _)| *noted == at)
            {
                self.sessions.remove(&key);
            }
        }
        self.ages.push_back((now, key));
        self.sessions.insert(key, (now, over));
    }

    fn get(&self, key: Key, now: Instant) -> Option<&Over> {
        let (at, over) = self.sessions.get(&key)?;
        (!is_old(*at, now)).then_some(over)
    }

    /// The seal for the final STATUS to `key`, if that has taken a file.
    pub(super) fn taken(&self, key: Key, now: Instant) -> Option<Option<Seal>> {
        match self.get(key, now)? {
            Over::Taken(seal) => Some(seal.as_deref().cloned()),
            _ => None,
        }
    }

    /// Whether `key` has put a file, or ended otherwise.
    pub(super) fn is_put(&self, key: Key, now: Instant) -> bool {
        matches!(self.get(key, now), Some(Over::Put))
    }

    /// What `key` was told of its deletion of `path`.
    pub(super) fn deleted(&self, key: Key, path: &str, now: Instant) -> Option<Code> {
        match self.get(key, now)? {
            Over::Deleted(of, code) if *of == hash(path) => Some(*code),
            _ => None,
        }
    }

    /// Forgets it, because another session has this Id now.
    pub(super) fn forget(&mut self, key: Key) {
        self.sessions.remove(&key);
    }
}

fn is_old(at: Instant, now: Instant) -> bool {
    now.since(at) >= KEEP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn key(id: u32) -> Key {
        ("10.0.0.1:7".parse().unwrap(), id)
    }

    #[test]
    fn the_youngest_are_kept_for_a_while() {
        let mut recent = Recent::default();
        for id in 0..20_000 {
            recent.note(key(id), Over::Put, at(u64::from(id) / 1000));
        }
        assert_eq!((recent.sessions.len(), recent.ages.len()), (MOST, MOST));
        assert!(recent.is_put(key(19_999), at(138)));
        assert!(!recent.is_put(key(19_999), at(139)));
        assert!(!recent.is_put(key(1), at(20)));
        recent.note(key(0), Over::Put, at(139));
        assert_eq!((recent.sessions.len(), recent.ages.len()), (1, 1));
    }

    #[test]
    fn what_an_id_ended_with_last_counts() {
        let mut recent = Recent::default();
        recent.note(key(1), Over::Taken(None), at(0));
        recent.note(key(1), Over::deletion("a", Code::OK), at(100));
        recent.note(key(2), Over::Put, at(130));
        assert_eq!(recent.deleted(key(1), "a", at(130)), Some(Code::OK));
        assert_eq!(recent.deleted(key(1), "b", at(130)), None);
        assert!(recent.taken(key(1), at(130)).is_none());
        recent.forget(key(1));
        assert_eq!(recent.deleted(key(1), "a", at(130)), None);
    }
}
