//! A near end that has lost its connection opens tunnels in the first flight of the next, by a ticket of the far end (0-RTT).
//!
//! Where a connection is gone without a word against another (the link was out, or the far end has started anew), a client that
//! comes before there is one again is staked on the far end: its tunnel leaves with the first flight. That is done once. Where nothing is
//! heard within three round trips, what was staked is reset, or passes where its SYN is held, and clients go without tunnels until a
//! connection stands. What connects without a client takes no ticket, so that one is there when a client comes.

use crate::driver::{Driver, Part};
use bentpipe_base::Instant;
use bentpipe_quic::ConnectionId;
use core::time::Duration;

/// The far end's silence that is waited for at least: a busy host is not quick.
const PATIENCE: Duration = Duration::from_secs(1);
/// And in round trips: the first flight is repeated after one.
const ROUND_TRIPS: u32 = 3;

/// What clients that come without a connection may count on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stake {
    /// Nothing: there is a connection, or the far end is not there as far as is known.
    #[default]
    Nothing,
    /// The far end may be there.
    Possible,
    /// A connection is being made for them.
    Made {
        /// By when something must have been heard; `None`: it was.
        heard_by: Option<Instant>,
        /// Tunnels may be opened on it.
        opens: bool,
    },
}

/// The use that a near end makes of first flights.
#[derive(Debug, Default)]
pub(crate) struct FirstFlight {
    /// How long the far end may be silent; `None`: first flights carry nothing.
    patience: Option<Duration>,
    stake: Stake,
}

impl FirstFlight {
    /// Whether a client that comes now may be staked.
    pub(crate) fn may_carry(&self) -> bool {
        self.stake != Stake::Nothing
    }

    /// Whether a connection is being made for clients.
    pub(crate) const fn is_made(&self) -> bool {
        matches!(self.stake, Stake::Made { .. })
    }

    /// Whether tunnels may be opened on the connection that is being made.
    pub(crate) const fn opens(&self) -> bool {
        matches!(self.stake, Stake::Made { opens: true, .. })
    }

    /// By when something must have been heard of the far end.
    pub(crate) const fn heard_by(&self) -> Option<Instant> {
        match self.stake {
            Stake::Made { heard_by, .. } => heard_by,
            Stake::Nothing | Stake::Possible => None,
        }
    }

    /// A connection stands, or the far end is not there.
    pub(crate) const fn end(&mut self) {
        self.stake = Stake::Nothing;
    }
}

impl Driver {
    /// Near: clients' connections leave in the first flight of a connection that is made again.
    #[must_use]
    pub fn with_early_data(mut self, round_trip: Duration) -> Self {
        if let Part::Near(asking) = &mut self.part {
            asking.first_flight.patience = Some(PATIENCE.max(round_trip * ROUND_TRIPS));
        }
        self
    }

    /// Near: the far end may be there still, though its connection is gone.
    pub(crate) fn hope(&mut self) {
        if let Part::Near(asking) = &mut self.part
            && asking.first_flight.patience.is_some()
            && self.side.quic().holds_ticket(asking.peer())
        {
            asking.first_flight.stake = Stake::Possible;
            asking.tell();
        }
    }

    /// Near: connects for clients that wait, where they may be staked.
    pub(crate) fn stake(&mut self, now: Instant) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.first_flight.stake != Stake::Possible || !asking.has_waiting() {
            return;
        }
        let Some(patience) = asking.first_flight.patience else {
            return;
        };
        // It may have begun when nothing got through, and would be repeated ever later.
        if let Some(other) = asking.connection.take() {
            self.side.close(other, "another is tried", now);
        }
        let begun = self.side.quic_mut().connect(asking.peer(), now).ok();
        asking.connect(begun, now);
        asking.first_flight.stake = match begun {
            Some(_) => Stake::Made {
                heard_by: Some(now + patience),
                opens: false,
            },
            None => Stake::Nothing,
        };
        asking.tell();
    }

    /// Near: tunnels may be opened on a connection whose handshake is not through.
    pub(crate) fn opens_early(&mut self, connection: ConnectionId) {
        if let Part::Near(asking) = &mut self.part
            && asking.has_connection(connection)
            && let Stake::Made { opens, .. } = &mut asking.first_flight.stake
        {
            *opens = true;
        }
        self.open_waiting();
    }

    /// Near: whether the far end is silent to whom it must have answered. Who has said anything has the time that a handshake may take.
    pub(crate) fn is_silent(&mut self, connection: ConnectionId, now: Instant) -> bool {
        let Part::Near(asking) = &mut self.part else {
            return false;
        };
        let Stake::Made { heard_by, .. } = &mut asking.first_flight.stake else {
            return false;
        };
        heard_by.take_if(|by| *by <= now).is_some() && self.side.received(connection) == 0
    }
}
