//! Tells the relay what the proxy keeps, and while memory is short resets connections that have ended here and whose receivers
//! in space take nothing: the relay, which resets those that it knows, has no socket of them any more.

use crate::packet::Carried;
use bentpipe_base::Instant;
use bentpipe_pep::split::{Kept, Split};
use bentpipe_relay::Shared;
use bentpipe_relay::memory_pressure::{CarriedBytes, CarriedConnections};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How often the sum is told.
const PERIOD: Duration = Duration::from_millis(100);
/// How often connections are looked at while memory is short.
const LOOK: Duration = Duration::from_secs(1);
/// A receiver that has taken fewer bytes than this counts as stalled, as in the relay.
const NOTHING: u64 = 16 << 10;

/// What is known of a connection that has ended here.
struct Ended {
    /// What it kept at `since`.
    kept: u64,
    since: Instant,
}

/// When the relay is to be told again, and whom it cannot see.
#[derive(Default)]
pub(crate) struct Memory {
    tell_again: Instant,
    look_again: Instant,
    ended: HashMap<(SocketAddr, SocketAddr), Ended>,
    /// The relay knows of connections that keep something.
    has_told: bool,
}

impl Memory {
    /// Tells the relay what `proxy` keeps; returns how many connections it has reset.
    pub(crate) fn tell(
        &mut self,
        proxy: &mut Split<Carried>,
        shared: &Shared,
        now: Instant,
    ) -> u64 {
        if now < self.tell_again {
            return 0;
        }
        self.tell_again = now + PERIOD;
        let memory = shared.memory();
        memory.set_carrier_usage(proxy.in_memory());
        if now < self.look_again {
            return 0;
        }
        self.look_again = now + LOOK;
        if !memory.is_under_pressure() {
            self.ended.clear();
            if std::mem::take(&mut self.has_told) {
                memory.set_carried(CarriedConnections::new());
            }
            return 0;
        }
        let kept: Vec<_> = proxy.kept().collect();
        self.has_told = true;
        memory.set_carried(kept.iter().map(of_socket).collect());
        self.watch(&kept, now);
        let longest = self.stalled(shared.settings().stalled, now);
        let (mut given, wanted, mut count) = (0, memory.to_reclaim(), 0);
        for ((ground, space), bytes) in longest {
            if given >= wanted {
                break;
            }
            given += bytes;
            count += 1;
            proxy.abort(ground, space, now);
        }
        count
    }

    fn watch(&mut self, kept: &[Kept<SocketAddr>], now: Instant) {
        let mut before = std::mem::take(&mut self.ended);
        for connection in kept.iter().filter(|one| one.ground_is_over) {
            let (ends, kept) = ((connection.ground, connection.space), connection.to_space);
            let takes = |ended: &Ended| kept > ended.kept || ended.kept - kept >= NOTHING;
            let ended = before
                .remove(&ends)
                .filter(|ended| !takes(ended))
                .unwrap_or(Ended { kept, since: now });
            self.ended.insert(ends, ended);
        }
    }

    /// Those that have taken nothing for `bound`, the longest first, with what they kept.
    fn stalled(&self, bound: Duration, now: Instant) -> Vec<((SocketAddr, SocketAddr), u64)> {
        let mut stalled: Vec<_> = self
            .ended
            .iter()
            .filter(|(_, ended)| now.since(ended.since) >= bound)
            .collect();
        stalled.sort_unstable_by_key(|(ends, ended)| (ended.since, **ends));
        stalled
            .into_iter()
            .map(|(ends, ended)| (*ends, ended.kept))
            .collect()
    }
}

/// By the addresses of its socket, which has that of the ground.
fn of_socket(kept: &Kept<SocketAddr>) -> ((SocketAddr, SocketAddr), CarriedBytes) {
    let bytes = CarriedBytes {
        received: kept.to_ground,
        sent: kept.to_space,
    };
    ((kept.ground, kept.space), bytes)
}
