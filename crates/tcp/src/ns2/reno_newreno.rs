//! ns-2's Reno and NewReno (`Agent/TCP/Reno`, `Agent/TCP/Newreno` with `newreno_changes1_ 1` and
//! `partial_window_deflation_ 1`, the defaults).
//!
//! ```text
//! usable window = floor(cwnd) + dupwnd        [segments]
//! dupwnd = 3 at the third duplicate acknowledgement, one more at each further one
//! ```
//!
//! Reno leaves at the next acknowledgement of new data and may begin anew at once; NewReno stays
//! until the recovery point, sends the next segment at each partial acknowledgement, and takes what
//! that acknowledged off dupwnd and then cwnd.

use super::common::{Action, SendAllowance, may_begin, newack, timeout};
use crate::recovery::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// Reno's or NewReno's state.
#[derive(Debug, Default)]
pub(crate) struct Reno {
    /// NewReno.
    partial: bool,
    dupacks: u32,
    dupwnd: u32,
    recover: u64,
    action: Action,
    allowance: SendAllowance,
    resend: bool,
    /// A partial acknowledgement has started the timer anew.
    settled: bool,
}

impl Reno {
    pub(crate) fn new(partial: bool) -> Self {
        Self {
            partial,
            ..Self::default()
        }
    }

    fn begin(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.recover = tx.max();
        self.action = Action::Dupack;
        self.dupwnd = tx.dupthresh();
        self.resend = true;
        tx.count_recovery();
        tx.reduce(tx.segments(tx.flight()), now);
        tx.enter(Phase::Recovery);
        tx.restart(now);
    }

    /// A partial acknowledgement (`partialnewack`).
    fn deflate(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        let acked = sample.newly_acked.acked;
        if self.dupwnd > acked {
            self.dupwnd -= acked.saturating_sub(1);
        } else {
            tx.set_cwnd(tx.cwnd().saturating_sub(acked - self.dupwnd).max(1));
            self.dupwnd = 1;
        }
        if !self.settled {
            self.settled = true;
            tx.settle(sample.now);
        }
        self.resend = true;
        self.allowance.within = 2;
    }
}

impl Recovery for Reno {
    fn name(&self) -> &'static str {
        if self.partial {
            "ns2-newreno"
        } else {
            "ns2-reno"
        }
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        let recovering = self.partial && self.action == Action::Dupack;
        if recovering && tx.una() < self.recover {
            self.deflate(tx, sample);
            return;
        }
        if self.action == Action::Dupack && (!self.partial || self.dupwnd > 0) {
            self.action = Action::Exited;
        }
        self.dupwnd = 0;
        self.dupacks = 0;
        self.settled = false;
        self.resend = false;
        self.allowance = SendAllowance::OPEN;
        if tx.phase() == Phase::Recovery {
            tx.enter(Phase::Open);
        }
        newack(tx, sample, self.recover);
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks += 1;
        let dupthresh = tx.dupthresh();
        self.allowance = match (self.dupacks < dupthresh, self.partial) {
            (true, _) if tx.limited_transmit() => SendAllowance::ONE,
            (true, _) => SendAllowance::SHUT,
            (false, true) => SendAllowance {
                within: 2,
                beyond: 0,
            },
            (false, false) => SendAllowance::OPEN,
        };
        if self.dupacks == dupthresh {
            let again = !self.partial && self.action == Action::Dupack;
            if again || may_begin(tx, self.recover) {
                self.begin(tx, sample.now);
            }
        } else if self.dupacks > dupthresh && self.action == Action::Dupack {
            self.dupwnd += 1;
        }
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupwnd = 0;
        self.dupacks = 0;
        self.recover = tx.max();
        self.action = Action::Timeout;
        self.allowance = SendAllowance::OPEN;
        self.resend = false;
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        if self.resend {
            return NextSend::Again(tx.una(), tx.max());
        }
        let window = tx.cwnd() + self.dupwnd;
        self.allowance.pick(tx, window, self.dupacks)
    }

    fn on_sent(&mut self, _tx: &mut RecoveryContext<'_>, _from: u64, _to: u64) {
        if self.resend {
            self.resend = false;
        } else {
            self.allowance.spend();
        }
    }
}
