//! What waits in buffers and pipes for all flows together, the bound on it, and whose it is.
//!
//! The kernel is asked now and then what all of its TCP holds together, and where that may be too much, what our
//! connections do (sock_diag, by the gateway's marks); the workers tell what their pipes hold. Between two looks flows that stand may fill their own buffers: the bound keeps new ones
//! out. From half of it on memory is short: the workers look for flows whose receivers take nothing
//! (`worker::stalled`) and tell what those hold, client by client. What a client so holds beyond its share
//! is about to be taken from it, and keeps nobody out.

use bentpipe_base::{Bytes, Instant};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the kernel is asked, at most.
pub const LOOK: Duration = Duration::from_millis(250);
/// How often at least, whatever it costs.
pub const SELDOM: Duration = Duration::from_secs(2);
/// Of the time, one part in so many may be spent on asking.
pub const SHARE: u32 = 200;

/// How long it takes to find out whose flows stand still, with a margin: only then is the bound said to be met.
const WHOSE: Duration = Duration::from_secs(4);

/// A client: an address, or where IPv6 gives each host a network of its own, that network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        })
    }
}

/// What the stalled flows of each client hold, in bytes.
pub(crate) type Claims = HashMap<Client, u64>;

/// What waits for all flows of a gateway.
#[derive(Debug)]
pub struct Load {
    /// By worker, in bytes.
    pipes: Vec<AtomicU64>,
    /// By worker.
    claims: Mutex<Vec<Claims>>,
    /// At the last look, in bytes.
    held: AtomicU64,
    bound: AtomicU64,
    /// Of one client, in bytes.
    client_bound: AtomicU64,
    short: AtomicBool,
    over: AtomicBool,
    /// Since when the bound is met, in nanoseconds; 0: it is not.
    met: AtomicU64,
}

impl Load {
    pub(crate) fn new(bound: Bytes, workers: usize) -> Self {
        Self {
            pipes: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            claims: Mutex::new(vec![Claims::new(); workers]),
            held: AtomicU64::new(0),
            bound: AtomicU64::new(bound.0),
            client_bound: AtomicU64::new(bound.0 / 4),
            short: AtomicBool::new(false),
            over: AtomicBool::new(false),
            met: AtomicU64::new(0),
        }
    }

    /// Worker number `worker` holds `bytes` in pipes and memory.
    pub(crate) fn worker_holds(&self, worker: usize, bytes: u64) {
        if let Some(pipes) = self.pipes.get(worker) {
            pipes.store(bytes, Ordering::Relaxed);
        }
    }

    /// What stalled flows of worker number `worker` hold; returns that of all workers, and how much of it
    /// a client may.
    pub(crate) fn claim(&self, worker: usize, claims: Claims) -> (Claims, u64) {
        let mut all = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = claims;
        }
        self.sum(&all)
    }

    /// All claims by client, and the share of one.
    fn sum(&self, all: &[Claims]) -> (Claims, u64) {
        let mut sum = Claims::new();
        for (client, bytes) in all.iter().flatten() {
            *sum.entry(*client).or_default() += bytes;
        }
        let share = self.share(sum.len());
        (sum, share)
    }

    /// What one of `clients` with stalled flows may hold: its bound, and never so much that with equal
    /// shares of all nothing would be left for others.
    fn share(&self, clients: usize) -> u64 {
        let fair = self.bound().0 / (clients as u64 + 1);
        self.client_bound.load(Ordering::Relaxed).min(fair)
    }

    /// What clients hold beyond their shares.
    fn excess(&self) -> u64 {
        let all = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, share) = self.sum(&all);
        sum.values().map(|bytes| bytes.saturating_sub(share)).sum()
    }

    /// Whether memory would be far from short even if all that TCP of this machine holds were ours. To know
    /// what is ours the kernel has to look at each connection of the machine, those in TIME_WAIT too.
    pub fn is_light(&self, all: Bytes) -> bool {
        let bound = self.bound().0;
        all.0.saturating_add(self.in_pipes()) <= bound / 2 - bound / 10
    }

    /// Bytes between the sockets of flows.
    pub fn in_pipes(&self) -> u64 {
        let pipes = self.pipes.iter().map(|pipes| pipes.load(Ordering::Relaxed));
        pipes.sum()
    }

    /// At `now` the kernel holds `sockets` in the buffers of flows.
    pub(crate) fn weigh(&self, sockets: Bytes, now: Instant) {
        let held = sockets.0 + self.in_pipes();
        self.held.store(held, Ordering::Relaxed);
        let bound = self.bound.load(Ordering::Relaxed);
        // A tenth less: at a bound, nothing flaps with every look.
        let less = |on: bool, limit: u64| if on { limit - bound / 10 } else { limit };
        let short = held > less(self.is_short(), bound / 2);
        self.short.store(short, Ordering::Relaxed);
        // Above twice the bound there is no time to ask whose it is.
        let counted = held - self.excess().min(held.min(bound));
        let met = counted > less(self.is_over(), bound);
        let since = match (met, self.met.load(Ordering::Relaxed)) {
            (false, _) => 0,
            (true, 0) => now.as_nanos().max(1),
            (true, since) => since,
        };
        self.met.store(since, Ordering::Relaxed);
        let lasts = now.since(Instant::from_nanos(since)) >= WHOSE;
        let over = met && (lasts || self.is_over() || held > bound.saturating_mul(2));
        self.over.store(over, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How many share what is wanted.
    pub(crate) fn workers(&self) -> u64 {
        self.pipes.len().max(1) as u64
    }

    /// Whether flows whose receivers take nothing have to make do with less.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// What has to be given back at once: more than three quarters of the bound are in use.
    pub(crate) fn wanted(&self) -> u64 {
        let bound = self.bound().0;
        self.held().0.saturating_sub(bound - bound / 4)
    }

    /// What waits at the last look.
    pub fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    /// From that on new flows pass unsplit.
    pub fn bound(&self) -> Bytes {
        Bytes(self.bound.load(Ordering::Relaxed))
    }

    /// Other bounds, from the next look on: of all, and of one client; by default a quarter of it.
    pub(crate) fn set_bounds(&self, bound: Bytes, client: Option<Bytes>) {
        self.bound.store(bound.0, Ordering::Relaxed);
        let client = client.map_or(bound.0 / 4, |client| client.0);
        self.client_bound.store(client, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::of([192, 0, 2, last].into())
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(100 + seconds)
    }

    #[test]
    fn the_bound_is_met_and_left_well_below() {
        let load = Load::new(Bytes(1000), 2);
        load.worker_holds(0, 300);
        load.worker_holds(1, 200);
        load.weigh(Bytes(500), at(0));
        assert!(!load.is_over() && load.held() == Bytes(1000));
        load.weigh(Bytes(501), at(1));
        assert!(!load.is_over(), "whose it is has yet to be found out");
        load.weigh(Bytes(501), at(5));
        assert!(load.is_over());
        load.worker_holds(0, 200);
        load.weigh(Bytes(501), at(6));
        assert!(load.is_over(), "{:?} is not well below", load.held());
        load.weigh(Bytes(500), at(7));
        assert!(!load.is_over());
        load.set_bounds(Bytes(899), None);
        load.weigh(Bytes(500), at(8));
        assert!(!load.is_over());
        load.weigh(Bytes(500), at(12));
        assert!(load.is_over());
    }

    #[test]
    fn memory_is_short_from_half_the_bound_on() {
        let load = Load::new(Bytes(1000), 1);
        for (held, short) in [(500, false), (501, true), (401, true), (400, false)] {
            load.weigh(Bytes(held), at(0));
            assert_eq!(load.is_short(), short, "{held}");
        }
        load.weigh(Bytes(751), at(0));
        assert_eq!(load.wanted(), 1);
    }

    #[test]
    fn what_is_light_is_never_short() {
        let load = Load::new(Bytes(1000), 1);
        load.worker_holds(0, 100);
        load.weigh(Bytes(500), at(0));
        assert!(load.is_short());
        assert!(load.is_light(Bytes(300)) && !load.is_light(Bytes(301)));
        assert!(!load.is_light(Bytes(u64::MAX)));
        load.weigh(Bytes(300), at(1));
        assert!(!load.is_short());
    }

    #[test]
    fn what_a_client_holds_beyond_its_share_keeps_nobody_out() {
        let load = Load::new(Bytes(1000), 2);
        let over = |held| {
            load.weigh(Bytes(held), at(0));
            load.weigh(Bytes(held), at(4));
            load.is_over()
        };
        let (_, share) = load.claim(0, [(client(1), 600)].into());
        assert_eq!(share, 250);
        let (all, share) = load.claim(1, [(client(1), 200), (client(2), 50)].into());
        assert_eq!((all[&client(1)], share), (800, 250));
        assert!(!over(1550), "550 of the 1550 are about to be taken");
        assert!(over(1551), "others hold the bound");
        load.claim(0, Claims::new());
        assert!(over(901), "nobody is over a share");
        // Each of nine has no more than a tenth.
        let nine = (0..9).map(|last| (client(last), 500)).collect();
        let (_, share) = load.claim(0, nine);
        assert_eq!(share, 100);
        assert!(!over(1899));
        load.weigh(Bytes(2001), at(5));
        assert!(load.is_over(), "twice the bound is too much whosever it is");
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let of = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
