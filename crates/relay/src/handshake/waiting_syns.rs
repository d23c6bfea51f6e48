//! SYNs that wait until there is room for them, for a second at most.
//!
//! A host that is new may have few SYNs pending, and more with each connection that it confirms ([`super::Quotas`]). Of a hundred
//! that come at one moment most would pass unsplit, a round trip before there is room for all. So those beyond the
//! share wait here, undialled: a server sees no more connections of a forger than before. Whose SYN comes again has waited long
//! enough, and passes. Where clients have not confirmed of late nobody waits.

use super::QueuedPacket;
use bentpipe_base::Instant;
use bentpipe_gateway_config::Ends;
use std::collections::VecDeque;
use std::time::Duration;

/// How many may wait at all workers.
const PLACES: usize = 256;
/// How long a SYN waits whose client does not send it again.
const PATIENCE: Duration = Duration::from_secs(1);

/// A SYN that waits.
#[derive(Debug)]
pub(crate) struct WaitingSyn {
    pub(crate) ends: Ends,
    pub(crate) packet: QueuedPacket,
    /// The SYN as it came.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) since: Instant,
}

/// The SYNs that wait for one worker, in the order in which they came.
#[derive(Debug)]
pub(crate) struct WaitingSyns {
    waiting: VecDeque<WaitingSyn>,
    places: usize,
}

impl WaitingSyns {
    /// That of one of `tables` workers.
    pub(crate) fn new(tables: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            places: PLACES.div_ceil(tables),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.places
    }

    pub(crate) fn enter(&mut self, syn: WaitingSyn) {
        self.waiting.push_back(syn);
    }

    /// The place of the first whose ends are such.
    pub(crate) fn place_of(&self, is_such: impl Fn(&Ends) -> bool) -> Option<usize> {
        self.waiting.iter().position(|syn| is_such(&syn.ends))
    }

    /// The SYN at `place`, which waits no longer.
    pub(crate) fn leave(&mut self, place: usize) -> Option<WaitingSyn> {
        self.waiting.remove(place)
    }

    /// The first that has waited long enough.
    pub(crate) fn late(&mut self, now: Instant) -> Option<WaitingSyn> {
        let first = self.waiting.front()?;
        let is_late = now.since(first.since) >= PATIENCE;
        is_late.then(|| self.waiting.pop_front()).flatten()
    }

    /// All of them.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = WaitingSyn> + use<> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}
