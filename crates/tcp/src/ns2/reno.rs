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

use super::turn::{Action, Turn, may_begin, newack, timeout};
use crate::recovery::{Arrival, Pick, Recovery, SenderView};
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
    turn: Turn,
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

    fn begin(&mut self, tx: &mut SenderView<'_>, now: Instant) {
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
    fn deflate(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        let acked = arrival.delivery.acked;
        if self.dupwnd > acked {
            self.dupwnd -= acked.saturating_sub(1);
        } else {
            tx.set_cwnd(tx.cwnd().saturating_sub(acked - self.dupwnd).max(1));
            self.dupwnd = 1;
        }
        if !self.settled {
            self.settled = true;
            tx.settle(arrival.now);
        }
        self.resend = true;
        self.turn.within = 2;
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

    fn on_ack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        let recovering = self.partial && self.action == Action::Dupack;
        if recovering && tx.una() < self.recover {
            self.deflate(tx, arrival);
            return;
        }
        if self.action == Action::Dupack && (!self.partial || self.dupwnd > 0) {
            self.action = Action::Exited;
        }
        self.dupwnd = 0;
        self.dupacks = 0;
        self.settled = false;
        self.resend = false;
        self.turn = Turn::OPEN;
        if tx.phase() == Phase::Recovery {
            tx.enter(Phase::Open);
        }
        newack(tx, arrival, self.recover);
    }

    fn on_dupack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.dupacks += 1;
        let dupthresh = tx.dupthresh();
        self.turn = match (self.dupacks < dupthresh, self.partial) {
            (true, _) if tx.limited_transmit() => Turn::ONE,
            (true, _) => Turn::SHUT,
            (false, true) => Turn {
                within: 2,
                beyond: 0,
            },
            (false, false) => Turn::OPEN,
        };
        if self.dupacks == dupthresh {
            let again = !self.partial && self.action == Action::Dupack;
            if again || may_begin(tx, self.recover) {
                self.begin(tx, arrival.now);
            }
        } else if self.dupacks > dupthresh && self.action == Action::Dupack {
            self.dupwnd += 1;
        }
    }

    fn on_rto(&mut self, tx: &mut SenderView<'_>, now: Instant) {
        self.dupwnd = 0;
        self.dupacks = 0;
        self.recover = tx.max();
        self.action = Action::Timeout;
        self.turn = Turn::OPEN;
        self.resend = false;
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut SenderView<'_>) -> Pick {
        if self.resend {
            return Pick::Again(tx.una(), tx.max());
        }
        let window = tx.cwnd() + self.dupwnd;
        self.turn.pick(tx, window, self.dupacks)
    }

    fn on_sent(&mut self, _tx: &mut SenderView<'_>, _from: u64, _to: u64) {
        if self.resend {
            self.resend = false;
        } else {
            self.turn.spend();
        }
    }
}
