use crate::fast_open::FastOpenLimit;
use crate::table::ConnectionId;
use bentpipe_base::Instant;
use bentpipe_tcp as tcp;
use core::net::SocketAddr;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// For how long after the last cookie an acknowledgement may bring one back: longer than one is good.
const COOKIES_FOR: Duration = Duration::from_secs(128);

/// Names a listener of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) usize);

/// A port that connections may come to.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Where; an unspecified address means all of this host's of its family.
    pub(crate) at: SocketAddr,
    pub(crate) config: Arc<tcp::Config>,
    /// Handshakes under way at most, and connections that wait to be accepted.
    pub(crate) backlog: usize,
    pub(crate) half_open: HashSet<ConnectionId>,
    pub(crate) waiting: VecDeque<ConnectionId>,
    /// When a SYN was last answered by a cookie.
    pub(crate) cookie_sent: Option<Instant>,
    /// How many connections may be opened early.
    pub(crate) fast_open: FastOpenLimit,
}

impl Listener {
    /// Nobody accepts what waits.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }

    /// Too many handshakes are under way to keep another.
    pub(crate) fn is_crowded(&self) -> bool {
        self.half_open.len() >= self.backlog
    }

    pub(crate) fn expects_cookies(&self, now: Instant) -> bool {
        self.cookie_sent
            .is_some_and(|at| now.since(at) <= COOKIES_FOR)
    }
}
