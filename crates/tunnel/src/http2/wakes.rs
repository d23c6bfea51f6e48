//! What HTTP/2 wakes: the connection, and each of its streams, by number.

use core::task::Waker;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// Stands for the connection itself.
pub(crate) const CONNECTION: u64 = 0;

/// Those that were woken and had no turn yet.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Mutex<BTreeSet<u64>>);

struct Bell {
    wakes: Arc<Wakes>,
    number: u64,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wakes.ring(self.number);
    }
}

impl Wakes {
    pub(crate) fn ring(&self, number: u64) {
        let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        woken.insert(number);
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    pub(crate) fn take(&self) -> BTreeSet<u64> {
        let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut *woken)
    }

    /// Wakes what `number` stands for.
    pub(crate) fn waker(self: &Arc<Self>, number: u64) -> Waker {
        let wakes = Arc::clone(self);
        Waker::from(Arc::new(Bell { wakes, number }))
    }
}
