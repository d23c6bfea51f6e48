//! Forward error correction below the packets of one connection (docs/fec.md), between two ends that have both asked for it.
//!
//! What has to be acknowledged goes in frames, and repairs follow it. Acknowledgements alone go bare: each says
//! what those before it have said. So does the handshake, in which both ends agree.

use crate::hold_back::HoldBack;
use crate::keys::FEC_ALPN;
use crate::stack_interface::Datagram;
use bentpipe_base::{Instant, Machine};
use bentpipe_fec::{Counters, Frame, Layer, ParseError, Report, Side, Strength};
use bytes::{Bytes as Chunk, BytesMut};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use quinn_proto::FrameStats;
use quinn_proto::crypto::Session;
use quinn_proto::crypto::rustls::HandshakeData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The packets that a repair follows each of, as the congestion control is told: its window is for both. 0: there are no repairs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepairShare(Arc<AtomicU32>);

/// The last packet leaves whatever is in flight.
const LAST: u32 = u32::MAX;

impl RepairShare {
    /// Nothing is sent any more but that the connection is closed, which the stack would hold back by the window: no acknowledgement
    /// that made room there is looked at after that.
    pub(crate) fn let_last_out(&self) {
        self.0.store(LAST, Ordering::Relaxed);
    }

    fn set(&self, strength: Strength) {
        // Each value stands for itself: nothing else is read by it.
        self.0.store(strength.every.into(), Ordering::Relaxed);
    }

    /// What is left of a window to packets that are not repairs.
    pub(crate) fn of_window(&self, window: u64) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => window,
            LAST => u64::MAX,
            every => window / (u64::from(every) + 1) * u64::from(every),
        }
    }
}

/// What the forward error correction of a connection has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecStats {
    /// How much it sends besides the packets at present.
    pub strength: Strength,
    /// What went out and what came in.
    pub counters: Counters,
    /// The losses on the way here.
    pub losses: Report,
}

/// Whether both ends of a handshake have asked for forward error correction.
pub(crate) fn is_agreed(session: &dyn Session) -> bool {
    let data = session.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    data.and_then(|data| data.protocol)
        .is_some_and(|protocol| protocol == FEC_ALPN)
}

/// How many frames were sent that the peer has to acknowledge.
pub(crate) fn eliciting(sent: &FrameStats) -> u64 {
    let once = u64::from(sent.handshake_done);
    [
        sent.crypto,
        sent.datagram,
        sent.max_data,
        sent.max_stream_data,
        sent.max_streams_bidi,
        sent.max_streams_uni,
        sent.new_connection_id,
        sent.new_token,
        sent.ping,
        sent.reset_stream,
        sent.retire_connection_id,
        sent.stop_sending,
        sent.stream,
    ]
    .iter()
    .sum::<u64>()
        + once
}

/// The layer of one connection.
pub(crate) struct Protection {
    layer: Layer,
    /// The peer may be sent frames: the handshake is through.
    begun: bool,
    /// Until then packets go bare: whether the peer is where it seems to have moved is not known, and who is not is to be sent no more
    /// than QUIC sends him.
    bare_until: Instant,
    /// Where the latest packet went, and from where.
    ends: Option<(SocketAddr, Option<IpAddr>)>,
    share: RepairShare,
    hold_back: HoldBack,
    /// At which address of this host the latest datagram came.
    came_at: Option<IpAddr>,
}

impl Protection {
    pub(crate) fn new(config: bentpipe_fec::Config) -> Self {
        Self {
            layer: Layer::new(config),
            begun: false,
            bare_until: Instant::ZERO,
            ends: None,
            share: RepairShare::default(),
            hold_back: HoldBack::default(),
            came_at: None,
        }
    }

    pub(crate) fn begin(&mut self) {
        self.begun = true;
        self.share.set(self.layer.strength());
    }

    /// The congestion control that heeds `share` has the connection from now on.
    pub(crate) fn share_with(&mut self, share: RepairShare) {
        self.share = share;
        if self.begun {
            self.share.set(self.layer.strength());
        }
    }

    /// The peer seems to have moved; what QUIC has to ask it takes `patience`.
    pub(crate) fn moved(&mut self, patience: Duration, now: Instant) {
        self.bare_until = now + patience;
        self.ends = None;
    }

    /// Whether what is sent now goes in frames.
    pub(crate) fn sends(&self, now: Instant) -> bool {
        self.begun && now >= self.bare_until
    }

    /// A packet as a frame.
    pub(crate) fn protect(&mut self, packet: Datagram, now: Instant) -> Datagram {
        self.ends = Some((packet.peer, packet.local));
        let data = packet.data.freeze();
        self.layer.input(Side::Quic, data.clone(), now);
        // The layer gives it at once, before any repair.
        let frame = self.pull(now).unwrap_or(data);
        Datagram {
            peer: packet.peer,
            local: packet.local,
            data: BytesMut::from(frame),
            segment: None,
        }
    }

    /// The next repair that is due.
    pub(crate) fn repair(&mut self, now: Instant) -> Option<Datagram> {
        let (peer, local) = self.ends.filter(|_| self.sends(now))?;
        let frame = self.pull(now)?;
        Some(Datagram {
            peer,
            local,
            data: BytesMut::from(frame),
            segment: None,
        })
    }

    fn pull(&mut self, now: Instant) -> Option<Chunk> {
        self.layer.transmit(now).map(|(_, frame)| frame)
    }

    /// A datagram has come, at the address `local`: the packets that it is or gives back, and those that have waited for these. The
    /// connection's round-trip time is `round_trip`.
    pub(crate) fn arrive(
        &mut self,
        datagram: Chunk,
        local: Option<IpAddr>,
        round_trip: Duration,
        now: Instant,
    ) -> Vec<Chunk> {
        self.came_at = local;
        self.layer.input(Side::Path, datagram, now);
        let packets = self.hold_back.pass(&mut self.layer, round_trip, now);
        if self.begun {
            self.share.set(self.layer.strength());
        }
        packets
    }

    /// The time is `now`: packets that have waited for long enough, and at which address of this host they came.
    pub(crate) fn timeout(
        &mut self,
        round_trip: Duration,
        now: Instant,
    ) -> (Vec<Chunk>, Option<IpAddr>) {
        self.layer.timeout(now);
        let packets = self.hold_back.pass(&mut self.layer, round_trip, now);
        (packets, self.came_at)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = [self.layer.deadline(), self.hold_back.deadline()];
        due.into_iter().flatten().min()
    }

    pub(crate) fn stats(&self) -> FecStats {
        FecStats {
            strength: self.layer.strength(),
            counters: self.layer.counters(),
            losses: self.layer.losses(),
        }
    }
}

/// The packet of a datagram whose sender has no layer here.
pub(crate) fn packet(datagram: &Chunk) -> Option<Chunk> {
    match Frame::parse(datagram) {
        Ok(Frame::Source { packet, .. }) => Some(packet),
        Err(ParseError::Foreign) => Some(datagram.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_have_their_part_of_the_window() {
        let share = RepairShare::default();
        assert_eq!(share.of_window(11_000), 11_000);
        share.set(Strength {
            every: 10,
            ..Strength::INITIAL
        });
        assert_eq!(share.of_window(11_000), 10_000);
    }
}
