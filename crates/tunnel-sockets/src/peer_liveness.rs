//! Whether peers are still there.
//!
//! A peer that was killed cannot say so, but its kernel does: where nothing listens any more, ICMP answers each datagram. That alone
//! is believed of nobody, for anybody may send it: it makes the driver ask. Who answers nothing for a second is asked for no more tunnels, and
//! who answers nothing for three is gone.
//! While there are flows, who is silent is asked each second, so that a dead peer is found out. A link that is out says
//! nothing by ICMP, and flows wait for it until the connection's idle timeout. New ones do not wait for a TCP connection that has not
//! answered for [`SILENT_TCP`]: nothing stands by beside it, and what is on the way may have forgotten it.

use crate::driver::Driver;
use bentpipe_base::Instant;
use bentpipe_quic::PublicKey;
use core::time::Duration;
use std::net::SocketAddr;

/// Between two looks at the connections.
const TICK: Duration = Duration::from_secs(1);
/// How long a peer is silent of whom ICMP says that it does not listen, until it is gone.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a TCP connection may leave a question unanswered, and how long one whose own address this machine has no more. That may
/// come back, and what the connection carries goes on then.
const SILENT_TCP: Duration = Duration::from_secs(5);
const HOMELESS: Duration = Duration::from_secs(2);

/// The peer of a connection that stands.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) key: PublicKey,
    /// When the connection began to stand.
    pub(crate) since: Instant,
    /// Datagrams that had come of it at the last look, and when the last of them was noticed.
    received: u64,
    heard: Instant,
    /// It was asked then, and nothing has come since.
    asked: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, key: PublicKey, now: Instant) -> Self {
        Self {
            address,
            key,
            since: now,
            received: 0,
            heard: now,
            asked: None,
        }
    }
}

/// When it was looked, and when ICMP last spoke.
#[derive(Debug, Default)]
pub(crate) struct PeerLiveness {
    looked: Instant,
    refused: Option<Instant>,
    /// When a stranger was last told of in the log.
    warned: Option<Instant>,
}

impl PeerLiveness {
    /// ICMP says that nothing listens at some peer.
    pub(crate) fn is_refused(&mut self, now: Instant) {
        self.refused = Some(now);
    }

    /// Whether the log has room for one more line on strangers, who may come as often as they like.
    pub(crate) fn may_warn(&mut self, now: Instant) -> bool {
        let may = self.warned.is_none_or(|at| now.since(at) >= TICK);
        if may {
            self.warned = Some(now);
        }
        may
    }
}

impl Driver {
    /// When to look at the connections next.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let flows = self.open() > 0 || !self.udp_flows.is_empty();
        let due = !self.connections.is_empty() && (flows || self.watch.refused.is_some());
        due.then_some(self.watch.looked + TICK)
    }

    /// Looks at the connections where it is time to.
    pub(crate) fn look(&mut self, now: Instant) {
        if self.look_at().is_none_or(|due| due > now) {
            return;
        }
        self.watch.looked = now;
        self.end_failed();
        self.end_idle();
        self.end_waiting(now);
        self.make_room();
        self.end_idle_udp();
        let refused = self.watch.refused;
        let (mut gone, mut silent) = (Vec::new(), Vec::new());
        let (mut suspected, mut doubted) = (false, false);
        for (&id, peer) in &mut self.connections {
            let received = self.side.received(id);
            if received != peer.received {
                (peer.received, peer.heard, peer.asked) = (received, now, None);
                continue;
            }
            // What ICMP says is about datagrams.
            let is_refused = !id.is_elsewhere() && refused.is_some_and(|at| at > peer.heard);
            if is_refused && now.since(peer.heard) >= PATIENCE {
                gone.push(id);
            } else {
                suspected |= is_refused;
                doubted |= is_refused && peer.asked.is_some();
                let asked = now.since(*peer.asked.get_or_insert(now));
                let is_homeless = || asked >= HOMELESS && self.tcp.is_homeless(id);
                if id.is_elsewhere() && (asked >= SILENT_TCP || is_homeless()) {
                    silent.push(id);
                }
                self.side.ping(id);
            }
        }
        if !suspected {
            self.watch.refused = None;
        }
        self.doubt(doubted);
        for id in silent {
            self.doubt_tcp(id);
        }
        for id in gone {
            let reason = "nothing listens at the peer";
            self.side.close(id, reason, now);
            self.lost(id, None, reason);
        }
    }
}
