//! ns-2's Vegas (`Agent/TCP/Vegas`): the first duplicate acknowledgements already send a segment
//! again when its fine-grained timeout has passed, the third always does; the first two new
//! acknowledgements afterwards look for the next one. The timeout and the cut are the congestion
//! control's ([`bentpipe_cc::Congestion::expired`]).
//!
//! As ns-2 has it, the window is inflated by the duplicate acknowledgements as it is cut, grows by
//! one at each further one, and is deflated only when there was a further one. No limited transmit.
//! Where the first two new acknowledgements leave nothing in flight, ns-2 takes the segment that
//! comes next, never sent, for expired: it goes out twice.
//! The first window is one segment, and two from the first acknowledgement of data on.

use super::common::{Action, SendAllowance, newack, timeout};
use crate::Config;
use crate::recovery::{AckSample, NextSend, Recovery, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// State of Vegas's recovery.
#[derive(Debug, Default)]
pub(crate) struct Vegas {
    dupacks: u32,
    recover: u64,
    action: Action,
    allowance: SendAllowance,
    resend: bool,
    /// The next segment goes out without being counted as sent.
    ahead: bool,
    /// New acknowledgements that still look for an expired segment.
    worried: u32,
    /// The window after the last cut, in segments.
    cut: u32,
    /// When the window was last cut.
    changed: Option<Instant>,
    /// Data was acknowledged.
    started: bool,
}

impl Vegas {
    /// Its window of two comes with the first acknowledgement of data.
    pub(crate) fn adapt(config: &mut Config) {
        config.initial_window = 1;
    }

    fn begin(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.action = Action::Dupack;
        self.recover = tx.max();
        self.worried = 2;
        let hole = tx.first_unacked(now);
        let inflated = tx.cwnd();
        tx.count_recovery();
        tx.reduce(tx.segments(tx.flight()), now);
        if self.changed.is_none_or(|changed| changed < hole.sent) {
            self.cut = tx.cwnd();
            self.changed = Some(now);
            tx.enter(Phase::Recovery);
            tx.set_cwnd(self.cut + self.dupacks);
        } else {
            tx.enter(Phase::Recovery);
            tx.set_cwnd(inflated);
        }
        tx.back_off();
        tx.restart(now);
        self.resend = true;
        if hole.transmits == 1 {
            self.dupacks = tx.dupthresh();
        }
    }
}

impl Recovery for Vegas {
    fn name(&self) -> &'static str {
        "ns2-vegas"
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if !self.started {
            self.started = true;
            tx.set_cwnd(tx.cwnd().max(2));
        }
        if self.dupacks > tx.dupthresh() && tx.cwnd() > self.cut {
            tx.set_cwnd(self.cut.max(1));
            tx.set_ssthresh(2);
        }
        self.dupacks = 0;
        self.allowance = SendAllowance::OPEN;
        self.resend = false;
        self.ahead = false;
        tx.enter(Phase::Open);
        newack(tx, sample, self.recover);
        if self.worried > 0 {
            self.worried -= 1;
            self.ahead = tx.una() == tx.max();
            if self.ahead || tx.expired(&tx.first_unacked(sample.now)) {
                self.dupacks = tx.dupthresh();
                self.resend = !self.ahead;
            } else {
                self.worried = 0;
            }
        }
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks += 1;
        let hole = tx.first_unacked(sample.now);
        let dupthresh = tx.dupthresh();
        if self.dupacks == dupthresh || tx.expired(&hole) {
            if tx.una() > self.recover || self.action != Action::Timeout {
                self.begin(tx, sample.now);
            }
        } else if self.dupacks > dupthresh {
            tx.set_cwnd(tx.cwnd() + 1);
        }
        self.allowance = if self.dupacks >= dupthresh {
            SendAllowance::OPEN
        } else {
            SendAllowance::SHUT
        };
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupacks = 0;
        self.recover = tx.max();
        self.action = Action::Timeout;
        self.allowance = SendAllowance::OPEN;
        self.resend = false;
        self.ahead = false;
        self.cut = 0;
        self.changed = Some(now);
        timeout(tx, now);
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        if self.resend {
            return NextSend::Again(tx.una(), tx.max());
        }
        if self.ahead {
            return NextSend::Next;
        }
        self.allowance.pick(tx, tx.cwnd(), 0)
    }

    fn on_sent(&mut self, tx: &mut RecoveryContext<'_>, from: u64, _to: u64) {
        self.resend = false;
        if self.ahead {
            self.ahead = false;
            tx.send_from(from);
        }
    }
}
