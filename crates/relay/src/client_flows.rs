//! How many flows each client has, and how many it may: no more than a few times what is left of the limit, a dynamic
//! threshold as buffers of switches have it (Choudhury and Hahne 1998). A client alone has most of the limit, several share
//! it evenly, and something is always left for one that comes later.
//!
//! Workers count without a lock, for this is done with every connection: in a count-min sketch (Cormode and Muthukrishnan
//! 2005), two rows of counters, of which each client has one in each row. The lower of both is the client's count, or more
//! than that only where others have both in common with it. The hash is keyed, so that nobody can choose
//! addresses for that.

use crate::client::Client;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters in a row.
const PLACES: usize = 1 << 14;
/// A client may have so many times the flows that are left: three quarters of the limit where nobody else has any.
const TIMES: usize = 3;
/// What a client may have however little is left, as long as there is anything.
const OWN: usize = 8;

/// The flows of all clients.
#[derive(Debug)]
pub(crate) struct ClientFlows {
    hasher: RandomState,
    rows: [Box<[AtomicU32]>; 2],
}

/// Where a flow is counted: its client's place in each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places([u16; 2]);

impl Default for ClientFlows {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            rows: [(); 2].map(|()| (0..PLACES).map(|_| AtomicU32::new(0)).collect()),
        }
    }
}

impl ClientFlows {
    /// Counts one flow more of `client`; returns where.
    pub(crate) fn begin(&self, client: Client) -> Places {
        let places = self.places(client);
        for counter in self.counters(places) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        places
    }

    /// Counts one flow less at `places`.
    pub(crate) fn end(&self, places: Places) {
        for counter in self.counters(places) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether `client` may have one flow more while `left` more fit.
    pub(crate) fn have_room_for(&self, client: Client, left: usize) -> bool {
        self.of(client) < left.saturating_mul(TIMES).max(OWN)
    }

    fn of(&self, client: Client) -> usize {
        let [first, second] = self.counters(self.places(client));
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed) as usize;
        count(first).min(count(second))
    }

    fn places(&self, client: Client) -> Places {
        let hash = self.hasher.hash_one(client);
        Places([hash, hash >> 32].map(|half| (half % PLACES as u64) as u16))
    }

    fn counters(&self, Places(places): Places) -> [&AtomicU32; 2] {
        [0, 1].map(|row| &self.rows[row][usize::from(places[row])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 9_000;

    fn client(number: u32) -> Client {
        Client::of(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into())
    }

    /// Clients that begin as many flows as they may, in turns; returns what each has.
    fn greedy(flows: &ClientFlows, clients: std::ops::Range<u32>, others: usize) -> Vec<usize> {
        let mut counts = vec![0; clients.len()];
        loop {
            let before = counts.clone();
            for (number, count) in clients.clone().zip(&mut counts) {
                let left = LIMIT - others - before.iter().sum::<usize>();
                if left > 0 && flows.have_room_for(client(number), left) {
                    flows.begin(client(number));
                    *count += 1;
                }
            }
            if counts == before {
                return counts;
            }
        }
    }

    #[test]
    fn one_client_has_most_and_leaves_enough_for_others() {
        let flows = ClientFlows::default();
        assert_eq!(greedy(&flows, 0..1, 0), [LIMIT * 3 / 4]);
        let next = greedy(&flows, 1..2, LIMIT * 3 / 4);
        assert!(next[0] >= LIMIT * 3 / 16, "{next:?}");
    }

    #[test]
    fn several_have_the_same_and_none_is_left_without() {
        let flows = ClientFlows::default();
        let counts = greedy(&flows, 0..16, 0);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1 && *least > 500, "{counts:?}");
        let held: usize = counts.iter().sum();
        let other = greedy(&flows, 99..100, held);
        assert!(other[0] > 100, "{other:?} beside {held}");
    }

    #[test]
    fn what_ends_is_counted_no_longer() {
        let flows = ClientFlows::default();
        let begun: Vec<_> = (0..100).map(|_| flows.begin(client(1))).collect();
        assert_eq!((flows.of(client(1)), flows.of(client(2))), (100, 0));
        assert!(!flows.have_room_for(client(1), 33) && flows.have_room_for(client(1), 34));
        assert!(flows.have_room_for(client(2), 0));
        begun.into_iter().for_each(|places| flows.end(places));
        assert_eq!(flows.of(client(1)), 0);
        let counters = flows.rows.iter().flatten();
        assert!(
            counters
                .map(|count| count.load(Ordering::Relaxed))
                .all(|n| n == 0)
        );
    }
}
