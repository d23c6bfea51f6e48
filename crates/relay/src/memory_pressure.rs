//! How much waits in buffers and pipes for all flows together, the bound on that, and which clients hold it.
//!
//! The supervising thread asks the kernel from time to time how much memory all of its TCP uses and, where that may be
//! too much, how much the gateway's own connections use (sock_diag, by their marks); workers report what their pipes
//! hold. At the bound new flows pass unsplit; established flows may still fill their own buffers between two looks.
//! From half of the bound on the gateway is under memory pressure: workers look for flows whose receivers take nothing
//! (`worker::stalled_flows`) and report how much these hold, by client. What a client's stalled flows hold beyond its share
//! will be freed soon, and does not keep new flows out.

use crate::client_identity::Client;
use bentpipe_base::{Bytes, Instant};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The shortest interval between two questions to the kernel.
pub const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// The longest interval, whatever a question costs.
pub const MAX_INTERVAL: Duration = Duration::from_secs(2);
/// Asking the kernel may take at most one part in so many of the time.
pub const TIME_SHARE: u32 = 200;

/// How long it takes to find out whose flows are stalled, with a margin; the bound counts as met only after that.
const WHOSE: Duration = Duration::from_secs(4);

/// How much the stalled flows of each client hold, in bytes.
pub(crate) type StalledBytes = HashMap<Client, u64>;

/// What the stalled flows of all workers hold, as one worker sees it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StalledShares {
    /// By client.
    pub(crate) bytes: StalledBytes,
    /// What one client may hold.
    pub(crate) share: u64,
    /// Clients that have stalled flows at a worker of a lower number. Each client keeps one of its flows longer than the others:
    /// the worker of the lowest number leaves it.
    pub(crate) elsewhere: HashSet<Client>,
}

/// What a carrier keeps of a connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarriedBytes {
    /// Of what goes from its leg to the socket of this machine.
    pub received: u64,
    /// Of what the socket has handed over.
    pub sent: u64,
}

/// What a carrier keeps, by connection: the addresses of its socket on this machine, its own first.
pub type CarriedConnections = HashMap<(SocketAddr, SocketAddr), CarriedBytes>;

/// How much waits in the buffers of all flows of a gateway.
#[derive(Debug)]
pub struct MemoryPressure {
    /// By worker, in bytes.
    pipes: Vec<AtomicU64>,
    /// What carries a leg in the place of the kernel's TCP keeps so many bytes.
    carrier: AtomicU64,
    /// The same by connection, while memory is short.
    carried: Mutex<Arc<CarriedConnections>>,
    /// What flows of each worker hold, by worker.
    claims: Mutex<Vec<StalledBytes>>,
    /// What all held at the last look, in bytes.
    held: AtomicU64,
    bound: AtomicU64,
    /// What flows of one client may hold, in bytes.
    client_bound: AtomicU64,
    under_pressure: AtomicBool,
    over: AtomicBool,
    /// Since when the bound is met, in nanoseconds; 0: it is not.
    met: AtomicU64,
}

impl MemoryPressure {
    pub(crate) fn new(bound: Bytes, workers: usize) -> Self {
        Self {
            pipes: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            carrier: AtomicU64::new(0),
            carried: Mutex::default(),
            claims: Mutex::new(vec![StalledBytes::new(); workers]),
            held: AtomicU64::new(0),
            bound: AtomicU64::new(bound.0),
            client_bound: AtomicU64::new(bound.0 / 4),
            under_pressure: AtomicBool::new(false),
            over: AtomicBool::new(false),
            met: AtomicU64::new(0),
        }
    }

    /// Worker number `worker` holds `bytes` in pipes and memory.
    pub(crate) fn set_worker_usage(&self, worker: usize, bytes: u64) {
        if let Some(pipes) = self.pipes.get(worker) {
            pipes.store(bytes, Ordering::Relaxed);
        }
    }

    /// What carries a leg in the place of the kernel's TCP keeps `bytes`.
    pub fn set_carrier_usage(&self, bytes: Bytes) {
        self.carrier.store(bytes.0, Ordering::Relaxed);
    }

    /// The same by connection: of one that it keeps nothing of it tells nothing.
    pub fn set_carried(&self, carried: CarriedConnections) {
        *self.carried.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(carried);
    }

    pub(crate) fn carried(&self) -> Arc<CarriedConnections> {
        let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&carried)
    }

    /// What stalled flows of worker number `worker` hold; returns that of all workers.
    pub(crate) fn report_stalled(&self, worker: usize, claims: StalledBytes) -> StalledShares {
        let mut all = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = claims;
        }
        let (bytes, share) = self.sum(&all);
        let lower = all.iter().take(worker).flat_map(HashMap::keys);
        StalledShares {
            bytes,
            share,
            elsewhere: lower.copied().collect(),
        }
    }

    /// All claims by client, and the share of one.
    fn sum(&self, all: &[StalledBytes]) -> (StalledBytes, u64) {
        let mut sum = StalledBytes::new();
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

    /// How much stalled flows hold beyond the shares of their clients.
    fn excess(&self) -> u64 {
        let all = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, share) = self.sum(&all);
        sum.values().map(|bytes| bytes.saturating_sub(share)).sum()
    }

    /// Whether memory would be far from short even if all that TCP of this machine holds were ours. To know
    /// what is ours the kernel has to look at each connection of the machine, those in TIME_WAIT too.
    pub fn is_surely_low(&self, all: Bytes) -> bool {
        let bound = self.bound().0;
        all.0.saturating_add(self.in_process()) <= bound / 2 - bound / 10
    }

    /// Bytes between the sockets of flows, and between sockets and link.
    pub fn in_process(&self) -> u64 {
        let usage = self.pipes.iter().chain([&self.carrier]);
        usage.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// At `now` the kernel holds `sockets` in the buffers of flows.
    pub(crate) fn update(&self, sockets: Bytes, now: Instant) {
        let held = sockets.0 + self.in_process();
        self.held.store(held, Ordering::Relaxed);
        let bound = self.bound.load(Ordering::Relaxed);
        // A state ends only a tenth below the bound at which it begins (hysteresis), so that it does not flap.
        let less = |on: bool, limit: u64| if on { limit - bound / 10 } else { limit };
        let under_pressure = held > less(self.is_under_pressure(), bound / 2);
        self.under_pressure.store(under_pressure, Ordering::Relaxed);
        // Above twice the bound new flows pass whoever holds the memory.
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

    /// How many workers there are, which share what is to be reclaimed.
    pub(crate) fn workers(&self) -> u64 {
        self.pipes.len().max(1) as u64
    }

    /// Whether flows whose receivers take nothing have to make do with less.
    pub fn is_under_pressure(&self) -> bool {
        self.under_pressure.load(Ordering::Relaxed)
    }

    /// How many bytes one of `flows` has to hold for it to matter. What those with less hold is no more than an eighth of the bound,
    /// all together.
    pub(crate) fn worth_watching(&self, flows: usize) -> u64 {
        self.bound().0 / 8 / flows.max(1) as u64
    }

    /// How many bytes are to be reclaimed at once, because more than three quarters of the bound are in use.
    pub fn to_reclaim(&self) -> u64 {
        let bound = self.bound().0;
        self.held().0.saturating_sub(bound - bound / 4)
    }

    /// How much waited at the last look.
    pub fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    /// The bound, from which on new flows pass unsplit.
    pub fn bound(&self) -> Bytes {
        Bytes(self.bound.load(Ordering::Relaxed))
    }

    /// Sets other bounds, in force from the next look on: for all flows, and for one client, by default a quarter of
    /// that.
    pub(crate) fn set_bounds(&self, bound: Bytes, client: Option<Bytes>) {
        self.bound.store(bound.0, Ordering::Relaxed);
        let client = client.map_or(bound.0 / 4, |client| client.0);
        self.client_bound.store(client, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../tests/unit/memory_pressure.rs"]
mod tests;
