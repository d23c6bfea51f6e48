//! What waits in buffers and pipes for all flows together, and the bound on it.
//!
//! The kernel is asked now and then (sock_diag, by the gateway's marks), the workers tell what their
//! pipes hold. Between two looks flows that stand may fill their own buffers: the bound keeps new ones
//! out, and takes nothing from old ones.

use bentpipe_base::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often the kernel is asked, at most.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// Of the time, one part in so many may be spent on asking.
pub(crate) const SHARE: u32 = 200;

#[derive(Debug)]
pub(crate) struct Load {
    /// By worker, in bytes.
    pipes: Vec<AtomicU64>,
    /// At the last look, in bytes.
    held: AtomicU64,
    bound: AtomicU64,
    over: AtomicBool,
}

impl Load {
    pub(crate) fn new(bound: Bytes, workers: usize) -> Self {
        Self {
            pipes: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            held: AtomicU64::new(0),
            bound: AtomicU64::new(bound.0),
            over: AtomicBool::new(false),
        }
    }

    /// Worker number `worker` holds `bytes` in pipes and memory.
    pub(crate) fn worker_holds(&self, worker: usize, bytes: u64) {
        if let Some(pipes) = self.pipes.get(worker) {
            pipes.store(bytes, Ordering::Relaxed);
        }
    }

    /// The kernel holds `sockets` in the buffers of flows.
    pub(crate) fn weigh(&self, sockets: Bytes) {
        let pipes = self.pipes.iter().map(|pipes| pipes.load(Ordering::Relaxed));
        let held = sockets.0 + pipes.sum::<u64>();
        self.held.store(held, Ordering::Relaxed);
        let bound = self.bound.load(Ordering::Relaxed);
        // A tenth less: at the bound, interception does not flap with every look.
        let limit = match self.is_over() {
            true => bound - bound / 10,
            false => bound,
        };
        self.over.store(held > limit, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    pub(crate) fn bound(&self) -> Bytes {
        Bytes(self.bound.load(Ordering::Relaxed))
    }

    /// Another bound, from the next look on.
    pub(crate) fn set_bound(&self, bound: Bytes) {
        self.bound.store(bound.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_met_and_left_well_below() {
        let load = Load::new(Bytes(1000), 2);
        load.worker_holds(0, 300);
        load.worker_holds(1, 200);
        load.weigh(Bytes(500));
        assert!(!load.is_over() && load.held() == Bytes(1000));
        load.weigh(Bytes(501));
        assert!(load.is_over());
        load.worker_holds(0, 200);
        load.weigh(Bytes(501));
        assert!(load.is_over(), "{:?} is not well below", load.held());
        load.weigh(Bytes(500));
        assert!(!load.is_over());
        load.set_bound(Bytes(899));
        load.weigh(Bytes(500));
        assert!(load.is_over());
    }
}
