//! Quotas of half-open connections, by source prefix and by destination.
//!
//! They work like a congestion window: each begins with little and earns more by every connection that its client
//! confirms; a prefix whose connections are not confirmed in time loses half of what it has earned. Beyond that, a host with
//! little pending has some of its prefix's all the same, so that nobody has all of it.

use crate::client_identity::{Client, Prefix};
use bentpipe_gateway_config::Ends;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::SocketAddr;

/// The quota of one source prefix or one destination, and what is used of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quota {
    /// SYNs that are held, and those let in whose clients have yet to confirm.
    pub(crate) pending: usize,
    /// SYNs among these whose far side has accepted, and so sees a connection.
    pub(crate) unconfirmed: usize,
    /// What it has earned by connections that clients confirmed.
    pub(crate) credit: usize,
    /// How many were given up of late, unconfirmed.
    pub(crate) abandoned: usize,
}

impl Quota {
    /// Whether a destination has accepted of late: whoever is answered in its place has not been told what is not so.
    pub(crate) fn is_known_to_accept(&self) -> bool {
        self.unconfirmed > 0 || self.credit > 0 || self.abandoned > 0
    }
}

/// What a confirmed connection earns: the share doubles with each round trip that uses it up.
const EARNS: usize = 1;
/// The most that is earned.
const MOST: usize = 65_536;

/// Counts by source prefix and by destination.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    prefixes: HashMap<Prefix, Quota>,
    destinations: HashMap<SocketAddr, Quota>,
    /// What is pending of each host.
    hosts: HashMap<Client, usize>,
    /// Something has ended or was earned, so that there may be room for more.
    pub(super) has_more: bool,
}

impl Quotas {
    /// The share of the source prefix of `ends`, and of its destination.
    pub(crate) fn of(&self, (client, server): &Ends) -> (Quota, Quota) {
        let prefix = self.prefixes.get(&Prefix::of(client.ip()));
        let destination = self.destinations.get(server);
        (
            prefix.copied().unwrap_or_default(),
            destination.copied().unwrap_or_default(),
        )
    }

    /// SYNs that are pending of the client of `ends`.
    pub(crate) fn of_host(&self, (client, _): &Ends) -> usize {
        let pending = self.hosts.get(&Client::of(client.ip()));
        pending.copied().unwrap_or_default()
    }

    /// Counts one more pending SYN.
    pub(crate) fn begin(&mut self, ends: &Ends) {
        *self.hosts.entry(Client::of(ends.0.ip())).or_default() += 1;
        self.change(ends, |quota| quota.pending += 1);
    }

    /// Counts that the far side of a pending SYN has accepted.
    pub(crate) fn answer(&mut self, ends: &Ends) {
        self.change(ends, |quota| quota.unconfirmed += 1);
    }

    /// Counts that such a far side was reset.
    pub(crate) fn reset(&mut self, ends: &Ends) {
        self.change(ends, |quota| {
            quota.unconfirmed = quota.unconfirmed.saturating_sub(1);
        });
    }

    /// Whether there may be room where there was none at the last time this was asked.
    pub(crate) fn take_more(&mut self) -> bool {
        std::mem::take(&mut self.has_more)
    }

    /// Counts one pending SYN less.
    pub(crate) fn end(&mut self, ends: &Ends) {
        self.has_more = true;
        if let Entry::Occupied(mut host) = self.hosts.entry(Client::of(ends.0.ip())) {
            *host.get_mut() -= 1;
            if *host.get() == 0 {
                host.remove();
            }
        }
        self.change(ends, |quota| {
            quota.pending = quota.pending.saturating_sub(1);
        });
    }

    /// Adds credit, because a client has confirmed its connection.
    pub(crate) fn earn(&mut self, ends: &Ends) {
        self.change(ends, |quota| {
            quota.credit = (quota.credit + EARNS).min(MOST);
        });
    }

    /// Counts that a client has not confirmed.
    pub(crate) fn suspect(&mut self, ends: &Ends) {
        self.change(ends, |quota| quota.abandoned += 1);
    }

    /// Halves the credit of a prefix, because a client has not confirmed in time.
    pub(crate) fn lose(&mut self, ends: &Ends) {
        self.suspect(ends);
        adjust(
            &mut self.prefixes,
            Prefix::of(ends.0.ip()),
            |quota: &mut Quota| {
                quota.credit /= 2;
            },
        );
    }

    /// Lets what was earned decay. To be called once a second.
    pub(crate) fn age(&mut self) {
        let age = |quota: &mut Quota| {
            quota.credit -= quota.credit.div_ceil(16);
            quota.abandoned -= quota.abandoned.div_ceil(6);
            *quota != Quota::default()
        };
        self.prefixes.retain(|_, quota| age(quota));
        self.destinations.retain(|_, quota| age(quota));
    }

    /// Whether no source or destination has an entry.
    pub(crate) fn are_empty(&self) -> bool {
        self.prefixes.is_empty() && self.destinations.is_empty()
    }

    fn change(&mut self, (client, server): &Ends, change: impl Fn(&mut Quota)) {
        adjust(&mut self.prefixes, Prefix::of(client.ip()), &change);
        adjust(&mut self.destinations, *server, &change);
    }
}

fn adjust<K: Hash + Eq>(map: &mut HashMap<K, Quota>, key: K, change: impl Fn(&mut Quota)) {
    match map.entry(key) {
        Entry::Vacant(entry) => {
            let mut quota = Quota::default();
            change(&mut quota);
            if quota != Quota::default() {
                entry.insert(quota);
            }
        }
        Entry::Occupied(mut entry) => {
            change(entry.get_mut());
            if *entry.get() == Quota::default() {
                entry.remove();
            }
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
        let mut quotas = Quotas::default();
        near.iter().for_each(|ends| quotas.begin(ends));
        quotas.answer(&near[0]);
        let (prefix, destination) = quotas.of(&near[1]);
        assert_eq!((prefix.pending, prefix.unconfirmed), (2, 1));
        assert_eq!((destination.pending, destination.unconfirmed), (3, 1));
        quotas.reset(&near[0]);
        near.iter().for_each(|ends| quotas.end(ends));
        assert!(quotas.are_empty() && quotas.hosts.is_empty());
        near.iter().for_each(|ends| quotas.earn(ends));
        quotas.lose(&near[0]);
        let (prefix, destination) = quotas.of(&near[1]);
        assert_eq!((prefix.credit, destination.credit), (1, 3));
        (0..3).for_each(|_| quotas.age());
        assert!(quotas.prefixes.is_empty() && quotas.destinations.is_empty());
    }
}
