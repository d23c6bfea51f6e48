//! ns-2's Sack1 (`Agent/TCP/Sack1` with `partial_ack_ 0`, the default).
//!
//! ```text
//! pipe = outstanding - 3 on entry; - 1 each acknowledgement, - 2 a partial one; + 1 each segment sent
//! in recovery, send while pipe < floor(cwnd): the next hole below the highest byte held, else new
//! ```
//!
//! Only duplicate acknowledgements that tell something new count. The window does not grow in
//! recovery nor as it ends. After a timeout all is sent again from the first segment not
//! acknowledged; SACK is forgotten and duplicate acknowledgements mean nothing until new data is
//! acknowledged.

use super::common::{SendAllowance, may_begin, newack, timeout};
use crate::recovery::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// Sack1's state.
#[derive(Debug, Default)]
pub(crate) struct Sack {
    dupacks: u32,
    recover: u64,
    recovering: bool,
    /// Nothing new was acknowledged since a timeout.
    timed_out: bool,
    pipe: i64,
    /// Holes below this were sent again.
    resent: u64,
    resend: bool,
    allowance: SendAllowance,
}

impl Sack {
    fn begin(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.recover = tx.max();
        let outstanding = i64::from(tx.segments(tx.max() - tx.una()));
        self.pipe = outstanding - i64::from(tx.dupthresh());
        self.resent = tx.una() + u64::from(tx.mss());
        self.recovering = true;
        self.resend = true;
        self.allowance = SendAllowance::SHUT;
        tx.count_recovery();
        tx.reduce(tx.board().pipe(), now);
        tx.enter(Phase::Recovery);
        tx.restart(now);
    }

    /// A congestion control that governs recovery sets the window there too.
    fn govern(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if tx.governs_recovery() {
            tx.set_in_flight(u32::try_from(self.pipe.max(0)).unwrap_or(u32::MAX));
            tx.grow(sample);
        }
    }

    fn hole(&self, tx: &RecoveryContext<'_>) -> Option<(u64, u64)> {
        let (_, highest) = tx.board().sacked.last()?;
        tx.board()
            .sacked
            .uncovered(self.resent.max(tx.una()), highest)
    }
}

impl Recovery for Sack {
    fn name(&self) -> &'static str {
        "ns2-sack"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.allowance = SendAllowance::OPEN;
        if self.recovering && tx.una() < self.recover {
            self.pipe -= 2;
            tx.settle(sample.now);
            tx.reset_backoff();
            self.govern(tx, sample);
            return;
        }
        self.dupacks = 0;
        self.timed_out = false;
        self.resend = false;
        if !tx.board().sacked.is_empty() {
            tx.board_mut().clear();
        }
        self.resent = 0;
        if self.recovering {
            self.recovering = false;
            self.recover = 0;
            self.govern(tx, sample);
            tx.enter(Phase::Open);
            tx.reduced(sample.now);
            tx.settle(sample.now);
        } else {
            newack(tx, sample, self.recover);
        }
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if self.recovering {
            self.allowance = SendAllowance::OPEN;
            self.pipe -= 1;
            if sample.newly_acked.news && self.dupacks > 0 {
                self.dupacks += 1;
            }
            self.govern(tx, sample);
            return;
        }
        self.allowance = if self.dupacks == 0 {
            SendAllowance::OPEN
        } else {
            SendAllowance::SHUT
        };
        if self.timed_out || !sample.newly_acked.news {
            return;
        }
        self.dupacks += 1;
        self.allowance = SendAllowance::SHUT;
        if self.dupacks == tx.dupthresh() {
            if may_begin(tx, self.recover) {
                self.begin(tx, sample.now);
            }
        } else if self.dupacks < tx.dupthresh() && tx.limited_transmit() {
            self.allowance = SendAllowance::ONE;
        }
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupacks = 0;
        self.recovering = false;
        self.timed_out = true;
        self.resend = false;
        self.recover = tx.max();
        self.resent = 0;
        self.allowance = SendAllowance::OPEN;
        tx.board_mut().clear();
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        if self.resend {
            return NextSend::Again(tx.una(), tx.max());
        }
        if !self.recovering {
            return self.allowance.pick(tx, tx.cwnd(), self.dupacks);
        }
        if self.allowance.within == 0 || self.pipe >= i64::from(tx.cwnd()) {
            return NextSend::Nothing;
        }
        match self.hole(tx) {
            Some((from, to)) => NextSend::Again(from, to),
            None => NextSend::Next,
        }
    }

    fn on_sent(&mut self, _tx: &mut RecoveryContext<'_>, from: u64, to: u64) {
        if self.resend {
            self.resend = false;
        } else if self.recovering {
            self.pipe += 1;
            // New segments lie beyond all holes.
            if from >= self.resent && from < self.recover {
                self.resent = to;
            }
        } else {
            self.allowance.spend();
        }
    }
}
