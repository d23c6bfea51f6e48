//! Reductions of the window that turn out to have been for nothing: what was sent again had arrived, or was on its way.
//!
//! ```text
//! told    each segment sent again since the reduction was told to have arrived twice by a D-SACK (RFC 3708, section 2;
//!         Linux `tcp_try_undo_dsack`)
//! F-RTO   after a timeout one segment goes again; its acknowledgement covers no more than was sent before the timeout:
//!         up to two new segments follow it, and the next acknowledgement tells of segments that were sent once, before
//!         the timeout, and of nothing sent after it (RFC 5682, section 3)
//! Eifel   the acknowledgement echoes a timestamp older than the first segment sent again (RFC 3522, section 3; Linux
//!         `tcp_packet_delayed`)
//! then    cwnd = max(cwnd, cwnd before), ssthresh = max(ssthresh, ssthresh before)              [segments]
//! ```
//!
//! Deviations: the window comes back at once, as in Linux, not by the limited steps of RFC 4015, section 4; F-RTO as far
//! as SACK tells, for recoveries that read it, and not the basic algorithm of section 2. As Linux, those that reduce in proportion
//! take any acknowledgement of a segment that was sent once, before the timeout, for its end, and `prr-newreno` one that covers
//! none sent again.

use super::{AckSample, RecoveryContext};
use crate::output::milliseconds;
use bentpipe_base::Instant;
use std::time::Duration;

/// What the last reduction changed, and what was sent again since.
#[derive(Debug, Default)]
pub(super) struct Undo {
    reduction: Option<Reduction>,
    /// When the first segment was sent again of which one may yet be under way (Linux `retrans_stamp`).
    resent: Option<Instant>,
}

#[derive(Debug)]
struct Reduction {
    /// Window and threshold before it, in segments.
    cwnd: u32,
    ssthresh: u32,
    /// The first offset not acknowledged as it came.
    from: u64,
    /// Segments sent again since, or under way again as it began, that no D-SACK told of; `None`: there was none.
    again: Option<u32>,
}

impl Undo {
    /// The window is about to be reduced.
    pub(super) fn begin(&mut self, tx: &RecoveryContext<'_>) {
        // What an earlier recovery sent again may arrive yet, and its echo tells nothing of this one.
        self.resent = self.resent.filter(|_| tx.board().has_resent());
        self.reduction = Some(Reduction {
            cwnd: tx.cwnd(),
            ssthresh: tx.ssthresh(),
            from: tx.una(),
            again: Some(tx.board().again_out()).filter(|again| *again > 0),
        });
    }

    /// A segment was sent again.
    pub(super) fn resent(&mut self, now: Instant) {
        self.resent.get_or_insert(now);
        if let Some(reduction) = &mut self.reduction {
            let again = reduction.again.unwrap_or(0);
            reduction.again = Some(again.saturating_add(1));
        }
    }

    /// The bytes `[from, to)` arrived twice; whether the reduction was taken back for it.
    pub(super) fn arrived_twice(
        &mut self,
        tx: &mut RecoveryContext<'_>,
        (from, to): (u64, u64),
    ) -> bool {
        if !tx.undoes_by_dsack() {
            return false;
        }
        let Some(reduction) = &mut self.reduction else {
            return false;
        };
        let Some(again) = &mut reduction.again else {
            return false;
        };
        if to <= reduction.from || to > tx.max() {
            return false;
        }
        *again = again.saturating_sub(tx.segments(to - from));
        *again == 0 && self.take_back(tx)
    }

    /// Whether `sample`, in a recovery, echoes a timestamp from before anything was sent again.
    pub(super) fn arrived_late(&self, tx: &RecoveryContext<'_>, sample: &AckSample) -> bool {
        let first = self.resent.filter(|_| self.reduction.is_some());
        let (Some(first), Some(echo), true) = (first, sample.echo, tx.undoes_by_timestamps())
        else {
            return false;
        };
        let age = milliseconds(sample.now).wrapping_sub(milliseconds(first));
        echo > Duration::from_millis(age.into())
    }

    /// Takes the reduction back, if there is one; whether there was.
    pub(super) fn take_back(&mut self, tx: &mut RecoveryContext<'_>) -> bool {
        let Some(reduction) = self.reduction.take() else {
            return false;
        };
        self.resent = self.resent.filter(|_| tx.board().has_resent());
        tx.undo(reduction.cwnd, reduction.ssthresh);
        true
    }
}
