//! NewReno: RFC 6582.
//!
//! As Reno, but recovery lasts until all that was in flight when the loss was found is acknowledged.
//! An acknowledgement of less (partial) names the next loss: that segment goes out at once, and the
//! window shrinks by what was acknowledged, less one segment. Afterwards
//!
//! ```text
//! cwnd = min(ssthresh, max(in flight, 1) + 1)    [segments]
//! ```
//!
//! The retransmission timer starts anew with the first partial acknowledgement only ("impatient",
//! section 4). Deviation: a congestion control that governs recovery keeps its own window.

use super::reno::Inflation;
use super::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// NewReno's state.
#[derive(Debug, Default)]
pub(super) struct NewReno {
    base: Inflation,
    /// A partial acknowledgement has come.
    partial: bool,
}

impl Recovery for NewReno {
    fn name(&self) -> &'static str {
        "newreno"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if tx.phase() != Phase::Recovery {
            self.base.on_ack(tx, sample);
        } else if tx.una() >= self.base.recover {
            let in_flight = tx.segments(tx.flight());
            let cwnd = tx.ssthresh().min(in_flight.max(1) + 1);
            self.partial = false;
            self.base.finish(tx, sample, cwnd);
        } else {
            // What was acknowledged has left, and so has the segment found lost.
            let acked = sample.newly_acked.acked;
            self.base.left = (self.base.left + 1).saturating_sub(acked.max(1));
            self.base.resend = true;
            tx.set_in_flight(self.base.in_flight(tx));
            tx.grow(sample);
            if !self.partial {
                self.partial = true;
                tx.settle(sample.now);
            }
        }
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if tx.phase() != Phase::Recovery {
            self.partial = false;
        }
        self.base.on_dupack(tx, sample);
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.base.on_rto(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        self.base.pick(tx)
    }

    fn on_sent(&mut self, _tx: &mut RecoveryContext<'_>, _from: u64, _to: u64) {
        self.base.resend = false;
    }
}
