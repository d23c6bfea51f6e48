//! RACK's loss detection by time (RFC 8985, section 6.2) with proportional rate reduction (RFC 9937).
//!
//! ```text
//! lost: sent before the segment delivered that was sent last, and longer ago than that one's RTT + reordering window
//! reordering window = 0 in recovery or with 3 segments held, while no reordering was seen;
//!                     min(n * least RTT / 4, SRTT) otherwise, n = 1 + round trips in which the peer told of a segment
//!                     that arrived twice (D-SACK), 1 again after 16 recoveries without
//! ```
//!
//! What is not lost yet, but was sent before that segment, is looked at again when the last of it would be due. A
//! segment sent again and lost again is found too, which counts of segments cannot do.
//!
//! As Linux, round-trip times are also taken from segments that SACK blocks name, and one of them
//! that was sent before the first missing segment was last sent starts the retransmission timer
//! anew: until what was sent after it arrives, nothing tells that it was lost again.
//!
//! Deviations: the round-trip time in that is Linux's, of what was acknowledged in order, if that was news, though SACK blocks beside it
//! may name what was sent later (section 6.2, step 2: of what was sent last); no tail loss probe (section 7): that is `RackTlp`'s (`tail_loss_probe.rs`); D-SACK widens the reordering window only where
//! segments came out of order.

use super::sack_recovery::Detect;
use super::{AckSample, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::time::Duration;

/// Recoveries without a D-SACK after which the reordering window is small again (RACK.reo_wnd_persist).
const PERSIST: u32 = 16;

/// RACK's state.
#[derive(Debug)]
pub(super) struct Rack {
    /// The segment delivered that was sent last: when (RACK.xmit_ts), and where it ends (RACK.end_seq).
    latest: (Instant, u64),
    /// The round-trip time of what was delivered last (RACK.rtt): as in Linux, of what was acknowledged in order, where that
    /// was news, whatever SACK blocks beside it name.
    rtt: Duration,
    /// The highest byte delivered (RACK.fack).
    highest: u64,
    /// A segment sent once was delivered after a higher one (RACK.reordering_seen).
    reordered: bool,
    /// One was so by more than the duplicate threshold, and no timeout has put that in doubt since: what SACK blocks name lets
    /// the window grow, too (Linux `tcp_may_raise_cwnd`).
    far: bool,
    /// The reordering window, in quarters of the least round-trip time (RACK.reo_wnd_mult).
    quarters: u32,
    /// Recoveries until the window is small again (RACK.reo_wnd_persist).
    persist: u32,
    /// Until this is acknowledged the window has grown for this round trip (RACK.dsack_round).
    round: Option<u64>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            latest: (Instant::ZERO, 0),
            rtt: Duration::ZERO,
            highest: 0,
            reordered: false,
            far: false,
            quarters: 1,
            persist: PERSIST,
            round: None,
        }
    }
}

impl Rack {
    /// Step 4.
    fn reordering_window(&self, tx: &RecoveryContext<'_>) -> Duration {
        let recovering = matches!(tx.phase(), Phase::Recovery | Phase::Loss);
        let certain = recovering || tx.board().sacked_out() >= tx.dupthresh();
        if certain && !self.reordered {
            return Duration::ZERO;
        }
        let quarter = tx.min_rtt().unwrap_or_default() / 4;
        let most = tx.srtt().unwrap_or(Duration::MAX);
        quarter.saturating_mul(self.quarters).min(most)
    }

    /// Step 5.
    fn judge(&self, tx: &mut RecoveryContext<'_>, now: Instant) -> u32 {
        let wait = self.rtt + self.reordering_window(tx);
        let due = now.as_nanos().checked_sub(wait.as_nanos() as u64);
        let lost = due.map_or(0, |due| {
            tx.board_mut()
                .judge_by_time(self.latest, Instant::from_nanos(due))
        });
        let last = tx.board().last_out_before(self.latest);
        tx.set_timer(now, last.map_or(Instant::MAX, |last| last + wait));
        lost
    }
}

impl Rack {
    /// Step 4, D-SACK.
    fn on_duplicate(&mut self, tx: &RecoveryContext<'_>, duplicate: Option<(u64, u64)>) {
        self.round = self.round.filter(|round| tx.una() < *round);
        // Where nothing came out of order, it was not that which made a segment go again (Linux `tcp_dsack_seen`).
        if duplicate.is_some() && self.reordered && self.round.is_none() {
            self.round = Some(tx.next());
            self.quarters = self.quarters.saturating_add(1);
            self.persist = PERSIST;
        }
    }
}

impl Detect for Rack {
    const NAME: &'static str = "prr-rack";
    const PROPORTIONAL: bool = true;
    const CLOCKED_BY_SACK: bool = true;
    const COUNTS_DUPACKS: bool = false;

    fn observe(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        // Step 1.
        if let Some(rtt) = sample.rtt {
            tx.observe_min_rtt(rtt, sample.now);
        }
        // Step 2. Transmissions that are not certain are not among them.
        if let Some(sent) = sample.newly_acked.latest {
            let last = sample.newly_acked.last_new.unwrap_or(sent.at);
            self.rtt = sample.now.since(last);
            self.latest = self.latest.max((sent.at, sent.to));
        }
        // Step 3. Of the segments that this acknowledgement names, none comes before a lower one.
        let lowest = sample.newly_acked.lowest_once;
        if let Some(lowest) = lowest.filter(|lowest| *lowest < self.highest) {
            self.reordered = true;
            self.far |= tx.segments(self.highest - lowest) > tx.dupthresh();
        }
        self.highest = self.highest.max(sample.newly_acked.highest);
        // Step 4, D-SACK.
        self.on_duplicate(tx, sample.duplicate);
    }

    fn idle(&mut self, tx: &mut RecoveryContext<'_>, duplicate: Option<(u64, u64)>, _now: Instant) {
        self.on_duplicate(tx, duplicate);
    }

    fn reordered(&mut self, far: bool) {
        self.reordered = true;
        self.far |= far;
    }

    fn grows_by_sack(&self) -> bool {
        self.far
    }

    fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> u32 {
        self.judge(tx, sample.now)
    }

    /// RFC 8985, section 6.3: what was sent within the last round trip may yet be on its way.
    fn timed_out(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> bool {
        let waited = matches!(tx.phase(), Phase::Open | Phase::Disorder | Phase::Cwr);
        self.far &= !(waited && tx.board().sacked_out() >= tx.dupthresh());
        if !tx.has_timed_out() {
            // All was too long for the path.
            tx.board_mut().lose_all();
            return false;
        }
        let due = now.as_nanos().saturating_sub(self.rtt.as_nanos() as u64);
        tx.board_mut().lose_sent_until(Instant::from_nanos(due));
        true
    }

    fn late(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> u32 {
        tx.stop_timer();
        self.judge(tx, now)
    }
}
