//! A near end's second carrier: HTTP/2 over TCP, kept beside QUIC for when UDP does not get through.
//!
//! The TCP connection stands all the time, and is asked for a sign of life each minute. While there are flows on QUIC and it is silent, it
//! is asked three times, a round trip each, and TCP beside it. TCP answers and QUIC does not: UDP is blocked; its flows are reset, for a
//! TCP connection cannot go on by another carrier, and new ones take TCP. Neither answers: the link is out, and nothing moves. QUIC is tried
//! again all the time, and carries new flows as soon as it answers.

use crate::driver::{Driver, Part};
use crate::tcp_port::Dialled;
use bentpipe_base::Instant;
use bentpipe_quic::ConnectionId;
use core::time::Duration;

/// Between two looks at QUIC, while there are flows on it, and while it is asked.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_ASKED: Duration = Duration::from_millis(50);
/// QUIC is asked after so long a silence.
const SILENCE: Duration = Duration::from_millis(300);
/// What an answer may take beyond its round trip.
const SLACK: Duration = Duration::from_millis(200);
/// How often it is asked.
const ROUNDS: u8 = 3;
/// Between two signs of life of the TCP connection.
const STANDBY: Duration = Duration::from_secs(60);
/// Between two tries to connect, at first and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// Whether QUIC answers.
#[derive(Debug, Default)]
struct Silence {
    /// What had come of it at the last look, and since when it is silent.
    received: u64,
    since: Instant,
    /// How often it was asked since; what had been sent when it was asked last, and when that was seen to have left.
    rounds: u8,
    sent: u64,
    left: Option<Instant>,
    /// What had come by TCP when that was asked.
    by_tcp: Option<u64>,
    /// Neither answered: the link was out.
    outage: bool,
}

/// The second carrier of a near end.
#[derive(Debug)]
pub(crate) struct FallBack {
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) ready: bool,
    /// UDP does not get through.
    pub(crate) blocked: bool,
    again: Instant,
    pause: Duration,
    /// When the TCP connection is to be asked.
    standby: Instant,
    silence: Silence,
    looked: Instant,
}

impl Default for FallBack {
    fn default() -> Self {
        Self {
            connection: None,
            ready: false,
            blocked: false,
            again: Instant::ZERO,
            pause: RETRY,
            standby: Instant::ZERO,
            silence: Silence::default(),
            looked: Instant::ZERO,
        }
    }
}

impl FallBack {
    /// Whether new flows had better not take QUIC: it has not answered twice.
    pub(crate) const fn suspects(&self) -> bool {
        self.ready && self.silence.rounds >= 2 && !self.silence.outage
    }

    /// When to look at QUIC next.
    fn look_at(&self) -> Instant {
        let asked = self.silence.rounds > 0 && !self.silence.outage;
        self.looked + if asked { LOOK_ASKED } else { LOOK }
    }

    /// It takes tunnels, or no more.
    pub(crate) const fn set_ready(&mut self, ready: bool) {
        self.ready = ready;
        if ready {
            self.pause = RETRY;
        }
    }

    /// Its connection is gone.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.connection = None;
        self.ready = false;
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
        let carries = { asking.quic() }.is_some_and(|quic| self.side.tunnels(quic) > 0);
        let look = (carries && fall.ready).then_some(fall.look_at());
        [dial, standby, look].into_iter().flatten().min()
    }

    /// Near: keeps the second carrier, and finds out whether the first is blocked.
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
        self.look_at_quic(now);
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

    /// Near: asks QUIC where it is silent, and TCP beside it.
    fn look_at_quic(&mut self, now: Instant) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        let (Some(quic), Some(tcp)) = (asking.quic(), asking.fall_back.connection) else {
            return;
        };
        let fall = &mut asking.fall_back;
        let Some(stats) = self.side.quic().stats(quic) else {
            return;
        };
        if !fall.ready || fall.look_at() > now {
            return;
        }
        fall.looked = now;
        let silence = &mut fall.silence;
        if stats.received != silence.received || self.side.tunnels(quic) == 0 {
            let suspected = silence.rounds >= 2;
            *silence = Silence {
                received: stats.received,
                since: now,
                ..Silence::default()
            };
            if suspected {
                tracing::debug!("QUIC answers again");
            }
            return;
        }
        if silence.left.is_none() && stats.sent > silence.sent {
            silence.left = Some(now);
        }
        let patience = stats.srtt + stats.srtt / 10 + SLACK;
        let unanswered = silence.left.is_some_and(|at| now.since(at) >= patience);
        let tcp_answers = { silence.by_tcp }.is_some_and(|asked| self.side.received(tcp) > asked);
        match silence.rounds {
            0 if now.since(silence.since) < SILENCE => return,
            0 => {}
            1..ROUNDS if !unanswered => return,
            1..ROUNDS => {}
            _ if silence.outage && tcp_answers => {
                // The link is back, and QUIC has its chance.
                (silence.outage, silence.rounds, silence.by_tcp) = (false, 0, None);
            }
            _ if unanswered && tcp_answers => return self.is_blocked(quic, now),
            _ => {
                silence.outage |= unanswered;
                return;
            }
        }
        silence.rounds += 1;
        (silence.sent, silence.left) = (stats.sent, None);
        let asks_tcp = silence.rounds == 2;
        if asks_tcp {
            silence.by_tcp = Some(self.side.received(tcp));
            self.side.http2.ping(tcp);
        }
        self.side.ping(quic);
    }

    /// Near: TCP answers, and QUIC does not.
    fn is_blocked(&mut self, quic: ConnectionId, now: Instant) {
        let reason = "UDP is blocked on the way: the far end answers by TCP alone";
        self.note_blocked();
        self.side.close(quic, reason, now);
        self.lost(quic, None, reason);
        if let Part::Near(asking) = &mut self.part {
            asking.fall_back.silence = Silence::default();
        }
    }

    /// Near: UDP does not get through, as far as can be told.
    pub(crate) fn note_blocked(&mut self) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.fall_back.ready && !asking.fall_back.blocked {
            asking.fall_back.blocked = true;
            self.counters.fall_backs += 1;
            tracing::warn!(
                "the far end answers by TCP and not by UDP: new connections take HTTP/2"
            );
        }
    }
}
