//! Connections whose satellite leg is a tunnel.

use super::{SynQueue, Worker};
use crate::flow_guard::FlowGuard;
use crate::handshake::{HeldSyn, QueuedPacket};
use crate::tunnel::{FarSide, NoTunnel, TunnelAnswer, TunnelPlan};
use crate::worker_coordination::Settings;
use bentpipe_gateway_config::{Carrier, Ends, LegId, Syn};
use bentpipe_sockets::nfqueue::Verdict;
use bentpipe_sockets::timer;
use std::os::fd::OwnedFd;

/// The tunnels by which connections go on that entered so; `None`: by the kernel's TCP.
pub(super) fn tunnels_of<'p>(
    plan: &'p Option<TunnelPlan>,
    settings: &Settings,
    (leg, profile): (LegId, usize),
) -> Option<&'p TunnelPlan> {
    let far = &settings.legs.of(profile)[leg.other() as usize].leg;
    plan.as_ref().filter(|_| far.carrier == Carrier::Quic)
}

impl SynQueue {
    /// The verdict on a SYN whose far side would be a tunnel, where there are none.
    pub(super) fn without_tunnel(&self, plan: &TunnelPlan) -> Verdict {
        if plan.refuses {
            Verdict::PassMarked(self.marks.refused())
        } else {
            Verdict::Pass
        }
    }
}

impl Worker {
    pub(super) fn tunnels(&self, entered: (LegId, usize)) -> Option<&TunnelPlan> {
        tunnels_of(&self.tunnels, &self.settings, entered)
    }

    /// A client that was answered early, or cannot be held, leaves by a tunnel.
    pub(super) fn on_tunnelled(&mut self, near: OwnedFd, (client, server): Ends) {
        if let Some(plan) = &self.tunnels {
            self.counters.tunnelled.one();
            let keep = self.shared.keep_flow(client);
            plan.tunnels.carry(near, server, keep);
        }
    }

    /// Holds a SYN and asks for a tunnel for it.
    pub(super) fn ask_for(
        &mut self,
        packet: QueuedPacket,
        (syn, bytes): (&Syn, Box<[u8]>),
        plan: &TunnelPlan,
    ) {
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        self.counters.held.one();
        let begun = timer::now();
        let about = (syn.ends, begun);
        let held = HeldSyn {
            ends: syn.ends,
            seq: syn.seq,
            packet,
            far: FarSide::ask(&*plan.tunnels, about, &self.shared, self.number),
            watched: false,
            begun,
            repeated: false,
            later: false,
            spare: None,
            fragments: syn.service.fragments,
            bytes,
            guard: FlowGuard::new(&self.shared, syn.ends.0.ip()),
        };
        syn_queue.table.hold(held);
    }

    /// Decides on held SYNs by what the far end has said. Where it was refused, or has found no way, the client's own SYN asks the
    /// server itself, so that the client hears the truth; where the server is silent, so is the gateway.
    pub(super) fn on_tunnel_answers(&mut self) {
        for answer in self.shared.take_tunnel_answers(self.number) {
            let TunnelAnswer { ends, begun, .. } = answer;
            let Some(syn_queue) = &mut self.syn_queue else {
                return;
            };
            let Some(index) = syn_queue.table.place(&ends) else {
                continue;
            };
            if syn_queue
                .table
                .held(index)
                .is_none_or(|held| held.begun != begun)
            {
                continue;
            }
            let pass = { &self.tunnels }
                .as_ref()
                .map(|plan| syn_queue.without_tunnel(plan));
            let pass = pass.unwrap_or(Verdict::Pass);
            let (counter, verdict) = match answer.result {
                Ok(()) => {
                    self.accept_held(index);
                    continue;
                }
                Err(NoTunnel::Down) => (&self.counters.tunnel_down, pass),
                Err(NoTunnel::Refused) => (&self.counters.refused, pass),
                Err(NoTunnel::Unreachable) => (&self.counters.unreachable, pass),
                Err(NoTunnel::Silent) => (&self.counters.abandoned, Verdict::Drop),
            };
            counter.one();
            self.release(index, verdict);
        }
    }
}
