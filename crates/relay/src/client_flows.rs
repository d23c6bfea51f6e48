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
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const LIMIT: usize = 9_000;

    /// Every number is a prefix of its own.
    fn alone(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0001 + (number << 8)).into()
    }

    /// The addresses of one prefix.
    fn neighbours(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    struct Flows {
        flows: ClientFlows,
        limit: usize,
        held: usize,
    }

    impl Flows {
        fn new(limit: usize) -> Self {
            Self {
                flows: ClientFlows::default(),
                limit,
                held: 0,
            }
        }

        /// `client` begins a flow, if it may; says whether it did.
        fn begin(&mut self, client: IpAddr) -> bool {
            let room = Room {
                limit: self.limit,
                left: self.limit - self.held,
            };
            let may = room.left > 0 && self.flows.have_room_for(client, Answered::default(), room);
            if may {
                self.flows.begin(client);
                self.held += 1;
            }
            may
        }

        /// `client` begins as many flows as it may.
        fn fill(&mut self, client: IpAddr) -> usize {
            std::iter::from_fn(|| self.begin(client).then_some(())).count()
        }

        /// So do several, in turns; returns what each has.
        fn greedy(&mut self, clients: &[IpAddr]) -> Vec<usize> {
            let mut counts = vec![0; clients.len()];
            loop {
                let before = counts.clone();
                for (client, count) in clients.iter().zip(&mut counts) {
                    *count += usize::from(self.begin(*client));
                }
                if counts == before {
                    return counts;
                }
            }
        }
    }

    #[test]
    fn one_client_has_most_and_leaves_enough_for_others() {
        for next in [alone(1), neighbours(2)] {
            let mut flows = Flows::new(LIMIT);
            assert_eq!(flows.fill(alone(0)), LIMIT * 3 / 4);
            let next = flows.fill(next);
            assert!(next >= LIMIT / 12, "{next}");
        }
    }

    #[test]
    fn several_have_the_same_and_none_is_left_without() {
        let mut flows = Flows::new(LIMIT);
        let clients: Vec<_> = (0..16).map(alone).collect();
        let counts = flows.greedy(&clients);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1 && *least > 500, "{counts:?}");
        // So have those of one prefix, which have most of the limit together.
        let mut flows = Flows::new(LIMIT);
        let clients: Vec<_> = (0..200).map(neighbours).collect();
        let counts = flows.greedy(&clients);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(
            most - least <= 1 && flows.held >= LIMIT * 5 / 6 - 1,
            "{counts:?}"
        );
        let other = flows.fill(alone(99));
        assert!(other > LIMIT / 12, "{other}");
    }

    /// However the host takes them, with all of its addresses in turns or one after the other.
    #[test]
    fn one_host_with_many_addresses_takes_nobodys_share() {
        for (limit, addresses) in [(400, 6), (LIMIT, 60), (100_000, 200)] {
            for in_turns in [false, true] {
                let mut flows = Flows::new(limit);
                let host: Vec<_> = (0..addresses).map(neighbours).collect();
                if in_turns {
                    flows.greedy(&host);
                }
                for address in host {
                    flows.fill(address);
                }
                let near = flows.fill(neighbours(254));
                assert_eq!(near, OWN, "{limit} {in_turns}");
                let far = flows.fill(alone(9));
                assert!(far >= limit / 32, "{far} of {limit} {in_turns}");
            }
        }
    }

    /// Each has a network of its own, and so a prefix.
    #[test]
    fn several_who_take_what_they_can_leave_some_for_who_has_little() {
        let mut flows = Flows::new(LIMIT);
        let network = |number: u128| -> IpAddr { Ipv6Addr::from_bits(number << 72).into() };
        for number in 0..12 {
            flows.fill(network(number));
        }
        assert_eq!(flows.fill(network(99)), OWN);
        // Of one /56 the 256 networks have no more than one /24.
        let mut flows = Flows::new(LIMIT);
        for number in 0..256 {
            flows.fill(Ipv6Addr::from_bits(number << 64).into());
        }
        let other = flows.fill(network(9));
        assert!(other >= LIMIT / 32, "{other}");
    }

    #[test]
    fn what_was_answered_counts() {
        let flows = ClientFlows::default();
        let room = |left| Room { limit: 100, left };
        let answered = |of_client, of_prefix| Answered {
            of_client,
            of_prefix,
        };
        assert!(flows.have_room_for(alone(1), answered(20, 20), room(27)));
        assert!(!flows.have_room_for(alone(1), answered(20, 20), room(26)));
        assert!(!flows.have_room_for(alone(1), answered(0, 20), room(21)));
    }

    #[test]
    fn what_ends_is_counted_no_longer() {
        let flows = ClientFlows::default();
        let of = |client| {
            let prefix = flows.prefixes.count(Prefix::of(client));
            (flows.clients.count(Client::of(client)), prefix)
        };
        let begun: Vec<_> = (0..100).map(|_| flows.begin(neighbours(1))).collect();
        assert_eq!(of(neighbours(1)), (100, 100));
        assert_eq!(of(neighbours(2)), (0, 100));
        assert_eq!(of(alone(1)), (0, 0));
        begun.into_iter().for_each(|places| flows.end(places));
        assert_eq!(of(neighbours(1)), (0, 0));
        let rows = flows.clients.rows.iter().chain(&flows.prefixes.rows);
        assert!(
            rows.flatten()
                .map(|count| count.load(Ordering::Relaxed))
                .all(|n| n == 0)
        );
    }
}
