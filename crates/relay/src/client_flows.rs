//! How many flows each client has, and how many it may: no more than a few times what is left of the limit, a dynamic
//! threshold as buffers of switches have it (Choudhury and Hahne 1998). A client alone has most of the limit, several share
//! it evenly, and something is always left for one that comes later.
//!
//! That is so while there are few of them: flows that do not end leave each further client a quarter of what those before it have left. One
//! host may have many addresses, so all clients of a prefix together have a threshold too. It is higher for who has few flows,
//! and the last part of the limit is for these alone: a host with a dozen addresses takes neither what its neighbours
//! in the prefix need nor what others do.
//!
//! Workers count without a lock, for this is done with every connection: in a count-min sketch (Cormode and Muthukrishnan
//! 2005), two rows of counters, of which each client has one in each row. The lower of both is the client's count, or more
//! than that only where others have both in common with it. The hash is keyed, so that nobody can choose
//! addresses for that. Prefixes have a sketch of their own.

use crate::client_identity::{Client, Prefix};
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters in a row.
const PLACES: usize = 1 << 14;
/// A client may have so many times the flows that are left: three quarters of the limit where nobody else has any.
const OF_CLIENT: usize = 3;
/// All clients of a prefix together, five sixths.
const OF_PREFIX: usize = 5;
/// Those of them that have fewer than [`OWN`], and prefixes that have so few, go on: the former to fifteen sixteenths, the latter
/// as long as there is anything.
const OF_PREFIX_FOR_FEW: usize = 15;
const OWN: usize = 8;
/// This part of the limit is left to these.
const KEPT: usize = 32;

/// The flows of all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientFlows {
    clients: Sketch<Client>,
    prefixes: Sketch<Prefix>,
}

/// Where a flow is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    client: Columns,
    prefix: Columns,
}

/// SYNs that were answered and are no flows yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// Of the client.
    pub(crate) of_client: usize,
    /// Of all clients of its prefix.
    pub(crate) of_prefix: usize,
}

/// The limit, and how many flows more fit below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) limit: usize,
    pub(crate) left: usize,
}

impl ClientFlows {
    /// Counts one flow more of `client`; returns where.
    pub(crate) fn begin(&self, client: IpAddr) -> Places {
        Places {
            client: self.clients.add(Client::of(client)),
            prefix: self.prefixes.add(Prefix::of(client)),
        }
    }

    /// Counts one flow less at `places`.
    pub(crate) fn end(&self, places: Places) {
        self.clients.remove(places.client);
        self.prefixes.remove(places.prefix);
    }

    /// Whether `client` may have one flow more.
    pub(crate) fn have_room_for(&self, client: IpAddr, answered: Answered, room: Room) -> bool {
        let of_client = self.clients.count(Client::of(client)) + answered.of_client;
        let of_prefix = self.prefixes.count(Prefix::of(client)) + answered.of_prefix;
        let left = room.left.saturating_sub(answered.of_prefix);
        let is_below = |count: usize, times: usize| count < left.saturating_mul(times);
        if of_client < OWN {
            return of_prefix < OWN || is_below(of_prefix, OF_PREFIX_FOR_FEW);
        }
        is_below(of_client, OF_CLIENT) && is_below(of_prefix, OF_PREFIX) && left > room.limit / KEPT
    }
}

/// A count-min sketch.
#[derive(Debug)]
struct Sketch<K> {
    hasher: RandomState,
    rows: [Box<[AtomicU32]>; 2],
    keys: PhantomData<fn(K)>,
}

/// The counters of a key: one in each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns([u16; 2]);

impl<K> Default for Sketch<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            rows: [(); 2].map(|()| (0..PLACES).map(|_| AtomicU32::new(0)).collect()),
            keys: PhantomData,
        }
    }
}

impl<K: Hash> Sketch<K> {
    fn add(&self, key: K) -> Columns {
        let columns = self.columns(key);
        for counter in self.counters(columns) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        columns
    }

    fn remove(&self, columns: Columns) {
        for counter in self.counters(columns) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn count(&self, key: K) -> usize {
        let [first, second] = self.counters(self.columns(key));
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed) as usize;
        count(first).min(count(second))
    }

    fn columns(&self, key: K) -> Columns {
        let hash = self.hasher.hash_one(key);
        Columns([hash, hash >> 32].map(|half| (half % PLACES as u64) as u16))
    }

    fn counters(&self, Columns(columns): Columns) -> [&AtomicU32; 2] {
        [0, 1].map(|row| &self.rows[row][usize::from(columns[row])])
    }
}

#[cfg(test)]
#[path = "../tests/unit/client_flows.rs"]
mod tests;
