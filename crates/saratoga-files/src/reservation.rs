//! Room on a disk that was promised to what is on its way, so that no two files are let in for the same room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets that sessions were promised and have not written, by file system. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises(Arc<Mutex<BTreeMap<u64, u64>>>);

/// What one session was promised, until it is dropped.
#[derive(Debug)]
pub(crate) struct Promise {
    promises: Promises,
    device: u64,
    octets: u64,
}

impl Promises {
    fn octets(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // A sum is changed at once or not at all, whatever ended another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Octets of `device` that others were promised.
    pub(crate) fn on(&self, device: u64) -> u64 {
        self.octets().get(&device).copied().unwrap_or(0)
    }

    /// Promises `octets` of the `room` on `device`, unless others were promised too much of it.
    pub(crate) fn promise(&self, device: u64, octets: u64, room: u64) -> Option<Promise> {
        let mut all = self.octets();
        let promised = all.entry(device).or_default();
        let sum = promised.checked_add(octets).filter(|sum| *sum <= room)?;
        *promised = sum;
        Some(Promise {
            promises: self.clone(),
            device,
            octets,
        })
    }
}

impl Promise {
    /// `octets` are on the disk, or not wanted any more.
    pub(crate) fn lessen(&mut self, octets: u64) {
        let kept = self.octets.saturating_sub(octets);
        let mut all = self.promises.octets();
        if let Some(promised) = all.get_mut(&self.device) {
            *promised = promised.saturating_sub(self.octets - kept);
            if *promised == 0 {
                all.remove(&self.device);
            }
        }
        self.octets = kept;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.lessen(self.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_room_is_promised_once_until_it_is_given_back() {
        let promises = Promises::default();
        let mut first = promises.promise(1, 5, 8).unwrap();
        assert!(promises.promise(1, 4, 8).is_none());
        assert!(promises.promise(1, u64::MAX, u64::MAX).is_none());
        let other = promises.promise(2, 8, 8).unwrap();
        // Three are on the disk.
        first.lessen(3);
        assert_eq!((promises.on(1), promises.on(2)), (2, 8));
        let second = promises.promise(1, 3, 5).unwrap();
        first.lessen(9);
        assert_eq!(promises.on(1), 3);
        drop((first, second, other));
        assert!(promises.octets().is_empty());
    }
}
