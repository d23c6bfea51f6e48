//! Tests of `client_flows`.

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

/// The networks of one prefix of IPv6.
fn networks(number: u32) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(number) << 64).into()
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
    for of_one_prefix in [neighbours, networks] {
        let mut flows = Flows::new(LIMIT);
        let clients: Vec<_> = (0..200).map(of_one_prefix).collect();
        let counts = flows.greedy(&clients);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(
            most - least <= 1 && flows.held >= LIMIT * 5 / 6 - 1,
            "{counts:?}"
        );
        let other = flows.fill(alone(99));
        assert!(other > LIMIT / 12, "{other}");
    }
}

/// However the host takes them, with all of its addresses in turns or one after the other.
#[test]
fn one_host_with_many_addresses_takes_nobodys_share() {
    for (limit, addresses) in [(400, 6), (LIMIT, 60), (100_000, 200)] {
        for (in_turns, of_one_prefix) in [
            (false, neighbours as fn(u32) -> IpAddr),
            (true, neighbours),
            (false, networks),
            (true, networks),
        ] {
            let mut flows = Flows::new(limit);
            let host: Vec<_> = (0..addresses).map(of_one_prefix).collect();
            if in_turns {
                flows.greedy(&host);
            }
            for address in host {
                flows.fill(address);
            }
            let near = flows.fill(of_one_prefix(254));
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
