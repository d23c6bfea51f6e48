//! SCPS-TP towards space: what a split whose leg there speaks it adds to handshakes that pass, and the orders of who knows
//! the link.
//!
//! The far end's handshake passes end to end. On its way to space the SYN, or the answer to a SYN that offers SCPS-TP, is given
//! the offer that the ends do not make themselves; behind an answer goes an acknowledgement with the whole window, which a
//! SYN cannot say, as from an endpoint that speaks SCPS-TP. Where the other end of the hop offers nothing, the leg is TCP with
//! SACK.

use super::Split;
use super::flow::{Flow, Phase};
use crate::flow_table::FlowId;
use crate::{BuildPacket, Side};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_tcp::{Config, scps};
use bentpipe_wire::{Flags, Segment, Tcp};

impl<P: BuildPacket> Split<P> {
    /// A packet from side `from` goes on, with an offer where it is part of a handshake that needs one.
    pub(super) fn pass(&mut self, from: Side, packet: P) {
        self.counters.passed += 1;
        let offering = match from {
            Side::Ground => self.with_offer(&packet),
            Side::Space => None,
        };
        match offering {
            Some(packets) => self.out.extend(packets.into_iter().flatten()),
            None => self.out.push_back((from.opposite(), packet)),
        }
    }

    /// What goes to space in the place of `packet`; `None` where that is the packet itself.
    fn with_offer(&self, packet: &P) -> Option<[Option<(Side, P)>; 2]> {
        let (view, mut segment) = (packet.view()?, packet.segment()?);
        if !segment.flags.contains(Flags::SYN) {
            return None;
        }
        let (from, to) = (view.source, view.destination);
        let flow = self.flows.get(self.flows.peek((from, to))?)?;
        let (Phase::Handshake(tracker), space) = (&flow.phase, flow.endpoints.of(Side::Space))
        else {
            return None;
        };
        let answers = segment.flags.contains(Flags::ACK);
        let speaks = { space.scps.as_ref() }.filter(|_| !answers || tracker.is_offered_scps())?;
        scps::add_offer(&mut segment, speaks);
        let behind = whole_window(&segment, space).filter(|_| answers);
        let build = |segment: Segment| {
            let length = Bytes(space.wire_len(&segment) as u64);
            let built = P::build(from, to, segment, length)?;
            Some((Side::Space, built.with_code_point(packet.code_point())))
        };
        Some([build(segment), behind.and_then(build)])
    }

    /// Whether the link is out, says who knows (a modem): from now on the connections send nothing towards space but
    /// probes, or go on at once.
    pub fn set_link(&mut self, is_up: bool, now: Instant) {
        for id in self.split_flows() {
            if let Some(Phase::Split(legs)) = self.flows.get_mut(id).map(|flow| &mut flow.phase) {
                legs.set_link(is_up, now);
            }
            self.settle(id, now);
        }
    }

    /// A router, or the kernel, says that a packet with number `seq`, `from` an end to the one on side `towards`, was too long for a
    /// path that takes `mtu` bytes: that is believed of one that is in flight.
    pub fn lower_path_mtu(
        &mut self,
        towards: Side,
        (from, to): (P::Endpoint, P::Endpoint),
        (seq, mtu): (Seq, u16),
        now: Instant,
    ) {
        let key = match towards {
            Side::Space => (from, to),
            Side::Ground => (to, from),
        };
        let Some(id) = self.flows.peek(key) else {
            return;
        };
        if let Some(Flow {
            phase: Phase::Split(legs),
            endpoints,
            ..
        }) = self.flows.get_mut(id)
        {
            let header = endpoints.of(towards).ip_header + Tcp::BARE as u16;
            legs.lower_segment_size(towards, seq, mtu.saturating_sub(header), now);
        }
        self.settle(id, now);
    }

    /// A packet from `space` to the end `ground` arrived damaged, says who saw its checksum: its sender is told where the leg does
    /// that ([`tcp::Scps::corruption_experienced`](bentpipe_tcp::Scps::corruption_experienced)).
    pub fn note_damaged(&mut self, (ground, space): (P::Endpoint, P::Endpoint)) {
        let Some(id) = self.flows.peek((ground, space)) else {
            return;
        };
        if let Some(Phase::Split(legs)) = self.flows.get_mut(id).map(|flow| &mut flow.phase) {
            legs.note_damaged();
        }
    }

    /// Resets both sides of all connections.
    pub fn abort_all(&mut self, now: Instant) {
        for id in self.split_flows() {
            self.abort_flow(id, now);
        }
    }

    /// Resets both sides of a connection.
    pub(super) fn abort_flow(&mut self, id: FlowId, now: Instant) {
        if let Some(Phase::Split(legs)) = self.flows.get_mut(id).map(|flow| &mut flow.phase) {
            legs.abort(now);
        }
        self.settle(id, now);
    }

    fn split_flows(&self) -> Vec<FlowId> {
        let split = |flow: &Flow| matches!(flow.phase, Phase::Split(_));
        let flows = self.flows.iter().filter(|(_, flow)| split(flow));
        flows.map(|(id, _)| id).collect()
    }

    /// Split connections that have not ended on both sides yet.
    pub fn unfinished(&self) -> usize {
        let unfinished = |flow: &Flow| match &flow.phase {
            Phase::Split(legs) => !legs.is_over(),
            Phase::Handshake(_) => false,
        };
        self.flows
            .iter()
            .filter(|(_, flow)| unfinished(flow))
            .count()
    }
}

/// Whether the legs speak all that `packet`, which carries `segment`, says.
pub(super) fn is_plain<P: BuildPacket>(packet: &P, segment: &Segment) -> bool {
    packet.is_plain() || scps::is_understood(segment)
}

/// The acknowledgement behind `answer`, a SYN with ACK, that tells the whole window of an endpoint like `config`; `None`
/// without window scaling.
fn whole_window(answer: &Segment, config: &Config) -> Option<Segment> {
    let scale = answer.options.as_deref()?.window_scale?;
    Some(Segment {
        seq: answer.seq + 1,
        ack: answer.ack,
        flags: Flags::ACK,
        window: (config.receive_buffer.0 >> scale.min(14)).min(65_535) as u16,
        timestamps: answer.timestamps,
        ..Segment::default()
    })
}
