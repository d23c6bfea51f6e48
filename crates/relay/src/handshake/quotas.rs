//! How much of what SYNs may make belongs to one source prefix and to one destination.
//!
//! Like a congestion window: each begins with little, earns more by connections that clients confirm, and a
//! prefix whose connections are not confirmed loses half of that.

use bentpipe_gateway_config::Ends;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Of a source prefix or a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// SYNs that are held, and those let in whose clients have yet to confirm.
    pub(crate) pending: usize,
    /// Of these the ones whose far side has accepted: it sees a connection.
    pub(crate) unconfirmed: usize,
    /// What it has earned by connections that clients confirmed.
    pub(crate) credit: usize,
}

/// What a confirmed connection earns: the share doubles with each round trip that uses it up.
const EARNS: usize = 1;
/// The most that is earned.
const MOST: usize = 65_536;

/// Counts by source prefix and by destination.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    prefixes: HashMap<IpAddr, Share>,
    destinations: HashMap<SocketAddr, Share>,
}

impl Shares {
    /// The share of the source prefix of `ends`, and of its destination.
    pub(crate) fn of(&self, (client, server): &Ends) -> (Share, Share) {
        let prefix = self.prefixes.get(&prefix(client.ip()));
        let destination = self.destinations.get(server);
        (
            prefix.copied().unwrap_or_default(),
            destination.copied().unwrap_or_default(),
        )
    }

    /// One more is pending.
    pub(crate) fn begin(&mut self, ends: &Ends) {
        self.change(ends, |share| share.pending += 1);
    }

    /// The far side of one that is pending has accepted.
    pub(crate) fn answer(&mut self, ends: &Ends) {
        self.change(ends, |share| share.unconfirmed += 1);
    }

    /// The far side of such a one is reset.
    pub(crate) fn reset(&mut self, ends: &Ends) {
        self.change(ends, |share| {
            share.unconfirmed = share.unconfirmed.saturating_sub(1);
        });
    }

    /// One is no longer pending.
    pub(crate) fn end(&mut self, ends: &Ends) {
        self.change(ends, |share| {
            share.pending = share.pending.saturating_sub(1);
        });
    }

    /// The client of one has confirmed.
    pub(crate) fn earn(&mut self, ends: &Ends) {
        self.change(ends, |share| {
            share.credit = (share.credit + EARNS).min(MOST);
        });
    }

    /// The client of one has not confirmed in time.
    pub(crate) fn lose(&mut self, (client, _): &Ends) {
        adjust(
            &mut self.prefixes,
            prefix(client.ip()),
            |share: &mut Share| {
                share.credit /= 2;
            },
        );
    }

    /// What was earned is forgotten by and by. To be called once a second.
    pub(crate) fn age(&mut self) {
        let age = |share: &mut Share| {
            share.credit -= share.credit.div_ceil(16);
            *share != Share::default()
        };
        self.prefixes.retain(|_, share| age(share));
        self.destinations.retain(|_, share| age(share));
    }

    /// Whether there is nothing to forget.
    pub(crate) fn are_empty(&self) -> bool {
        self.prefixes.is_empty() && self.destinations.is_empty()
    }

    fn change(&mut self, (client, server): &Ends, change: impl Fn(&mut Share)) {
        adjust(&mut self.prefixes, prefix(client.ip()), &change);
        adjust(&mut self.destinations, *server, &change);
    }
}

fn adjust<K: Hash + Eq>(map: &mut HashMap<K, Share>, key: K, change: impl Fn(&mut Share)) {
    match map.entry(key) {
        Entry::Vacant(entry) => {
            let mut share = Share::default();
            change(&mut share);
            if share != Share::default() {
                entry.insert(share);
            }
        }
        Entry::Occupied(mut entry) => {
            change(entry.get_mut());
            if *entry.get() == Share::default() {
                entry.remove();
            }
        }
    }
}

/// What one customer commonly has: /24 of IPv4, /56 of IPv6.
fn prefix(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - 56))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_leaves_nothing_and_prefixes_are_told_apart() {
        let ends =
            |client: &str| -> Ends { (client.parse().unwrap(), "192.0.2.1:80".parse().unwrap()) };
        let near = [ends("10.0.0.1:1"), ends("10.0.0.200:2"), ends("10.0.1.1:3")];
        let mut shares = Shares::default();
        near.iter().for_each(|ends| shares.begin(ends));
        shares.answer(&near[0]);
        let (prefix, destination) = shares.of(&near[1]);
        assert_eq!((prefix.pending, prefix.unconfirmed), (2, 1));
        assert_eq!((destination.pending, destination.unconfirmed), (3, 1));
        shares.reset(&near[0]);
        near.iter().for_each(|ends| shares.end(ends));
        assert!(shares.prefixes.is_empty() && shares.destinations.is_empty());
        near.iter().for_each(|ends| shares.earn(ends));
        shares.lose(&near[0]);
        let (prefix, destination) = shares.of(&near[1]);
        assert_eq!((prefix.credit, destination.credit), (1, 3));
        (0..3).for_each(|_| shares.age());
        assert!(shares.prefixes.is_empty() && shares.destinations.is_empty());
        let six = ["fd00:0:0:1::1", "fd00:0:0:2::1", "fd00:0:0:101::1"];
        let [one, two, other] = six.map(|address| super::prefix(address.parse().unwrap()));
        assert!(one == two && one != other);
    }
}
