//! Reno's fast recovery: RFC 5681, section 3.2.
//!
//! The third duplicate acknowledgement is a loss: ssthresh follows, the first segment goes out
//! again, and until new data is acknowledged
//!
//! ```text
//! usable window = ssthresh + duplicate acknowledgements    [segments]
//! ```
//!
//! Deviations: no second fast retransmit before the recovery point of the last loss is passed
//! (RFC 6582, section 4); a congestion control that governs recovery sets the window in place of
//! ssthresh.

use super::tahoe::{fits, limited};
use super::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// What Reno and NewReno share.
#[derive(Debug, Default)]
pub(super) struct Inflation {
    pub(super) dupacks: u32,
    /// The end of what was sent when the last loss was found.
    pub(super) recover: u64,
    /// Segments that have left the network in this recovery.
    pub(super) left: u32,
    /// The first segment is to go out again.
    pub(super) resend: bool,
}

impl Inflation {
    /// A duplicate acknowledgement.
    pub(super) fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks += 1;
        if tx.phase() == Phase::Recovery {
            self.left += 1;
        } else if self.dupacks == tx.dupthresh() && tx.una() > self.recover {
            self.recover = tx.max();
            self.left = self.dupacks;
            self.resend = true;
            tx.count_recovery();
            let in_flight = self.in_flight(tx);
            tx.reduce(in_flight, sample.now);
            tx.enter(Phase::Recovery);
            tx.restart(sample.now);
        } else {
            return;
        }
        if tx.governs_recovery() {
            tx.set_in_flight(self.in_flight(tx));
            let mut sample = *sample;
            sample.newly_acked.delivered = sample.newly_acked.delivered.max(1);
            tx.grow(&sample);
        }
    }

    pub(super) fn in_flight(&self, tx: &RecoveryContext<'_>) -> u32 {
        tx.segments(tx.flight()).saturating_sub(self.left)
    }

    /// New data is acknowledged outside recovery.
    pub(super) fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        self.left = 0;
        tx.set_in_flight(tx.segments(tx.flight()));
        tx.grow(sample);
        if tx.una() >= self.recover {
            tx.enter(Phase::Open);
        }
        tx.settle(sample.now);
    }

    /// Recovery is over; goes on with `cwnd` segments, unless congestion control governs.
    pub(super) fn finish(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample, cwnd: u32) {
        self.dupacks = 0;
        self.left = 0;
        self.resend = false;
        tx.set_in_flight(tx.segments(tx.flight()));
        tx.grow(sample);
        if !tx.governs_recovery() {
            tx.set_cwnd(cwnd.max(1));
        }
        tx.enter(Phase::Open);
        tx.reduced(sample.now);
        tx.settle(sample.now);
    }

    pub(super) fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupacks = 0;
        self.left = 0;
        self.resend = false;
        self.recover = tx.max();
        let in_flight = tx.segments(tx.flight());
        let first = tx.is_first_timeout();
        tx.enter_loss(in_flight, first, now);
        tx.send_from(tx.una());
    }

    pub(super) fn pick(&self, tx: &RecoveryContext<'_>) -> NextSend {
        if self.resend {
            return NextSend::Again(tx.una(), tx.max());
        }
        let extra = match tx.phase() {
            Phase::Recovery => self.left,
            _ => limited(tx, self.dupacks),
        };
        if fits(tx, tx.cwnd().saturating_add(extra)) {
            NextSend::Next
        } else {
            NextSend::Nothing
        }
    }
}

/// Reno's state.
#[derive(Debug, Default)]
pub(super) struct Reno(Inflation);

impl Recovery for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if tx.phase() == Phase::Recovery {
            let ssthresh = tx.ssthresh();
            self.0.finish(tx, sample, ssthresh);
        } else {
            self.0.on_ack(tx, sample);
        }
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.0.on_dupack(tx, sample);
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.0.on_rto(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        self.0.pick(tx)
    }

    fn on_sent(&mut self, _tx: &mut RecoveryContext<'_>, _from: u64, _to: u64) {
        self.0.resend = false;
    }
}
