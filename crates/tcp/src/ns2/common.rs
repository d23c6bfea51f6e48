//! What ns-2's recoveries share (`tcp.cc`, `tcp-reno.cc`, `tcp-newreno.cc`, `tcp-sack1.cc`, `tcp-fack.cc`,
//! `tcp-vegas.cc`). ns-2 counts segments, holds the window as a real number ([`window`](super::window)), and sends "as
//! much as the window allows" after most acknowledgements, but only single segments after some: [`SendAllowance`].

use crate::recovery::{AckSample, NextSend, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// What last changed the window (`last_cwnd_action_`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    #[default]
    None,
    Dupack,
    Timeout,
    Exited,
}

/// What may be sent in answer to the last event.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendAllowance {
    /// Segments within the window (`send_much`).
    pub(super) within: u32,
    /// Segments within the window and the duplicate acknowledgements (`send_one`).
    pub(super) beyond: u32,
}

impl Default for SendAllowance {
    fn default() -> Self {
        Self::OPEN
    }
}

impl SendAllowance {
    /// As much as the window allows.
    pub(super) const OPEN: Self = Self {
        within: u32::MAX,
        beyond: 0,
    };
    /// Nothing.
    pub(super) const SHUT: Self = Self {
        within: 0,
        beyond: 0,
    };
    /// One segment beyond the window.
    pub(super) const ONE: Self = Self {
        within: 0,
        beyond: 1,
    };

    /// What a window of `window` segments lets go, and one of `dupacks` more for the single segment.
    pub(super) fn pick(&self, tx: &RecoveryContext<'_>, window: u32, dupacks: u32) -> NextSend {
        let flight = tx.flight();
        let within = self.within > 0 && flight < tx.bytes(window);
        let beyond = self.beyond > 0 && flight < tx.bytes(window + dupacks);
        if within || beyond {
            NextSend::Next
        } else {
            NextSend::Nothing
        }
    }

    pub(super) fn spend(&mut self) {
        if self.within > 0 {
            self.within -= 1;
        } else {
            self.beyond = self.beyond.saturating_sub(1);
        }
    }
}

/// An acknowledgement of new data (`recv_newack_helper`).
pub(super) fn newack(tx: &mut RecoveryContext<'_>, sample: &AckSample, recover: u64) {
    if tx.phase() != Phase::Open && tx.una() >= recover {
        tx.enter(Phase::Open);
    }
    tx.settle(sample.now);
    tx.set_in_flight(tx.segments(tx.flight()));
    if tx.ns2().at_syn(tx) {
        tx.set_cwnd(tx.cwnd().max(tx.initial_window()));
    } else {
        tx.grow(sample);
    }
}

/// Whether duplicate acknowledgements may begin a recovery (`dupack_action`, with `bug_fix_` and
/// `bugfix_ss_`): what was sent before the last one is acknowledged, or nothing ever was.
pub(super) fn may_begin(tx: &RecoveryContext<'_>, recover: u64) -> bool {
    tx.una() > recover || tx.una() <= 1
}

/// The retransmission timer expired (`timeout`).
pub(super) fn timeout(tx: &mut RecoveryContext<'_>, now: Instant) {
    let in_flight = tx.segments(tx.flight());
    tx.enter_loss(in_flight, true, now);
    tx.send_from(tx.una());
}
