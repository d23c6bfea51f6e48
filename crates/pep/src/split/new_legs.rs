//! The two legs of a connection that is split from now on.

use super::config::Endpoints;
use super::legs::Legs;
use super::{Key, Split};
use crate::{BuildPacket, Side};
use bentpipe_base::Instant;
use bentpipe_tcp::{Connection, Takeover};
use bentpipe_wire::Segment;
use std::sync::Arc;

impl<P: BuildPacket> Split<P> {
    /// The legs of an established connection, which begin with these states: `near` towards side `from`.
    pub(super) fn taken_over(
        &self,
        key: Key<P::Endpoint>,
        from: Side,
        [near, far]: [&Takeover; 2],
        endpoints: &Endpoints,
        now: Instant,
    ) -> Legs {
        let leg = |side, state: &Takeover| {
            let config = Arc::clone(endpoints.of(side));
            // A leg by SCPS-TP has the window of its rate from its first segment on. Others find out, as they always have here.
            let rtt = state.rtt.filter(|_| config.scps.is_some());
            let mss = match self.config.ground_is_local && side == Side::Ground {
                true => config.mss,
                false => state.mss,
            };
            let state = Takeover { rtt, mss, ..*state };
            self.shared(key, side, Connection::taken_over(config, &state, now))
        };
        let resets = self.config.resets;
        Legs::new(from, leg(from, near), leg(from.opposite(), far), resets)
    }

    /// Answers the SYN that came from side `from`, and sends one of its own.
    pub(super) fn dial(
        &mut self,
        key: Key<P::Endpoint>,
        from: Side,
        syn: &Segment,
        endpoints: &Endpoints,
        now: Instant,
    ) -> Legs {
        // Any 32 of the bits.
        let iss = bentpipe_base::Seq(self.chance.bits() as u32);
        let config = |side| Arc::clone(endpoints.of(side));
        let far = from.opposite();
        Legs::new(
            from,
            self.shared(key, from, Connection::listen(config(from), iss, now)),
            self.shared(key, far, Connection::connect(config(far), syn.seq, now)),
            self.config.resets,
        )
    }

    /// `leg`, which shares the link on its `side` with the other flows where its control does that.
    fn shared(
        &self,
        (ground, space): Key<P::Endpoint>,
        side: Side,
        mut leg: Connection,
    ) -> Connection {
        let host = match side {
            Side::Ground => P::host(ground),
            Side::Space => P::host(space),
        };
        if let Some(control) = self.links.control(side, host, leg.config()) {
            leg.set_congestion(control);
        }
        leg
    }
}
