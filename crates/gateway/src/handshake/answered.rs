//! Far sides that have accepted and wait for their clients.

use bentpipe_base::Instant;
use bentpipe_policy::Ends;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Dialled connections that stand, from the answer of the far side to that of the client; shared by
/// the porter, who puts them in, and the workers, who take them.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<HashMap<Ends, Far>>);

#[derive(Debug)]
struct Far {
    socket: OwnedFd,
    begun: Instant,
    until: Instant,
}

impl Answered {
    /// Keeps `socket`, whose client's SYN came at `begun`, for the client of `ends`, at the longest until [`Answered::expire`] is called
    /// after `until`.
    pub(crate) fn put(&self, ends: Ends, socket: OwnedFd, begun: Instant, until: Instant) {
        let far = Far {
            socket,
            begun,
            until,
        };
        self.map().insert(ends, far);
    }

    /// The client of `ends` is there; with the time when its SYN came.
    pub(crate) fn take(&self, ends: &Ends) -> Option<(OwnedFd, Instant)> {
        self.map().remove(ends).map(|far| (far.socket, far.begun))
    }

    pub(crate) fn has(&self, ends: &Ends) -> bool {
        self.map().contains_key(ends)
    }

    pub(crate) fn len(&self) -> usize {
        self.map().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map().is_empty()
    }

    /// Resets those whose clients have not come by `now`; says how many.
    pub(crate) fn expire(&self, now: Instant) -> usize {
        let mut map = self.map();
        let before = map.len();
        map.retain(|_, far| now < far.until);
        before - map.len()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Ends, Far>> {
        // Each call leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
