//! ns-2's Tahoe (`Agent/TCP`): the third duplicate acknowledgement halves ssthresh and sends again
//! from the first segment not acknowledged with a window of one; further ones do nothing. The first
//! two release one segment each.

use super::common::{SendAllowance, may_begin, newack, timeout};
use crate::recovery::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::{Phase, Signal};

/// Tahoe's state.
#[derive(Debug, Default)]
pub(crate) struct Tahoe {
    dupacks: u32,
    recover: u64,
    allowance: SendAllowance,
}

impl Recovery for Tahoe {
    fn name(&self) -> &'static str {
        "ns2-tahoe"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        self.allowance = SendAllowance::OPEN;
        newack(tx, sample, self.recover);
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks += 1;
        self.allowance = SendAllowance::OPEN;
        if self.dupacks == tx.dupthresh() {
            if may_begin(tx, self.recover) {
                self.recover = tx.max();
                tx.count_recovery();
                tx.reduce(tx.segments(tx.flight()), sample.now);
                tx.enter(Phase::Loss);
                tx.set_cwnd(1);
                tx.signal(Signal::Timeout, sample.now);
                tx.send_from(tx.una());
                tx.restart(sample.now);
            }
        } else if self.dupacks < tx.dupthresh() && tx.limited_transmit() {
            self.allowance.beyond = 1;
        }
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.recover = tx.max();
        self.allowance = SendAllowance::OPEN;
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        self.allowance.pick(tx, tx.cwnd(), self.dupacks)
    }

    fn on_sent(&mut self, tx: &mut RecoveryContext<'_>, from: u64, _to: u64) {
        // What the window allows does not use the single one up.
        if from - tx.una() >= tx.bytes(tx.cwnd()) {
            self.allowance.beyond = 0;
        }
    }
}
