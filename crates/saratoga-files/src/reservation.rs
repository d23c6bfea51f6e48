//! Reserves room on disks for what is on its way, so that no two files are let in for the same room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets that are reserved for sessions and not written yet, by file system. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations(Arc<Mutex<BTreeMap<u64, u64>>>);

/// What is reserved for one session, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    reservations: Reservations,
    device: u64,
    octets: u64,
}

impl Reservations {
    fn octets(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // A sum is changed at once or not at all, whatever ended another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Octets of `device` that are reserved for others.
    pub(crate) fn on(&self, device: u64) -> u64 {
        self.octets().get(&device).copied().unwrap_or(0)
    }

    /// Reserves `octets` of the `room` on `device`; `None` when too much of it is reserved for others.
    pub(crate) fn reserve(&self, device: u64, octets: u64, room: u64) -> Option<Reservation> {
        let mut all = self.octets();
        let reserved = all.entry(device).or_default();
        let sum = reserved.checked_add(octets).filter(|sum| *sum <= room)?;
        *reserved = sum;
        Some(Reservation {
            reservations: self.clone(),
            device,
            octets,
        })
    }
}

impl Reservation {
    /// `octets` are on the disk, or not wanted any more.
    pub(crate) fn release(&mut self, octets: u64) {
        let kept = self.octets.saturating_sub(octets);
        let mut all = self.reservations.octets();
        if let Some(reserved) = all.get_mut(&self.device) {
            *reserved = reserved.saturating_sub(self.octets - kept);
            if *reserved == 0 {
                all.remove(&self.device);
            }
        }
        self.octets = kept;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_room_is_promised_once_until_it_is_given_back() {
        let reservations = Reservations::default();
        let mut first = reservations.reserve(1, 5, 8).unwrap();
        assert!(reservations.reserve(1, 4, 8).is_none());
        assert!(reservations.reserve(1, u64::MAX, u64::MAX).is_none());
        let other = reservations.reserve(2, 8, 8).unwrap();
        // Three are on the disk.
        first.release(3);
        assert_eq!((reservations.on(1), reservations.on(2)), (2, 8));
        let second = reservations.reserve(1, 3, 5).unwrap();
        first.release(9);
        assert_eq!(reservations.on(1), 3);
        drop((first, second, other));
        assert!(reservations.octets().is_empty());
    }
}
