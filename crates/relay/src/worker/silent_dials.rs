//! Gives up dials that nobody answers, where the client's own SYN might do better ([`crate::unanswered_dials`]).
//!
//! A held SYN goes on unsplit once it has come again (a forger does not repeat its SYNs): the dial is given up, and the
//! client gets whatever answer there is. A client that was answered early already has a connection with the gateway, so
//! it has to wait as for any silent server; its later connections pass.
//!
//! A dial that is answered for a connection that stands already, between the same ends and unsplit, is given up after half a
//! second: until then that connection's packets come to the dial. For a minute all SYNs between these ends pass then. Others are not
//! concerned: the destination is not silent, and somebody may have forged that answer.
//!
//! The same is done with SYNs that were looped and come to no listener, because the operator's rules drop or lead away what
//! comes by `lo`. A client's SYN that has been answered meets the answer's socket when it comes again, and does not
//! get into a queue.

use super::Worker;
use crate::handshake::{HeldSyn, QueuedPacket};
use crate::unanswered_dials::PATIENCE;
use bentpipe_base::Instant;
use bentpipe_gateway_config::{Ends, Syn};
use bentpipe_os::conntrack::Conntrack;
use bentpipe_sockets::nfqueue::Verdict;
use bentpipe_sockets::timer;
use std::io;
use std::time::Duration;

/// How often dials are looked at.
const TICK: Duration = Duration::from_millis(250);

/// What is dialled for a flow whose client was answered early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialling {
    pub(super) ends: Ends,
    pub(super) begun: Instant,
    /// The largest segment that the client takes, where its SYN says so.
    pub(super) segment: Option<u16>,
    /// It has been recorded that this dial got no answer.
    pub(super) recorded: bool,
}

impl Worker {
    /// How long may be slept for the sake of dials.
    pub(super) fn dial_tick(&self) -> Option<Duration> {
        let syn_queue = self.syn_queue.as_ref()?;
        (syn_queue.table.holds() || !self.dialling.is_empty()).then_some(TICK)
    }

    /// Looks for dials that are silent.
    pub(super) fn on_silent_dials(&mut self, now: Instant) {
        if now.since(self.listened) < TICK {
            return;
        }
        self.listened = now;
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let challenged = syn_queue.table.challenged(now);
        let silent = syn_queue.table.silent_for(PATIENCE, now);
        for index in challenged {
            self.tell_of_silence(index);
            // What conntrack knows between these ends is the connection that stands, which is to keep its translation.
            if let Some((packet, (ends, _), _)) = self.end_dial(index) {
                self.give(packet, Verdict::Pass);
                if let Some(syn_queue) = &mut self.syn_queue {
                    syn_queue.table.pass_between(ends, now);
                }
            }
        }
        for index in silent {
            if let Some(ends) = self.tell_of_silence(index) {
                self.release(index, Verdict::Pass);
                self.shared.unanswered_dials().record_silence(&ends, now);
            }
        }
        for dialling in self.dialling.values_mut() {
            if !dialling.recorded && now.since(dialling.begun) >= PATIENCE {
                dialling.recorded = true;
                self.shared
                    .unanswered_dials()
                    .record_silence(&dialling.ends, now);
            }
        }
    }

    /// A dial is given up without an answer of its own, and its held SYN is to pass; returns between which ends that was.
    fn tell_of_silence(&mut self, index: u32) -> Option<Ends> {
        let syn_queue = self.syn_queue.as_mut()?;
        let &mut HeldSyn { ends, .. } = syn_queue.table.held(index)?;
        let (client, server) = ends;
        tracing::debug!(%client, %server, "a dial has no answer of its own: the client's own SYN passes");
        self.counters.unanswered.one();
        Some(ends)
    }

    /// Lets a SYN pass that was looped and has come to no listener; the connection that was dialled for it is reset. Where its
    /// client may have reset our answers instead, those that follow are not concerned.
    pub(super) fn on_lost(&mut self, packet: QueuedPacket, syn: &Syn, maybe_reset: bool) {
        self.counters.repeated.one();
        self.counters.unanswered.one();
        if !maybe_reset {
            let unanswered = self.shared.unanswered_dials();
            unanswered.record_lost_syn(&syn.ends, timer::now());
        }
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        if syn_queue.table.lose(&syn.ends) {
            self.after_dial(packet, (syn.ends, syn.seq), true, Verdict::Pass)
        } else {
            self.give(packet, Verdict::Pass)
        }
    }

    /// Has conntrack forget what was dialled between `ends`: the client's own SYN is of the same four numbers, and
    /// would be taken for a part of that connection, with its translation.
    pub(super) fn forget_tracked(&mut self, (client, server): Ends) {
        if !self.tracks_dials() {
            return;
        }
        let opened = match self.conntrack.take() {
            Some(conntrack) => Ok(conntrack),
            None => Conntrack::open(),
        };
        let forgotten = opened.and_then(|conntrack| {
            let conntrack = self.conntrack.insert(conntrack);
            conntrack.forget(client, server)
        });
        match forgotten {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "conntrack keeps a dial that has failed (is there nf_conntrack_netlink?): its client may have to try again");
            }
            _ => {}
        }
    }
}
