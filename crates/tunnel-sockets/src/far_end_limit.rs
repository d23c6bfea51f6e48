//! The far end admits no more tunnels, though the connection has room for them: they are used up on other connections of the same key, or
//! the bound was lowered meanwhile. Who was answered early and asks then is reset, so that new connections are to do without for a while.

use crate::driver::{Driver, Part};
use bentpipe_base::Instant;
use bentpipe_connect_tcp::DialError;
use bentpipe_tunnel::TunnelId;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How long new connections do without, at first and at most, until one is tried again.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// Between two lines of the log.
const WARN: Duration = Duration::from_secs(60);

/// What new connections do: all take tunnels, none does, or the next one alone does.
const ADMITS: u8 = 0;
const REACHED: u8 = 1;
const TRIES: u8 = 2;

/// For the threads that have new connections.
#[derive(Debug, Default)]
pub(crate) struct Admission(AtomicU8);

impl Admission {
    /// Whether a tunnel may be asked for.
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != REACHED
    }

    /// Whether a new connection may take a tunnel; whether it is the only one, which the driver has to note.
    pub(crate) fn admit(&self) -> (bool, bool) {
        let order = Ordering::Relaxed;
        match self.0.compare_exchange(TRIES, REACHED, order, order) {
            Ok(_) => (true, true),
            Err(state) => (state == ADMITS, false),
        }
    }
}

/// What the far end has said of it, and since when that is to be doubted.
#[derive(Debug, Default)]
pub(crate) struct FarEndLimit {
    /// Tunnels of this end that it admits; `None`: no bound is known.
    most: Option<usize>,
    pause: Duration,
    /// When one more is tried.
    until: Instant,
    /// The next new connection is to try; one does, and has yet to ask; and its tunnel.
    offered: bool,
    expected: bool,
    tried: Option<TunnelId>,
    warned: Option<Instant>,
    warned_of_routes: Option<Instant>,
    pub(crate) admission: Arc<Admission>,
}

impl FarEndLimit {
    /// A tunnel was refused for it, beside which this end has `own`; whether the log is to tell.
    fn refused(&mut self, tunnel: TunnelId, own: usize, now: Instant) -> bool {
        if now < self.until && self.tried != Some(tunnel) && self.most.is_some() {
            // It was asked for before the first was refused.
            self.most = self.most.map(|most| most.min(own));
            return false;
        }
        let goes_on = self.most.is_some() || now.since(self.until) <= PAUSE_MOST;
        self.pause = if goes_on { self.pause * 2 } else { PAUSE };
        self.pause = self.pause.clamp(PAUSE, PAUSE_MOST);
        (self.most, self.until) = (Some(own), now + self.pause);
        (self.offered, self.expected, self.tried) = (false, false, None);
        warns(&mut self.warned, now)
    }

    /// A tunnel was answered otherwise.
    fn admitted(&mut self, tunnel: TunnelId) {
        if self.tried == Some(tunnel) {
            self.forget();
        }
    }

    /// A tunnel is asked for: the first after a pause is the one that is tried, and others do without until it is answered.
    pub(crate) fn asked(&mut self, tunnel: TunnelId, now: Instant) {
        if self.most.is_some() && (self.expected || self.until <= now) {
            (self.tried, self.until) = (Some(tunnel), now + self.pause);
            (self.offered, self.expected) = (false, false);
        }
    }

    /// It is another connection from now on, or another far end.
    pub(crate) fn forget(&mut self) {
        (self.most, self.tried) = (None, None);
        (self.offered, self.expected) = (false, false);
        self.admission.0.store(ADMITS, Ordering::Relaxed);
    }

    /// Tells what new connections do while this end has `own` tunnels.
    fn tell(&mut self, own: usize, now: Instant) {
        let state = if self.most.is_none_or(|most| own < most) {
            ADMITS
        } else if now < self.until {
            REACHED
        } else if !self.offered {
            self.offered = true;
            TRIES
        } else if self.admission.is_open() {
            return;
        } else {
            // A client that is answered early may never ask.
            (self.offered, self.expected) = (false, true);
            self.until = now + self.pause;
            REACHED
        };
        self.admission.0.store(state, Ordering::Relaxed);
    }

    /// When one more is tried.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Some(self.until).filter(|_| !self.admission.is_open())
    }
}

/// Whether the log is to tell once more of what it was told of then.
fn warns(warned: &mut Option<Instant>, now: Instant) -> bool {
    let warns = warned.is_none_or(|at| now.since(at) >= WARN);
    if warns {
        *warned = Some(now);
    }
    warns
}

impl Driver {
    /// Near: the far end has answered for a tunnel, which is gone where it failed.
    pub(crate) fn heed_limit(&mut self, tunnel: TunnelId, answer: Result<(), DialError>) {
        let (own, now) = (self.open(), self.now());
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        let own = own + asking.reserved();
        if answer == Err(DialError::Unroutable) && warns(&mut asking.limit.warned_of_routes, now) {
            tracing::warn!(
                "the far end has no route to where clients connect to, as where its host has no IPv6: a policy with `action = \"bypass\"` has that pass end to end"
            );
        }
        if answer != Err(DialError::Limit) {
            asking.limit.admitted(tunnel);
        } else if asking.limit.refused(tunnel, own, now) {
            tracing::warn!(
                tunnels = own,
                "the far end admits no more tunnels of this key: new connections do without"
            );
        }
        self.tell_limit();
    }

    /// Near: other threads are told whether new connections do without, which changes with time and with each tunnel that begins or ends.
    pub(crate) fn tell_limit(&mut self) {
        let (own, now) = (self.open(), self.now());
        if let Part::Near(asking) = &mut self.part {
            let reserved = asking.reserved();
            asking.limit.tell(own + reserved, now);
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

    /// Whether new connections, so many of them, take tunnels while this end has `own`.
    fn admitted(limit: &mut FarEndLimit, own: usize, now: u64) -> [bool; 3] {
        limit.tell(own, at(now));
        [(); 3].map(|()| limit.admission.admit().0)
    }

    const NONE: [bool; 3] = [false; 3];
    const ONE: [bool; 3] = [true, false, false];
    const ALL: [bool; 3] = [true; 3];

    /// One that ends makes room. After a pause one more is tried, and the pause doubles while that is refused.
    #[test]
    fn one_is_tried_after_a_pause_that_doubles() {
        let limit = &mut FarEndLimit::default();
        assert_eq!(admitted(limit, 9, 100), ALL);
        assert!(limit.refused(tunnel(1), 5, at(100)));
        assert!(!limit.refused(tunnel(2), 4, at(100)));
        assert_eq!(admitted(limit, 4, 100), NONE);
        assert_eq!(admitted(limit, 3, 100), ALL);
        let (mut now, mut pauses) = (102, Vec::new());
        for number in 3..10 {
            assert_eq!(admitted(limit, 4, now), ONE);
            limit.asked(tunnel(number), at(now));
            assert_eq!(admitted(limit, 5, now), NONE);
            limit.refused(tunnel(number), 4, at(now));
            let begun = now;
            now = limit.until.since(Instant::ZERO).as_secs();
            pauses.push(now - begun);
        }
        assert_eq!(pauses, [4, 8, 16, 30, 30, 30, 30]);
        assert_eq!(admitted(limit, 4, now), ONE);
        limit.asked(tunnel(10), at(now));
        limit.admitted(tunnel(2));
        assert_eq!(admitted(limit, 5, now), NONE, "it was asked for before");
        limit.admitted(tunnel(10));
        assert_eq!(admitted(limit, 5, now), ALL);
        // Long afterwards it begins anew.
        limit.refused(tunnel(11), 5, at(now + 100));
        assert_eq!(admitted(limit, 5, now + 101), NONE);
        assert_eq!(admitted(limit, 5, now + 102), ONE);
    }

    /// Who is to try and never asks keeps others from it for a pause.
    #[test]
    fn who_tries_and_does_not_ask_is_not_waited_for_longer_than_a_pause() {
        let limit = &mut FarEndLimit::default();
        limit.refused(tunnel(1), 0, at(100));
        for now in [102, 104, 106] {
            assert_eq!(admitted(limit, 0, now), ONE);
            assert_eq!(admitted(limit, 0, now), NONE);
            assert_eq!(admitted(limit, 0, now + 1), NONE);
        }
        // And one that asks late is heeded.
        limit.asked(tunnel(2), at(107));
        limit.admitted(tunnel(2));
        assert_eq!(admitted(limit, 0, 107), ALL);
    }
}
