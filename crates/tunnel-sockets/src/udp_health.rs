//! Whether UDP gets through: each end looks at its connections of QUIC while there are tunnels on them.
//!
//! A far end whose packets are policed says by GOAWAY that it wants no more tunnels on that connection, where its peer has one over TCP: new
//! ones go there then, and the peer connects by QUIC again after a while.

use crate::driver::{Driver, Part};
use crate::policing::{Policing, Sent, Verdict};
use crate::silence::{Heard, Silence, Step};
use bentpipe_base::Instant;
use bentpipe_quic::{ConnectionId, ConnectionStats};
use core::time::Duration;

/// Between two looks at a connection, and while it is asked for a sign of life.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_ASKED: Duration = Duration::from_millis(50);
/// A silent peer is asked after so long. A far end leaves it to the near end as long as that asks.
const SILENCE_NEAR: Duration = Duration::from_millis(300);
const SILENCE_FAR: Duration = Duration::from_secs(2);

/// UDP as one connection of QUIC sees it.
#[derive(Debug)]
pub(crate) struct UdpHealth {
    pub(crate) silence: Silence,
    /// `None`: its congestion control gives way where packets are lost.
    pub(crate) policing: Option<Policing>,
    looked: Instant,
}

impl UdpHealth {
    fn look_at(&self) -> Instant {
        let asks = self.silence.asks();
        self.looked + if asks { LOOK_ASKED } else { LOOK }
    }
}

impl Driver {
    /// A connection of QUIC stands.
    pub(crate) fn begin_health(&mut self, quic: ConnectionId) {
        let after = match self.part {
            Part::Near(_) => SILENCE_NEAR,
            Part::Far(_) => SILENCE_FAR,
        };
        let health = UdpHealth {
            silence: Silence::new(after),
            policing: self.policing.clone(),
            looked: self.now(),
        };
        self.udp_health.insert(quic, health);
    }

    /// When to look at the connections of QUIC next.
    pub(crate) fn health_at(&self) -> Option<Instant> {
        let carry = { self.udp_health.iter() }.filter(|(quic, _)| self.side.tunnels(**quic) > 0);
        carry.map(|(_, health)| health.look_at()).min()
    }

    /// Looks at those where it is time to.
    pub(crate) fn look_at_health(&mut self, now: Instant) {
        let due = { self.udp_health.iter() }
            .filter(|(quic, health)| health.look_at() <= now && self.side.tunnels(**quic) > 0);
        let due: Vec<_> = due.map(|(&quic, _)| quic).collect();
        for quic in due {
            self.look_at_one(quic, now);
        }
    }

    fn look_at_one(&mut self, quic: ConnectionId, now: Instant) {
        let Some(stats) = self.side.quic().stats(quic) else {
            return;
        };
        let tcp = self.beside(quic);
        let by_tcp = tcp.map(|tcp| self.side.received(tcp));
        let Some(health) = self.udp_health.get_mut(&quic) else {
            return;
        };
        health.looked = now;
        let heard = by_tcp.map(|by_tcp| Heard {
            received: stats.received,
            sent: stats.sent,
            srtt: stats.srtt,
            by_tcp,
        });
        let step = heard.and_then(|heard| health.silence.look(heard, now));
        let suspects = health.silence.suspects();
        let verdict = { &mut health.policing }
            .as_mut()
            .and_then(|policing| policing.look(sent(&stats), now));
        if let Part::Near(asking) = &mut self.part
            && asking.connection == Some(quic)
        {
            asking.fall_back.suspects = suspects;
        }
        if let Some(verdict) = verdict {
            self.is_policed(quic, tcp, verdict);
        }
        match step {
            None => {}
            Some(Step::Blocked) => self.is_blocked(quic, now),
            Some(step) => {
                if let Some(tcp) = tcp.filter(|_| step == Step::AskBoth) {
                    self.side.ping(tcp);
                }
                self.side.ping(quic);
            }
        }
    }

    /// The connection over TCP to or from the same peer as one over QUIC.
    fn beside(&self, quic: ConnectionId) -> Option<ConnectionId> {
        match &self.part {
            Part::Near(asking) => asking
                .fall_back
                .connection
                .filter(|_| asking.fall_back.ready),
            Part::Far(_) => {
                let peer = self.connections.get(&quic)?;
                let mut others = self.connections.iter().filter(|(id, _)| id.is_elsewhere());
                let same = others.find(|(_, other)| {
                    other.key == peer.key && other.address.ip() == peer.address.ip()
                });
                same.map(|(&id, _)| id)
            }
        }
    }

    /// TCP answers, and QUIC does not.
    fn is_blocked(&mut self, quic: ConnectionId, now: Instant) {
        let reason = "UDP is blocked on the way: the peer answers by TCP alone";
        self.note_blocked();
        self.side.close(quic, reason, now);
        self.lost(quic, None, reason);
    }

    /// What is sent on a connection is policed on the way, or no more.
    fn is_policed(&mut self, quic: ConnectionId, tcp: Option<ConnectionId>, verdict: Verdict) {
        let rate = match verdict {
            Verdict::Policed(rate) => Some(rate),
            Verdict::Refuted | Verdict::TriedAgain => None,
        };
        self.side.quic_mut().limit_pace(quic, rate);
        let Some(rate) = rate else {
            tracing::info!("the pace of QUIC is as before");
            return self.note_unpoliced(quic);
        };
        let by_tcp = tcp.is_some();
        tracing::warn!(%rate, by_tcp, "UDP is policed on the way: QUIC keeps to what gets through");
        match &self.part {
            Part::Near(_) => self.note_policed(quic),
            Part::Far(_) if by_tcp => {
                self.counters.fall_backs += 1;
                self.side.decline(quic);
            }
            Part::Far(_) => {}
        }
    }

    /// Whether any connection of QUIC keeps to less than its pace.
    pub(crate) fn is_limited(&self) -> bool {
        let policed =
            |health: &UdpHealth| health.policing.as_ref().is_some_and(Policing::is_limited);
        self.udp_health.values().any(policed)
    }
}

fn sent(stats: &ConnectionStats) -> Sent {
    Sent {
        packets: stats.sent,
        bytes: stats.sent_bytes,
        lost: stats.lost,
        srtt: stats.srtt,
    }
}
