//! A connection that the proxy knows: its handshake, or its two legs.

use super::config::Endpoints;
use super::handshake_tracker::HandshakeTracker;
use super::legs::{self, Legs};
use crate::{BuildPacket, Side};
use bentpipe_base::{Instant, Machine};
use core::time::Duration;

pub(super) struct Flow {
    pub(super) phase: Phase,
    pub(super) endpoints: Endpoints,
    /// When its last packet came.
    pub(super) active: Instant,
    /// The code points (DSCP) of what came last from the ground and from space.
    code_points: [u8; 2],
}

pub(super) enum Phase {
    Handshake(HandshakeTracker),
    Split(Box<Legs>),
}

/// How long a handshake may take, retransmissions included; then it is forgotten.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(180);

/// The time `wait` after `from`; `None` is never.
pub(super) fn after(from: Instant, wait: Option<Duration>) -> Instant {
    wait.map_or(Instant::MAX, |wait| from + wait)
}

impl Flow {
    pub(super) const fn new(phase: Phase, endpoints: Endpoints, now: Instant) -> Self {
        Self {
            phase,
            endpoints,
            active: now,
            code_points: [0; 2],
        }
    }

    /// A packet has come from side `from`.
    pub(super) fn hear<P: BuildPacket>(&mut self, from: Side, packet: &P, now: Instant) {
        self.active = now;
        self.code_points[legs::index(from)] = packet.code_point();
    }

    /// The code point of what goes to side `to`: that of what comes from the other.
    pub(super) const fn code_point(&self, to: Side) -> u8 {
        self.code_points[legs::index(to.opposite())]
    }

    /// When it has been silent for too long.
    pub(super) fn silent(&self, idle: Option<Duration>) -> Instant {
        let most = match self.phase {
            Phase::Handshake(_) => {
                Some(idle.map_or(HANDSHAKE_TIMEOUT, |idle| HANDSHAKE_TIMEOUT.min(idle)))
            }
            Phase::Split(_) => idle,
        };
        after(self.active, most)
    }

    pub(super) fn due(&self, idle: Option<Duration>) -> Instant {
        let timers = match &self.phase {
            Phase::Handshake(_) => Instant::MAX,
            Phase::Split(legs) => legs.deadline().unwrap_or(Instant::MAX),
        };
        self.silent(idle).min(timers)
    }
}
