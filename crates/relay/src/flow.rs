//! A flow: one split connection, with its two sockets and two pumps.

use crate::flow_guard::FlowGuard;
use crate::pump::Pump;
use bentpipe_base::{Bytes, Instant};
use bentpipe_gateway_config::LegId;
use bentpipe_sockets::timer;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The one accepted from the client.
    Near,
    /// The one dialled to the server.
    Far,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Near, Self::Far];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The far side has not answered yet; the near socket is not watched.
    Dialling,
    /// Both legs are established.
    Open,
    /// Both directions have ended; a peer has not acknowledged everything yet.
    Closing,
    /// One side has said its end, and has failed since. The other has not got all of it yet, and is reset then where it is to
    /// hear of the failure.
    Delivering { alive: Side, resets: bool },
    /// One side has failed. The other still gets the bytes that had arrived before, and then a reset, at the latest at
    /// `until`.
    ResetPending { alive: Side, until: Instant },
}

/// One split connection. Dropping it resets whatever is still connected: both sockets abort on
/// close until an orderly end has switched that off.
#[derive(Debug)]
pub(crate) struct Flow {
    near: OwnedFd,
    far: OwnedFd,
    /// The pump from near to far, then that from far to near.
    pumps: [Pump; 2],
    pub(crate) phase: Phase,
    /// When the client's SYN came, where it was held, or the client was accepted.
    pub(crate) begun: Instant,
    /// When a byte last moved, where that matters.
    pub(crate) active: Instant,
    /// The leg of the near socket.
    pub(crate) leg: LegId,
    /// See [`Flow::profile`]; there are at most seven.
    profile: u8,
    /// Whether the far socket has all options that its leg's policy sets.
    pub(crate) far_complete: bool,
    /// The side whose keep-alive probes get no answer, because the other side gives none either.
    pub(crate) unanswered: Option<Side>,
    /// By [`Side`]: it has said its end, and is not probed before the other side has got all.
    pub(crate) unprobed: [bool; 2],
    /// In the queue of flows that have more to move.
    pub(crate) queued: bool,
    /// Dropped last: the sockets are closed by then.
    _guard: FlowGuard,
}

impl Flow {
    /// A flow of a client that came in by `leg`, with the legs of `profile`, whose far side is being
    /// dialled.
    pub(crate) fn new(
        near: OwnedFd,
        far: OwnedFd,
        (leg, profile): (LegId, usize),
        guard: FlowGuard,
    ) -> Self {
        let now = timer::now();
        Self {
            near,
            far,
            pumps: [Pump::new(), Pump::new()],
            phase: Phase::Dialling,
            begun: now,
            active: now,
            leg,
            profile: profile as u8,
            far_complete: false,
            unanswered: None,
            unprobed: [false; 2],
            queued: false,
            _guard: guard,
        }
    }

    pub(crate) fn socket(&self, side: Side) -> BorrowedFd<'_> {
        match side {
            Side::Near => self.near.as_fd(),
            Side::Far => self.far.as_fd(),
        }
    }

    /// The pump that reads from `side`.
    pub(crate) fn pump(&mut self, side: Side) -> &mut Pump {
        &mut self.pumps[side as usize]
    }

    /// The pump that reads from `side`, with its source and its sink.
    pub(crate) fn parts(&mut self, side: Side) -> (&mut Pump, BorrowedFd<'_>, BorrowedFd<'_>) {
        let (from, to) = match side {
            Side::Near => (self.near.as_fd(), self.far.as_fd()),
            Side::Far => (self.far.as_fd(), self.near.as_fd()),
        };
        (&mut self.pumps[side as usize], from, to)
    }

    /// The number of its legs' profile: see [`crate::socket_policy::LegPolicies::of`].
    pub(crate) fn profile(&self) -> usize {
        self.profile.into()
    }

    /// The leg that the bytes read from `side` go out by.
    pub(crate) fn outward(&self, side: Side) -> LegId {
        match side {
            Side::Near => self.leg.other(),
            Side::Far => self.leg,
        }
    }

    /// Whether nothing has been read from the client yet.
    pub(crate) fn is_silent(&self) -> bool {
        !self.pumps[Side::Near as usize].has_read_more_than(Bytes(0))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.pumps.iter().all(Pump::has_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_flow_is_small() {
        // The promise is about 0.1 KiB of ours for an idle flow.
        assert!(
            size_of::<Option<Flow>>() <= 128,
            "{}",
            size_of::<Option<Flow>>()
        );
    }
}
