//! A near end's second carrier: HTTP/2 over TCP, kept beside QUIC for when UDP does not get through.
//!
//! The TCP connection stands all the time, and is asked for a sign of life each minute. Where UDP is found blocked (`udp_health`), what QUIC
//! carries is reset, for a TCP connection cannot go on by another carrier, and new flows take TCP; QUIC is tried again all the time, and
//! carries new flows as soon as it answers. Where UDP is policed, what QUIC carries stays there, and new flows take TCP for a while.

use crate::driver::{Driver, Part};
use crate::tcp_port::Dialled;
use bentpipe_base::Instant;
use bentpipe_quic::ConnectionId;
use core::time::Duration;

/// Between two signs of life of the TCP connection.
const STANDBY: Duration = Duration::from_secs(60);
/// Between two tries to connect, at first and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// How long new flows keep off QUIC where the far end wants none there, at first and at most.
const KEEP_OFF: Duration = Duration::from_secs(30);
const KEEP_OFF_MOST: Duration = Duration::from_secs(3600);

/// Who has found UDP policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policed {
    /// This end: what it sends is. It lasts as long as the limit of the pace.
    ByNear,
    /// The far end. It lasts until then.
    ByFar(Instant),
}

/// The second carrier of a near end.
#[derive(Debug)]
pub(crate) struct FallBack {
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) ready: bool,
    /// What had come on it when QUIC or itself was found silent, until more has: it may be as silent.
    doubted: Option<u64>,
    /// UDP does not get through.
    pub(crate) blocked: bool,
    /// QUIC has not answered twice: new flows had better not take it.
    pub(crate) suspects: bool,
    policed: Option<Policed>,
    /// How long the far end's word is heeded next, and until when it was.
    keep_off: Duration,
    kept_off: Option<Instant>,
    again: Instant,
    pause: Duration,
    /// When the TCP connection is to be asked.
    standby: Instant,
}

impl Default for FallBack {
    fn default() -> Self {
        Self {
            connection: None,
            ready: false,
            doubted: None,
            blocked: false,
            suspects: false,
            policed: None,
            keep_off: KEEP_OFF,
            kept_off: None,
            again: Instant::ZERO,
            pause: RETRY,
            standby: Instant::ZERO,
        }
    }
}

impl FallBack {
    /// The connection, where it takes tunnels.
    pub(crate) fn stands(&self) -> Option<ConnectionId> {
        self.connection
            .filter(|_| self.ready && self.doubted.is_none())
    }

    /// Whether new flows take it, though QUIC stands.
    pub(crate) const fn is_preferred(&self) -> bool {
        self.ready && (self.suspects || self.policed.is_some())
    }

    /// UDP gets through, and not all of it.
    pub(crate) const fn is_policed(&self) -> bool {
        self.policed.is_some()
    }

    /// The far end wants no more tunnels on QUIC, while it takes them here.
    pub(crate) fn declined(&mut self, now: Instant) {
        if !self.ready {
            return;
        }
        self.keep_off = match self.kept_off {
            Some(until) if now.since(until) < self.keep_off * 2 => {
                (self.keep_off * 2).min(KEEP_OFF_MOST)
            }
            _ => KEEP_OFF,
        };
        let until = now + self.keep_off;
        self.kept_off = Some(until);
        self.policed = Some(Policed::ByFar(until));
    }

    /// When QUIC is to be tried again that the far end has declined.
    const fn tries_at(&self) -> Option<Instant> {
        match self.policed {
            Some(Policed::ByFar(until)) => Some(until),
            _ => None,
        }
    }

    /// QUIC stands anew.
    pub(crate) const fn quic_stands(&mut self) {
        (self.blocked, self.suspects, self.policed) = (false, false, None);
    }

    /// It takes tunnels, or no more.
    pub(crate) const fn set_ready(&mut self, ready: bool) {
        self.ready = ready;
        if ready {
            self.pause = RETRY;
        } else {
            // It shuts down altogether.
            self.policed = None;
        }
    }

    /// Its connection is gone.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.connection = None;
        (self.ready, self.doubted) = (false, None);
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY_MOST);
    }
}

impl Driver {
    pub(crate) const fn is_near(&self) -> bool {
        matches!(self.part, Part::Near(_))
    }

    /// When a near end's second carrier wants something.
    pub(crate) fn fall_back_at(&self) -> Option<Instant> {
        let Part::Near(asking) = &self.part else {
            return None;
        };
        if !self.tcp.is_wanted() {
            return None;
        }
        let fall = &asking.fall_back;
        let dial = (fall.connection.is_none() && !self.dials_http2()).then_some(fall.again);
        let standby = fall.ready.then_some(fall.standby);
        [dial, standby, fall.tries_at()].into_iter().flatten().min()
    }

    /// Near: keeps the second carrier, and tries the first again that was declined.
    pub(crate) fn fall_back(&mut self, now: Instant) {
        let dials = self.dials_http2();
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if !self.tcp.is_wanted() {
            return;
        }
        let peer = asking.peer();
        let fall = &mut asking.fall_back;
        if let Some(connection) = fall.connection {
            if fall.ready && fall.standby <= now {
                fall.standby = now + STANDBY;
                self.side.http2.ping(connection);
            }
            let received = self.side.received(connection);
            if fall.doubted.take_if(|before| *before != received).is_some() {
                asking.tell();
            }
        } else if dials {
            match self.dialled_http2(now) {
                Dialled::Waits => {}
                Dialled::Stands(connection) => self.stand_by(Some(connection), now),
                Dialled::Failed(why) => {
                    tracing::debug!(%why, "the far end is not reached by TCP");
                    self.stand_by(None, now);
                }
            }
        } else if fall.again <= now && self.dial_http2(peer, now).is_err() {
            self.stand_by(None, now);
        }
        if let Part::Near(asking) = &mut self.part
            && { asking.fall_back.tries_at() }.is_some_and(|at| at <= now)
        {
            asking.try_quic_again(now);
        }
        self.end_old_connections(now);
    }

    /// Near: what QUIC carried before it was tried again ends with its last tunnel.
    fn end_old_connections(&mut self, now: Instant) {
        let Part::Near(asking) = &self.part else {
            return;
        };
        let old = self.connections.keys().copied().find(|&id| {
            !id.is_elsewhere() && !asking.has_connection(id) && self.side.tunnels(id) == 0
        });
        if let Some(old) = old {
            self.connections.remove(&old);
            self.udp_health.remove(&old);
            self.side.close(old, "another carries now", now);
        }
    }

    fn stand_by(&mut self, connection: Option<ConnectionId>, now: Instant) {
        if let Part::Near(asking) = &mut self.part {
            let fall = &mut asking.fall_back;
            match connection {
                Some(_) => fall.connection = connection,
                None => fall.disconnected(now),
            }
        }
    }

    /// Near: QUIC is gone without a word. Where that is the link, TCP does not answer either.
    pub(crate) fn doubt_http2(&mut self) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        let fall = &mut asking.fall_back;
        if let Some(connection) = fall.stands() {
            fall.doubted = Some(self.side.received(connection));
            self.side.ping(connection);
            asking.tell();
        }
    }

    /// Near: the TCP connection does not answer.
    pub(crate) fn doubt_tcp(&mut self, silent: ConnectionId) {
        if let Part::Near(asking) = &mut self.part
            && asking.fall_back.stands() == Some(silent)
        {
            asking.fall_back.doubted = Some(self.side.received(silent));
            asking.tell();
        }
    }

    /// Near: UDP does not get through, as far as can be told.
    pub(crate) fn note_blocked(&mut self) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.fall_back.stands().is_some() && !asking.fall_back.blocked {
            asking.fall_back.blocked = true;
            self.counters.fall_backs += 1;
            tracing::warn!(
                "the far end answers by TCP and not by UDP: new connections take HTTP/2"
            );
        }
    }
    /// Near: what this end sends by UDP is policed.
    pub(crate) fn note_policed(&mut self, quic: ConnectionId) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        let fall = &mut asking.fall_back;
        if asking.connection == Some(quic) && fall.policed.is_none() {
            fall.policed = Some(Policed::ByNear);
            self.counters.fall_backs += u64::from(fall.ready);
        }
    }

    /// Near: it is not, or that is to be seen.
    pub(crate) fn note_unpoliced(&mut self, quic: ConnectionId) {
        if let Part::Near(asking) = &mut self.part
            && asking.connection == Some(quic)
            && asking.fall_back.policed == Some(Policed::ByNear)
        {
            asking.fall_back.policed = None;
        }
    }
}
