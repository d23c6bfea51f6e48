//! NewReno (RFC 6582) as Linux has it for a peer that does not speak SACK: the machine of those that do, told by counts.
//!
//! ```text
//! held: one segment for each duplicate acknowledgement; at a partial one as many fewer as it acknowledges, but for one
//! lost: the first segment, once as many are held as the greatest reordering known, 3 at first; in recovery the next
//!       one at each partial acknowledgement
//! reordering: where more are held than are in flight, as many segments as were in flight
//! ```
//!
//! The window shrinks in proportion to what arrives (RFC 9937), and while less is in flight than ssthresh it is filled at once,
//! where [`newreno`](super::newreno) inflates it. Each partial acknowledgement starts the retransmission timer anew ("slow but
//! steady", RFC 6582, section 4), so that several losses in a window cost a round trip each, and no timeout. After a timeout F-RTO looks
//! for a spurious one (RFC 5682, section 2) and timestamps for late segments, as with SACK.

use super::sack_recovery::Detect;
use super::{AckSample, RecoveryContext};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;

/// The greatest reordering that is believed, in segments (Linux `tcp_max_reordering`).
const MOST_REORDERING: u32 = 300;

/// What is deduced.
#[derive(Debug, Default)]
pub(super) struct DuplicateAcks {
    /// Segments that the peer holds beyond the first missing one (Linux `tcp_add_reno_sack`).
    held: u32,
    /// The greatest reordering seen, in segments; `None`: none.
    reordering: Option<u32>,
    /// The last acknowledgement was a partial one.
    partial: bool,
}

impl DuplicateAcks {
    /// No more are held than are in flight besides the missing ones; if that were so, they were only late (Linux
    /// `tcp_check_reno_reordering`).
    fn limit(&mut self, tx: &RecoveryContext<'_>, acked: u32) {
        let segments = tx.board().segments();
        let holes = tx.board().lost_out().max(1).min(segments);
        if self.held + holes > segments {
            self.held = segments - holes;
            self.reordering = Some((segments + acked).min(MOST_REORDERING));
        }
    }

    fn has_enough(&self, tx: &RecoveryContext<'_>) -> bool {
        self.held >= self.reordering.unwrap_or(tx.dupthresh())
    }
}

impl Detect for DuplicateAcks {
    const NAME: &'static str = "prr-newreno";
    const PROPORTIONAL: bool = true;
    const COUNTS_DUPACKS: bool = false;
    const DEDUCES: bool = true;

    fn deduce(
        &mut self,
        tx: &RecoveryContext<'_>,
        sample: &mut AckSample,
        advanced: bool,
        recover: u64,
    ) {
        let newly = &mut sample.newly_acked;
        let recovering = tx.phase() == Phase::Recovery && tx.una() < recover;
        self.partial = advanced && recovering;
        if advanced {
            let acked = newly.acked;
            // One fills the hole, the others are those that were held.
            newly.delivered = acked.saturating_sub(self.held).max(1);
            self.held = self.held.saturating_sub(acked.saturating_sub(1));
            self.limit(tx, acked);
            if !recovering {
                self.held = 0;
            }
            return;
        }
        let counts = match tx.phase() {
            Phase::Recovery => recovering,
            // Only what is sent for the first time has arrived surely for the first time.
            Phase::Loss => tx.max() > recover,
            Phase::Open | Phase::Disorder | Phase::Cwr => true,
        };
        let before = self.held;
        if counts {
            self.held = self.held.saturating_add(1);
            self.limit(tx, 0);
        }
        newly.delivered = self.held.saturating_sub(before);
    }

    fn held(&self) -> u32 {
        self.held
    }

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, _sample: &AckSample) -> u32 {
        let is_lost = match tx.phase() {
            Phase::Open | Phase::Disorder | Phase::Cwr => self.has_enough(tx),
            Phase::Recovery => self.partial,
            Phase::Loss => false,
        };
        u32::from(is_lost && tx.board_mut().judge_first())
    }

    fn timed_out(&mut self, tx: &mut RecoveryContext<'_>, _now: Instant) -> bool {
        // So many duplicates and no recovery: the reordering is taken for too great (Linux `tcp_enter_loss`).
        let recovering = matches!(tx.phase(), Phase::Recovery | Phase::Loss);
        if !recovering && self.held >= tx.dupthresh() {
            self.reordering = self.reordering.map(|seen| seen.min(tx.dupthresh()));
        }
        (self.held, self.partial) = (0, false);
        tx.board_mut().lose_all();
        false
    }
}
