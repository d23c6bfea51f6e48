//! Which clients had a dial answered lately, roughly: a table of fixed size without a lock, for it is written with every
//! connection.

use bentpipe_base::Instant;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clients whose answers can be known at a time; two of one place displace each other.
const PLACES: usize = 8192;

/// The second of the last answer for each client, beside a half of the client's hash that tells whose it is.
#[derive(Debug)]
pub(crate) struct RecentAnswers {
    hasher: RandomState,
    places: Box<[AtomicU64]>,
}

impl Default for RecentAnswers {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentAnswers {
    fn place(&self, client: IpAddr) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(client);
        let index = hash as usize % PLACES;
        (&self.places[index], hash >> 32)
    }

    /// A dial for `client` is answered.
    pub(crate) fn record(&self, client: IpAddr, now: Instant) {
        let (place, tag) = self.place(client);
        place.store(tag << 32 | seconds(now), Ordering::Relaxed);
    }

    /// Whether a dial for `client` was answered within `time`.
    pub(crate) fn was_answered(&self, client: IpAddr, time: Duration, now: Instant) -> bool {
        let (place, tag) = self.place(client);
        let entry = place.load(Ordering::Relaxed);
        let age = seconds(now).wrapping_sub(entry & 0xffff_ffff);
        entry != 0 && entry >> 32 == tag && age <= time.as_secs()
    }
}

/// Whole seconds, more than 0.
fn seconds(now: Instant) -> u64 {
    (now.as_nanos() / 1_000_000_000 + 1) & 0xffff_ffff
}
