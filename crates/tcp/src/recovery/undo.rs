//! Reductions of the window that turn out to have been for nothing: what was sent again had arrived, or was on its way.
//!
//! ```text
//! told    each segment sent again since the reduction was told to have arrived twice by a D-SACK (RFC 3708, section 2;
//!         Linux `tcp_try_undo_dsack`)
//! F-RTO   after a timeout one segment goes again; its acknowledgement covers no more than was sent before the timeout:
//!         up to two new segments follow it, and the next acknowledgement tells of segments that were sent once, before
//!         the timeout, and of nothing sent after it (RFC 5682, section 3)
//! then    cwnd = max(cwnd, cwnd before), ssthresh = max(ssthresh, ssthresh before)              [segments]
//! ```
//!
//! Deviations: the window comes back at once, as in Linux, not by the limited steps of RFC 4015, section 4; F-RTO as far
//! as SACK tells, for recoveries that read it, and not the basic algorithm of section 2.

use super::RecoveryContext;

/// What the last reduction changed, and what was sent again since.
#[derive(Debug, Default)]
pub(super) struct Undo(Option<Reduction>);

#[derive(Debug)]
struct Reduction {
    /// Window and threshold before it, in segments.
    cwnd: u32,
    ssthresh: u32,
    /// The first offset not acknowledged as it came.
    from: u64,
    /// Segments sent again since that no D-SACK told of; `None`: none was sent again.
    again: Option<u32>,
}

impl Undo {
    /// The window is about to be reduced.
    pub(super) fn begin(&mut self, tx: &RecoveryContext<'_>) {
        self.0 = Some(Reduction {
            cwnd: tx.cwnd(),
            ssthresh: tx.ssthresh(),
            from: tx.una(),
            again: None,
        });
    }

    /// A segment was sent again.
    pub(super) fn resent(&mut self) {
        if let Some(reduction) = &mut self.0 {
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
        let Some(reduction) = self.0.as_mut().filter(|_| tx.undoes_by_dsack()) else {
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

    /// Takes the reduction back, if there is one; whether there was.
    pub(super) fn take_back(&mut self, tx: &mut RecoveryContext<'_>) -> bool {
        let Some(reduction) = self.0.take() else {
            return false;
        };
        tx.undo(reduction.cwnd, reduction.ssthresh);
        true
    }
}
