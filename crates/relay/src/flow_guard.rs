//! Keeps a flow in the gateway's count for as long as it lives.

use crate::client_flows::Places;
use crate::worker_coordination::Shared;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One flow in the count of [`Shared`], until it is dropped. It moves with the sockets that the flow has: from the
/// SYN that is held to the handshake that waits for its client, and on to the flow with its two pumps. So a flow that
/// ends in whatever way, by a panic too, is counted no longer.
pub(crate) struct FlowGuard {
    shared: Arc<Shared>,
    places: Places,
}

impl FlowGuard {
    /// Counts one flow more, which `client` has begun.
    pub(crate) fn new(shared: &Arc<Shared>, client: IpAddr) -> Self {
        Self {
            places: shared.flow_began(client),
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.shared.flow_ended(self.places);
    }
}

impl fmt::Debug for FlowGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowGuard")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_limit::FlowBounds;
    use crate::handshake::{AcceptedFar, HandshakeTable, HeldSyn, LetIn, QueuedPacket};
    use crate::tunnel::FarSide;
    use bentpipe_base::{Instant, Seq};
    use bentpipe_gateway_config::Ends;
    use bentpipe_sockets::socket;
    use std::net::SocketAddr;
    use std::time::Duration;

    const NOW: Instant = Instant::from_nanos(60_000_000_000);

    fn shared() -> Arc<Shared> {
        let bounds = FlowBounds {
            suspend: 100,
            resume: 50,
            hard: 110,
        };
        Arc::new(Shared::with(bounds, 1))
    }

    fn ends(number: u16) -> Ends {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        (address(number), address(80))
    }

    fn held(number: u16, shared: &Arc<Shared>) -> HeldSyn {
        HeldSyn {
            ends: ends(number),
            seq: Seq(number.into()),
            packet: packet(number),
            far: FarSide::Socket(socket::stream(ends(number).1).expect("a socket")),
            watched: false,
            begun: NOW,
            repeated: false,
            later: false,
            spare: None,
            fragments: false,
            bytes: Box::default(),
            guard: FlowGuard::new(shared, ends(number).0.ip()),
        }
    }

    fn packet(number: u16) -> QueuedPacket {
        QueuedPacket {
            queue: 0,
            id: number.into(),
        }
    }

    /// A table with the SYN of flow `number`, whose far side has accepted.
    fn let_in(table: &mut HandshakeTable, number: u16, shared: &Arc<Shared>) {
        let index = table.hold(held(number, shared));
        let syn = table.release(index).expect("it was held");
        let far = AcceptedFar {
            side: syn.far,
            watched: syn.watched,
            begun: syn.begun,
            guard: syn.guard,
        };
        let said = LetIn {
            seq: syn.seq,
            ..LetIn::default()
        };
        table.let_in((syn.ends, syn.packet), said, Some(far), NOW);
    }

    /// Whatever way a flow takes through the table of handshakes, it is counted once until its sockets are closed.
    #[test]
    fn a_flow_is_counted_until_it_ends_in_any_way() {
        let shared = shared();
        let mut table = HandshakeTable::new(1);

        let index = table.hold(held(1, &shared));
        assert_eq!(shared.flows(), 1, "held");
        drop(table.release(index));
        assert_eq!(shared.flows(), 0, "let go");

        let_in(&mut table, 2, &shared);
        assert_eq!(shared.flows(), 1, "its client has yet to confirm");
        let far = table.confirm(&ends(2), NOW).expect("it had accepted");
        assert_eq!(shared.flows(), 1, "it goes on with the flow");
        drop(far);
        assert_eq!(shared.flows(), 0, "the flow has ended");

        let_in(&mut table, 3, &shared);
        assert!(table.lose(&ends(3)));
        assert_eq!(shared.flows(), 0, "its SYN came to no listener");

        let_in(&mut table, 4, &shared);
        assert_eq!(table.expire(NOW + Duration::from_secs(5)), 1);
        assert_eq!(shared.flows(), 0, "its client never confirmed");

        let_in(&mut table, 5, &shared);
        table.hold(held(6, &shared));
        assert_eq!(shared.flows(), 2);
        drop(table);
        assert_eq!(
            shared.flows(),
            0,
            "a worker that ends takes its table with it"
        );
    }

    #[test]
    fn a_panic_ends_the_count_too() {
        let shared = shared();
        let held = FlowGuard::new(&shared, ends(1).0.ip());
        let worker = std::thread::spawn(move || {
            let _flow = held;
            panic!("tried here");
        });
        assert!(worker.join().is_err());
        assert_eq!(shared.flows(), 0);
    }
}
