//! ns-2's Fack (`Agent/TCP/Fack` with `rampdown_ 0`, `ss-div4_ 0`, the defaults).
//!
//! ```text
//! fast retransmit: fack - una >= 4 segments, una's own included     [fack: end of the highest held]
//! on entry: ssthresh = cwnd / 2, cwnd = 1; every acknowledgement in recovery opens the window
//! send while next < fack + floor(cwnd) - resent and not yet held    [segments]
//! ```
//!
//! A segment sent again and lost again is noticed when something sent after it is held; then nothing
//! is sent until the retransmission timer expires. Duplicate acknowledgements restart that timer and
//! sample the round-trip time from the last segment that arrived in order, as ns-2's do.

use super::LostSyn;
use super::common::newack;
use crate::Config;
use crate::recovery::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::collections::VecDeque;

/// Fack's state.
#[derive(Debug, Default)]
pub(crate) struct Fack {
    recover: u64,
    recovering: bool,
    /// A retransmission was lost: nothing is sent until the timer expires.
    stalled: bool,
    fack: u64,
    /// Retransmissions on their way: first byte, and what was to be sent next as they went.
    resent: VecDeque<(u64, u64)>,
    /// Their number, where a lost one counts on (`retran_data_`).
    resent_out: u32,
    /// Holes below this were sent again.
    cursor: u64,
    resend: bool,
    /// The last acknowledgement releases nothing.
    shut: bool,
    /// When the segment was sent that last arrived in order.
    echo: Option<Instant>,
}

impl Fack {
    pub(crate) fn adapt(config: &mut Config) {
        config.ns2.lost_syn = LostSyn::WholeWindow;
    }

    /// What every acknowledgement with SACK blocks, or in recovery, does (`oldack`).
    fn oldack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if let Some((last, _)) = sample.newly_acked.last {
            self.echo = Some(last);
        }
        tx.settle(sample.now);
        if let Some(echo) = self.echo {
            tx.observe_rtt(echo, sample.now);
        }
        self.fack = self.fack.max(tx.una()).max(sample.highest.unwrap_or(0));
        tx.send_from(tx.next().max(self.fack.min(tx.max())));
        let before = self.resent.len();
        let (una, sacked) = (tx.una(), &tx.board().sacked);
        self.resent
            .retain(|&(from, _)| from >= una && sacked.covering(from).is_none());
        self.resent_out = self
            .resent_out
            .saturating_sub((before - self.resent.len()) as u32);
    }

    fn forget(&mut self, tx: &mut RecoveryContext<'_>) {
        if !tx.board().sacked.is_empty() {
            tx.board_mut().clear();
        }
        self.stalled = false;
        self.resent.clear();
        self.resent_out = 0;
        self.cursor = 0;
        self.resend = false;
    }

    fn begin(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.recover = tx.next();
        self.recovering = true;
        self.resend = true;
        self.shut = true;
        tx.count_recovery();
        tx.reduce(tx.board().pipe(), now);
        tx.enter(Phase::Recovery);
        tx.set_cwnd(1);
        // The fraction of the window goes with it.
        tx.signal(bentpipe_cc::Signal::Timeout, now);
        tx.restart(now);
    }

    fn in_recovery(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.oldack(tx, sample);
        if let Some(highest) = sample.highest {
            let before = self.resent.len();
            self.resent.retain(|&(_, next)| next >= highest);
            self.stalled |= self.resent.len() < before;
        }
        tx.grow(sample);
        self.shut = false;
        if sample.highest.is_none() && tx.una() > self.recover {
            self.recovering = false;
            self.forget(tx);
            tx.enter(Phase::Open);
            tx.reduced(sample.now);
        }
    }

    fn outside(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.oldack(tx, sample);
        let beyond = tx.segments(self.fack - tx.una());
        self.shut = beyond > 1;
        if beyond > tx.dupthresh() {
            self.begin(tx, sample.now);
        }
    }
}

impl Recovery for Fack {
    fn name(&self) -> &'static str {
        "ns2-fack"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if self.recovering {
            self.in_recovery(tx, sample);
        } else if sample.highest.is_some() {
            self.outside(tx, sample);
        } else {
            self.echo = sample.newly_acked.last.map(|(at, _)| at);
            self.forget(tx);
            self.fack = tx.una();
            self.shut = false;
            newack(tx, sample, self.recover);
        }
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if self.recovering {
            self.in_recovery(tx, sample);
        } else {
            self.outside(tx, sample);
        }
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.forget(tx);
        self.shut = false;
        let in_flight = tx.segments(tx.flight());
        tx.enter_loss(in_flight, true, now);
        if self.recovering {
            tx.enter(Phase::Recovery);
            tx.set_cwnd(1);
        }
        self.fack = tx.una();
        tx.send_from(tx.una());
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        if self.resend {
            return NextSend::Again(tx.una(), tx.max());
        }
        let window = tx.cwnd().saturating_sub(self.resent_out);
        let flight = tx.next().saturating_sub(self.fack.max(tx.una()));
        if self.stalled || self.shut || flight >= tx.bytes(window) {
            return NextSend::Nothing;
        }
        let hole = tx.board().sacked.last().and_then(|(_, highest)| {
            tx.board()
                .sacked
                .uncovered(self.cursor.max(tx.una()), highest)
        });
        match hole {
            Some((from, to)) => NextSend::Again(from, to),
            None => NextSend::Next,
        }
    }

    fn on_sent(&mut self, tx: &mut RecoveryContext<'_>, from: u64, to: u64) {
        let again = self.resend || (from >= self.cursor && to <= self.fack);
        if again && !tx.board().sacked.is_empty() {
            self.resend = false;
            self.resent.push_back((from, tx.next()));
            self.resent_out += 1;
            self.cursor = to;
        }
        self.resend = false;
    }
}
