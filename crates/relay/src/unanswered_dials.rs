//! Remembers clients for which dials go unanswered although their own SYNs might be answered.
//!
//! A dial is not quite the SYN that it stands for: it comes by no interface and has a mark of ours. Where an
//! operator's translation or routes ask for either, it leaves with another address, or does not leave at all, and
//! nobody answers. That shows when a dial has been silent for [`PATIENCE`]; what is remembered of it here lets the
//! connections that follow pass at once.
//!
//! Looped SYNs may be lost as well: what an operator's rules do to packets that come by `lo` they do to these too.
//!
//! Each client is remembered by itself: what one does, or what somebody does who forges its address, has no bearing on
//! the others. All that a remembered client loses is that its connections are not split for a while. A client that was
//! answered in the last minute has a way, and its silent destinations concern themselves alone: programs that try
//! hosts that are gone (and whoever forges its address) take nothing from its other connections.

use crate::recent_answers::RecentAnswers;
use bentpipe_base::Instant;
use bentpipe_gateway_config::Ends;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a dial may be silent before its client is remembered. A lost SYN (they are sent at 0, 1 and 3 s, RFC 6298; from
/// Linux 6.5 on at 0, 1, 2, 3 and 4 s, `net.ipv4.tcp_syn_linear_timeouts`) and a round trip of 2 s are not taken for silence;
/// nor is a neighbour that does not answer, which the kernel reports after 3 s.
pub(crate) const PATIENCE: Duration = Duration::from_millis(3500);
/// How long connections pass after a silent dial, and how long while one of them is dialled to see whether that
/// has changed.
const MEMORY: Duration = Duration::from_secs(60);
const TRIAL: Duration = Duration::from_secs(5);
/// After so many silent destinations in a row the reason is the client's path, not the destinations.
const SEVERAL: usize = 3;
/// Stands for a count that has stopped, because a dial was answered.
const ANSWERED: usize = usize::MAX / 2;
/// The most that is remembered: clients, and destinations of one.
const CLIENTS: usize = 4096;
const DESTINATIONS: usize = 8;

/// What all workers together remember.
#[derive(Debug, Default)]
pub(crate) struct UnansweredDials {
    clients: Mutex<HashMap<IpAddr, Client>>,
    /// How many clients there are; workers take the lock only when there are some.
    count: AtomicUsize,
    /// The log has been told of lost SYNs.
    logged: AtomicBool,
    /// Silent dials while none was answered; [`ANSWERED`] from then on.
    unheard: AtomicUsize,
    answers: RecentAnswers,
}

#[derive(Debug)]
struct Client {
    /// Destinations that did not answer, the latest last.
    destinations: Vec<SocketAddr>,
    /// How many different destinations have not answered since one last did.
    in_a_row: usize,
    until: Instant,
}

impl Client {
    fn concerns(&self, server: &SocketAddr) -> bool {
        self.in_a_row >= SEVERAL || self.destinations.contains(server)
    }
}

impl UnansweredDials {
    /// Whether a connection between `ends` is to pass. Once a while it is not, to see whether it is answered now.
    pub(crate) fn should_pass(&self, (client, server): &Ends, now: Instant) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut clients = self.lock();
        let found = clients.get_mut(&client.ip());
        let Some(known) = found.filter(|known| known.concerns(server)) else {
            return false;
        };
        let passes = now < known.until;
        if !passes {
            known.until = now + TRIAL;
        }
        passes
    }

    /// A dial between `ends` was silent.
    pub(crate) fn record_silence(&self, (client, server): &Ends, now: Instant) {
        if self.unheard.fetch_add(1, Ordering::Relaxed) + 1 == SEVERAL {
            tracing::warn!(
                "not one dial has been answered so far: does the firewall let this machine's own connections out, and their answers in? (`bentpipe doctor`)"
            );
        }
        let mut clients = self.lock();
        if clients.len() >= CLIENTS {
            clients.retain(|_, known| now < known.until);
        }
        if clients.len() >= CLIENTS && !clients.contains_key(&client.ip()) {
            // It waits again next time.
            return;
        }
        let known = clients.entry(client.ip()).or_insert_with(|| Client {
            destinations: Vec::new(),
            in_a_row: 0,
            until: now,
        });
        known.until = now + MEMORY;
        if !known.destinations.contains(server) {
            if !self.answers.was_answered(client.ip(), MEMORY, now) {
                known.in_a_row += 1;
            }
            if known.destinations.len() >= DESTINATIONS {
                known.destinations.remove(0);
            }
            known.destinations.push(*server);
        }
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// A SYN between `ends` that was looped came to no listener.
    pub(crate) fn record_lost_syn(&self, ends: &Ends, now: Instant) {
        self.record_silence(ends, now);
        if !self.logged.swap(true, Ordering::Relaxed) {
            let (client, server) = ends;
            tracing::warn!(
                %client, %server,
                "clients' SYNs do not come back over lo, and their connections pass unsplit, the first of each client seconds late: look for rules that drop or lead away what comes by lo (`iif lo ip saddr != 127.0.0.0/8 drop`, an output chain of `type route` that sets marks), and before them `meta mark and 0xff000000 == 0x62000000 accept`"
            );
        }
    }

    /// A connection between `ends` stands, or was refused.
    pub(crate) fn record_answer(&self, (client, server): &Ends, now: Instant) {
        self.answers.record(client.ip(), now);
        if self.unheard.load(Ordering::Relaxed) < ANSWERED {
            self.unheard.store(ANSWERED, Ordering::Relaxed);
        }
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut clients = self.lock();
        let Some(known) = clients.get_mut(&client.ip()) else {
            return;
        };
        known.in_a_row = 0;
        known.destinations.retain(|other| other != server);
        if known.destinations.is_empty() {
            clients.remove(&client.ip());
            self.count.store(clients.len(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: &str, server: usize) -> Ends {
        let server = SocketAddr::new("192.0.2.1".parse().unwrap(), server as u16);
        (SocketAddr::new(client.parse().unwrap(), 40_000), server)
    }

    #[test]
    fn a_silent_destination_is_passed_to_and_tried_again_by_one() {
        let silence = UnansweredDials::default();
        let (one, other) = (ends("10.0.0.1", 1), ends("10.0.0.1", 2));
        let mut now = Instant::ZERO + Duration::from_secs(9);
        assert!(!silence.should_pass(&one, now));
        silence.record_silence(&one, now);
        assert!(silence.should_pass(&one, now) && !silence.should_pass(&other, now));
        assert!(!silence.should_pass(&ends("10.0.0.2", 1), now));
        now += MEMORY;
        let passing = (0..9).filter(|_| silence.should_pass(&one, now)).count();
        assert_eq!(passing, 8, "one tries");
        silence.record_answer(&other, now);
        assert!(
            silence.should_pass(&one, now),
            "another's answer is not its own"
        );
        silence.record_answer(&one, now);
        assert!(!silence.should_pass(&one, now));
        assert_eq!(silence.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn silent_destinations_of_who_is_answered_concern_themselves_alone() {
        let silence = UnansweredDials::default();
        let mut now = Instant::ZERO + Duration::from_secs(9);
        silence.record_answer(&ends("10.0.0.1", 1), now);
        now += MEMORY;
        (2..20).for_each(|server| silence.record_silence(&ends("10.0.0.1", server), now));
        assert!(silence.should_pass(&ends("10.0.0.1", 19), now));
        assert!(!silence.should_pass(&ends("10.0.0.1", 1), now));
        now += MEMORY + Duration::from_secs(2);
        (20..23).for_each(|server| silence.record_silence(&ends("10.0.0.1", server), now));
        assert!(silence.should_pass(&ends("10.0.0.1", 1), now));
    }

    #[test]
    fn several_in_a_row_are_the_clients_way_and_memory_is_bounded() {
        let silence = UnansweredDials::default();
        let now = Instant::ZERO;
        for server in 1..=SEVERAL {
            assert!(!silence.should_pass(&ends("10.0.0.1", 99), now));
            silence.record_silence(&ends("10.0.0.1", server), now);
        }
        assert!(silence.should_pass(&ends("10.0.0.1", 99), now));
        silence.record_answer(&ends("10.0.0.1", 99), now);
        assert!(!silence.should_pass(&ends("10.0.0.1", 99), now));
        assert!(silence.should_pass(&ends("10.0.0.1", 1), now));
        for number in 0..2 * CLIENTS {
            let client = format!("10.1.{}.{}", number >> 8, number & 255);
            (0..20).for_each(|server| silence.record_silence(&ends(&client, server), now));
        }
        let clients = silence.lock();
        assert!(clients.len() <= CLIENTS);
        assert!(
            clients
                .values()
                .all(|known| known.destinations.len() <= DESTINATIONS)
        );
    }
}
