//! What receivers say, above all their lists of holes, counts against the rate as content does: a peer that asks often is
//! answered no faster than it would be sent a file.

use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What was not said in this time may be said at once.
const BURST: Duration = Duration::from_millis(10);
/// What is said takes from what is sent in about this time.
const LATELY: Duration = Duration::from_millis(250);

/// The answers to each peer that sends to us. Without a bound for a client, which has chosen its peer and has no rate
/// of its own where it only receives.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    bounded: bool,
    peers: BTreeMap<IpAddr, Account>,
}

/// What was said to a peer.
#[derive(Debug)]
struct Account {
    /// What it may be told at most.
    rate: Rate,
    /// When it may be told more.
    next: Instant,
    /// Octets said, of which the older ones count less; up to then.
    lately: f64,
    until: Instant,
}

impl Account {
    /// Octets said lately, as of `now`.
    fn lately(&self, now: Instant) -> f64 {
        let age = now.since(self.until).as_secs_f64() / LATELY.as_secs_f64();
        self.lately * (-age).exp()
    }
}

impl Answers {
    /// From now on [`Self::share`] sets bounds.
    pub(crate) const fn bound(&mut self) {
        self.bounded = true;
    }

    /// Each of `peers` is told things at `rate` at most, and others are forgotten.
    pub(crate) fn share(&mut self, peers: impl Iterator<Item = IpAddr>, rate: Rate, now: Instant) {
        if !self.bounded {
            return;
        }
        let mut known = std::mem::take(&mut self.peers);
        self.peers = peers
            .map(|peer| {
                let account = known.remove(&peer).unwrap_or(Account {
                    rate,
                    next: now,
                    lately: 0.0,
                    until: now,
                });
                (peer, Account { rate, ..account })
            })
            .collect();
    }

    /// Whether `peer` may be told something.
    pub(crate) fn may_say(&self, peer: IpAddr, now: Instant) -> bool {
        { self.peers.get(&peer) }.is_none_or(|account| account.next <= now)
    }

    /// `size` octets were said to `peer`, headers included.
    pub(crate) fn said(&mut self, peer: IpAddr, size: Bytes, now: Instant) {
        if let Some(account) = self.peers.get_mut(&peer) {
            let burst = BURST.as_nanos() as u64;
            let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(burst));
            account.next = account.next.max(earliest) + account.rate.serialisation(size);
            account.lately = account.lately(now) + size.0 as f64;
            account.until = now;
        }
    }

    /// The rate at which `peer` was told things lately.
    pub(crate) fn rate(&self, peer: IpAddr, now: Instant) -> Rate {
        let account = self.peers.get(&peer);
        account.map_or(Rate::from_bits_per_sec(0), |account| {
            let bits = account.lately(now) * 8.0 / LATELY.as_secs_f64();
            Rate::from_bits_per_sec(bits as u64).min(account.rate)
        })
    }

    /// When somebody who may not be told anything at `now` may be.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let accounts = self.peers.values().map(|account| account.next);
        accounts.filter(|next| *next > now).min()
    }
}
