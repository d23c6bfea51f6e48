//! RACK with its tail loss probe (RFC 8985, section 7): where the end of a flight is lost, no acknowledgement comes that
//! would tell so, and only a retransmission timeout would find it. One segment, new or the last one again, is sent
//! before, and what comes of it lets RACK see what is missing.
//!
//! ```text
//! PTO = 2 SRTT, 1 s while none is known; 200 ms more with one segment in flight; no later than the RTO would expire [s]
//! ```
//!
//! It starts anew with new data sent and with each acknowledgement that tells something new, while nothing is held by SACK,
//! no recovery is under way and no probe is outstanding. A probe that was the last segment again, and repaired a loss, costs a reduction of the
//! window: its acknowledgement goes beyond it, and no D-SACK told that the segment arrived twice.
//!
//! Deviations: PTO is at least 2 ms, the time in which others are known to be scheduled (Linux: two jiffies).
//!
//! The recovery by SNACK (`snack.rs`) has the same [`Probe`].

use super::rack::Rack;
use super::sack_recovery::Detect;
use super::{AckSample, NextSend, RecoveryContext};
use crate::LossCause;
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::time::Duration;

/// TLP.max_ack_delay.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// PTO while no round-trip time is known.
const UNKNOWN: Duration = Duration::from_secs(1);
/// The least PTO.
const LEAST: Duration = Duration::from_millis(2);

/// The probe of one connection, which shares the recovery's timer with what else that waits for.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The recovery's timer is the probe's.
    armed: bool,
    /// The timer expired: a probe is to be sent.
    due: bool,
    /// A probe is outstanding: the end of all that was sent as it went (TLP.end_seq).
    end: Option<u64>,
    /// It was the last segment again (TLP.is_retrans).
    again: bool,
}

impl Probe {
    /// PTO; `alone`: what is in flight may wait for a delayed acknowledgement.
    pub(super) fn timeout(tx: &RecoveryContext<'_>, alone: bool) -> Duration {
        let delay = if alone { MAX_ACK_DELAY } else { Duration::ZERO };
        tx.srtt().map_or(UNKNOWN, |srtt| 2 * srtt + delay)
    }

    /// Section 7.2: a probe is to be sent `at` a time, unless one is outstanding, or the timer waits for something else.
    pub(super) fn schedule(
        &mut self,
        tx: &mut RecoveryContext<'_>,
        at: Option<Instant>,
        now: Instant,
    ) {
        let Some(at) = at.filter(|_| !self.due && self.end.is_none()) else {
            if self.armed {
                self.armed = false;
                tx.stop_timer();
            }
            return;
        };
        if self.armed || tx.recovery_timer() == Instant::MAX {
            self.armed = true;
            tx.set_timer(now, at);
        }
    }

    /// The timer has been set for something else.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }

    /// The recovery's timer expired. Returns whether it was the probe's.
    pub(super) fn expired(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> bool {
        if !core::mem::take(&mut self.armed) {
            return false;
        }
        tx.stop_timer();
        self.due = tx.una() < tx.max();
        // Whether the probe can be sent or not, the next timer is that of the retransmission (section 7.3).
        tx.settle(now);
        true
    }

    /// An acknowledgement came with data in flight.
    pub(super) fn observe(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        let newly = &sample.newly_acked;
        self.due &= newly.delivered == 0;
        let repeats = newly.acked == 0 && sample.highest.is_none() && !sample.snack;
        self.answered(tx, sample.duplicate, repeats, sample.now);
    }

    /// Section 7.4.2: what an acknowledgement tells of the probe; `repeats` where it tells nothing by SACK and
    /// acknowledges nothing new.
    pub(super) fn answered(
        &mut self,
        tx: &mut RecoveryContext<'_>,
        duplicate: Option<(u64, u64)>,
        repeats: bool,
        now: Instant,
    ) {
        let Some(end) = self.end.filter(|end| tx.una() >= *end) else {
            return;
        };
        let twice = duplicate.is_some_and(|(from, to)| from < end && end <= to);
        if !self.again || twice {
            self.end = None;
        } else if tx.una() > end {
            self.end = None;
            // A recovery has reduced the window by itself.
            let recovering = matches!(tx.phase(), Phase::Recovery | Phase::Loss);
            if !recovering && tx.loss_cause(now) == LossCause::Congestion {
                tx.reduce(tx.board().pipe(), now);
                tx.enter(Phase::Cwr);
                tx.reduced(now);
                tx.enter(Phase::Open);
            }
        } else if repeats {
            self.end = None;
        }
    }

    /// What is to be sent whatever the window says.
    pub(super) fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> Option<NextSend> {
        if !self.due {
            return None;
        }
        if tx.has_new_data() {
            self.again = false;
            tx.force();
            return Some(NextSend::Next);
        }
        self.again = true;
        let (from, to) = tx.board().last_segment()?;
        Some(NextSend::Again(from, to))
    }

    /// A segment was sent. Returns whether it was the probe.
    pub(super) fn sent(&mut self, tx: &mut RecoveryContext<'_>) -> bool {
        if !core::mem::take(&mut self.due) {
            return false;
        }
        self.end = Some(tx.max());
        tx.count_loss_probe();
        true
    }
}

/// RACK's state and the probe's.
#[derive(Debug, Default)]
pub(super) struct RackTlp {
    rack: Rack,
    probe: Probe,
}

impl RackTlp {
    /// Schedules the probe, no later than at `latest`.
    fn schedule(&mut self, tx: &mut RecoveryContext<'_>, latest: Instant, now: Instant) {
        let open = matches!(tx.phase(), Phase::Open | Phase::Cwr);
        let quiet = open && tx.board().sacked_out() == 0;
        let at = (quiet && tx.una() < tx.max()).then(|| {
            let timeout = Probe::timeout(tx, tx.board().pipe() == 1);
            (now + timeout.max(LEAST)).min(latest)
        });
        self.probe.schedule(tx, at, now);
    }
}

impl Detect for RackTlp {
    const NAME: &'static str = "rack-tlp";
    const PROPORTIONAL: bool = Rack::PROPORTIONAL;
    const CLOCKED_BY_SACK: bool = Rack::CLOCKED_BY_SACK;
    const COUNTS_DUPACKS: bool = Rack::COUNTS_DUPACKS;

    fn observe(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.probe.observe(tx, sample);
        self.rack.observe(tx, sample);
    }

    fn idle(&mut self, tx: &mut RecoveryContext<'_>, duplicate: Option<(u64, u64)>, now: Instant) {
        self.probe.answered(tx, duplicate, true, now);
        self.rack.idle(tx, duplicate, now);
    }

    fn settled(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        // How late the timer is does not add to how late the probe's is.
        self.schedule(tx, tx.expiry().min(now + tx.rto()), now);
    }

    fn began(&mut self) {
        self.probe = Probe::default();
    }

    fn reordered(&mut self, far: bool) {
        self.rack.reordered(far);
    }

    fn grows_by_sack(&self) -> bool {
        self.rack.grows_by_sack()
    }

    fn recovered(&mut self) {
        self.rack.recovered();
    }

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> u32 {
        // RACK sets the timer for itself, or clears it.
        self.probe.disarm();
        self.rack.detect(tx, sample)
    }

    fn timed_out(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> bool {
        self.rack.timed_out(tx, now)
    }

    fn late(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> u32 {
        if self.probe.expired(tx, now) {
            return 0;
        }
        self.rack.late(tx, now)
    }

    fn probe(&mut self, tx: &mut RecoveryContext<'_>) -> Option<NextSend> {
        self.probe.pick(tx)
    }

    fn sent(&mut self, tx: &mut RecoveryContext<'_>, again: bool) {
        if !self.probe.sent(tx) && !again {
            let now = tx.last_sent();
            // After an acknowledgement the retransmission timer runs for a whole RTO; once more is sent, Linux counts it from when
            // the first missing segment was sent (`tcp_rto_delta_us`).
            let latest = tx.board().get(tx.una()).map(|first| first.at + tx.rto());
            let latest = latest.filter(|latest| *latest > now);
            self.schedule(tx, latest.unwrap_or(Instant::MAX), now);
        }
    }
}
