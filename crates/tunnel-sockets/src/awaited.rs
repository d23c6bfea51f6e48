//! How many tunnels a near end has asked for that the far end has not answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those of all clients, and of each.
#[derive(Debug, Default)]
pub(crate) struct Awaited(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of_clients: HashMap<IpAddr, usize>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct AwaitedAnswer {
    client: Option<IpAddr>,
    of: Arc<Awaited>,
}

impl Awaited {
    /// One more; of `client`, where that is known.
    pub(crate) fn begin(self: &Arc<Self>, client: Option<IpAddr>) -> AwaitedAnswer {
        let mut counts = self.counts();
        counts.all += 1;
        if let Some(client) = client {
            *counts.of_clients.entry(client).or_default() += 1;
        }
        AwaitedAnswer {
            client,
            of: Arc::clone(self),
        }
    }

    /// Those of all, and those known to be of `client`.
    pub(crate) fn count(&self, client: IpAddr) -> (usize, usize) {
        let counts = self.counts();
        let own = counts.of_clients.get(&client).copied();
        (counts.all, own.unwrap_or_default())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing panics midway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        counts.all -= 1;
        if let Some(client) = self.client
            && let Some(own) = counts.of_clients.get_mut(&client)
        {
            *own -= 1;
            if *own == 0 {
                counts.of_clients.remove(&client);
            }
        }
    }
}
