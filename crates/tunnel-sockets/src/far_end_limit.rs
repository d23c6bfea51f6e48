//! The far end admits no more tunnels, though the connection has room for them: they are used up on other connections of the same key, or
//! the bound was lowered meanwhile. Who was answered early and asks then is reset, so that new connections are to do without for a while.

use crate::driver::{Driver, Part};
use bentpipe_base::Instant;
use bentpipe_connect_tcp::DialError;
use bentpipe_tunnel::TunnelId;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long new connections do without, at first and at most, until one is tried again.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// Between two lines of the log.
const WARN: Duration = Duration::from_secs(60);

/// What the far end has said of it, and since when that is to be doubted.
#[derive(Debug, Default)]
pub(crate) struct FarEndLimit {
    /// Tunnels of this end that it admits; `None`: no bound is known.
    most: Option<usize>,
    pause: Duration,
    /// When one more is tried.
    until: Instant,
    /// The one that is tried.
    tried: Option<TunnelId>,
    warned: Option<Instant>,
    /// For other threads: new connections do without.
    pub(crate) reached: Arc<AtomicBool>,
}

impl FarEndLimit {
    /// A tunnel was refused for it, beside which this end has `own`; whether the log is to tell.
    fn refused(&mut self, tunnel: TunnelId, own: usize, now: Instant) -> bool {
        if now < self.until && self.tried != Some(tunnel) && self.most.is_some() {
            // It was asked for before the first was refused.
            self.most = self.most.map(|most| most.min(own));
            return false;
        }
        let goes_on = now.since(self.until) <= self.pause;
        self.pause = if goes_on { self.pause * 2 } else { PAUSE };
        self.pause = self.pause.clamp(PAUSE, PAUSE_MOST);
        (self.most, self.until, self.tried) = (Some(own), now + self.pause, None);
        let warns = self.warned.is_none_or(|at| now.since(at) >= WARN);
        if warns {
            self.warned = Some(now);
        }
        warns
    }

    /// A tunnel was answered otherwise.
    fn admitted(&mut self, tunnel: TunnelId) {
        if self.tried == Some(tunnel) {
            self.forget();
        }
    }

    /// A tunnel is asked for: the first after a pause is the one that is tried, and others do without until it is answered.
    pub(crate) fn asked(&mut self, tunnel: TunnelId, now: Instant) {
        if self.most.is_some() && self.until <= now {
            (self.tried, self.until) = (Some(tunnel), now + self.pause);
        }
    }

    /// It is another connection from now on, or another far end.
    pub(crate) fn forget(&mut self) {
        (self.most, self.tried) = (None, None);
        self.reached.store(false, Ordering::Relaxed);
    }

    /// Whether new connections do without, while this end has `own` tunnels.
    fn is_reached(&self, own: usize, now: Instant) -> bool {
        self.most.is_some_and(|most| own >= most) && now < self.until
    }

    /// When that is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Some(self.until).filter(|_| self.reached.load(Ordering::Relaxed))
    }
}

impl Driver {
    /// Near: the far end has answered for a tunnel, which is gone where it failed.
    pub(crate) fn heed_limit(&mut self, tunnel: TunnelId, answer: Result<(), DialError>) {
        let (own, now) = (self.open(), self.now());
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if answer != Err(DialError::Limit) {
            asking.limit.admitted(tunnel);
        } else if asking.limit.refused(tunnel, own + asking.reserved(), now) {
            let tunnels = own;
            tracing::warn!(
                tunnels,
                "the far end admits no more tunnels of this key: new connections do without"
            );
        }
        self.tell_limit();
    }

    /// Near: other threads are told whether new connections do without, which changes with time and with each tunnel that begins or ends.
    pub(crate) fn tell_limit(&mut self) {
        let (own, now) = (self.open(), self.now());
        if let Part::Near(asking) = &mut self.part {
            let reached = asking.limit.is_reached(own + asking.reserved(), now);
            asking.limit.reached.store(reached, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_quic::{ConnectionId, StreamId};

    const fn tunnel(number: u64) -> TunnelId {
        TunnelId {
            connection: ConnectionId::elsewhere(0),
            stream: StreamId(number),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// One that ends makes room for one. After a pause one more is tried, and the pause doubles while that is refused.
    #[test]
    fn one_is_tried_after_a_pause_that_doubles() {
        let mut limit = FarEndLimit::default();
        assert!(!limit.is_reached(9, at(100)));
        assert!(limit.refused(tunnel(1), 5, at(100)));
        assert!(!limit.refused(tunnel(2), 4, at(100)));
        assert!(limit.is_reached(4, at(100)) && !limit.is_reached(3, at(100)));
        let (mut now, mut pauses) = (101, Vec::new());
        for number in 3..10 {
            assert!(!limit.is_reached(4, at(now)));
            limit.asked(tunnel(number), at(now));
            assert!(limit.is_reached(5, at(now)), "others wait for its answer");
            limit.refused(tunnel(number), 4, at(now));
            let begun = now;
            while limit.is_reached(4, at(now)) {
                now += 1;
            }
            pauses.push(now - begun);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30, 30]);
        limit.asked(tunnel(10), at(now));
        limit.admitted(tunnel(2));
        assert!(limit.is_reached(5, at(now)), "it was asked for before");
        limit.admitted(tunnel(10));
        assert!(!limit.is_reached(5, at(now)));
        // Long afterwards it begins anew.
        limit.refused(tunnel(11), 5, at(now + 100));
        assert!(!limit.is_reached(5, at(now + 101)));
    }
}
