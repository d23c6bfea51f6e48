//! Tickets of TLS sessions (RFC 8446, section 2.2): those that this side gave to peers, and those that peers gave to this side.
//!
//! By a ticket a peer's first flight carries data before the handshake is through (0-RTT). Whoever records such a flight can send it
//! again, so a ticket is good once (RFC 8446, section 8.1): it is taken out before anything of the flight is looked at. Who comes with
//! one that was taken is refused altogether and not merely asked for a full handshake, since in one the peer would say again what
//! was already acted on.
//!
//! Both kinds are kept in memory alone: a side that starts anew knows none, and shakes hands in full. (rustls 0.23 gives no form in which
//! a client's session could be written to a file.)

use bytes::Bytes;
use core::fmt;
use quinn_proto::{TokenMemoryCache, TokenStore};
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::server::StoresServerSessions;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tickets given on each connection: one for the next, and one for where that attempt comes to nothing.
pub(crate) const TICKETS: usize = 2;
/// Sessions that peers may resume. The oldest are forgotten.
const SESSIONS: usize = 4096;
/// Tickets remembered as used in each of two generations.
const GENERATION: usize = 4096;
/// Peers whose tickets are held, and tickets of each.
const PEERS: usize = 64;
const TICKETS_OF_PEER: usize = 4;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics midway, so what is poisoned is as good as any.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this side gave.
#[derive(Default)]
pub(crate) struct IssuedTickets(Mutex<Issued>);

#[derive(Default)]
struct Issued {
    sessions: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Their tickets, the oldest first; some were used since.
    order: VecDeque<Vec<u8>>,
    used: [BTreeSet<Vec<u8>>; 2],
    /// A used one has come again.
    came_again: bool,
}

impl IssuedTickets {
    /// Whether a used ticket has come since the last call.
    pub(crate) fn came_again(&self) -> bool {
        core::mem::take(&mut lock(&self.0).came_again)
    }

    /// Forgets all sessions: whose keys they are is to be looked at again.
    pub(crate) fn forget(&self) {
        let mut issued = lock(&self.0);
        issued.sessions.clear();
        issued.order.clear();
    }
}

impl fmt::Debug for IssuedTickets {
    /// Never the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IssuedTickets")
    }
}

impl StoresServerSessions for IssuedTickets {
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool {
        let mut issued = lock(&self.0);
        if issued.order.len() >= SESSIONS
            && let Some(oldest) = issued.order.pop_front()
        {
            issued.sessions.remove(&oldest);
        }
        issued.order.push_back(ticket.clone());
        issued.sessions.insert(ticket, session);
        true
    }

    /// A ticket that may be used twice is none of TLS 1.3's.
    fn get(&self, _ticket: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let mut issued = lock(&self.0);
        let Some(session) = issued.sessions.remove(ticket) else {
            issued.came_again |= issued.used.iter().any(|used| used.contains(ticket));
            return None;
        };
        issued.used[0].insert(ticket.to_vec());
        if issued.used[0].len() >= GENERATION {
            issued.used[1] = core::mem::take(&mut issued.used[0]);
        }
        Some(session)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// What peers gave: tickets, and tokens that prove this side's address to them (RFC 9000, section 8.1.3), without which they answer
/// no more to a first flight than three times its length.
#[derive(Default)]
pub(crate) struct HeldTickets {
    tickets: Mutex<Held>,
    tokens: TokenMemoryCache,
}

#[derive(Default)]
struct Held {
    of_peers: HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>,
    /// The connection that begins takes none, and no token.
    withheld: bool,
}

impl HeldTickets {
    /// Forgets all tickets: whose keys they are is to be looked at again.
    pub(crate) fn forget(&self) {
        lock(&self.tickets).of_peers.clear();
    }

    /// Whether there is one of the peer at `address`.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let held = lock(&self.tickets);
        let tickets = held.of_peers.get(&ServerName::IpAddress(address.into()));
        tickets.is_some_and(|tickets| !tickets.is_empty())
    }

    /// From now on connections begin with a ticket and a token where there are, or with none.
    pub(crate) fn withhold(&self, withheld: bool) {
        lock(&self.tickets).withheld = withheld;
    }
}

impl fmt::Debug for HeldTickets {
    /// Never the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldTickets")
    }
}

impl ClientSessionStore for HeldTickets {
    fn set_kx_hint(&self, _peer: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _peer: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _peer: ServerName<'static>, _session: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _peer: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _peer: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, peer: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let peers = &mut lock(&self.tickets).of_peers;
        if peers.len() >= PEERS && !peers.contains_key(&peer) {
            return;
        }
        let tickets = peers.entry(peer).or_default();
        if tickets.len() >= TICKETS_OF_PEER {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, peer: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut held = lock(&self.tickets);
        if held.withheld {
            return None;
        }
        held.of_peers.get_mut(peer)?.pop_back()
    }
}

impl TokenStore for HeldTickets {
    fn insert(&self, peer: &str, token: Bytes) {
        self.tokens.insert(peer, token);
    }

    fn take(&self, peer: &str) -> Option<Bytes> {
        let withheld = lock(&self.tickets).withheld;
        (!withheld).then(|| self.tokens.take(peer)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_is_known_when_it_comes_again() {
        let issued = IssuedTickets::default();
        assert!(issued.put(vec![1], vec![2]));
        assert_eq!(issued.take(&[9]), None);
        assert!(!issued.came_again(), "nobody gave it");
        assert_eq!(issued.take(&[1]), Some(vec![2]));
        assert!(!issued.came_again());
        assert_eq!(issued.take(&[1]), None);
        assert!(issued.came_again() && !issued.came_again());
    }

    #[test]
    fn what_is_forgotten_is_no_session_and_what_was_used_stays_known() {
        let issued = IssuedTickets::default();
        for ticket in [1, 2] {
            issued.put(vec![ticket], vec![ticket]);
        }
        issued.take(&[1]);
        issued.forget();
        assert_eq!(issued.take(&[2]), None);
        assert!(!issued.came_again());
        assert_eq!(issued.take(&[1]), None);
        assert!(issued.came_again());
    }

    #[test]
    fn its_memory_is_bounded() {
        let issued = IssuedTickets::default();
        let ticket = |number: usize| number.to_le_bytes().to_vec();
        for number in 0..3 * SESSIONS {
            issued.put(ticket(number), Vec::new());
        }
        assert_eq!(issued.take(&ticket(0)), None);
        assert!(issued.take(&ticket(3 * SESSIONS - 1)).is_some());
        for number in 0..3 * GENERATION {
            issued.put(ticket(number), Vec::new());
            issued.take(&ticket(number));
        }
        let held = lock(&issued.0);
        assert!(held.sessions.len() <= SESSIONS && held.order.len() <= SESSIONS);
        assert!(held.used.iter().map(BTreeSet::len).sum::<usize>() <= 2 * GENERATION);
    }
}
