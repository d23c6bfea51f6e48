//! Remembers `take`s that are over. The peer waits to be told that the file is deleted here, and asks again when that
//! is lost; with this memory the session need not stay for it.

use crate::endpoint::Key;
use crate::seal::Seal;
use bentpipe_base::Instant;
use core::time::Duration;
use std::collections::BTreeMap;

/// How long a peer may ask: as long as it waits.
const KEEP: Duration = Duration::from_secs(60);
/// Takes that are remembered at most; beyond, the oldest are forgotten.
const MOST: usize = 4096;

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Taken(BTreeMap<Key, (Instant, Option<Seal>)>);

impl Taken {
    /// Remembers that the take of `key` is over and its file deleted.
    pub(super) fn note(&mut self, key: Key, seal: Option<Seal>, now: Instant) {
        if self.0.len() >= MOST {
            self.0.retain(|_, (at, _)| now.since(*at) < KEEP);
        }
        if self.0.len() >= MOST {
            let oldest = self
                .0
                .iter()
                .min_by_key(|(_, (at, _))| *at)
                .map(|(key, _)| *key);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(key, (now, seal));
    }

    /// The seal for the final STATUS to `key`, if that has taken a file.
    pub(super) fn last_word(&self, key: Key, now: Instant) -> Option<Option<Seal>> {
        let (at, seal) = self.0.get(&key)?;
        (now.since(*at) < KEEP).then(|| seal.clone())
    }

    /// Forgets the take, because another session has this Id now.
    pub(super) fn forget(&mut self, key: Key) {
        self.0.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_for_a_while_and_of_the_youngest() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let key = |id| ("10.0.0.1:7".parse().unwrap(), id);
        let mut taken = Taken::default();
        for id in 0..5000 {
            taken.note(key(id), None, at(u64::from(id) / 1000));
        }
        assert_eq!(taken.0.len(), MOST);
        assert!(taken.last_word(key(4999), at(60)).is_some());
        assert!(taken.last_word(key(4999), at(70)).is_none());
        assert!(taken.last_word(key(1), at(6)).is_none());
    }
}
