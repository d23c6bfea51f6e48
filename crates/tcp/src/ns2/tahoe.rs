//! ns-2's Tahoe (`Agent/TCP`): the third duplicate acknowledgement halves ssthresh and sends again
//! from the first segment not acknowledged with a window of one; further ones do nothing. The first
//! two release one segment each.

use super::turn::{Turn, may_begin, newack, timeout};
use crate::recovery::{Arrival, Pick, Recovery, Sender};
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

    fn on_ack(&mut self, tx: &mut Sender, arrival: &Arrival) {
        self.dupacks = 0;
        self.turn = Turn::OPEN;
        newack(tx, arrival, self.recover);
    }

    fn on_dupack(&mut self, tx: &mut Sender, arrival: &Arrival) {
        self.dupacks += 1;
        self.turn = Turn::OPEN;
        if self.dupacks == tx.config.dupthresh {
            if may_begin(tx, self.recover) {
                self.recover = tx.max;
                tx.counters.recoveries += 1;
                tx.reduce(tx.segments(tx.flight()), arrival.now);
                tx.enter(Phase::Loss);
                tx.window.cwnd = 1;
                tx.congestion
                    .on_signal(&mut tx.window, Signal::Timeout, arrival.now);
                tx.next = tx.una;
                tx.restart(arrival.now);
            }
        } else if self.dupacks < tx.config.dupthresh && tx.config.limited_transmit {
            self.turn.beyond = 1;
        }
    }

    fn on_rto(&mut self, tx: &mut Sender, now: Instant) {
        self.recover = tx.max;
        self.turn = Turn::OPEN;
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut Sender) -> Pick {
        self.turn.pick(tx, tx.window.cwnd, self.dupacks)
    }

    fn on_sent(&mut self, tx: &mut Sender, from: u64, _to: u64) {
        // What the window allows does not use the single one up.
        if from - tx.una >= tx.bytes(tx.window.cwnd) {
            self.turn.beyond = 0;
        }
    }
}
