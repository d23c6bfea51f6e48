//! ns-2's Tahoe (`Agent/TCP`): the third duplicate acknowledgement halves ssthresh and sends again
//! from the first segment not acknowledged with a window of one; further ones do nothing. The first
//! two release one segment each.

use super::turn::{Turn, may_begin, newack, timeout};
use crate::recovery::{Arrival, Pick, Recovery, SenderView};
use bentpipe_base::Instant;
use bentpipe_cc::{Phase, Signal};

/// Tahoe's state.
#[derive(Debug, Default)]
pub(crate) struct Tahoe {
    dupacks: u32,
    recover: u64,
    turn: Turn,
}

impl Recovery for Tahoe {
    fn name(&self) -> &'static str {
        "ns2-tahoe"
    }

    fn on_ack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.dupacks = 0;
        self.turn = Turn::OPEN;
        newack(tx, arrival, self.recover);
    }

    fn on_dupack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.dupacks += 1;
        self.turn = Turn::OPEN;
        if self.dupacks == tx.dupthresh() {
            if may_begin(tx, self.recover) {
                self.recover = tx.max();
                tx.count_recovery();
                tx.reduce(tx.segments(tx.flight()), arrival.now);
                tx.enter(Phase::Loss);
                tx.set_cwnd(1);
                tx.signal(Signal::Timeout, arrival.now);
                tx.send_from(tx.una());
                tx.restart(arrival.now);
            }
        } else if self.dupacks < tx.dupthresh() && tx.limited_transmit() {
            self.turn.beyond = 1;
        }
    }

    fn on_rto(&mut self, tx: &mut SenderView<'_>, now: Instant) {
        self.recover = tx.max();
        self.turn = Turn::OPEN;
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut SenderView<'_>) -> Pick {
        self.turn.pick(tx, tx.cwnd(), self.dupacks)
    }

    fn on_sent(&mut self, tx: &mut SenderView<'_>, from: u64, _to: u64) {
        // What the window allows does not use the single one up.
        if from - tx.una() >= tx.bytes(tx.cwnd()) {
            self.turn.beyond = 0;
        }
    }
}
