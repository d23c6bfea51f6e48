//! Counts flows, and compares the count with its bounds.
//!
//! Workers count; the supervising thread sets the bounds and decides by both. A bound that is crossed must not go
//! unnoticed while the bounds change: either the worker sees the new bound and wakes the supervising thread, or that
//! thread, which looks at the count after it has set the bound, sees the flow. The fences exclude that each sees what
//! was before. `tests/flow_limit.rs` tries every order
//! that the memory model allows.

use super::sync::{AtomicUsize, Ordering, fence};

/// The bounds on the number of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBounds {
    /// At this many, new flows are no longer intercepted.
    pub suspend: usize,
    /// At this many or fewer, they are again.
    pub resume: usize,
    /// Connections that were intercepted before the suspension took hold are still taken up to
    /// this many.
    pub hard: usize,
}

/// The number of flows, and its bounds.
#[derive(Debug)]
pub(crate) struct FlowCounter {
    flows: AtomicUsize,
    suspend: AtomicUsize,
    resume: AtomicUsize,
    hard: AtomicUsize,
}

/// What the end of a flow makes possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// So few flows are left that interception may begin again.
    pub(crate) resumes: bool,
    /// There is room for connections that may be waiting at any worker.
    pub(crate) has_room: bool,
}

impl FlowCounter {
    pub(crate) fn new(bounds: FlowBounds) -> Self {
        Self {
            flows: AtomicUsize::new(0),
            suspend: AtomicUsize::new(bounds.suspend),
            resume: AtomicUsize::new(bounds.resume),
            hard: AtomicUsize::new(bounds.hard),
        }
    }

    /// Sets other bounds. The caller must look at the number of flows afterwards, see the head of this file.
    pub(crate) fn set(&self, bounds: FlowBounds) {
        self.suspend.store(bounds.suspend, Ordering::Relaxed);
        self.resume.store(bounds.resume, Ordering::Relaxed);
        self.hard.store(bounds.hard, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn bounds(&self) -> FlowBounds {
        FlowBounds {
            suspend: self.suspend.load(Ordering::Relaxed),
            resume: self.resume.load(Ordering::Relaxed),
            hard: self.hard.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }

    /// Counts one more flow; returns whether it reached the bound at which interception stops.
    pub(crate) fn began(&self) -> bool {
        let flows = self.flows.fetch_add(1, Ordering::Relaxed) + 1;
        fence(Ordering::SeqCst);
        flows == self.suspend.load(Ordering::Relaxed)
    }

    /// Counts one flow less.
    pub(crate) fn ended(&self) -> Ended {
        let flows = self.flows.fetch_sub(1, Ordering::Relaxed) - 1;
        fence(Ordering::SeqCst);
        Ended {
            resumes: flows == self.resume.load(Ordering::Relaxed),
            has_room: flows + 1 == self.hard.load(Ordering::Relaxed),
        }
    }

    /// How many more flows fit below the bound at which interception stops.
    pub(crate) fn left(&self) -> usize {
        let bound = self.suspend.load(Ordering::Relaxed);
        bound.saturating_sub(self.flows())
    }

    /// Whether the bound at which interception stops is reached.
    pub(crate) fn is_met(&self) -> bool {
        self.flows() >= self.suspend.load(Ordering::Relaxed)
    }

    /// Whether so few are left that interception may begin again.
    pub(crate) fn is_left(&self) -> bool {
        self.flows() <= self.resume.load(Ordering::Relaxed)
    }

    /// Whether one more connection may be taken.
    pub(crate) fn is_there(&self) -> bool {
        self.flows() < self.hard.load(Ordering::Relaxed)
    }
}
