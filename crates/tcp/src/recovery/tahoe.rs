//! Tahoe: V. Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988, and RFC 5681, section 3.2
//! without fast recovery.
//!
//! The third duplicate acknowledgement is a loss: half the window becomes the threshold, and slow
//! start begins at the first segment not acknowledged, with all that follows it sent again as the
//! window opens.
//!
//! Deviations: limited transmit (RFC 3042) where configured; no second fast retransmit before the
//! recovery point of the last loss is passed (RFC 6582, section 4).

use super::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// Tahoe's state.
#[derive(Debug, Default)]
pub(super) struct Tahoe {
    dupacks: u32,
    recover: u64,
}

/// Whether the window of `segments` has room for the next segment.
pub(super) fn fits(tx: &RecoveryContext<'_>, segments: u32) -> bool {
    let left = tx.end().saturating_sub(tx.next()).min(u64::from(tx.mss()));
    tx.flight() + left <= tx.bytes(segments)
}

/// Segments beyond the window that `dupacks` release by RFC 3042.
pub(super) fn limited(tx: &RecoveryContext<'_>, dupacks: u32) -> u32 {
    if tx.limited_transmit() && dupacks < tx.dupthresh() {
        dupacks.min(2)
    } else {
        0
    }
}

impl Recovery for Tahoe {
    fn name(&self) -> &'static str {
        "tahoe"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        tx.set_in_flight(tx.segments(tx.flight()));
        tx.grow(sample);
        if tx.una() >= self.recover {
            tx.enter(Phase::Open);
        }
        tx.settle(sample.now);
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks += 1;
        if self.dupacks != tx.dupthresh() || tx.una() <= self.recover {
            return;
        }
        self.recover = tx.max();
        tx.count_recovery();
        let in_flight = tx.segments(tx.flight());
        tx.reduce(in_flight, sample.now);
        tx.enter(Phase::Loss);
        tx.set_cwnd(1);
        tx.send_from(tx.una());
        tx.restart(sample.now);
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupacks = 0;
        self.recover = tx.max();
        let in_flight = tx.segments(tx.flight());
        let first = tx.is_first_timeout();
        tx.enter_loss(in_flight, first, now);
        tx.send_from(tx.una());
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        let window = tx.cwnd().saturating_add(limited(tx, self.dupacks));
        if fits(tx, window) {
            NextSend::Next
        } else {
            NextSend::Nothing
        }
    }
}
