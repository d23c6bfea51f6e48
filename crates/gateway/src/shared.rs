//! What the workers and the gateway share: the stage of its life, how many flows there are, and
//! who is to be woken when that matters.

use bentpipe_os::epoll::Bell;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// No number of flows.
const NEVER: usize = usize::MAX;

/// Where the gateway stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// No new flows; those that stand go on.
    Draining,
    /// Whatever stands is reset.
    Stopped,
}

/// How many flows a gateway takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// At this many, new flows are no longer intercepted.
    pub(crate) suspend: usize,
    /// At this many or fewer, they are again.
    pub(crate) resume: usize,
    /// Connections that were intercepted before the suspension took hold are still taken up to
    /// this many.
    pub(crate) hard: usize,
}

#[derive(Debug)]
pub(crate) struct Shared {
    stage: AtomicU8,
    flows: AtomicUsize,
    bounds: Bounds,
    /// The flows there were when the kernel gave no more descriptors, whatever the bounds say;
    /// [`NEVER`] when it has not refused of late.
    exhausted_at: AtomicUsize,
    control_lost: AtomicBool,
    /// For each worker, neighbours that did not answer.
    silent: Vec<Mutex<Vec<IpAddr>>>,
    workers: Bell,
    gateway: Bell,
}

impl Shared {
    pub(crate) fn new(bounds: Bounds, workers: usize) -> io::Result<Self> {
        Ok(Self {
            stage: AtomicU8::new(0),
            flows: AtomicUsize::new(0),
            bounds,
            exhausted_at: AtomicUsize::new(NEVER),
            control_lost: AtomicBool::new(false),
            silent: (0..workers).map(|_| Mutex::default()).collect(),
            workers: Bell::new()?,
            gateway: Bell::new()?,
        })
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Stopped,
        }
    }

    /// Enters `stage` and wakes the workers.
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
        self.workers.ring();
    }

    /// Readable, edge-triggered, when a worker has something to look at.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.workers.as_fd()
    }

    /// Rings when the number of flows crosses a bound, when descriptors run out, and when a worker
    /// ends.
    pub(crate) fn gateway_bell(&self) -> &Bell {
        &self.gateway
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }

    pub(crate) fn flow_began(&self) {
        let flows = self.flows.fetch_add(1, Ordering::Relaxed) + 1;
        if flows == self.bounds.suspend {
            self.gateway.ring();
        }
    }

    pub(crate) fn flow_ended(&self) {
        let flows = self.flows.fetch_sub(1, Ordering::Relaxed) - 1;
        if flows == self.bounds.resume {
            self.gateway.ring();
        }
        if flows + 1 == self.bounds.hard {
            // Connections may wait for this room, at any of them.
            self.workers.ring();
        }
    }

    /// Whether one more connection may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.flows() < self.bounds.hard
    }

    /// Whether the kernel has refused a descriptor of late.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted_at.load(Ordering::Relaxed) != NEVER
    }

    /// Whether new flows should no longer be intercepted.
    pub(crate) fn should_suspend(&self) -> bool {
        self.flows() >= self.bounds.suspend || self.is_exhausted()
    }

    /// Whether new flows may be intercepted again.
    pub(crate) fn may_resume(&self) -> bool {
        let exhausted_at = self.exhausted_at.load(Ordering::Relaxed);
        // A few flows less than those that were one too many.
        let fits = exhausted_at.saturating_sub(exhausted_at / 20 + 2);
        self.flows() <= self.bounds.resume.min(fits)
    }

    /// The kernel refused a descriptor.
    pub(crate) fn out_of_descriptors(&self) {
        self.exhausted_at.store(self.flows(), Ordering::Relaxed);
        self.gateway.ring();
    }

    /// A leg's congestion control has gone from the kernel.
    pub(crate) fn control_lost(&self) {
        if !self.control_lost.swap(true, Ordering::Relaxed) {
            self.gateway.ring();
        }
    }

    /// Whether that was so since the last time.
    pub(crate) fn take_control_lost(&self) -> bool {
        self.control_lost.swap(false, Ordering::Relaxed)
    }

    /// Tells the workers of neighbours that did not answer.
    pub(crate) fn tell_silent(&self, neighbours: &[IpAddr]) {
        for mailbox in &self.silent {
            let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            mailbox.extend_from_slice(neighbours);
        }
        self.workers.ring();
    }

    /// The neighbours that worker number `worker` has been told of since the last time.
    pub(crate) fn take_silent(&self, worker: usize) -> Vec<IpAddr> {
        let Some(mailbox) = self.silent.get(worker) else {
            return Vec::new();
        };
        let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut mailbox)
    }

    /// Tries again after [`Shared::out_of_descriptors`].
    pub(crate) fn forget_exhaustion(&self) {
        if self.exhausted_at.swap(NEVER, Ordering::Relaxed) != NEVER {
            self.workers.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interception_stops_at_the_bound_and_resumes_well_below() {
        let bounds = Bounds {
            suspend: 4,
            resume: 2,
            hard: 5,
        };
        let shared = Shared::new(bounds, 1).unwrap();
        (0..3).for_each(|_| shared.flow_began());
        assert!(!shared.should_suspend() && !shared.gateway_bell().silence());
        shared.flow_began();
        assert!(shared.should_suspend() && shared.gateway_bell().silence());
        assert!(shared.has_room(), "what was intercepted already is taken");
        shared.flow_began();
        assert!(!shared.has_room());
        shared.flow_ended();
        shared.flow_ended();
        assert!(!shared.may_resume() && !shared.gateway_bell().silence());
        shared.flow_ended();
        assert!(shared.may_resume() && shared.gateway_bell().silence());

        shared.out_of_descriptors();
        assert!(shared.should_suspend() && shared.is_exhausted());
        assert!(
            !shared.may_resume(),
            "as many flows as when they were too many"
        );
        shared.forget_exhaustion();
        assert!(!shared.should_suspend() && shared.may_resume());
    }
}
