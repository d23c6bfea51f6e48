//! Flows whose sockets take nothing do not hold up the others of their connection.
//!
//! What has come for such a flow waits in its stream, up to the stream's window, and counts for the connection's window too: a
//! few of them would fill it, and no flow of the connection could go on. So the connection's window grows by a
//! stream's for each flow that is slow, up to [`SLOW_PART`] times what it is otherwise. Beyond that the longest stalled give way, first
//! those of the host that has most.

use crate::driver::Driver;
use crate::flow::Flow;
use bentpipe_base::Bytes;
use bentpipe_quic::{Config, ConnectionId};
use bentpipe_tunnel::TunnelId;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// A flow whose socket has been full for so long is slow. The window grows after that.
const SLOW: Duration = Duration::from_secs(1);
/// One that has taken next to nothing for so long is stalled, and may have to give way.
const STALLED: Duration = Duration::from_secs(10);
/// What slow flows of a connection may hold beyond its window, in windows.
const SLOW_PART: u64 = 4;
/// A socket that takes as much goes on.
const PROGRESS: u64 = 64 << 10;

/// How a socket takes what has come for it.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Since when it has been full and taken less than [`PROGRESS`]; `None`: it has room.
    since: Option<Instant>,
    taken: u64,
}

impl Intake {
    /// The socket has taken so much, and is full now, or not.
    pub(crate) fn note(&mut self, taken: u64, is_full: bool) {
        self.taken += taken;
        if !is_full {
            *self = Self::default();
        } else if self.since.is_none() || self.taken >= PROGRESS {
            self.since = Some(Instant::now());
            self.taken = 0;
        }
    }

    fn stalls_for(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// How much a connection may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    connection: Bytes,
    stream: Bytes,
}

impl Windows {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            connection: config.limits.memory,
            stream: config.path.stream_window(),
        }
    }

    /// The most slow flows of a connection.
    fn most_slow(&self) -> usize {
        usize::try_from(self.connection.0 * SLOW_PART / self.stream.0.max(1)).unwrap_or(usize::MAX)
    }

    fn with(&self, slow: usize) -> Bytes {
        self.connection + self.stream * (slow.min(self.most_slow()) as u64)
    }
}

/// A slow flow: its tunnel, the host at its socket's other end, and how long it has been so.
type Slow = (TunnelId, Option<IpAddr>, Duration);

impl Driver {
    /// Gives each connection room for what its slow flows hold.
    pub(crate) fn make_room(&mut self) {
        let mut slow: BTreeMap<ConnectionId, Vec<Slow>> = BTreeMap::new();
        for flow in self.flows.values() {
            let stalls_for = flow.intake.stalls_for();
            if stalls_for >= SLOW {
                let found = (flow.tunnel, host(flow), stalls_for);
                slow.entry(flow.tunnel.connection).or_default().push(found);
            }
        }
        let connections: Vec<_> = self.connections.keys().copied().collect();
        for connection in connections {
            let slow = slow.remove(&connection).unwrap_or_default();
            let window = self.windows.with(slow.len());
            self.side.set_window(connection, window);
            let ends = give_way(slow, self.windows.most_slow());
            if !ends.is_empty() {
                let flows = ends.len();
                tracing::warn!(flows, "flows whose receivers take nothing are reset");
            }
            for tunnel in ends {
                self.side.reset(tunnel);
                self.abort(tunnel);
            }
        }
    }
}

/// The host whose window it is: near, a client; far, a server.
fn host(flow: &Flow) -> Option<IpAddr> {
    flow.socket.peer_addr().ok().map(|address| address.ip())
}

/// Those that are to end so that at most so many are left, as far as they have stalled for long enough.
fn give_way(slow: Vec<Slow>, most: usize) -> Vec<TunnelId> {
    let mut excess = slow.len().saturating_sub(most);
    let mut of_hosts: BTreeMap<Option<IpAddr>, Vec<(Duration, TunnelId)>> = BTreeMap::new();
    for (tunnel, host, stalls_for) in slow {
        of_hosts.entry(host).or_default().push((stalls_for, tunnel));
    }
    of_hosts
        .values_mut()
        .for_each(|flows| flows.sort_unstable());
    let mut ends = Vec::new();
    while excess > 0
        && let Some(flows) = { of_hosts.values_mut() }
            .filter(|flows| {
                { flows.last() }.is_some_and(|(for_so_long, _)| *for_so_long >= STALLED)
            })
            .max_by_key(|flows| flows.len())
        && let Some((_, tunnel)) = flows.pop()
    {
        ends.push(tunnel);
        excess -= 1;
    }
    ends
}
